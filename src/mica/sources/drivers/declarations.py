"""Creates the sources that the settings declare.

The message of each error has the file, table, key and value, and says what to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias, cast, get_args

import msgspec

from mica.errors import InvalidInput, InvalidSettings
from mica.settings import Secret
from mica.sources.drivers.http import HttpSource, HttpTable
from mica.sources.drivers.json_files import JsonLinesSource, JsonLinesTable, JsonSource, JsonTable
from mica.sources.drivers.live import MemorySource, MemoryTable, PythonSource, PythonTable
from mica.sources.drivers.mcp import McpSource, McpTable
from mica.sources.drivers.postgres import PostgresPool, PostgresSource, PostgresTable
from mica.sources.drivers.sqlite import SqliteSource, SqliteTable
from mica.sources.drivers.tables import Around, DeclaredSource, SourceTable
from mica.sources.protocol import check_name
from mica.sources.threads import Pool
from mica.store.space import without_password

Table: TypeAlias = (
    PostgresTable | SqliteTable | JsonTable | JsonLinesTable | HttpTable | McpTable | MemoryTable | PythonTable
)
TABLES: dict[str, type[SourceTable]] = {str(table.__struct_config__.tag): table for table in get_args(Table)}
SECRET = ("dsn", "url", "headers", "env")  # keys whose values may hold passwords
VALUE_CHARACTERS_MAX = 80  # of a value in an error


def open_declared(
    tables: Mapping[str, Mapping[str, object]],
    *,
    pool: Pool,
    folder: Path,
    variables: Mapping[str, Secret],
    file: Path | None = None,
) -> list[DeclaredSource]:
    """Create the declared sources in order, without connecting to them. Raises InvalidSettings for an invalid table.

    `tables` maps the name of each source to its table in the settings, and `file` is the settings file. `folder` is the
    folder that relative paths start from, and `variables` are the environment variables that the tables may name.
    """
    around = Around(pool, folder, variables)
    servers: dict[str, PostgresPool] = {}
    found = []
    for name, settings in tables.items():
        table = parse(name, settings, file=file)
        try:
            check_name(name)
            found.append(_opened(name, table, around, servers))
        except (ValueError, InvalidInput) as error:
            raise InvalidSettings(f"{_where(name, file)}: {error}") from error
    return found


def open_live(name: str, table: Mapping[str, object], *, pool: Pool, folder: Path) -> MemorySource:
    """Create a source that reads a Python object of this program. Pass the object to the method `hold` of the source.

    Raises InvalidSettings or ValueError if `table` is invalid.
    """
    parsed = parse(name, {"driver": "memory", **table})
    assert isinstance(parsed, MemoryTable)
    return MemorySource(name, parsed, Around(pool, folder))


def parse(name: str, given: Mapping[str, object], *, file: Path | None = None) -> Table:
    """Parse a `[sources.NAME]` table of the settings into the table type of its driver.

    Raises InvalidSettings for an unknown driver, an unknown or missing key, or an invalid value. `file` is the settings
    file, which the message names.
    """
    where = _where(name, file)
    driver = given.get("driver")
    if driver not in TABLES:
        near = get_close_matches(str(driver), TABLES, n=1)
        problem = "has no driver" if driver is None else f"driver = {driver!r} is not known"
        meant = f'; did you mean "{near[0]}"?' if near else f"; use one of {', '.join(TABLES)}"
        raise InvalidSettings(f"{where}: {problem}{meant}")
    try:
        return cast(Table, msgspec.convert(dict(given), Table, dec_hook=_as_secret))
    except msgspec.ValidationError as error:
        raise InvalidSettings(f"{where}: {_describe(error, given, TABLES[str(driver)])}") from error


def _opened(name: str, table: Table, around: Around, servers: dict[str, PostgresPool]) -> DeclaredSource:
    match table:
        case PostgresTable():
            dsn = _address(table, around.variables)
            server = servers.setdefault(dsn.reveal(), PostgresPool(dsn)) if dsn else None
            return PostgresSource(name, table, around, server=server)
        case SqliteTable():
            return SqliteSource(name, table, around)
        case JsonTable():
            return JsonSource(name, table, around)
        case JsonLinesTable():
            return JsonLinesSource(name, table, around)
        case HttpTable():
            return HttpSource(name, table, around)
        case McpTable():
            return McpSource(name, table, around)
        case MemoryTable():
            return MemorySource(name, table, around)
        case PythonTable():
            return PythonSource(name, table, around)


def _as_secret(kind: type, value: object) -> object:
    """Convert a text to `Secret`, so that it is never shown in an error message.

    `kind` is the type that the key of the settings has. If this is not `Secret`, the value is returned unchanged.
    """
    if kind is not Secret:
        return value
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    return Secret(value)


def _where(name: str, file: Path | None) -> str:
    return f"{f'{file}: ' if file else ''}[sources.{name}]"


def _address(table: PostgresTable, variables: Mapping[str, Secret]) -> Secret | None:
    """Return the address of a PostgreSQL server; None if the environment variable that should contain it is not set.

    Raises ValueError if the address is invalid.
    """
    if (table.dsn is None) == (table.dsn_env is None):
        raise ValueError('give either dsn_env = "NAME" of an environment variable, or dsn = "postgresql://…"')
    found = table.dsn or variables.get(table.dsn_env or "")
    if found is not None and not found.reveal().startswith(("postgresql://", "postgres://")):
        named = "dsn" if table.dsn else f"the variable {table.dsn_env!r} of dsn_env"
        raise ValueError(f"{named} is not an address; give one such as postgresql://user@host/database")
    return found


# -- Errors --------------------------------------------------------------------------------------------


def _describe(error: msgspec.ValidationError, given: Mapping[str, object], table: type[msgspec.Struct]) -> str:
    """Return an error message with the invalid key, its value, and what to write instead.

    `given` is the table as the settings have it. Values that may contain passwords are not shown.
    """
    reason, _, at = str(error).partition(" - at `$")
    keys = re.findall(r"\w+", at.rstrip("`"))
    if unknown := re.search(r"unknown field `(.*)`", reason):
        fields = _fields(table, keys)
        near = get_close_matches(unknown[1], fields, n=1)
        meant = f"did you mean {near[0]}?" if near else f"use {', '.join(fields)}"
        return f"there is no key {'.'.join([*keys, unknown[1]])!r}; {meant}"
    if missing := re.search(r"missing required field `(.*)`", reason):
        return f"the key {missing[1]!r} is missing; give {_wanted(table, [*keys, missing[1]])}"
    value: object = given
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else value
    shown = "…" if keys and keys[0].startswith(SECRET) else without_password(f"{value!r:.{VALUE_CHARACTERS_MAX}}")
    return f"{'.'.join(keys)} = {shown} cannot be used ({reason}); give {_wanted(table, keys)}"


def _fields(table: type[msgspec.Struct], keys: list[str]) -> list[str]:
    for key in keys:
        kind = next((each.type for each in msgspec.structs.fields(table) if each.encode_name == key), None)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            table = kind
    return [each.encode_name for each in msgspec.structs.fields(table)]


def _wanted(table: type[msgspec.Struct], keys: list[str]) -> str:
    """Return a description of the values that a key accepts. `keys` is the path to the key from the table."""
    kind: object = table
    for key in keys:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = next((each.type for each in msgspec.structs.fields(kind) if each.encode_name == key), None)
    found = _descriptions(kind)
    return found[0] if found else "what docs/sources.md says"


def _descriptions(kind: object) -> list[str]:
    own = [meta.description for meta in getattr(kind, "__metadata__", ()) if getattr(meta, "description", None)]
    return own or [each for inner in get_args(kind) for each in _descriptions(inner)]
