"""The server under the shared store: its address, connecting, migrating, and PostgreSQL's errors in our words."""

from __future__ import annotations

import re
import shlex
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from mica.errors import (
    InvalidInput,
    MicaError,
    NotAStore,
    SchemaTooNew,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from mica.store.space import shown

try:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.prepared_stmt import PreparedStatement
except ModuleNotFoundError as missing:
    raise StoreUnavailable("PostgreSQL needs asyncpg; install mica[postgres]") from missing

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Statement: TypeAlias = "PreparedStatement[asyncpg.Record]"

SCHEMES = ("postgresql://", "postgres://")
SCHEMA = "mica"
PATIENCE_S = 60  # for one statement: a healthy one takes milliseconds, a writer behind many others some seconds
LONG_S = 3_600  # for one statement over a whole space: deleting the index of ten million events takes minutes
CONNECT_S = 10  # for a new connection: beyond that the server or the way to it is down
CONNECTIONS_MAX = 4  # one writes, the others read; many processes share a server whose default is 100
QUERIES_MAX = 50_000  # of one connection, which is then replaced: server processes grow with what they have planned
RELEASE_MIN = 14  # the oldest that its makers still mend
SPACE_CHARACTERS_MAX = 200  # a name for people; longer ones are paths or texts in the wrong place

_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")  # what an address may name

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")  # folded by no quoting, and short of PostgreSQL's limit of 63

# The connection is gone, or the server is going: what was not acknowledged may be there or not.
LOST = (
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.ConnectionFailureError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what the driver says when the server's farewell reached an idle connection
    OSError,
)
FAILURES = (asyncpg.PostgresError, *LOST)
# The server undid the transaction; the same again may go through.
UNDONE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
NO_PARTITION = (asyncpg.CheckViolationError,)  # somebody dropped a month that we believe to be there


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What `postgresql://user@host/database?space=NAME&schema=NAME` names."""

    dsn: str  # for the driver; may contain a password, so it is never shown
    host: str
    user: str
    database: str
    space: str
    schema: str = SCHEMA

    def __str__(self) -> str:
        user = f"{quote(self.user)}@" if self.user else ""
        host, socket = ("", self.host) if self.host.startswith("/") else (self.host, "")
        rest = {"host": socket, "space": self.space, "schema": "" if self.schema == SCHEMA else self.schema}
        query = urlencode({key: value for key, value in rest.items() if value}, safe="/")
        return f"postgresql://{user}{host}/{quote(self.database)}{'?' if query else ''}{query}"

    def of(self, user: str) -> Address:
        """The database and schema for another user, as one would type it."""
        return msgspec.structs.replace(self, user=user, space="")


def parse_address(text: str, *, space: str) -> Address:
    """The parts of an address; `space` is the name where it gives none. Raises InvalidInput."""
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise InvalidInput(f"{shown(text)!r} is not an address: {error}") from error
    if not text.startswith(SCHEMES):
        raise InvalidInput(f"{shown(text)!r} is not an address; it looks like postgresql://user@host/database")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    given = dict(pairs)
    name, schema = given.get("space", space), given.get("schema", SCHEMA)
    if not name or len(name) > SPACE_CHARACTERS_MAX or not name.isprintable():
        raise InvalidInput(f"space={name[:60]!r} is not usable; give 1 to {SPACE_CHARACTERS_MAX} printable characters")
    if not _SCHEMA_NAME.fullmatch(schema):
        raise InvalidInput(f"schema={schema[:60]!r} is not usable; give up to 48 of a to z, 0 to 9 and _")
    if not given.get("port", "0").isdecimal():
        raise InvalidInput(f"port={given['port'][:60]!r} is not usable; give a number")
    rest = [(key, value) for key, value in pairs if key not in {"space", "schema"}]
    host = (parts.hostname or "") + port
    return Address(
        dsn=urlunsplit(parts._replace(query=urlencode(rest))),
        host=host or given.get("host") or "localhost",
        user=parts.username or given.get("user") or "",
        database=parts.path.removeprefix("/") or given.get("dbname") or given.get("database") or "",
        space=name,
        schema=schema,
    )


async def connect(address: Address, *, at_once: bool = True) -> Pool:
    """A small pool; `at_once` one connection is opened, so that what is wrong shows now.

    Nothing outlives a transaction on a connection: no prepared statements, no settings. A pooler in transaction mode
    may give each transaction another server process.
    """
    _check_files(address)
    with translated(address):
        pool = await asyncpg.create_pool(
            address.dsn,
            min_size=0,  # who asks connects: a pool that keeps one open itself complains aloud of a server that is away
            max_size=CONNECTIONS_MAX,
            max_queries=QUERIES_MAX,
            reset=_nothing_to_reset,
            statement_cache_size=0,
            timeout=CONNECT_S,
            command_timeout=PATIENCE_S + CONNECT_S,  # the server's own limit comes first, unless it is gone
        )
        try:
            if at_once:
                await pool.release(await pool.acquire())
        except BaseException:
            pool.terminate()
            raise
        return pool


def _check_files(address: Address) -> None:
    """Raise InvalidInput where a file is named that is not there: the driver does not say which."""
    for key, value in parse_qsl(urlsplit(address.dsn).query):
        if key in _FILES and not Path(value).is_file():
            raise InvalidInput(f"{key}={value!r} in the address names no file; check the path")


def discard(connection: PoolConnectionProxy[asyncpg.Record]) -> None:
    """Let nobody use this connection again; the server undoes what it was not told to commit."""
    with suppress(asyncpg.InterfaceError):  # the pool may have thrown it out already
        connection.terminate()


async def _nothing_to_reset(_: Connection) -> None:
    """Every setting of ours ends with its transaction."""


# -- Migrations -----------------------------------------------------------------------------------------------


def migrations() -> list[str]:
    """The numbered migrations of this engine, in order."""
    folder = resources.files("mica.store") / "migrations" / "postgres"
    return [file.read_text(encoding="utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name)]


async def migrate(pool: Pool, address: Address) -> None:
    """Bring the schema to this version. Several processes may try at once; one does it, the others find it done."""
    files = migrations()
    with translated(address):
        async with pool.acquire() as connection:
            _check_server(connection, address)
            if await _version(connection, address, files) == len(files):
                return
            async with connection.transaction(isolation="read_committed"):
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", f"mica.{address.schema}")
                version = await _version(connection, address, files)
                await _apply(connection, address, files, version)


def _check_server(connection: Connection, address: Address) -> None:
    """Raise StoreUnavailable when this is no server or database that we can use."""
    release = connection.get_server_version()
    if release.major < RELEASE_MIN:
        raise StoreUnavailable(
            f"PostgreSQL at {address.host} is release {release.major}; mica needs {RELEASE_MIN} or later"
        )
    if (encoding := connection.get_settings().server_encoding) != "UTF8":
        raise StoreUnavailable(
            f"database {address.database!r} on {address.host} has encoding {encoding}, which cannot hold every text; "
            f"create another (`createdb --encoding UTF8 --template template0 …`)"
        )


async def _version(connection: Connection, address: Address, files: Sequence[str]) -> int:
    """The version of the schema, 0 when there is none. Raises when it is not ours, too new, or not for this role."""
    schema = address.schema
    row = await connection.fetchrow(
        """SELECT has_schema_privilege(oid, 'USAGE') AS may_use, pg_has_role(nspowner, 'USAGE') AS is_owner,
            pg_get_userbyid(nspowner)::text AS owner, current_user::text AS role,
            EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid AND relname = 'migrations') AS is_ours,
            EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid) AS has_tables
        FROM pg_namespace WHERE nspname = $1""",
        schema,
    )
    if row is None:
        return 0
    admit = f"its owner {row['owner']!r} must run: SELECT {schema}.admit('{row['role']}')"
    if not row["may_use"]:
        raise StoreUnavailable(f"role {row['role']!r} may not use schema {schema!r} on {address.host}; {admit}")
    if not row["is_ours"]:
        if row["has_tables"]:
            raise NotAStore(
                f"schema {schema!r} on {address.host} belongs to another program; name another with ?schema="
            )
        return 0
    try:
        version = int(await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {schema}.migrations"))
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreUnavailable(
            f"role {row['role']!r} may not read schema {schema!r} on {address.host}; {admit}"
        ) from error
    if version > len(files):
        raise SchemaTooNew(
            f"schema {schema!r} on {address.host} has version {version}, this mica knows {len(files)}; "
            "upgrade mica (`pip install -U mica`)"
        )
    if version < len(files) and not row["is_owner"]:
        raise StoreUnavailable(
            f"schema {schema!r} on {address.host} has version {version}, this mica needs {len(files)}; "
            f"its owner {row['owner']!r} must run: `mica prepare {shlex.quote(str(address.of(row['owner'])))}`"
        )
    return version


async def _apply(connection: Connection, address: Address, files: Sequence[str], version: int) -> None:
    schema = address.schema
    try:
        if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema):
            await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(f"SET LOCAL search_path = {schema}, pg_temp")
        for number, statements in enumerate(files[version:], start=version + 1):
            await connection.execute(statements)
            await connection.execute("INSERT INTO migrations (version) VALUES ($1)", number)
        # New tables and functions are for everyone who was admitted before.
        await connection.execute(
            """SELECT admit(grantee::regrole) FROM pg_namespace, aclexplode(nspacl)
            WHERE nspname = current_schema() AND privilege_type = 'USAGE' AND grantee NOT IN (0, nspowner)"""
        )
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreUnavailable(
            f"there is no schema {schema!r} on {address.host}, and this role may not make it ({error}); "
            f"one that may must run: `mica prepare {shlex.quote(str(address.of('OWNER')))} "
            f"--admit {shlex.quote(address.user or 'ROLE')}`"
        ) from error


# -- Errors ---------------------------------------------------------------------------------------------------


def may_be_repeated(error: MicaError) -> bool:
    """Whether the transaction was lost or undone for no reason of its own, so that trying again makes sense.

    Not when nothing answered in time: all patience is spent then.
    """
    cause = error.__cause__
    return isinstance(cause, (*LOST, *UNDONE, *NO_PARTITION)) and not isinstance(cause, TimeoutError)


def is_away(error: MicaError) -> bool:
    """Whether the server could not be reached or takes nobody now; what it refuses for good is something else."""
    return isinstance(error.__cause__, (*LOST, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError))


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn PostgreSQL's errors into ours, once, with the host and what to do."""
    where = f"PostgreSQL at {address.host}"
    try:
        yield
    except asyncpg.InvalidAuthorizationSpecificationError as error:  # a wrong password is one of these
        raise StoreUnavailable(
            f"{where} refuses user {address.user!r} ({error}); check user and password in the address or ~/.pgpass"
        ) from error
    except asyncpg.InvalidCatalogNameError as error:
        raise StoreUnavailable(
            f"{where} has no database {address.database!r}; create it (`createdb {address.database}`)"
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreUnavailable(
            f"{where} does not let user {address.user!r} do this ({error}); the owner of schema "
            f"{address.schema!r} must run: SELECT {address.schema}.admit('{address.user}')"
        ) from error
    except asyncpg.NoDataFoundError as error:
        raise StoreUnavailable(
            f"the space {address.space!r} is gone from {address.host} or was given to another role; open it again"
        ) from error
    except (
        asyncpg.ReadOnlySQLTransactionError,
        asyncpg.FeatureNotSupportedError,
    ) as error:  # a standby says the latter
        raise StoreUnavailable(f"{where} is read-only ({error}); give the address of the primary server") from error
    except (asyncpg.DiskFullError, asyncpg.OutOfMemoryError) as error:
        raise StoreFull(f"{where} has no room left ({error}); nothing of this write was kept") from error
    except asyncpg.TooManyConnectionsError as error:
        raise StoreBusy(f"{where} has no connection left ({error}); raise max_connections or use a pooler") from error
    except (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError, *UNDONE) as error:
        raise StoreBusy(f"{where} was busy ({error}); try again") from error
    except asyncpg.CannotConnectNowError as error:
        raise StoreUnavailable(f"{where} is starting or stopping ({error}); try again") from error
    except (asyncpg.AdminShutdownError, asyncpg.CrashShutdownError) as error:
        raise StoreUnavailable(f"{where} ended the connection ({error}); try again") from error
    except TimeoutError as error:
        raise StoreUnavailable(f"{where} did not answer in time; is it running, and is the way to it open?") from error
    except asyncpg.ClientConfigurationError as error:
        raise InvalidInput(f"the address of {where} cannot be used: {' '.join(str(error).split())}") from error
    except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        if isinstance(error, ValueError):
            raise  # a value of ours that no column can hold: a mistake here, not of the server
        raise StoreUnavailable(f"the connection to {where} was lost ({error}); try again") from error
    except UnicodeError as error:  # what looks a host up says this of a name that has an empty part, or a long one
        if "idna" not in str(error):
            raise
        raise StoreUnavailable(
            f"{address.host!r} is no host; give a name, an address or the path of a socket"
        ) from error
    except ssl.SSLError as error:
        raise StoreUnavailable(
            f"{where} gives no secure connection ({error}); check sslmode and the certificates in the address"
        ) from error
    except OSError as error:
        raise StoreUnavailable(f"{where} does not answer ({error}); is it running?") from error
    except asyncpg.PostgresError as error:
        raise StoreError(f"{where}: {error} ({error.sqlstate})") from error
