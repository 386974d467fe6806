"""What every declared source shares: the keys of its table, how it asks, and how its answer is kept within limits."""

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
from mica.sources.drivers.documents import Document
from mica.sources.drivers.rows import NOTHING, FragmentTable, Row, Saying, Template, Told, as_text
from mica.sources.protocol import (
    CHARACTERS,
    CHARACTERS_MAX,
    FRAGMENTS_MAX,
    RANK_MAX,
    RANK_OTHER,
    Concept,
    Declared,
    Fragment,
    FragmentSource,
    Partial,
)
from mica.sources.threads import Pool

R = TypeVar("R")

TIMEOUT_S = 2.0  # for one question, whoever asks; a gather's deadline comes long before

About = msgspec.Meta
CONCEPT_PLACES = ("domain", "type", "id", "concept")


class SourceTable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="driver", omit_defaults=True
):
    """The keys that every `[sources.NAME]` may have."""

    concepts: Annotated[
        tuple[str, ...],
        About(min_length=1, description='patterns of concepts, as in ["judgment:*", "*:code_review:*"]'),
    ] = ("*",)
    rank: (
        Annotated[int, About(ge=0, le=RANK_MAX, description=f"a whole number, 0 (most believed) to {RANK_MAX}")] | None
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
    """What the sources of one memory share."""

    pool: Pool
    folder: Path  # that relative paths start from
    variables: Mapping[str, Secret] = {}  # what the tables' `…_env` keys name


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What a source would be asked about a concept."""

    source: str
    driver: str
    place: str  # the server, file or object; without secrets
    asks: str  # the query, path or call, as declared
    parameters: dict[str, str]  # what is bound to it
    declared: Declared


class DeclaredSource(ABC):
    """A source with a table: asks under a time limit, maps rows to fragments, and says what it left out."""

    driver: ClassVar[str]
    rank: ClassVar[int] = RANK_OTHER
    is_live: ClassVar[bool] = False
    needs: ClassVar[str | None] = None  # the module that it is asked with; loaded when it is used

    def __init__(self, name: str, table: SourceTable, around: Around) -> None:
        self.table = table
        self.pool = around.pool
        self.declared = Declared(
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
        self.saying = Saying(name, table.fragment)

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def limit_s(self) -> float:
        """For how long it answers a question at most."""
        return self.table.timeout_s

    async def blocking(self, work: Callable[[], R]) -> R:
        """What `work` returns, from a thread."""
        return await self.pool.run(self.name, work)

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        limit = asyncio.timeout(self.table.timeout_s)
        try:
            async with limit:
                told = await self.told(concept, now=now)
        except TimeoutError as error:
            why = f"gave no answer within {self.table.timeout_s:g} s" if limit.expired() else f"timed out: {error}"
            raise SourceFailed(self.name, f"{self.place} {why}; {self.hint}") from error
        if not told.missing:
            return told.fragments
        missing = "; ".join(told.missing)
        if not told.fragments:
            raise SourceFailed(self.name, missing)
        return Partial(told.fragments, missing=missing)

    def cut(self, what: str) -> str:
        """What is said when there was more than is used."""
        return (
            f"only the first {self.declared.fragments_max} {what} are used; ask for fewer, "
            f"or raise fragments_max of [sources.{self.name}]"
        )

    def told_from(
        self,
        document: Document,
        concept: Concept,
        wanted: dict[str, str],
        *,
        now: datetime,
        at: datetime | None = None,
        where: str = "",
    ) -> Told:
        """What a document's rows say that fit."""
        rows = document.rows(concept, wanted)
        most = self.declared.fragments_max
        told = self.saying.fragments(rows[:most], now=now, at=at, where=where or f"{self.place}#")
        more = (self.cut("rows"),) if len(rows) > most else ()
        return Told(told.fragments, document.missing + told.missing + more)

    @property
    def hint(self) -> str:
        """What a person should look at when no answer came in time."""
        return "is it busy, or away?"

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it looks, as people may see it: no secret is in it."""

    @abstractmethod
    async def told(self, concept: Concept, *, now: datetime) -> Told:
        """What it knows of a concept. Raises SourceFailed, or TimeoutError when it takes too long."""

    @abstractmethod
    def explained(self, concept: Concept) -> Explained:
        """What it would be asked."""

    @abstractmethod
    async def check(self) -> str:
        """Whether it answers at all, in words. Raises SourceFailed when it does not."""

    async def connect(self) -> None:  # noqa: B027 - most hold nothing between questions
        """Make ready what a question needs, where that is held between questions. Raises SourceFailed."""

    @abstractmethod
    async def close(self) -> None:
        """Release connections, threads and processes. Closing twice is fine."""

    def asked(self, asks: str, parameters: dict[str, str]) -> Explained:
        """A question, with what is bound to it."""
        return Explained(
            source=self.name,
            driver=self.driver,
            place=self.place,
            asks=asks,
            parameters=parameters,
            declared=self.declared,
        )


class Asking:
    """A text with the parts of a concept in its places: `{domain}`, `{type}`, `{id}`, or `{concept}` for all."""

    def __init__(self, text: str) -> None:
        """Raises ValueError when it names anything else."""
        self._template = Template(text)
        for name in self._template.names:
            if name not in CONCEPT_PLACES:
                places = ", ".join(f"{{{each}}}" for each in CONCEPT_PLACES)
                raise ValueError(f"there is no {{{name}}} in a concept; use {places}")

    @property
    def text(self) -> str:
        return self._template.text

    @property
    def fixed(self) -> str | None:
        """The text, where it is the same for every concept."""
        return self._template.fixed

    @property
    def names(self) -> tuple[str, ...]:
        return self._template.names

    def of(self, concept: Concept, *, quoted: Callable[[str], str] = str) -> str:
        """The text for one concept."""
        if self._template.column is not None and quoted is str:  # nearly always: one part, and nothing else
            return as_text(getattr(concept, self._template.column))
        parts = {name: quoted(part) for name, part in parts_of(concept).items()}
        return as_text(self._template.filled(Row(parts, concept)))


def parts_of(concept: Concept) -> dict[str, str]:
    """What the places of a question are filled with."""
    return {"domain": concept.domain, "type": concept.type, "id": concept.id, "concept": str(concept)}


class Where:
    """Which rows are meant: columns that must equal a part of the concept. Compared as text, never pasted."""

    def __init__(self, conditions: dict[str, str]) -> None:
        self._conditions = {column: Asking(text) for column, text in conditions.items()}

    def of(self, concept: Concept) -> dict[str, str]:
        return {column: asking.of(concept) for column, asking in self._conditions.items()}

    def fits(self, row: Row, wanted: dict[str, str]) -> bool:
        return all(
            (found := row.look(column)) is not NOTHING and as_text(found) == text for column, text in wanted.items()
        )


def driver_of(source: FragmentSource) -> str:
    """What answers: a driver of the settings, or a program's own class."""
    return source.driver if isinstance(source, DeclaredSource) else "mica"


def place_of(source: FragmentSource) -> str:
    """Where a source looks, as people may see it."""
    return source.place if isinstance(source, DeclaredSource) else "this space"
