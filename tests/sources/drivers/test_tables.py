"""What all declared sources have in common: their settings, their time limit, and answers with rows left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.scripted_sources import ABOUT, NOW, ScriptedSource

from mica.errors import SourceFailed
from mica.sources.drivers.documents import DocumentRow, JsonDocument
from mica.sources.drivers.rows import FragmentTable, MappedRows, SourceRecord
from mica.sources.drivers.tables import (
    Around,
    DeclaredSource,
    QueryTemplate,
    SourceQueryPreview,
    SourceTable,
    Where,
    driver_of,
    parts_of,
    place_of,
)
from mica.sources.protocol import Concept, Fragment, Partial, Question
from mica.sources.threads import Pool

KINDS = st.from_regex(r"[\w.-]{1,9}", fullmatch=True, alphabet=st.characters(max_codepoint=127))
IDS = st.text(st.sampled_from("ab{}/%?#'\";é漢 -.:"), min_size=1, max_size=9).filter(lambda text: text == text.strip())
FACT = Fragment(key="verdict", text="It growls", confidence=0.5, at=NOW, source="desk", locator="row 1")


class DeskTable(SourceTable, frozen=True, kw_only=True, tag="desk"):
    """A table of the settings for a kind of source that exists only here."""

    drawer: str = "top"


class Desk(DeclaredSource):
    """A source that answers with what a test gives it."""

    driver = "desk"
    rank = 7
    needs = "sqlite3"

    def __init__(self, table: DeskTable, pool: Pool, answer: Callable[[], Awaitable[MappedRows]]) -> None:
        super().__init__("desk", table, Around(pool, Path()))
        self._answer = answer
        self._where = Where({"id": "{id}"})

    @property
    def place(self) -> str:
        return "the desk"

    async def query(self, concept: Concept, *, now: object) -> MappedRows:
        return await self._answer()

    def explain(self, concept: Concept) -> SourceQueryPreview:
        return self.preview("look in the drawer", self._where.of(concept))

    async def check(self) -> str:
        return "the desk is there"

    async def close(self) -> None:
        """Do nothing: a desk holds no resources."""


@pytest.fixture
def pool() -> Iterator[Pool]:
    opened = Pool()
    yield opened
    opened.close()


def desk(pool: Pool, answer: MappedRows | Exception | None = None, **table: object) -> Desk:
    """A source with this answer, or this error; without either, it never answers."""

    async def answering() -> MappedRows:
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, MappedRows):
            return answer
        raise answer or AssertionError("unreachable")

    return Desk(DeskTable(**table), pool, answering)  # type: ignore[arg-type]  # a test's own


async def ask(source: Desk) -> object:
    return await source.fragments(Question(concept=ABOUT, now=NOW))


# -- Answers


async def test_a_source_that_does_not_answer_in_time_is_named_with_a_question(pool: Pool) -> None:
    with pytest.raises(SourceFailed) as failed:
        await ask(desk(pool, timeout_s=0.01))

    assert failed.value.reason == "the desk gave no answer within 0.01 s; is it busy, or away?"


async def test_a_time_limit_of_the_driver_itself_is_named_as_such(pool: Pool) -> None:
    """A server may have a shorter limit than the settings."""
    with pytest.raises(SourceFailed, match=r"the desk timed out: the statement was cancelled; is it busy"):
        await ask(desk(pool, TimeoutError("the statement was cancelled"), timeout_s=60))


async def test_a_cancelled_question_is_no_failure_of_the_source(pool: Pool) -> None:
    task = asyncio.create_task(desk(pool, timeout_s=60).fragments(Question(concept=ABOUT, now=NOW)))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_rows_left_out_make_an_answer_partial_and_an_answer_of_nothing_else_a_failure(pool: Pool) -> None:
    """An empty result would say that the source knows nothing."""
    whole = await ask(desk(pool, MappedRows((FACT,), ())))
    empty = await ask(desk(pool, MappedRows((), ())))
    partial = await ask(desk(pool, MappedRows((FACT,), ("row 2: it has no key", "too many rows"))))

    assert (whole, empty) == ((FACT,), ())
    assert not isinstance(whole, Partial)
    assert isinstance(partial, Partial)
    assert (tuple(partial), partial.missing) == ((FACT,), "row 2: it has no key; too many rows")
    with pytest.raises(SourceFailed) as failed:
        await ask(desk(pool, MappedRows((), ("row 1: it has no key",))))
    assert failed.value.reason == "row 1: it has no key"


def document(*ids: str) -> JsonDocument:
    rows = [DocumentRow(str(number), f"$[{number}]", {"id": each, "key": each}) for number, each in enumerate(ids)]
    return JsonDocument([], rows, missing=("one line is damaged",))


async def test_a_document_gives_the_wanted_rows_up_to_the_limit(pool: Pool) -> None:
    source = desk(pool, fragments_max=2, fragment=FragmentTable(text="about {id}"))

    some = source.map_document(document("a", "b", "a"), ABOUT, {"id": "a"}, now=NOW)
    many = source.map_document(document("a", "b", "a"), ABOUT, {}, now=NOW, where="drawer ")

    assert [(each.key, each.locator) for each in some.fragments] == [("a", "the desk#$[0]"), ("a", "the desk#$[2]")]
    assert some.missing == ("one line is damaged",)
    assert [each.locator for each in many.fragments] == ["drawer $[0]", "drawer $[1]"]
    assert many.missing == (
        "one line is damaged",
        "only the first 2 rows are used; ask for fewer, or raise fragments_max of [sources.desk]",
    )


# -- Settings


async def test_a_driver_has_defaults_that_the_settings_replace(pool: Pool) -> None:
    usual, other = desk(pool), desk(pool, rank=0, is_live=True, concepts=("judgment:*",), ttl_s=9.0)

    assert (usual.declared.rank, usual.declared.is_live, usual.declared.concepts) == (7, False, ("*",))
    assert (other.declared.rank, other.declared.is_live, other.declared.concepts) == (0, True, ("judgment:*",))
    assert (other.declared.ttl_s, other.limit_s) == (9.0, usual.table.timeout_s)


@pytest.mark.parametrize(
    "changed", [{"drawer": "bottom"}, {"timeout_s": 1.0}, {"fragment": FragmentTable(key="{id}")}, {"rank": 3}]
)
async def test_any_changed_setting_is_another_version(pool: Pool, changed: dict[str, object]) -> None:
    """Replies that were cached under the earlier settings are not used again."""
    usual = desk(pool)

    assert desk(pool).declared.version == usual.declared.version
    assert desk(pool, None, **changed).declared.version != usual.declared.version


@pytest.mark.parametrize(
    "key", ["rank", "ttl_s", "time_share", "fragments_max", "characters_max", "timeout_s", "concepts"]
)
def test_every_limit_of_a_table_is_checked(key: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert({"driver": "desk", key: [] if key == "concepts" else -1}, DeskTable)


async def test_the_modules_that_a_query_imports_are_known_before_it_runs(pool: Pool) -> None:
    assert desk(pool).modules == {"sqlite3"}


async def test_a_preview_names_the_query_and_what_is_bound_to_it(pool: Pool) -> None:
    source = desk(pool)

    preview = source.explain(ABOUT)

    assert (preview.source, preview.driver, preview.place) == ("desk", "desk", "the desk")
    assert (preview.asks, preview.parameters) == ("look in the drawer", {"id": ABOUT.id})
    assert preview.declared == source.declared


async def test_sources_of_mica_itself_have_a_driver_and_a_place_too(pool: Pool) -> None:
    assert (driver_of(desk(pool)), place_of(desk(pool))) == ("desk", "the desk")
    own = ScriptedSource("marks", {})
    assert (driver_of(own), place_of(own)) == ("mica", "this space")


# -- Queries


@given(domain=KINDS, kind=KINDS, identifier=IDS)
def test_a_placeholder_is_the_part_of_the_concept_and_nothing_else(domain: str, kind: str, identifier: str) -> None:
    """A part that looks like a placeholder is text."""
    concept = Concept(domain, kind, identifier)

    assert QueryTemplate("{id}").of(concept) == identifier
    assert QueryTemplate("{concept}").of(concept) == str(concept) == f"{domain}:{kind}:{identifier}"
    assert QueryTemplate("{{id}} {domain}/{type}").of(concept) == f"{{id}} {domain}/{kind}"
    assert QueryTemplate("/{type}/{id}").of(concept, quoted=lambda part: quote(part, safe="")) == (
        f"/{quote(kind, safe='')}/{quote(identifier, safe='')}"
    )
    assert QueryTemplate("{id}").of(concept, quoted=str.upper) == identifier.upper()
    assert list(parts_of(concept).values()) == [domain, kind, identifier, str(concept)]


def test_a_template_without_placeholders_is_fixed() -> None:
    assert QueryTemplate("SELECT 1").fixed == "SELECT 1"
    assert QueryTemplate("SELECT {id}").fixed is None
    assert QueryTemplate("{type} of {id}").names == ("type", "id")


@pytest.mark.parametrize("name", ["owner", "concept.id", "@name", "ID"])
def test_a_concept_has_no_other_parts(name: str) -> None:
    with pytest.raises(ValueError, match=r"use \{domain\}, \{type\}, \{id\}, \{concept\}") as refused:
        QueryTemplate(f"x {{{name}}}")

    assert f"there is no {{{name}}} in a concept" in str(refused.value)


def test_a_row_fits_if_every_named_column_equals_its_part() -> None:
    where = Where({"review": "{id}", "kind": "{type}"})
    wanted = where.of(Concept("shop", "review", "7"))

    assert wanted == {"review": "7", "kind": "review"}
    for row, is_fit in [
        ({"review": 7, "kind": "review", "more": 1}, True),  # compared as text
        ({"review": 70, "kind": "review"}, False),
        ({"review": 7}, False),  # the column is missing
        ({"review": None, "kind": "review"}, False),
    ]:
        assert where.fits(SourceRecord(row, ABOUT), wanted) == is_fit
    assert Where({}).fits(SourceRecord({}, ABOUT), {})
