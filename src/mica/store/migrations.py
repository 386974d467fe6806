"""The SQL of an engine: its schema, and the numbered migrations that upgrade an older database to it.

A new database is created from `schema/<engine>.sql`. Migrations are files `schema/migrations/<engine>/NNNN_name.sql`;
each one changes a database of version NNNN - 1, and the schema file is changed with it. A test checks that a migrated
database has the same schema as a new one.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

FIRST = {"sqlite": 10, "postgres": 7}  # the oldest versions that can be migrated


class EngineSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The SQL statements that create a new database, and those that migrate an older one, version by version."""

    first: int  # the oldest version that can be migrated
    statements: str
    migrations: tuple[str, ...] = ()  # to first + 1, first + 2, …

    @property
    def version(self) -> int:
        return self.first + len(self.migrations)

    def after(self, version: int) -> list[tuple[int, str]]:
        """Return the migrations that a database of this version needs, each with the version that it creates."""
        return [(number, text) for number, text in enumerate(self.migrations, self.first + 1) if number > version]


@cache
def load_schema(engine: str) -> EngineSchema:
    """Load the schema and the migrations of an engine, "sqlite" or "postgres"."""
    folder = resources.files("mica.store") / "schema"
    files = folder / "migrations" / engine
    paths = sorted(files.iterdir(), key=lambda file: file.name) if files.is_dir() else []
    return EngineSchema(
        first=FIRST[engine],
        statements=(folder / f"{engine}.sql").read_text(encoding="utf-8"),
        migrations=tuple(file.read_text(encoding="utf-8") for file in paths),
    )
