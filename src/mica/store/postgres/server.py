"""The connection to a PostgreSQL server: address, connection pool, migrations, and translation of errors."""

from __future__ import annotations

import re
import shlex
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias
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
from mica.model.event import microseconds, utc_now
from mica.store.migrations import EngineSchema, load_schema
from mica.store.space import without_password

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
CONNECT_S = 10  # for a new connection: after that the server or the network is down
CONNECTIONS_MAX = 4  # one writes, the others read; many processes share a server whose default is 100
QUERIES_MAX = 50_000  # then a connection is replaced, because server processes grow with every plan
RELEASE_MIN = 14  # the oldest supported release
SPACE_CHARACTERS_MAX = 200  # a longer name is a path or a text in the wrong place

_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")  # options of an address whose values are files

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")  # needs no quoting, and stays below PostgreSQL's limit of 63

# The connection is lost or the server is stopping: unacknowledged writes may or may not be stored.
LOST = (
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.ConnectionFailureError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised if the server closed an idle connection
    OSError,
)
FAILURES = (asyncpg.PostgresError, *LOST)
# The server rolled the transaction back; a retry may succeed.
UNDONE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
NO_PARTITION = (asyncpg.CheckViolationError,)  # another process dropped a cached partition


class PostgresAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed address, `postgresql://user@host/database?space=NAME&schema=NAME`."""

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

    def of(self, user: str) -> PostgresAddress:
        """Return a copy that names this user and no space. It is only for display, because `dsn` stays the same."""
        return msgspec.structs.replace(self, user=user, space="")


def parse_address(text: str, *, space: str) -> PostgresAddress:
    """Parse an address; `space` is the default name of the space. Raises InvalidInput for a malformed address."""
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise InvalidInput(f"{without_password(text)!r} is not an address: {error}") from error
    if not text.startswith(SCHEMES):
        raise InvalidInput(
            f"{without_password(text)!r} is not an address; it looks like postgresql://user@host/database"
        )
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    name, schema = options.get("space", space), options.get("schema", SCHEMA)
    if not name or len(name) > SPACE_CHARACTERS_MAX or not name.isprintable():
        raise InvalidInput(f"space={name[:60]!r} is not usable; give 1 to {SPACE_CHARACTERS_MAX} printable characters")
    if not _SCHEMA_NAME.fullmatch(schema):
        raise InvalidInput(f"schema={schema[:60]!r} is not usable; give up to 48 characters of a to z, 0 to 9 and _")
    if not options.get("port", "0").isdecimal():
        raise InvalidInput(f"port={options['port'][:60]!r} is not usable; give a number")
    rest = [(key, value) for key, value in pairs if key not in {"space", "schema"}]
    host = (parts.hostname or "") + port
    return PostgresAddress(
        dsn=urlunsplit(parts._replace(query=urlencode(rest))),
        host=host or options.get("host") or "localhost",
        user=parts.username or options.get("user") or "",
        database=parts.path.removeprefix("/") or options.get("dbname") or options.get("database") or "",
        space=name,
        schema=schema,
    )


async def connect(address: PostgresAddress, *, at_once: bool = True) -> Pool:
    """Open a small connection pool. With `at_once`, one connection is opened now, so that errors are raised here.

    No prepared statement and no setting outlives a transaction, because a pooler in transaction mode may give each
    transaction another server process.
    """
    _check_files(address)
    with translated(address):
        pool = await asyncpg.create_pool(
            address.dsn,
            min_size=0,  # connect on demand: a pool that keeps a connection logs errors while the server is down
            max_size=CONNECTIONS_MAX,
            max_queries=QUERIES_MAX,
            reset=_nothing_to_reset,
            statement_cache_size=0,
            timeout=CONNECT_S,
            command_timeout=PATIENCE_S + CONNECT_S,  # longer than the server's own limit, for a server that is gone
        )
        try:
            if at_once:
                await pool.release(await pool.acquire())
        except BaseException:
            pool.terminate()
            raise
        return pool


def _check_files(address: PostgresAddress) -> None:
    """Raise InvalidInput for a certificate file that does not exist. The driver's error would not mention the file."""
    for key, value in parse_qsl(urlsplit(address.dsn).query):
        if key in _FILES and not Path(value).is_file():
            raise InvalidInput(f"{key}={value!r} in the address is not a file; check the path")


def discard(connection: PoolConnectionProxy[asyncpg.Record]) -> None:
    """Close a connection for good; the server rolls back its open transaction."""
    with suppress(asyncpg.InterfaceError):  # the pool may have closed it already
        connection.terminate()


async def _nothing_to_reset(_: Connection) -> None:
    """Skip the driver's reset query: all settings end with their transaction, so there is nothing to reset."""


# -- Migrations -----------------------------------------------------------------------------------------------


async def migrate(pool: Pool, address: PostgresAddress) -> None:
    """Create the schema, or migrate it to the current version. Safe in several processes at a time."""
    schema = load_schema("postgres")
    with translated(address):
        async with pool.acquire() as connection:
            _check_server(connection, address)
            if await _version(connection, address, schema) == schema.version:
                return
            async with connection.transaction(isolation="read_committed"):
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", f"mica.{address.schema}")
                await _apply(connection, address, schema, await _version(connection, address, schema))


def _check_server(connection: Connection, address: PostgresAddress) -> None:
    """Raise StoreUnavailable for an unsupported server or database."""
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


