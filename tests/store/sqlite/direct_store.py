"""A SQLite store without a worker thread, for tests that inspect the file between two calls."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from mica.store.sqlite.core import PATIENCE_S, SqliteCore
from mica.store.sqlite.store import SqliteStore
from mica.store.sqlite.worker import SqliteWorker

P = ParamSpec("P")
R = TypeVar("R")


class DirectStore:
    """A SQLite store that runs in the calling thread. Its methods return values instead of coroutines."""

    def __init__(self, path: Path, *, busy_ms: int = PATIENCE_S * 1_000) -> None:
        self.core = SqliteCore(path, busy_ms=busy_ms)
        worker = _DirectWorker(path, self.core)
        store = SqliteStore(worker)
        self.log = DirectRole(store.log)
        self.chains = DirectRole(store.chains)
        self.texts = DirectRole(store.texts)
        self.vectors = DirectRole(store.vectors)
        self.crystals = DirectRole(store.crystals)
        self.trails = DirectRole(store.trails)
        self.beliefs = DirectRole(store.beliefs)
        self.replies = DirectRole(store.replies)
        self.work = DirectRole(store.work)
        self.purges = DirectRole(store.purges)
        self.files = DirectRole(store.files)

    @property
    def connection(self) -> apsw.Connection:
        return self.core.connection

    @property
    def space(self) -> str:
        return self.core.space

    def close(self) -> None:
        self.core.close()


class DirectRole:
    """Wraps a role of a store, such as its log. Its async methods return their results directly."""

    def __init__(self, role: object) -> None:
        self._role = role

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method of any kind
        method = getattr(self._role, name)

        def call(*args: object, **kwargs: object) -> object:
            return _result(method(*args, **kwargs))

        return call if callable(method) else method


class _DirectWorker(SqliteWorker):
    def __init__(self, path: Path, core: SqliteCore) -> None:
        super().__init__(path)
        self.core = core

    async def run(self, function: Callable[Concatenate[SqliteCore, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self.open_core(), *args, **kwargs)

    async def run_in_background(self, function: Callable[[SqliteCore], R]) -> R:
        return function(self.open_core())


def _result(call: Coroutine[Any, Any, object]) -> object:
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a direct call must not wait")
