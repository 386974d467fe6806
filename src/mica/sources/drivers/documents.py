"""Documents become rows: which parts of one are meant, by a JSONPath, and how they are found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from mica.errors import SourceFailed
from mica.sources.drivers.rows import NOTHING, Row, Unusable, as_text
from mica.sources.protocol import Concept

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath

ROWS_MAX = 100_000  # of one document; more belong into a database

Selector = Annotated[str, msgspec.Meta(pattern=r"^\$", description='a JSONPath to the rows, as in "$.judgments[*]"')]


class Part(NamedTuple):
    """One row of a document: what it is called there, where it stands, and its columns."""

    name: str
    path: str
    columns: object


class Document:
    """The rows of a document, in order. They are looked up by the columns that a source's conditions name."""

    def __init__(self, root: object, parts: Sequence[Part], *, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        self._root = root
        self._parts = parts
        self._found: tuple[tuple[str, ...], dict[tuple[str, ...], list[Part]]] | None = None

    def rows(self, concept: Concept, wanted: Mapping[str, str]) -> list[Row]:
        """The rows whose columns equal what is wanted; all without conditions."""
        parts = self._parts
        if wanted:
            columns = tuple(wanted)
            if self._found is None or self._found[0] != columns:
                self._found = columns, self._by(columns, concept)
            parts = self._found[1].get(tuple(wanted.values()), [])
        return [Row(part.columns, concept, name=part.name, path=part.path, root=self._root) for part in parts]

    def _by(self, columns: tuple[str, ...], concept: Concept) -> dict[tuple[str, ...], list[Part]]:
        found: dict[tuple[str, ...], list[Part]] = {}
        for part in self._parts:
            row = Row(part.columns, concept, name=part.name, root=self._root)
            try:
                values = [row.look(column) for column in columns]
                if NOTHING not in values:
                    found.setdefault(tuple(map(as_text, values)), []).append(part)
            except Unusable as error:
                self.missing += (f"{part.path or part.name}: {error}",)
        return found


class Selecting:
    """Which parts of a document are rows: what a JSONPath finds; without one the entries of a list, or all of it."""

    def __init__(self, source: str, select: str | None) -> None:
        self._source = source
        self._select = select
        self._path: JSONPath | CompoundJSONPath | None = None

    def of(self, root: object, *, missing: tuple[str, ...] = ()) -> Document:
        """The document with its rows. Raises SourceFailed when the path cannot be used."""
        if self._select is None:
            entries = enumerate(root) if isinstance(root, list) else [("", root)]
            parts = [Part(str(name), f"$[{name}]" if isinstance(root, list) else "$", each) for name, each in entries]
        else:
            parts = self._selected(root)
        if len(parts) > ROWS_MAX:
            missing += (f"only the first {ROWS_MAX:,} rows are looked at; select fewer",)
        return Document(
            root, [part._replace(columns=columns_of(part.columns)) for part in parts[:ROWS_MAX]], missing=missing
        )

    def _selected(self, root: object) -> list[Part]:
        try:
            import jsonpath
        except ModuleNotFoundError as error:
            raise SourceFailed(self._source, "select needs python-jsonpath; install mica[sources]") from error
        try:
            if self._path is None:
                self._path = jsonpath.compile(self._select or "$")
            found = islice(self._path.finditer(root), ROWS_MAX + 1)  # type: ignore[arg-type]  # any JSON value
            return [Part(str(match.parts[-1]) if match.parts else "", match.path, match.obj) for match in found]
        except (jsonpath.JSONPathError, RecursionError) as error:
            reason = str(error).partition("\n")[0]
            raise SourceFailed(
                self._source, f"select = {self._select!r} cannot be used: {reason}; it looks like $.judgments[*]"
            ) from error


def columns_of(value: object) -> object:
    """A row that is one value has it as its only column."""
    return value if isinstance(value, Mapping) else {"value": value}
