"""The process: started by one command, stopped by one signal, hard to harm, and nothing stays behind."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import psutil
import pytest
from click.testing import CliRunner
from tests.web.server import WebServer, port_held, web_server_at

import mica
from mica.cli import cli
from mica.errors import InvalidInput
from mica.model.event import EventQuery, utc_now
from mica.settings import Settings
from mica.testing.postgres import Server
from mica.web import process as running
from mica.web.access import Limits
from mica.web.memory_pool import House
from mica.web.process import alone, bound
from mica.web.slow_clients import PatientProtocol
from mica.web.tokens import Tokens

ENOUGH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def connected(server: WebServer) -> socket.socket:
    host, _, port = server.base.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def read_all(connection: socket.socket) -> bytes:
    """Everything up to the end of the connection, however it ends."""
    got = b""
    try:
        while piece := connection.recv(65_536):
            got += piece
    except ConnectionResetError:
        pass
    return got


@pytest.mark.parametrize("drop", [b"", b"GET /he", b"GET /health HTTP/1.1\r\nHost: 127.0"])
@pytest.mark.parametrize("is_known", [False, True], ids=["at once", "after a request"])
def test_who_sends_a_request_drop_by_drop_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drop: bytes, is_known: bool
) -> None:
    monkeypatch.setattr(running, "KEEP_ALIVE_S", 1)
    with web_server_at(tmp_path) as server, monkeypatch.context() as hurried:
        if not is_known:
            hurried.setattr(PatientProtocol, "headers_s", 0.05)
        with closing(connected(server)) as slow:
            if is_known:
                slow.sendall(ENOUGH.replace(b"close", b"keep-alive"))
                assert b"200 OK" in slow.recv(65_536)
                hurried.setattr(PatientProtocol, "headers_s", 0.05)
            slow.sendall(drop)

            assert read_all(slow) in (b"", b'{"status":"ok","version":"0.1.0"}')  # it ends; nobody here has closed it

        hurried.undo()  # a whole request may take longer than that on a busy machine
        with closing(connected(server)) as quick:
            quick.sendall(ENOUGH)
            assert b'"status":"ok"' in read_all(quick)


def test_a_body_that_never_comes_is_given_up(tmp_path: Path) -> None:
    with web_server_at(tmp_path, limits=Limits(body_grace_s=0.05)) as server, closing(connected(server)) as slow:
        slow.sendall(_post(server, b"Content-Length: 100"))
        slow.sendall(b'{"text": ')

        assert b"HTTP/1.1 408" in read_all(slow)


@pytest.mark.parametrize("length", [b"Content-Length: 100000000", b"Transfer-Encoding: chunked", b"Content-Length: -1"])
def test_a_body_of_a_hundred_megabytes_is_refused_before_it_is_held(web_server: WebServer, length: bytes) -> None:
    with closing(connected(web_server)) as greedy:
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
    with closing(connected(web_server)) as other:
        other.sendall(ENOUGH)
        assert b'"status":"ok"' in read_all(other)


def _post(server: WebServer, length: bytes) -> bytes:
    head = f"POST /api/marks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n" + length + b"\r\n\r\n"


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/static/../../../etc/passwd", "/static/..%2f..%2f..%2fetc/passwd", "/static//etc/passwd"],
)
def test_no_path_leads_out_of_what_is_served(web_server: WebServer, path: str) -> None:
    with closing(connected(web_server)) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        connection.sendall(f"{head}Authorization: Bearer {web_server.token}\r\n\r\n".encode())
        got = read_all(connection)

    assert got.split()[1] == b"404"
    assert b"root:" not in got


def test_too_many_requests_are_told_to_wait(tmp_path: Path) -> None:
    with web_server_at(tmp_path, limits=Limits(requests_per_s=0.001, burst=3, refusals_burst=2)) as server:

        def asked(token: str) -> list[int]:
            found = []
            for _ in range(5):
                request = urllib.request.Request(
                    f"{server.base}/api/sizes", headers={"authorization": f"Bearer {token}"}
                )
                try:
                    with urllib.request.urlopen(request) as answer:
                        found.append(answer.status)
                except urllib.error.HTTPError as error:
                    with error:
                        found.append(error.code if error.headers.get("retry-after") is None else -error.code)
            return found

        assert asked(server.token) == [200, 200, 200, -429, -429]  # each says how long to wait
        assert asked("guessed") == [401, 401, -429, -429, -429]


def test_nobody_is_another_caller_by_saying_so(tmp_path: Path) -> None:
    """Whoever guesses tokens is slowed down by its own address, not by the one that it writes in a header."""
    with web_server_at(tmp_path, limits=Limits(refusals_per_s=0.001, refusals_burst=2)) as server:
        told = []
        for number in range(5):
            headers = {"authorization": "Bearer guessed", "x-forwarded-for": f"10.0.0.{number}"}
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(f"{server.base}/api/sizes", headers=headers))
            with refused.value as error:
                told.append(error.code)

    assert told == [401, 401, 429, 429, 429]


def test_a_port_that_is_taken_is_told_with_the_next_step(tmp_path: Path) -> None:
    with closing(bound("127.0.0.1", 0, home=tmp_path)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port} is taken .* `mica up --port {port + 1}`"):
            bound("127.0.0.1", port, home=tmp_path)
    with pytest.raises(InvalidInput, match="give an address of this machine"):
        bound("no.such.host.invalid", 0, home=tmp_path)
    with pytest.raises(InvalidInput, match=r"'203\.0\.113\.9': it is not an address of this machine; .* --host"):
        bound("203.0.113.9", 0, home=tmp_path)


def test_a_file_has_one_server(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    told = r"served already, at http://127.0.0.1:1; `mica open` shows it"
    with alone(file, address="http://127.0.0.1:1"), pytest.raises(InvalidInput, match=told):
        alone(file, address="http://127.0.0.1:2").__enter__()
    with alone(file, address="http://127.0.0.1:2"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_one_server_whoever_ends_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who opened the lock before its owner took it away holds nothing: it takes the one that counts now."""
    file, lock = tmp_path / "shop.db", fcntl.flock
    first = alone(file, address="http://127.0.0.1:1")
    first.__enter__()

    def ends_before(descriptor: TextIO, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        first.__exit__(None, None, None)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", ends_before)
    with (
        alone(file, address="http://127.0.0.1:2"),
        pytest.raises(InvalidInput, match=r"served already, at http://127\.0\.0\.1:2;"),
    ):
        alone(file, address="http://127.0.0.1:3").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_fails_leaves_no_lock(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), alone(tmp_path / "shop.db", address="http://127.0.0.1:1"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@contextmanager
def up(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`mica up` as a process of its own, and the link that it prints."""
    environment = {**os.environ, "HOME": str(home), "MICA_SEMANTIC": "off"}
    command = [sys.executable, "-m", "mica", "up", "--port", "0", *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = next((line for line in process.stdout if line.startswith("Open http://")), None)
            assert line is not None, process.communicate()
            yield process, line.split()[1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_serves_until_a_signal_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """U-06, U-11: one command serves what it shows; one signal ends it. D-12: no old transport unless it is set."""
    (tmp_path / "home").mkdir()
    data = tmp_path / "home" / ".local" / "share" / "mica"
    variables = {"HOME": str(tmp_path / "home"), "MICA_SEMANTIC": "off"}
    with up(tmp_path / "home") as (process, link):
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(link) as page:
            assert page.status == 200
        base = link.partition("/enter")[0]
        with opener.open(f"{base}/api/spaces") as answer:
            assert json.load(answer)["default"] == "sample"
        with pytest.raises(urllib.error.HTTPError) as old:
            opener.open(f"{base}/mcp/sse")
        with old.value as error:
            assert error.code == 404

        told = json.loads(CliRunner().invoke(cli, ["open", "--json"], env=variables).stdout)
        assert (told["address"], told["pid"]) == (base, process.pid)
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(told["link"]) as page:
            assert page.status == 200

        second = CliRunner().invoke(cli, ["up", "--port", "0"], env=variables)
        assert (second.exit_code, "served already" in second.stderr) == (1, True)
        children = psutil.Process(process.pid).children(recursive=True)
        with opener.open(f"{base}/api/stream") as stream:  # as a tab of the dashboard does
            assert stream.readline().startswith(b"retry:")
            process.send_signal(number)
            out, err = process.communicate(timeout=120)

    assert process.returncode == 0, out + err
    assert err.splitlines()[-1] == "mica: stopped"
    assert "Traceback" not in err
    assert "Cancel" not in err
    assert "is closed" not in err
    assert link.partition("key=")[2] not in err
    assert not any(child.is_running() for child in children)
    assert list((data / "servers").iterdir()) == []
    assert [file.name for file in (data / "spaces").iterdir() if not file.name.endswith(".db")] == []
    assert [token.name for token in Tokens(data).all() if token.name != "browser"] == []
    assert CliRunner().invoke(cli, ["open"], env=variables).exit_code == 1


# `python -m mica`, which waits while it loads: that is over in a moment, and nobody could be sure to meet it.
LOADING = """if True:
    import pathlib, runpy, signal, sys

    class Wait:
        def find_spec(self, name, path, target=None):
            if name == "mica.cli.trails":
                pathlib.Path.home().joinpath("loading").touch()
                signal.pause()

    sys.meta_path.insert(0, Wait())
    runpy.run_module("mica", run_name="__main__", alter_sys=True)
"""


def _is_begun(process: subprocess.Popen[str], _: Path) -> bool:
    """Whether the command runs, and loads what only a server needs."""
    return "markupsafe" in Path(f"/proc/{process.pid}/maps").read_text(encoding="ascii", errors="replace")


def _has(pattern: str) -> Callable[[subprocess.Popen[str], Path], bool]:
    return lambda _, data: any(data.glob(pattern))


MICA = ("-m", "mica")


@pytest.mark.parametrize(
    ("program", "moment", "number"),
    [
        (("-c", LOADING), lambda _, data: (data.parents[2] / "loading").exists(), signal.SIGINT),
        (MICA, _is_begun, signal.SIGINT),
        (MICA, _has("spaces/*.serving"), signal.SIGINT),
        (MICA, _has("servers/*"), signal.SIGTERM),
        (MICA, _has("spaces/*.db"), signal.SIGINT),
        (MICA, _has("spaces/*.db-wal"), signal.SIGTERM),
    ],
    ids=["loading", "begun", "locked", "noted", "opened", "importing"],
)
def test_a_signal_at_any_moment_ends_it_and_leaves_nothing(
    tmp_path: Path,
    program: tuple[str, str],
    moment: Callable[[subprocess.Popen[str], Path], bool],
    number: signal.Signals,
) -> None:
    """U-11: while it loads, starts, imports or serves: no traceback, no process, no lock, and all can be read."""
    data = tmp_path / ".local" / "share" / "mica"
    variables = {"HOME": str(tmp_path), "MICA_SEMANTIC": "off"}
    command = [sys.executable, *program, "up", "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 60
        while not (is_moment := moment(process, data)) and process.poll() is None and time.monotonic() < until:
            pass
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()

    assert is_moment, out + err
    assert process.returncode in (0, 130, -signal.SIGINT), out + err
    assert "Traceback" not in err
    assert not any(child.is_running() for child in children)
    assert [file.name for file in (*data.glob("servers/*"), *data.glob("spaces/*.serving"))] == []
    assert [token.name for token in Tokens(data).all()] == []
    with closing(bound("127.0.0.1", 0, home=data)), alone(data / "spaces" / "sample.db", address="http://127.0.0.1:1"):
        looked = CliRunner().invoke(cli, ["up", "--once", "--json"], env=variables)
    assert looked.exit_code == 0, looked.output


def test_the_token_of_a_server_that_was_killed_ends_with_the_next(tmp_path: Path) -> None:
    """What it had no time to take back would open everything for good."""
    with port_held() as port:
        with up(tmp_path, "--no-import", "--port", str(port)) as (_, link):
            address = link.partition("/enter")[0]
        with up(tmp_path, "--no-import", "--port", str(port)) as (process, again):
            assert again.partition("/enter")[0] == address
            names = [token.name for token in Tokens(tmp_path / ".local" / "share" / "mica").all()]
            process.terminate()
            process.communicate(timeout=120)

    assert names == [f"server at {address}"]


def test_a_token_for_a_space_that_is_not_there_is_made_with_a_word(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path)}
    CliRunner().invoke(cli, ["up", "--once", "--json"], env={**variables, "MICA_SEMANTIC": "off"})
    made = CliRunner().invoke(cli, ["token", "make", "z", "--space", "nosuch", "--space", "sample"], env=variables)

    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("mica_")
    assert "no space is called 'nosuch' yet" in made.stderr
    assert "'sample'" not in made.stderr


def test_tokens_are_made_listed_and_revoked_by_commands(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["token", *arguments], env=variables)
        assert done.exit_code == 0, done.output
        return done.stdout

    secret = run("make", "laptop", "--space", "shop", "--days", "3").strip()
    [listed] = json.loads(run("list", "--json"))

    assert secret.startswith("mica_")
    assert secret not in run("list")
    assert (listed["name"], listed["spaces"]) == ("laptop", ["shop"])
    run("revoke", listed["id"])
    assert json.loads(run("list", "--json")) == []


async def test_servers_that_share_a_database_do_no_work_twice(server: Server, home: Settings) -> None:
    address = server.address()
    houses = [House(address, settings=home) for _ in range(3)]
    try:
        memories = [await house.memory() for house in houses]
        with memories[0].context(session="s1", agent="scout"):
            memories[0].mark("The cookie is set before the redirect")
        ran = await asyncio.gather(*(memory.tick() for memory in memories))
    finally:
        for house in houses:
            await house.close()

    kinds = [each.kind for part in ran for each in part]
    assert sorted(kinds) == sorted(set(kinds))
    assert "crystallize" in kinds


def _asked(base: str, token: str, path: str, body: object = None) -> http.client.HTTPResponse:
    request = urllib.request.Request(
        base + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=120)
    return answer


def _said(stream: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """What a stream tells, one event at a time."""
    for line in stream:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


async def test_two_servers_share_a_database_and_one_goes_on_alone(
    server: Server, home: Settings, tmp_path: Path
) -> None:
    """U-11: as processes. What is due is done once, both tell of what either stores, and a kill stops neither."""
    place = server.address()
    async with mica.open(place, settings=home) as memory:
        with memory.context(session="yesterday"):
            for number in range(4):
                text = f"The session cookie is set before the redirect in step {number} of the login page"
                memory.mark(text, at=utc_now() - timedelta(days=1))
    arguments = ("--no-import", "--no-browser", "--store", place)
    with ExitStack() as stack:
        started = [stack.enter_context(up(tmp_path, *arguments)) for _ in range(2)]
        token = Tokens(tmp_path / ".local" / "share" / "mica").make("tests")[0]
        bases = [link.partition("/enter")[0] for _, link in started]
        crystals = stack.enter_context(_asked(bases[1], token, "/api/crystals/stream?level=session&after=0"))
        assert next(_said(crystals))["level"] == "session"  # whoever of them made it
        streams = [_said(stack.enter_context(_asked(base, token, "/api/stream?names=mark"))) for base in bases]

        for base in bases:
            with _asked(base, token, "/api/marks", {"text": f"said at {base}"}):
                assert [next(stream)["data"]["text"] for stream in streams] == [f"said at {base}"] * 2
        started[0][0].kill()
        started[0][0].wait()
        with _asked(bases[1], token, "/api/marks", {"text": "said alone"}):
            assert next(streams[1])["data"]["text"] == "said alone"
        started[1][0].terminate()
        _, told = started[1][0].communicate(timeout=120)
        assert (started[1][0].returncode, "Traceback" in told) == (0, False), told

    async with mica.open(place, settings=home) as memory:
        made = await memory.events(EventQuery(names=("crystal.made",), limit=None))
        marks = await memory.events(EventQuery(names=("mark",), limit=None))
        assert not await memory.verify()
    periods = [str(event.data["period"]) for event in made]
    assert sorted(periods) == sorted(set(periods))
    assert len(marks) == 7


async def test_a_house_keeps_spaces_apart_and_closes_them_all(tmp_path: Path, home: Settings) -> None:
    house = House(tmp_path / "shop.db", settings=home)
    shop, other = await house.memory(), await house.memory("other", make=True)
    shop.mark("of the shop")

    assert await house.memory("shop") is shop
    assert await other.events() == []
    assert await house.spaces() == ["shop", "other"]
    with pytest.raises(InvalidInput, match="cannot be called"):
        await house.memory("../other", make=True)
    await house.close()
    with pytest.raises(mica.StoreUnavailable):
        await shop.events()
