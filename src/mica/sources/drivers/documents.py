"""Selects rows from JSON documents by JSONPath. Each row knows its location in the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from mica.errors import SourceFailed
from mica.sources.drivers.rows import NOTHING, SourceRecord, Unusable, as_text
from mica.sources.protocol import Concept

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath

ROWS_MAX = 100_000  # of one document; more belong in a database

Selector = Annotated[str, msgspec.Meta(pattern=r"^\$", description='a JSONPath to the rows, as in "$.judgments[*]"')]


class DocumentRow(NamedTuple):
    """One row of a document: `name` is its key or index, `path` is its JSONPath, and `columns` are its values."""

    name: str
    path: str
    columns: object


class JsonDocument:
    """The rows of one document in order, with an index for finding rows by the values of columns.

    `missing` has messages about rows that could not be read or were left out.
    """

    def __init__(self, root: object, parts: Sequence[DocumentRow], *, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        self._root = root
        self._parts = parts
        self._index: tuple[tuple[str, ...], dict[tuple[str, ...], list[DocumentRow]]] | None = None

    def rows(self, concept: Concept, wanted: Mapping[str, str]) -> list[SourceRecord]:
        """Return the rows that have all values in `wanted`, which maps columns to values as text.

        If `wanted` is empty, return all rows. `concept` is added to each row, so that templates can refer to it.
        """
        parts = self._parts
        if wanted:
            columns = tuple(wanted)
            if self._index is None or self._index[0] != columns:
                self._index = columns, self._index_by(columns, concept)
            parts = self._index[1].get(tuple(wanted.values()), [])
        return [SourceRecord(part.columns, concept, name=part.name, path=part.path, root=self._root) for part in parts]

    def _index_by(self, columns: tuple[str, ...], concept: Concept) -> dict[tuple[str, ...], list[DocumentRow]]:
        found: dict[tuple[str, ...], list[DocumentRow]] = {}
        for part in self._parts:
            row = SourceRecord(part.columns, concept, name=part.name, root=self._root)
            try:
                values = [row.look(column) for column in columns]
                if NOTHING not in values:
                    found.setdefault(tuple(map(as_text, values)), []).append(part)
            except Unusable as error:
                self.missing += (f"{part.path or part.name}: {error}",)
        return found


class Selecting:
    """Splits documents into rows.

    If `select` is given, it is a JSONPath, and each match in the document is a row. If `select` is None, each entry of
    a document that is a list is a row; any other document is a single row.
    """

    def __init__(self, source: str, select: str | None) -> None:
        self._source = source
        self._select = select
        self._path: JSONPath | CompoundJSONPath | None = None

    def of(self, root: object, *, missing: tuple[str, ...] = ()) -> JsonDocument:
        """Split the document `root` into rows. Rows after the first ROWS_MAX are left out.

        `missing` has messages about parts of the document that could not be read; they are passed on. Raises
        SourceFailed if the JSONPath is invalid or if the library for JSONPath is not installed.
        """
        if self._select is None:
            entries = enumerate(root) if isinstance(root, list) else [("", root)]
            parts = [
                DocumentRow(str(name), f"$[{name}]" if isinstance(root, list) else "$", each) for name, each in entries
            ]
        else:
            parts = self._selected(root)
        if len(parts) > ROWS_MAX:
            missing += (f"only the first {ROWS_MAX:,} rows are looked at; select fewer",)
        return JsonDocument(
            root, [part._replace(columns=columns_of(part.columns)) for part in parts[:ROWS_MAX]], missing=missing
        )

    def _selected(self, root: object) -> list[DocumentRow]:
        try:
            import jsonpath
        except ModuleNotFoundError as error:
            raise SourceFailed(self._source, "select needs python-jsonpath; install mica[sources]") from error
        try:
            if self._path is None:
                self._path = jsonpath.compile(self._select or "$")
            found = islice(self._path.finditer(root), ROWS_MAX + 1)  # type: ignore[arg-type]  # any JSON value
            return [DocumentRow(str(match.parts[-1]) if match.parts else "", match.path, match.obj) for match in found]
        except (jsonpath.JSONPathError, RecursionError) as error:
            reason = str(error).partition("\n")[0]
            raise SourceFailed(
                self._source, f"select = {self._select!r} cannot be used: {reason}; it looks like $.judgments[*]"
            ) from error


def columns_of(value: object) -> object:
    """Return a row as a mapping of columns. If the row is not a mapping, it becomes the only column, named `value`."""
    return value if isinstance(value, Mapping) else {"value": value}