async def _version(connection: Connection, address: PostgresAddress, known: EngineSchema) -> int:
    """Return the version of the schema, or 0 if there is no schema yet.

    Raises NotAStore for a schema of another program or an unreleased version, SchemaTooNew for a newer version, and
    StoreUnavailable if this role may not use or migrate it.
    """
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
    if version > known.version:
        raise SchemaTooNew(
            f"schema {schema!r} on {address.host} has version {version}, this mica knows {known.version}; "
            "upgrade mica (`pip install -U mica`)"
        )
    if version < known.first:
        raise NotAStore(
            f"schema {schema!r} on {address.host} has version {version}, older than any release; name another with "
            "?schema= and import the transcripts again"
        )
    if version < known.version and not row["is_owner"]:
        raise StoreUnavailable(
            f"schema {schema!r} on {address.host} has version {version}, this mica needs {known.version}; "
            f"its owner {row['owner']!r} must run: `mica server prepare {shlex.quote(str(address.of(row['owner'])))}`"
        )
    return version


async def _apply(connection: Connection, address: PostgresAddress, known: EngineSchema, version: int) -> None:
    schema = address.schema
    try:
        if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema):
            await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(f"SET LOCAL search_path = {schema}, pg_temp")
        new = [(known.version, known.statements)] if version == 0 else known.after(version)
        for number, statements in new:
            await connection.execute(statements)
            await connection.execute("INSERT INTO migrations (version) VALUES ($1)", number)
        # Grant new tables and functions to every admitted role.
        await connection.execute(
            """SELECT admit(grantee::regrole) FROM pg_namespace, aclexplode(nspacl)
            WHERE nspname = current_schema() AND privilege_type = 'USAGE' AND grantee NOT IN (0, nspowner)"""
        )
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreUnavailable(
            f"there is no schema {schema!r} on {address.host}, and this role may not create it ({error}); "
            f"a role that may create it must run: `mica server prepare {shlex.quote(str(address.of('OWNER')))} "
            f"--admit {shlex.quote(address.user or 'ROLE')}`"
        ) from error


# -- Errors ---------------------------------------------------------------------------------------------------


def is_retryable(error: MicaError) -> bool:
    """Return True if a retry may succeed: the connection was lost, or the server rolled the transaction back.

    After a timeout, return False, because the caller has waited long enough.
    """
    cause = error.__cause__
    return isinstance(cause, (*LOST, *UNDONE, *NO_PARTITION)) and not isinstance(cause, TimeoutError)


def is_away(error: MicaError) -> bool:
    """Return True if the server cannot be reached, or accepts no connections now."""
    return isinstance(error.__cause__, (*LOST, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError))


@contextmanager
def translated(address: PostgresAddress) -> Iterator[None]:
    """Translate PostgreSQL errors of the `with` block into MicaErrors, whose messages give the host and a remedy."""
    where = f"PostgreSQL at {address.host}"
    try:
        yield
    except asyncpg.InvalidAuthorizationSpecificationError as error:  # for example a wrong password
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
    ) as error:  # the latter comes from a standby
        raise StoreUnavailable(f"{where} is read-only ({error}); give the address of the primary server") from error
    except (asyncpg.DiskFullError, asyncpg.OutOfMemoryError) as error:
        raise StoreFull(f"{where} has no room left ({error}); nothing was written") from error
    except asyncpg.TooManyConnectionsError as error:
        raise StoreBusy(f"{where} has no connection left ({error}); raise max_connections or use a pooler") from error
    except (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError, *UNDONE) as error:
        raise StoreBusy(f"{where} was busy ({error}); try again") from error
    except asyncpg.CannotConnectNowError as error:
        raise StoreUnavailable(f"{where} is starting or stopping ({error}); try again") from error
    except (asyncpg.AdminShutdownError, asyncpg.CrashShutdownError) as error:
        raise StoreUnavailable(f"{where} ended the connection ({error}); try again") from error
    except TimeoutError as error:
        raise StoreUnavailable(f"{where} did not answer in time; is it running and reachable?") from error
    except asyncpg.ClientConfigurationError as error:
        raise InvalidInput(f"the address of {where} cannot be used: {' '.join(str(error).split())}") from error
    except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        if isinstance(error, ValueError):
            raise  # a value that does not fit its column is a bug in mica
        raise StoreUnavailable(f"the connection to {where} was lost ({error}); try again") from error
    except UnicodeError as error:  # raised by the host lookup for a name with an empty or too long part
        if "idna" not in str(error):
            raise
        raise StoreUnavailable(
            f"{address.host!r} is not a host; give a name, an address or the path of a socket"
        ) from error
    except ssl.SSLError as error:
        raise StoreUnavailable(
            f"no secure connection to {where} ({error}); check sslmode and the certificates in the address"
        ) from error
    except OSError as error:
        raise StoreUnavailable(f"{where} does not answer ({error}); is it running?") from error
    except asyncpg.PostgresError as error:
        raise StoreError(f"{where}: {error} ({error.sqlstate})") from error


@asynccontextmanager
async def authority(connection: Connection, space: int, work: Literal["purge", "rebuild"]) -> AsyncIterator[None]:
    """Permit a purge or a rebuild of a space inside the `with` block. Elsewhere, triggers of the database refuse it.

    Must be used inside a transaction, because a row in the table `authority` gives the permission.
    """
    row = (space, work, microseconds(utc_now()))
    await connection.execute("INSERT INTO authority (space, work, at) VALUES ($1, $2, $3)", *row)
    yield
    await connection.execute("DELETE FROM authority WHERE space = $1 AND work = $2", space, work)
