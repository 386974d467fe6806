"""Files of JSON: read when they change, bounded, and whatever is wrong with one is named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.sources.scripted_sources import ABOUT, NOW, ask, declared

from mica.errors import SourceFailed
from mica.sources.answer import ask_once
from mica.sources.protocol import Concept, Partial
from mica.sources.registry import SourceRegistry

Declare = Callable[..., SourceRegistry]

READBACK = """
[sources.readback]
driver = "json"
path = "readback.json"
select = "$.judgments.*"
where = { "@name" = "{id}" }
concepts = ["judgment:*"]
rank = 20
ttl_s = 60
invalidated_by = ["judgment.*"]

[sources.readback.fragment]
key = "verdict"
text = "{concept.type}: {verdict} ({mood.fatigue})"
value = "{verdict}"
confidence = "{confidence}"
at = "{at}"
valid_until = "{until}"
"""
JUDGMENTS = {
    "judgments": {
        "abc123": {
            "verdict": "GROWL",
            "confidence": 0.52,
            "mood": {"fatigue": 0.42},
            "at": "2026-11-01T10:00:00+01:00",
            "until": 1_800_000_000,
        },
        "other": {"verdict": "WAG", "confidence": 0.9, "mood": {"fatigue": 0.1}, "at": 1, "until": None},
    }
}


async def test_a_document_is_selected_bound_and_mapped(tmp_path: Path, declare: Declare) -> None:
    """keeps: C-01, C-12. A table declares a file as a source, with rank, age and invalidating events."""
    (tmp_path / "readback.json").write_text(json.dumps(JUDGMENTS))
    sources = declare(READBACK)

    [said] = await ask(sources, "readback")

    assert (said.key, said.text, said.value) == ("verdict", "code_review: GROWL (0.42)", "GROWL")
    assert (said.confidence, said.at.isoformat()) == (0.52, "2026-11-01T09:00:00+00:00")
    assert said.valid_until is not None
    assert said.valid_until.year == 2027
    assert said.locator == f"{tmp_path / 'readback.json'}#$['judgments']['abc123']"
    stated = sources["readback"].declared
    assert (stated.rank, stated.ttl_s, stated.invalidated_by) == (20, 60, ("judgment.*",))


async def test_list_entries_are_rows_and_an_object_is_one_row(tmp_path: Path, declare: Declare) -> None:
    (tmp_path / "list.json").write_text('[{"key": "a", "value": 1}, {"key": "b", "value": 2}, 3]')
    (tmp_path / "object.json").write_text('{"key": "a", "text": "whole"}')
    sources = declare(
        '[sources.list]\ndriver = "json"\npath = "list.json"\n[sources.object]\ndriver = "json"\npath = "object.json"\n'
    )

    many = await ask(sources, "list")
    [one] = await ask(sources, "object")

    assert [each.value for each in many] == [1, 2]
    assert isinstance(many, Partial)
    assert "it has no key (it has value)" in many.missing
    assert one.text == "whole"


async def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(
    tmp_path: Path, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document is cached by its time and size once it is old enough."""
    file = tmp_path / "a.json"
    sources = declare('[sources.a]\ndriver = "json"\npath = "a.json"\n')

    def write(value: int, changed_s: int) -> None:
        file.write_text(json.dumps({"key": "n", "value": value}))
        os.utime(file, (changed_s, changed_s))

    write(1, 1_000)
    first = await ask(sources, "a")
    write(2, 1_000)  # nothing tells that it is another
    second = await ask(sources, "a")
    write(3, 1_001)
    third = await ask(sources, "a")

    assert [each.value for each in (first[0], second[0], third[0])] == [1, 1, 3]


async def test_a_file_changed_a_moment_ago_is_never_read_from_the_cache(tmp_path: Path, declare: Declare) -> None:
    """Two writes within one tick of the file system's clock look alike."""
    file = tmp_path / "a.json"
    sources = declare('[sources.a]\ndriver = "json"\npath = "a.json"\n')
    file.write_text('{"key": "n", "value": 1}')
    state = file.stat()
    first = await ask(sources, "a")
    file.write_text('{"key": "n", "value": 2}')
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))

    second = await ask(sources, "a")

    assert (first[0].value, second[0].value) == (1, 2)


async def test_a_file_per_concept_is_found_by_the_parts_of_its_name(tmp_path: Path, declare: Declare) -> None:
    (tmp_path / "code_review").mkdir()
    (tmp_path / "code_review" / "abc123.json").write_text('{"key": "verdict", "value": "GROWL"}')
    (tmp_path / "secret.json").write_text('{"key": "secret", "value": "leaked"}')
    sources = declare('[sources.each]\ndriver = "json"\npath = "{type}/{id}.json"\n')

    [said] = await ask(sources, "each")
    nothing = await ask(sources, "each", Concept("judgment", "code_review", "unknown"))

    assert said.value == "GROWL"
    assert list(nothing) == []
    for identifier in ("../secret", "..", "/etc/passwd", "a/b", "x" * 400):
        with pytest.raises(SourceFailed, match="cannot be part of a file's name"):
            await ask(sources, "each", Concept("judgment", "code_review", identifier))


