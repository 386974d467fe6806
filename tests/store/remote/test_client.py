"""A store behind a server: connection, tokens and downtime, which the contract does not cover."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.web.server import WebServer, port_held, web_server_at

import mica
from mica.errors import AccessDenied, InvalidInput, StoreUnavailable, UnknownEvent, UnknownSpace
from mica.events import follower as follow
from mica.model.event import EventQuery
from mica.settings import Secret, Settings
from mica.store.remote.client import parse_address
from mica.store.remote.servers import RunningServer, announce
from mica.store.target import open_store
from mica.web.tokens import TokenFile


@pytest.fixture
def port() -> Iterator[int]:
    with port_held() as held:
        yield held


async def test_events_wait_locally_while_the_server_is_down_and_arrive_once(
    tmp_path: Path, home: Settings, caplog: pytest.LogCaptureFixture, port: int
) -> None:
    """No emitted event is lost while the server is down, even if the emitting process ends.

    Closing logs how many events wait, where, and what will store them.
    """
    with web_server_at(tmp_path / "server", port=port, open_store=open_store) as server:
        address = server.address("shop")
        async with mica.open(address, settings=home) as memory:
            memory.mark("while it was there")
            await memory.events.position()
    async with mica.open(address, settings=home) as memory:  # opened before, so it opens without the server
        memory.mark("while it was away")
        await memory.durable()
        with pytest.raises(StoreUnavailable, match="is `mica up` running there"):
            await memory.events.position()
        segments = memory.upkeep.segments
    [message] = [record.getMessage() for record in caplog.records if record.name == "mica"]
    assert f"1 event could not be stored in {server.base}/?space=shop: saved in {segments} until" in message
    caplog.clear()
    with web_server_at(tmp_path / "server", port=port, token=server.token, open_store=open_store) as again:
        async with mica.open(again.address("shop"), settings=home) as memory:
            texts = [event.data["text"] for event in await memory.events.query()]

    assert texts == ["while it was there", "while it was away"]
    assert [record for record in caplog.records if record.name == "mica"] == []


async def test_followers_are_notified_by_the_server_and_do_not_poll(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polling is set to an hour here, so only notifications can deliver the events."""
    monkeypatch.setattr(follow, "LISTEN_TIMEOUT_S", 3_600)

    async def expect_notification(server: WebServer, text: str) -> None:
        async with (
            asyncio.timeout(60),
            mica.open(server.address("shop"), settings=home) as here,
            mica.open(server.address("shop"), settings=home) as there,
        ):
            following = here.events.follow(
                EventQuery(names=("mark",)), after=await here.events.position(), poll_s=3_600
            )
            first = asyncio.create_task(anext(following))
            there.mark(text)
            assert (await first).data["text"] == text
            second = asyncio.create_task(anext(following))
            there.mark("and again")
            assert (await second).data["text"] == "and again"
            assert here._store.notices.is_live

    with web_server_at(tmp_path, open_store=open_store) as server:
        await expect_notification(server, "while it was there")


async def test_a_new_address_needs_its_server(home: Settings, port: int) -> None:
    with pytest.raises(StoreUnavailable, match=f"http://127.0.0.1:{port}"):
        await mica.open(f"http://127.0.0.1:{port}", settings=home)


async def test_a_wrong_or_missing_token_is_reported(web_server: WebServer, home: Settings) -> None:
    for address in (web_server.base, web_server.base.replace("://", "://:wrong@")):
        with pytest.raises(AccessDenied, match="token"):
            await mica.open(address, settings=home)


async def test_a_token_comes_from_the_address_the_settings_or_a_local_server(
    web_server: WebServer, home: Settings
) -> None:
    async with mica.open(web_server.address("keys"), settings=home) as memory:
        assert web_server.token not in memory.location

    settings = msgspec.structs.replace(home, token=Secret(web_server.token))
    async with mica.open(f"{web_server.base}/?space=keys", settings=settings) as memory:
        assert await memory.events.query() == []

    with announce(RunningServer(address=web_server.base, pid=1, token=web_server.token, space="shop"), home=home.home):
        async with mica.open(f"{web_server.base}/?space=keys", settings=home) as memory:
            assert await memory.events.query() == []


async def test_errors_come_back_as_they_were_raised(web_server: WebServer, home: Settings) -> None:
    async with mica.open(web_server.address(), settings=home) as memory:
        with pytest.raises(UnknownEvent) as raised:
            await memory.events.get(12345)
    assert raised.value.reference == "12345"

    with pytest.raises(UnknownSpace, match="no store nowhere"):
        await mica.open(web_server.address("nowhere"), settings=home, must_exist=True)


@pytest.mark.parametrize("address", ["http://", "http://host:port", "http://host/path", "http://host/?colour=red"])
def test_an_invalid_server_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"address|colour"):
        parse_address(address)


async def test_a_server_of_another_program_is_recognised(tmp_path: Path, home: Settings) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(500)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        with pytest.raises(StoreUnavailable, match="is it a mica server"):
            await mica.open(f"http://127.0.0.1:{other.server_port}", settings=home)
        other.shutdown()
        thread.join()


async def test_a_token_that_may_only_read_reads_the_beliefs_that_others_learned(
    tmp_path: Path, home: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Beliefs are learned when they are read, which writes; a reader does without the latest, and a warning says so."""
    with web_server_at(tmp_path / "server", open_store=open_store) as server:
        address = server.address("shop")
        async with mica.open(address, settings=home) as writer:
            await writer.beliefs.add("rule", "Always use uv run")
            place = mica.load_settings({"HOME": str(tmp_path / "server")}).home
            secret = TokenFile(place).make("reader", scopes=["read"])[0]
            writer.mark("The queue holds 10 jobs", tags=["fact"])
            await writer.events.position()
            async with mica.open(address.replace(server.token, secret), settings=home) as reader:
                before = [each.text for each in await reader.beliefs.list()]
        [warning] = {record.getMessage() for record in caplog.records if record.name == "mica"}

    assert before == ["Always use uv run"]
    assert "the latest events are not in this answer of beliefs" in warning
