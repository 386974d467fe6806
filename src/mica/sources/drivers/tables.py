"""The base class of declared sources: common settings, time limits, and conversion of rows to fragments."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, TypeVar

import msgspec

from mica.errors import SourceFailed
from mica.settings import Secret
from mica.sources.drivers.documents import JsonDocument
from mica.sources.drivers.rows import NOTHING, FragmentTable, MappedRows, RowMapping, SourceRecord, Template, as_text
from mica.sources.protocol import (
    CHARACTERS,
    CHARACTERS_MAX,
    FRAGMENTS_MAX,
    RANK_MAX,
    RANK_OTHER,
    Concept,
    Fragment,
    Partial,
    Question,
    Source,
    SourceDeclaration,
)
from mica.sources.threads import Pool

R = TypeVar("R")

TIMEOUT_S = 2.0  # for one question; the deadline of a gather is much shorter

About = msgspec.Meta
CONCEPT_PLACEHOLDERS = ("domain", "type", "id", "concept")


class SourceTable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="driver", omit_defaults=True
):
    """The keys that every `[sources.NAME]` table may have."""

    concepts: Annotated[
        tuple[str, ...],
        About(min_length=1, description='patterns of concepts, as in ["judgment:*", "*:code_review:*"]'),
    ] = ("*",)
    rank: (
        Annotated[int, About(ge=0, le=RANK_MAX, description=f"a whole number, 0 (most trusted) to {RANK_MAX}")] | None
    ) = None
    ttl_s: Annotated[float, About(ge=0, description="seconds for which an answer may be used again")] | None = None
    time_share: Annotated[
        float, About(gt=0, le=1, description="a share of the collecting time, above 0 and at most 1")
    ] = 1.0
    invalidated_by: Annotated[tuple[str, ...], About(description='names of events, as in ["judgment.*"]')] = ()
    is_live: Annotated[bool, About(description="true to ask each time and cache nothing")] | None = None
    fragments_max: Annotated[
        int, About(ge=1, le=FRAGMENTS_MAX, description=f"a whole number, 1 to {FRAGMENTS_MAX}")
    ] = 50
    characters_max: Annotated[
        int, About(ge=1, le=CHARACTERS_MAX, description=f"a whole number, 1 to {CHARACTERS_MAX}")
    ] = CHARACTERS
    timeout_s: Annotated[float, About(gt=0, le=60, description="seconds for one question, above 0 and at most 60")] = (
        TIMEOUT_S
    )
    fragment: FragmentTable = FragmentTable()


class Around(NamedTuple):
    """The objects that all declared sources share: the thread pool, the folder for relative paths, and variables."""

    pool: Pool
    folder: Path  # relative paths are resolved against it
    variables: Mapping[str, Secret] = {}  # the environment variables that `…_env` keys name


class SourceQueryPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The query that a source would run about a concept. The query was not run."""

    source: str
    driver: str
    place: str  # the server, file or object; without secrets
    asks: str  # the text of the query, the path of the file, or the call
    parameters: dict[str, str]  # the parameters of the query by name, with their values
    declared: SourceDeclaration


