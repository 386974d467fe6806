"""Caches that are keyed by texts can all be emptied at once."""

from __future__ import annotations

import re
from pathlib import Path

import mica
from mica import redact, words
from mica.events.emitter import known_names
from mica.model import event
from mica.model.text_cache import forget_texts, remember_texts

SOURCES = Path(mica.__file__).parent


def test_a_result_is_computed_once_until_the_cache_is_emptied() -> None:
    computed: list[str] = []

    @remember_texts(10)
    def length(text: str) -> int:
        computed.append(text)
        return len(text)

    assert [length("secret"), length("secret")] == [6, 6]
    assert computed == ["secret"]

    forget_texts()

    assert length("secret") == 6
    assert computed == ["secret", "secret"]


def test_a_cache_has_a_limit() -> None:
    computed: list[str] = []

    @remember_texts(1)
    def length(text: str) -> int:
        computed.append(text)
        return len(text)

    for text in ("one", "three", "one"):
        length(text)

    assert computed == ["one", "three", "one"]


def test_terms_and_key_names_are_emptied_too() -> None:
    words.terms("the vault password")
    redact._secret_kind("clientSecret")
    assert words.term_of.cache_info().currsize > 0
    assert redact._secret_kind.cache_info().currsize > 0

    forget_texts()

    assert words.term_of.cache_info().currsize == 0
    assert redact._secret_kind.cache_info().currsize == 0


async def test_a_purge_empties_the_names_that_contexts_share() -> None:
    """keeps: U-08."""
    async with mica.open(":memory:") as memory:
        with memory.context(user="erika.mustermann", labels_of="acme-gmbh"):
            memory.emit("page.opened", {})
        assert "erika.mustermann" in event._known_values
        assert (("labels_of", "acme-gmbh"),) in event._known_labels

        await memory.purge(user="erika.mustermann")

    assert "erika.mustermann" not in event._known_values
    assert not event._known_labels


async def test_a_purge_empties_the_names_of_events_that_were_checked() -> None:
    """keeps: U-08. A name may be as private as the data: `erika-mustermann.hired`."""
    async with mica.open(":memory:") as memory:
        recorded = memory.emit("erika-mustermann.hired", {})
        memory.sources._replies.is_wanted("erika-mustermann.hired")
        assert "erika-mustermann.hired" in known_names

        await memory.purge(ids=[recorded.id])

        assert "erika-mustermann.hired" not in known_names
        assert "erika-mustermann.hired" not in memory.sources._replies._names


def test_no_other_module_has_a_bounded_cache() -> None:
    """keeps: U-08.

    A cache that is never emptied would retain purged text; one without a limit holds fixed values only.
    """
    using = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if re.search(r"\blru_cache\b", path.read_text(encoding="utf-8"))
    }
    assert using - {"store/sqlite/file.py"} == {"model/text_cache.py", "redact.py", "words.py"}
