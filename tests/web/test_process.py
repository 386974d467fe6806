"""The server process: start, stop, limits, locks and shared databases."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import pytest
from tests.cli.test_server_process import up
from tests.web.server import WebServer, web_server_at

import mica
from mica.errors import InvalidInput
from mica.model.event import EventQuery, utc_now
from mica.settings import Settings
from mica.testing.postgres import LocalPostgres
from mica.web import process as running
from mica.web.access import Limits
from mica.web.memory_pool import MemoryPool
from mica.web.process import TimedProtocol, listen, only_server
from mica.web.tokens import TokenFile

ENOUGH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def connect(server: WebServer) -> socket.socket:
    host, _, port = server.base.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def read_all(connection: socket.socket) -> bytes:
    """Read until the connection ends or is reset."""
    got = b""
    try:
        while piece := connection.recv(65_536):
            got += piece
    except ConnectionResetError:
        pass
    return got


@pytest.mark.parametrize("drop", [b"", b"GET /he", b"GET /health HTTP/1.1\r\nHost: 127.0"])
@pytest.mark.parametrize("is_known", [False, True], ids=["at once", "after a request"])
def test_a_slow_request_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drop: bytes, is_known: bool
) -> None:
    monkeypatch.setattr(running, "KEEP_ALIVE_S", 1)
    with web_server_at(tmp_path) as server, monkeypatch.context() as hurried:
        if not is_known:
            hurried.setattr(TimedProtocol, "headers_s", 0.05)
        with closing(connect(server)) as slow:
            if is_known:
                slow.sendall(ENOUGH.replace(b"close", b"keep-alive"))
                assert b"200 OK" in slow.recv(65_536)
                hurried.setattr(TimedProtocol, "headers_s", 0.05)
            slow.sendall(drop)

            assert read_all(slow) in (b"", b'{"status":"ok","version":"0.1.0"}')  # the server closed it

        hurried.undo()  # a request may take longer on a busy machine
        with closing(connect(server)) as quick:
            quick.sendall(ENOUGH)
            assert b'"status":"ok"' in read_all(quick)


def test_a_body_that_never_arrives_times_out(tmp_path: Path) -> None:
    with web_server_at(tmp_path, limits=Limits(body_grace_s=0.05)) as server, closing(connect(server)) as slow:
        slow.sendall(_post(server, b"Content-Length: 100"))
        slow.sendall(b'{"text": ')

        assert b"HTTP/1.1 408" in read_all(slow)


@pytest.mark.parametrize("length", [b"Content-Length: 100000000", b"Transfer-Encoding: chunked", b"Content-Length: -1"])
def test_a_large_body_is_refused_before_it_is_read(web_server: WebServer, length: bytes) -> None:
    with closing(connect(web_server)) as greedy:
        greedy.sendall(_post(web_server, length))
        piece = b"x" * 2**20
        chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if b"chunked" in length else piece
        try:
            for _ in range(100):
                greedy.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        got = read_all(greedy)

    assert got == b"" or got.split()[1] in (b"413", b"400")
    with closing(connect(web_server)) as other:
        other.sendall(ENOUGH)
        assert b'"status":"ok"' in read_all(other)


def _post(server: WebServer, length: bytes) -> bytes:
    head = f"POST /api/mark HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n" + length + b"\r\n\r\n"


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/static/../../../etc/passwd", "/static/..%2f..%2f..%2fetc/passwd", "/static//etc/passwd"],
)
def test_a_path_cannot_leave_the_served_folder(web_server: WebServer, path: str) -> None:
    with closing(connect(web_server)) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        connection.sendall(f"{head}Authorization: Bearer {web_server.token}\r\n\r\n".encode())
        got = read_all(connection)

    assert got.split()[1] == b"404"
    assert b"root:" not in got


def test_too_many_requests_get_a_retry_after(tmp_path: Path) -> None:
    with web_server_at(tmp_path, limits=Limits(requests_per_s=0.001, burst=3, refusals_burst=2)) as server:

        def statuses(token: str) -> list[int]:
            codes = []
            for _ in range(5):
                request = urllib.request.Request(
                    f"{server.base}/api/upkeep/sizes", headers={"authorization": f"Bearer {token}"}
                )
                try:
                    with urllib.request.urlopen(request) as answer:
                        codes.append(answer.status)
                except urllib.error.HTTPError as error:
                    with error:
                        codes.append(error.code if error.headers.get("retry-after") is None else -error.code)
            return codes

        assert statuses(server.token) == [200, 200, 200, -429, -429]  # negative: with Retry-After
        assert statuses("guessed") == [401, 401, -429, -429, -429]


def test_a_forwarded_address_does_not_evade_the_rate_limit(tmp_path: Path) -> None:
    """The rate limit uses the real address of a client, not one from a header."""
    with web_server_at(tmp_path, limits=Limits(refusals_per_s=0.001, refusals_burst=2)) as server:
        codes = []
        for number in range(5):
            headers = {"authorization": "Bearer guessed", "x-forwarded-for": f"10.0.0.{number}"}
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(f"{server.base}/api/upkeep/sizes", headers=headers))
            with refused.value as error:
                codes.append(error.code)

    assert codes == [401, 401, 429, 429, 429]


def test_a_taken_port_is_reported_with_the_next_step(tmp_path: Path) -> None:
    with closing(listen("127.0.0.1", 0, home=tmp_path)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port} is taken .* `mica up --port {port + 1}`"):
            listen("127.0.0.1", port, home=tmp_path)
    with pytest.raises(InvalidInput, match="give an address of this machine"):
        listen("no.such.host.invalid", 0, home=tmp_path)
    with pytest.raises(InvalidInput, match=r"'203\.0\.113\.9': it is not an address of this machine; .* --host"):
        listen("203.0.113.9", 0, home=tmp_path)


def test_a_file_has_one_server(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    message = r"served already, at http://127.0.0.1:1; `mica server open` shows it"
    with only_server(file, address="http://127.0.0.1:1"), pytest.raises(InvalidInput, match=message):
        only_server(file, address="http://127.0.0.1:2").__enter__()
    with only_server(file, address="http://127.0.0.1:2"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_one_server_even_if_the_first_ends_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opened the lock file before its owner removed it locks the new file instead."""
    file, lock = tmp_path / "shop.db", fcntl.flock
    first = only_server(file, address="http://127.0.0.1:1")
    first.__enter__()

    def end_first_and_lock(descriptor: TextIO, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        first.__exit__(None, None, None)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", end_first_and_lock)
    with (
        only_server(file, address="http://127.0.0.1:2"),
        pytest.raises(InvalidInput, match=r"served already, at http://127\.0\.0\.1:2;"),
    ):
        only_server(file, address="http://127.0.0.1:3").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_fails_leaves_no_lock(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), only_server(tmp_path / "shop.db", address="http://127.0.0.1:1"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


async def test_servers_that_share_a_database_run_each_job_once(server: LocalPostgres, home: Settings) -> None:
    address = server.address()
    pools = [MemoryPool(address, settings=home) for _ in range(3)]
    try:
        memories = [await pool.memory() for pool in pools]
        with memories[0].context(session="s1", agent="scout"):
            memories[0].mark("The cookie is set before the redirect")
        ran = await asyncio.gather(*(memory.upkeep.tick() for memory in memories))
    finally:
        for pool in pools:
            await pool.close()

    kinds = [each.kind for part in ran for each in part]
    assert sorted(kinds) == sorted(set(kinds))
    assert "crystallize" in kinds


def _open(base: str, token: str, path: str, body: object = None) -> http.client.HTTPResponse:
    request = urllib.request.Request(
        base + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=120)
    return answer


def _events(stream: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a stream."""
    for line in stream:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


async def test_two_servers_share_a_database_and_one_survives_the_other(
    server: LocalPostgres, home: Settings, tmp_path: Path
) -> None:
    """Two processes run each job once, stream each other's events, and survive a kill of the other."""
    place = server.address()
    async with mica.open(place, settings=home) as memory:
        with memory.context(session="yesterday"):
            for number in range(4):
                text = f"The session cookie is set before the redirect in step {number} of the login page"
                memory.mark(text, at=utc_now() - timedelta(days=1))
    arguments = ("--no-import", "--no-browser", "--store", place)
    with ExitStack() as stack:
        started = [stack.enter_context(up(tmp_path, *arguments)) for _ in range(2)]
        token = TokenFile(tmp_path / ".local" / "share" / "mica").make("tests")[0]
        bases = [link.partition("/enter")[0] for _, link in started]
        crystals = stack.enter_context(_open(bases[1], token, "/api/crystals/stream?level=session&after=0"))
        assert next(_events(crystals))["level"] == "session"  # made by either server
        streams = [_events(stack.enter_context(_open(base, token, "/api/events/follow?names=mark"))) for base in bases]

        for base in bases:
            with _open(base, token, "/api/mark", {"text": f"said at {base}"}):
                assert [next(stream)["data"]["text"] for stream in streams] == [f"said at {base}"] * 2
        started[0][0].kill()
        started[0][0].wait()
        with _open(bases[1], token, "/api/mark", {"text": "said alone"}):
            assert next(streams[1])["data"]["text"] == "said alone"
        started[1][0].terminate()
        _, output = started[1][0].communicate(timeout=120)
        assert (started[1][0].returncode, "Traceback" in output) == (0, False), output

    async with mica.open(place, settings=home) as memory:
        made = await memory.events.query(EventQuery(names=("crystal.made",), limit=None))
        marks = await memory.events.query(EventQuery(names=("mark",), limit=None))
        assert not await memory.upkeep.verify()
    periods = [str(event.data["period"]) for event in made]
    assert sorted(periods) == sorted(set(periods))
    assert len(marks) == 7


async def test_a_pool_separates_spaces_and_closes_them_all(tmp_path: Path, home: Settings) -> None:
    pool = MemoryPool(tmp_path / "shop.db", settings=home)
    shop, other = await pool.memory(), await pool.memory("other", make=True)
    shop.mark("of the shop")

    assert await pool.memory("shop") is shop
    assert await other.events.query() == []
    assert await pool.spaces() == ["shop", "other"]
    with pytest.raises(InvalidInput, match="cannot be called"):
        await pool.memory("../other", make=True)
    await pool.close()
    with pytest.raises(mica.StoreUnavailable):
        await shop.events.query()