class DeclaredSource(ABC):
    """The base class of sources that a table of the settings declares.

    For each question, such a source runs a query under a time limit and converts the rows of the result to fragments.
    If rows are left out, the answer is a `Partial`, which says why.
    """

    driver: ClassVar[str]
    rank: ClassVar[int] = RANK_OTHER
    is_live: ClassVar[bool] = False
    needs: ClassVar[str | None] = None  # the module of its client library; imported when first used

    def __init__(self, name: str, table: SourceTable, around: Around) -> None:
        self.table = table
        self.pool = around.pool
        self.declared = SourceDeclaration(
            name=name,
            rank=self.rank if table.rank is None else table.rank,
            ttl_s=table.ttl_s,
            concepts=table.concepts,
            time_share=table.time_share,
            invalidated_by=table.invalidated_by,
            is_live=self.is_live if table.is_live is None else table.is_live,
            fragments_max=table.fragments_max,
            characters_max=table.characters_max,
            version=blake2b(msgspec.json.encode(table, enc_hook=str), digest_size=8).hexdigest(),
        )
        self.mapping = RowMapping(name, table.fragment)

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def modules(self) -> frozenset[str]:
        """The names of the Python modules that the source imports for its queries."""
        return frozenset([self.needs] if self.needs else []) | frozenset(
            ["jsonpath"] if getattr(self.table, "select", None) else []
        )

    @property
    def limit_s(self) -> float:
        """The time limit of one question, in seconds."""
        return self.table.timeout_s

    async def blocking(self, work: Callable[[], R]) -> R:
        """Run `work` in a thread of this source and return its result."""
        return await self.pool.run(self.name, work)

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        limit = asyncio.timeout(self.table.timeout_s)
        try:
            async with limit:
                mapped = await self.query(question.subject, now=question.now)
        except TimeoutError as error:
            why = f"gave no answer within {self.table.timeout_s:g} s" if limit.expired() else f"timed out: {error}"
            raise SourceFailed(self.name, f"{self.place} {why}; {self.hint}") from error
        if not mapped.missing:
            return mapped.fragments
        missing = "; ".join(mapped.missing)
        if not mapped.fragments:
            raise SourceFailed(self.name, missing)
        return Partial(mapped.fragments, missing=missing)

    def cut(self, what: str) -> str:
        """Return a message for a person: only the first `fragments_max` rows are used.

        `what` is the word for the rows in the message, such as "rows".
        """
        return (
            f"only the first {self.declared.fragments_max} {what} are used; ask for fewer, "
            f"or raise fragments_max of [sources.{self.name}]"
        )

    def map_document(
        self,
        document: JsonDocument,
        concept: Concept,
        wanted: dict[str, str],
        *,
        now: datetime,
        at: datetime | None = None,
        where: str = "",
    ) -> MappedRows:
        """Return the fragments made from those rows of a document that have all values in `wanted`.

        `wanted` maps columns to values as text. A row without a time gets the time `at`, or `now` if `at` is None. The
        locator of a row without one begins with `where`, or with `place` if `where` is empty.
        """
        rows = document.rows(concept, wanted)
        most = self.declared.fragments_max
        mapped = self.mapping.fragments(rows[:most], now=now, at=at, where=where or f"{self.place}#")
        more = (self.cut("rows"),) if len(rows) > most else ()
        return MappedRows(mapped.fragments, document.missing + mapped.missing + more)

    @property
    def hint(self) -> str:
        """A possible cause, with which the error message ends if the source does not answer in time."""
        return "is it busy, or away?"

    @property
    @abstractmethod
    def place(self) -> str:
        """The server, file or object that the source reads, without secrets."""

    @abstractmethod
    async def query(self, concept: Concept, *, now: datetime) -> MappedRows:
        """Return the fragments about a concept.

        Raises SourceFailed if the source cannot answer, and TimeoutError if the query takes too long.
        """

    @abstractmethod
    def explain(self, concept: Concept) -> SourceQueryPreview:
        """Return a description of what `query` would run about a concept. Nothing is run."""

    @abstractmethod
    async def check(self) -> str:
        """Test the source, and return one sentence about what was found. Raises SourceFailed if it does not answer."""

    async def connect(self) -> None:  # noqa: B027 - most hold nothing between questions
        """Open the connections that stay open between questions. Raises SourceFailed if that is not possible."""

    @abstractmethod
    async def close(self) -> None:
        """Release connections, threads and processes. Closing twice is allowed."""

    def preview(self, asks: str, parameters: dict[str, str]) -> SourceQueryPreview:
        """Return the result of `explain`, made from the text of a query and its parameters."""
        return SourceQueryPreview(
            source=self.name,
            driver=self.driver,
            place=self.place,
            asks=asks,
            parameters=parameters,
            declared=self.declared,
        )


class QueryTemplate:
    """A text with placeholders for a concept: `{domain}`, `{type}`, `{id}`, or `{concept}` for all three."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for a placeholder with any other name."""
        self._template = Template(text)
        for name in self._template.names:
            if name not in CONCEPT_PLACEHOLDERS:
                places = ", ".join(f"{{{each}}}" for each in CONCEPT_PLACEHOLDERS)
                raise ValueError(f"there is no {{{name}}} in a concept; use {places}")

    @property
    def text(self) -> str:
        return self._template.text

    @property
    def fixed(self) -> str | None:
        """The template as plain text if it has no placeholders, otherwise None."""
        return self._template.fixed

    @property
    def names(self) -> tuple[str, ...]:
        return self._template.names

    def of(self, concept: Concept, *, quoted: Callable[[str], str] = str) -> str:
        """Return the text with the placeholders replaced by the parts of one concept.

        Each part is passed through `quoted` before it is inserted.
        """
        if self._template.column is not None and quoted is str:  # nearly always a single part
            return as_text(getattr(concept, self._template.column))
        parts = {name: quoted(part) for name, part in parts_of(concept).items()}
        return as_text(self._template.filled(SourceRecord(parts, concept)))


def parts_of(concept: Concept) -> dict[str, str]:
    """Return a mapping from each placeholder to its value for a concept."""
    return {"domain": concept.domain, "type": concept.type, "id": concept.id, "concept": str(concept)}


class Where:
    """Conditions on rows. Each condition maps a column to a template that the value of the column must equal.

    The templates may have placeholders for the concept, which are filled first. The rows are filtered after the query,
    not by the query.
    """

    def __init__(self, conditions: dict[str, str]) -> None:
        self._conditions = {column: QueryTemplate(text) for column, text in conditions.items()}

    def of(self, concept: Concept) -> dict[str, str]:
        return {column: asking.of(concept) for column, asking in self._conditions.items()}

    def fits(self, row: SourceRecord, wanted: dict[str, str]) -> bool:
        return all(
            (found := row.look(column)) is not NOTHING and as_text(found) == text for column, text in wanted.items()
        )


def driver_of(source: Source) -> str:
    """Return the name of a source's driver; "mica" for a source that no driver made."""
    return source.driver if isinstance(source, DeclaredSource) else "mica"


def place_of(source: Source) -> str:
    """Return the server, file or object that a source reads, without secrets.

    For a source that no driver made, this is "this space".
    """
    return source.place if isinstance(source, DeclaredSource) else "this space"
