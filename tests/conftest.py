"""Shared fixtures: the Hypothesis profile, a store of each engine, a manual clock, a memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.web.server import WebServer, web_server_at

import mica
from mica.settings import Settings
from mica.store.postgres.store import PostgresStore
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.store.remote.client import open_remote
from mica.store.sqlite.store import SqliteStore
from mica.testing import HandClock
from mica.testing.postgres import LocalPostgres, postgres_server

settings.register_profile(
    "mica",
    deadline=None,
    derandomize="CI" in os.environ,  # there a change is judged by the same examples as the one before; elsewhere by new
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("mica")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs behind it, and all its children
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server() -> Iterator[LocalPostgres]:
    """One real PostgreSQL for the whole run. If it cannot start, the run fails: no engine is skipped."""
    with postgres_server() as started:
        yield started


@pytest.fixture(scope="session")
def web_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """One real server for the whole run, on loopback, with as many spaces as tests need."""
    with web_server_at(tmp_path_factory.mktemp("server")) as started:
        yield started


WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def weights() -> Path:
    """The weights of a real small model, as `make setup` puts them beside the packages. Without them the run fails."""
    found = list(Path(sys.prefix, "weights").rglob("SmolLM2-135M-Instruct.Q4_1.gguf"))
    assert found, "the weights of the test model are missing; `make setup` fetches them (requirements/weights.txt)"
    with found[0].open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == WEIGHTS_SHA256
    return found[0]


@pytest.fixture
def opencode_db(tmp_path: Path) -> Path:
    """OpenCode's database after the recorded run."""
    path = tmp_path / "opencode" / "opencode.db"
    path.parent.mkdir()
    rows = Path(__file__).parent / "fixtures" / "opencode" / "db-rows.jsonl"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, directory TEXT NOT NULL,
                version TEXT, time_created INTEGER, time_updated INTEGER);
            CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT NOT NULL);
            CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT NOT NULL);
            """
        )
        for row in map(json.loads, rows.read_text().splitlines()):
            data = row["data"]
            if row["table"] == "message":
                values = (row["id"], row["session_id"], data["time"]["created"], json.dumps(data))
                connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", values)
            else:
                connection.execute(
                    "INSERT INTO part VALUES (?, ?, '', ?)", (row["id"], row["message_id"], json.dumps(data))
                )
        session = ("ses_e20fcff63ffeYSlgXduvIiEfNe", "/home/dev/shop", "1.18.33", 1794742878364, 1794742890233)
        connection.execute("INSERT INTO session VALUES (?, '', NULL, ?, ?, ?, ?)", session)
        connection.commit()
    return path


ENGINES = ["ephemeral", "sqlite", "postgres", "remote"]


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path, home: Settings) -> AsyncIterator[Store]:
    opened: Store
    if request.param == "ephemeral":
        opened = EphemeralStore()
    elif request.param == "sqlite":
        opened = await SqliteStore.open(tmp_path / "space.db")
    elif request.param == "remote":
        opened = await open_remote(request.getfixturevalue("web_server").address(), settings=home)
    else:
        # A new space behind its wall is as good as a new database, and quick.
        opened = await PostgresStore.open(request.getfixturevalue("server").address())
    yield opened
    await opened.close()


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """Settings of a user with empty folders, no model and long deadlines, so that a busy machine changes no result."""
    return mica.load_settings({"HOME": str(tmp_path / "home"), "MICA_BRIEF_DEADLINE_S": "30", "MICA_SEMANTIC": "off"})


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=[":memory:", "space.db", "postgres", "http"])
async def memory(
    request: pytest.FixtureRequest, tmp_path: Path, home: Settings, clock: HandClock
) -> AsyncIterator[mica.Memory]:
    target: str | Path = request.param
    if request.param == "space.db":
        target = tmp_path / request.param
    elif request.param == "postgres":
        target = request.getfixturevalue("server").address()
    elif request.param == "http":
        target = request.getfixturevalue("web_server").address()
    async with mica.open(target, settings=home, clock=clock) as opened:
        yield opened