async def test_a_file_of_two_gigabytes_is_not_read(tmp_path: Path, declare: Declare) -> None:
    """A 2 GB document is refused by its size; of 2 GB of lines the last are read, and the cut is reported."""
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(2_000_000_000)
    with (tmp_path / "big.jsonl").open("wb") as file:
        file.truncate(2_000_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"key": "last", "value": 1}\n')
    sources = declare(
        '[sources.big]\ndriver = "json"\npath = "big.json"\n'
        '[sources.lines]\ndriver = "jsonl"\npath = "big.jsonl"\nbytes_max = 1000\n'
    )

    with pytest.raises(SourceFailed, match=r"2,000,000,000 bytes, more than bytes_max = 1,000,000; raise bytes_max"):
        await ask(sources, "big")
    said = await ask(sources, "lines")

    assert [each.value for each in said] == [1]
    assert isinstance(said, Partial)
    assert "only the last 1,000 bytes of big.jsonl are read" in said.missing


async def test_lines_are_read_latest_first_and_invalid_ones_are_reported(tmp_path: Path, declare: Declare) -> None:
    """Half-written lines and bytes that are not UTF-8 are invalid."""
    (tmp_path / "log.jsonl").write_bytes(
        b'{"id": "abc123", "signal": "positive"}\n\n{"id": "abc\xff", "signal": "x"}\r\n{"id": "other"}\n'
        b'{"id": "abc123", "signal": "negative"}\n{"id": "abc1'
    )
    sources = declare(
        '[sources.lines]\ndriver = "jsonl"\npath = "log.jsonl"\nwhere = { id = "{id}" }\n'
        'fragment = { key = "signal", value = "{signal}" }\n'
    )

    said = await ask(sources, "lines")

    assert [(each.value, each.locator.rpartition("#")[2]) for each in said] == [
        ("negative", "line 5"),
        ("positive", "line 1"),
    ]
    assert isinstance(said, Partial)
    assert "line 3 is not JSON: 'utf-8' codec" in said.missing
    assert "line 6 is not JSON (half-written?)" in said.missing


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"key": "a", "text": "caf\xe9"}', "its byte 26 is 0xe9; convert it, as `iconv -f latin1 -t utf-8` does"),
        (b'{"key": "a", "text": "half', "is it being written?"),
        (b'{"key": "a", "text": "half \xc3', "is it being written?"),
        (b"", "is not JSON"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "is not JSON"),
        (b'{"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}', "references go in a circle"),
        (b'{"a": {"$ref": "https://example.org/x.json"}}', "leads to another document, which is not followed"),
        (b'{"a": {"$ref": "#/a"}}', "references go in a circle: #/a → #/a"),
    ],
    ids=["latin 1", "half", "half a character", "empty", "too deep", "circle", "elsewhere", "itself"],
)
async def test_an_unusable_document_is_reported(content: bytes, reason: str, tmp_path: Path, declare: Declare) -> None:
    """It may be not UTF-8, half-written, nested too deeply, or have circular or outside references."""
    (tmp_path / "a.json").write_bytes(content)
    sources = declare('[sources.a]\ndriver = "json"\npath = "a.json"\nfragment = { key = "x", text = "{a.text}" }\n')

    with pytest.raises(SourceFailed, match=reason.replace("?", r"\?")):
        await ask(sources, "a")


async def test_references_within_a_document_are_followed(tmp_path: Path, declare: Declare) -> None:
    (tmp_path / "a.json").write_text('{"a": {"$ref": "#/defs/x~1y"}, "defs": {"x/y": {"text": "found"}}}')
    sources = declare('[sources.a]\ndriver = "json"\npath = "a.json"\nfragment = { key = "x", text = "{a.text}" }\n')

    assert [each.text for each in await ask(sources, "a")] == ["found"]


async def test_a_path_that_is_not_a_regular_file_is_reported_without_waiting(tmp_path: Path, declare: Declare) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    table = '[sources.{0}]\ndriver = "json"\npath = "{0}.json"\n'
    sources = declare("".join(table.format(name) for name in ("pipe", "folder", "gone")))

    for name, reason in (("pipe", "is not a file but"), ("folder", "is not a file but"), ("gone", "there is no file")):
        with pytest.raises(SourceFailed, match=reason):
            await ask(sources, name)


async def test_an_invalid_jsonpath_is_reported(tmp_path: Path, declare: Declare) -> None:
    (tmp_path / "a.json").write_text("{}")
    sources = declare('[sources.a]\ndriver = "json"\npath = "a.json"\nselect = "$.a[?@.x ="\n')

    with pytest.raises(SourceFailed, match=r"select = '\$\.a\[\?@\.x =' cannot be used: .*; it looks like"):
        await ask(sources, "a")


@given(identifier=some.text(min_size=1, max_size=30))
async def test_a_concept_id_cannot_reach_other_entries(
    identifier: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It is compared, never inserted into a path or a JSONPath."""
    folder = tmp_path_factory.mktemp("injection")
    (folder / "a.json").write_text(json.dumps({"rows": {"safe": {"value": 1}, "other": {"value": 2}}}))
    sources = declared(
        '[sources.a]\ndriver = "json"\npath = "a.json"\nselect = "$.rows.*"\nwhere = { "@name" = "{id}" }\n'
        'fragment = { key = "{@name}" }\ntimeout_s = 60\n',
        folder=folder,
    )
    try:
        concept = Concept("judgment", "code_review", identifier)
    except Exception:  # noqa: BLE001  # what is no concept reaches no source
        concept = ABOUT

    tested = await ask_once(sources["a"], concept, now=NOW)
    await sources.close()

    assert tested.error == ""
    assert [each.key for each in tested.fragments] == ([concept.id] if concept.id in {"safe", "other"} else [])
