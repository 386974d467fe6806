"""Open the store at a target: a file, a server address, `:memory:`, or None for the space of the current directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from mica.errors import InvalidInput, UnknownSpace
from mica.model.event import check_unicode
from mica.private_files import make_private_folder, secure_home
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.space import is_address, remember_directory, space_of, without_password
from mica.store.sqlite.store import SqliteStore


def never_waiting(file: Path) -> bool:
    """Return False. By default, `open_store` assumes that no events are waiting to be written to a file."""
    return False


async def open_store(
    target: str | Path | None,
    *,
    settings: Settings,
    must_exist: bool = False,
    is_waiting: Callable[[Path], bool] = never_waiting,
) -> Store:
    """Open the store at a target, and create it if necessary.

    With `must_exist`, a missing store raises UnknownSpace instead. A missing file does not raise if `is_waiting`
    returns True for it, because events are waiting to be written to it. Raises InvalidInput for an unusable target.
    """
    if target == "":
        raise InvalidInput("'' is not a store; give a file, `postgresql://…`, `http://…` or `:memory:`")
    if str(target) == ":memory:":
        from mica.store.reference.store import EphemeralStore

        return EphemeralStore()
    secure_home(settings.home)
    if str(target).startswith(("postgresql://", "postgres://")):
        from mica.store.postgres.store import PostgresStore  # needs an optional dependency

        here = space_of(Path.cwd(), home=settings.home)
        return await PostgresStore.open(str(target), space=here.name, home=settings.home, must_exist=must_exist)
    if str(target).startswith(("http://", "https://")):
        from mica.store.remote.client import open_remote  # needs an optional dependency

        return await open_remote(str(target), settings=settings, must_exist=must_exist)
    if target is not None and is_address(target):
        raise InvalidInput(
            f"no store for the address {without_password(target)!r}; "
            "give a file, `postgresql://…`, `http://…` or `:memory:`"
        )
    file = _file(target, settings)
    if must_exist and not file.exists() and not is_waiting(file):
        raise UnknownSpace(str(target or file))
    if file.is_relative_to(settings.home):
        with suppress(OSError):  # reported by the code that opens the file
            make_private_folder(file.parent)  # a folder outside of mica's own is the user's affair
    store = await SqliteStore.open(file)
    with suppress(OSError):  # the current directory was removed
        remember_directory(file, Path.cwd())
    return store


async def neighbours(store: Store) -> list[str]:
    """Return the names of the spaces in a store's PostgreSQL database that the user in the store's address may open.

    Return an empty list for other kinds of stores.
    """
    from mica.store.postgres.store import PostgresStore  # needs an optional dependency

    return await store.names() if isinstance(store, PostgresStore) else []


async def prepare(address: str, *, admitted: Iterable[str] = ()) -> None:
    """Create or migrate the schema at a PostgreSQL address, and grant the `admitted` roles access to it.

    The user in `address` must own the schema, or have the right to create it.
    """
    from mica.store.postgres.store import prepare as prepare_schema  # needs an optional dependency

    await prepare_schema(address, admitted=admitted)


def _file(target: str | Path | None, settings: Settings) -> Path:
    if target is None:
        return space_of(Path.cwd(), home=settings.home).file
    check_unicode("the file", str(target))  # SQLite opens only files with valid Unicode names
    file = Path(target).expanduser()
    try:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # reported by the code that opens it
            file.stat()
    except (OSError, ValueError) as error:  # too long, or with a NUL in it
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"{target!r:.80} cannot be the name of a file ({reason}); give another") from error
    return file
