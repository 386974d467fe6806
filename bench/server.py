"""How fast does the server answer, how soon do listeners receive an event, and what does a kill cost?

    python bench/server.py

It fills a space with a million events, serves it with `mica up`, and measures every page of the dashboard and every
part that a page loads; briefs over HTTP, compared with a bare Starlette handler of the same size and with the call
within a process; 500 listeners, each of which receives every event. Then the server is killed repeatedly while clients
write and one listener resumes by `Last-Event-ID`: every acknowledged event must be stored, and the listener must have
seen every position once. The last line of the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import psutil

import mica
from _events import scopes
from _table import argument_parser, check, finish, machine, median, percentile, show

BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
body = b"x" * int(sys.argv[2])
async def answer(request: Request) -> Response:
    await request.body()
    return Response(body, media_type="application/json")
uvicorn.run(Starlette(routes=[Route("/api/brief", answer, methods=["POST"])]), port=int(sys.argv[1]), log_level="error")
"""
BRIEF_REQUEST = json.dumps({"query": "session cookie redirect", "is_preview": True}).encode()
SPAN = timedelta(days=40)
MARK_EVERY = 100  # events, of which one is a mark
WRITERS = 4
READY_S = 120.0
PART = re.compile(r'hx-get="(/[^"{]*)"')
PAGE = re.compile(r'<a[^>]*href="(/[^"#?{]*)"')


class Plan(NamedTuple):
    """How large a run is: counts of rounds, events and queries."""

    events: int
    rounds: int  # of every page
    briefs: int
    listeners: int
    notified: int  # events that all listeners receive
    every_s: float
    kills: int
    killed_after_s: float


QUICK = Plan(events=10_000, rounds=5, briefs=30, listeners=500, notified=20, every_s=0.1, kills=2, killed_after_s=0.7)
FULL = Plan(
    events=1_000_000, rounds=20, briefs=200, listeners=500, notified=300, every_s=0.1, kills=20, killed_after_s=1.5
)


class Running:
    """A server started by `mica up`, and a token for it."""

    def __init__(self, home: Path, store: Path, port: int) -> None:
        self.port = port
        self._environment = os.environ | {"HOME": str(home), "MICA_SEMANTIC": "off"}
        self._command = [sys.executable, "-m", "mica", "up", "--no-import", "--no-browser"]
        self._command += ["--port", str(port), "--store", str(store)]
        made = [sys.executable, "-m", "mica", "server", "token", "make", "bench"]
        self.token = subprocess.check_output(made, env=self._environment, text=True).strip()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        wait_for(self.port)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        _, output = self.process.communicate(timeout=60)
        check(self.process.returncode == 0, f"the server ends cleanly: {output.decode()[-500:]}")

    def rss_bytes(self) -> int:
        assert self.process is not None
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}


def wait_for(port: int) -> None:
    """Wait until a server answers at this port."""
    until = time.monotonic() + READY_S
    while True:
        with suppress(OSError), closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/health")
            connection.getresponse().read()
            return
        check(time.monotonic() < until, f"a server answers at port {port}")
        time.sleep(0.02)


def opened(store: Path) -> mica.memory.Opening:
    """Open the space in this process, as a context."""
    return mica.open(store, settings=mica.load_settings({"HOME": str(store.parent), "MICA_SEMANTIC": "off"}))


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def fill(store: Path, events: int) -> None:
    """Fill a space with weeks of an agent daemon's log, with marks, and make their crystals."""
    count, began_at = 0, datetime.now(UTC) - SPAN
    async with opened(store) as memory:
        for scope in scopes(-(-events // 8)):
            context, at = scope.context, began_at + SPAN * (0.98 * count / events)
            for step in scope.steps:
                count += 1
                if count % MARK_EVERY:
                    memory.emit(step.name, step.data, context=context, at=at)
                else:
                    text = (
                        f"Step {count}: {step.data.get('note', '')} and the session cookie is set before the redirect"
                    )
                    memory.mark(text, context=context, at=at)
            if count % 50_000 < 8:
                await memory.events.position()
        await memory.crystals.make_due()
        await memory.upkeep.age()  # as an import does


def send_request(
    connection: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str], body: bytes | None
) -> tuple[float, bytes]:
    """Send a request. Returns the milliseconds until the complete answer arrived, and the answer."""
    began = time.perf_counter()
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    text = answer.read()
    took_ms = (time.perf_counter() - began) * 1_000
    check(answer.status == 200, f"{method} {path} is answered: {answer.status} {text[:200]!r}")
    return took_ms, text


def page_times(server: Running, rounds: int) -> dict[str, list[float]]:
    """Measure every page, and every part that pages load, in milliseconds."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        _, first = send_request(connection, "GET", "/", server.headers, None)
        pages = dict.fromkeys(["/", *PAGE.findall(first.decode())])
        parts: dict[str, None] = {}
        for page in pages:
            _, text = send_request(connection, "GET", page, server.headers, None)
            parts |= dict.fromkeys(path.replace("&amp;", "&") for path in PART.findall(text.decode()))
        paths = [*pages, *(path for path in parts if path not in pages)]
        times_ms: dict[str, list[float]] = {path: [] for path in paths}
        for _ in range(rounds):
            for path in paths:
                times_ms[path].append(send_request(connection, "GET", path, server.headers, None)[0])
    return times_ms


def brief_times(port: int, headers: dict[str, str], count: int) -> tuple[list[float], int]:
    """Measure briefs over HTTP, in milliseconds. Also returns the size of an answer in bytes."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        answers = [send_request(connection, "POST", "/api/brief", headers, BRIEF_REQUEST) for _ in range(count + 1)]
    return [took for took, _ in answers[1:]], len(answers[-1][1])


async def briefs_within(store: Path, count: int) -> list[float]:
    """Measure the same briefs within this process, in milliseconds."""
    times_ms = []
    async with opened(store) as memory:
        for _ in range(count + 1):
            began = time.perf_counter()
            await memory.brief("session cookie redirect", is_preview=True)
            times_ms.append((time.perf_counter() - began) * 1_000)
    return times_ms[1:]


@contextmanager
def bare(size_bytes: int) -> Iterator[int]:
    """Run a bare Starlette handler that answers this many bytes, and yield its port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port), str(size_bytes)], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield port
    finally:
        process.kill()
        process.wait()


class Listener(asyncio.Protocol):
    """One connection that receives events and records their times."""

    def __init__(self, request: bytes, delays_s: list[float], ready: asyncio.Semaphore) -> None:
        self._request = request
        self._delays_s = delays_s
        self._ready = ready
        self._rest = b""
        self._is_ready = False
        self.count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                self.count += 1
                self._delays_s.append(now - json.loads(line[6:])["data"]["sent"])
            elif not self._is_ready and line.startswith(b"id: "):
                self._is_ready = True
                self._ready.release()


async def listen(server: Running, plan: Plan) -> list[float]:
    """Measure the milliseconds from sending an event until each of many listeners has received it."""
    loop = asyncio.get_running_loop()
    head = f"GET /api/events/follow?names=bench.told&fields=data.sent HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    request = f"{head}Authorization: Bearer {server.token}\r\n\r\n".encode()
    delays_s: list[float] = []
    ready = asyncio.Semaphore(0)
    connections = [
        await loop.create_connection(lambda: Listener(request, delays_s, ready), "127.0.0.1", server.port)
        for _ in range(plan.listeners)
    ]
    for _ in connections:
        await ready.acquire()
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:

        def emit() -> None:
            event = {"name": "bench.told", "data": {"sent": time.perf_counter()}}
            send_request(connection, "POST", "/api/emit", server.headers, json.dumps({"events": [event]}).encode())

        began = loop.time()
        for number in range(plan.notified):
            await asyncio.sleep(max(0.0, began + number * plan.every_s - loop.time()))
            await asyncio.to_thread(emit)
    for _ in range(1_200):
        if len(delays_s) == plan.notified * plan.listeners:
            break
        await asyncio.sleep(0.05)
    check(len(delays_s) == plan.notified * plan.listeners, "every listener received every event once")
    for transport, _ in connections:
        transport.close()
    return [seconds * 1_000 for seconds in delays_s]


class Writer(threading.Thread):
    """Writes events until it is stopped, and records the acknowledged ones."""

    def __init__(self, server: Running, number: int, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._number = number
        self._stopping = stopping
        self.acknowledged: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            with (
                suppress(OSError, http.client.HTTPException),
                closing(http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=10)) as connection,
            ):
                while not self._stopping.is_set():
                    number += 1
                    event = {"name": "bench.kept", "data": {"writer": self._number, "number": number}}
                    body = json.dumps({"events": [event]}).encode()
                    _, text = send_request(connection, "POST", "/api/emit", self._server.headers, body)
                    self.acknowledged.append(json.loads(text)["events"][0]["id"])
            self._stopping.wait(0.02)


class Follower(threading.Thread):
    """One listener that resumes by `Last-Event-ID` after each disconnect."""

    def __init__(self, server: Running, after: int, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._stopping = stopping
        self.last = after
        self.seen: list[int] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            with (
                suppress(OSError, http.client.HTTPException),
                closing(http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=30)) as connection,
            ):
                headers = self._server.headers | {"Last-Event-ID": str(self.last)}
                connection.request("GET", "/api/events/follow?bundle=minimal", headers=headers)
                answer = connection.getresponse()
                position = None
                while not self._stopping.is_set() and (line := answer.readline()):
                    if line.startswith(b"id: "):
                        position = int(line[4:])
                    elif line.startswith(b"data: ") and position is not None:
                        self.seen.append(position)
                        self.last = position
            self._stopping.wait(0.02)


async def position_of(store: Path) -> int:
    async with opened(store) as memory:
        return await memory.events.position()


async def stored_since(store: Path, after: int) -> tuple[set[str], list[int]]:
    """Return the ids and positions of all events stored after a position."""
    async with opened(store) as memory:
        found = [event async for event in memory.events.log(after=after)]
    return {event.id for event in found}, [event.position or 0 for event in found]


def killed_under_load(server: Running, store: Path, plan: Plan) -> tuple[int, int, int]:
    """Kill and restart the server under load.

    Returns the number of acknowledged events that are lost, of positions that a listener missed or saw twice, and of
    acknowledged events.
    """
    after = asyncio.run(position_of(store))
    stopping, ending = threading.Event(), threading.Event()
    writers = [Writer(server, number, stopping) for number in range(WRITERS)]
    follower = Follower(server, after, ending)
    for thread in (*writers, follower):
        thread.start()
    for _ in range(plan.kills):
        time.sleep(plan.killed_after_s)
        server.kill()
        server.start()
    time.sleep(plan.killed_after_s)
    stopping.set()
    for writer in writers:
        writer.join()
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        send_request(
            connection, "GET", f"/api/events/log?after={2**40}", server.headers, None
        )  # a read stores waiting events first
    ids, positions = asyncio.run(stored_since(store, after))
    until = time.monotonic() + 60
    while follower.last < positions[-1] and time.monotonic() < until:
        time.sleep(0.05)
    ending.set()
    follower.join(10)
    acknowledged = [each for writer in writers for each in writer.acknowledged]
    lost = sum(each not in ids for each in acknowledged)
    seen = [position for position in follower.seen if position <= positions[-1]]
    gaps = len(set(positions) ^ set(seen)) + len(seen) - len(set(seen))
    return lost, gaps, len(acknowledged)


def main() -> None:
    parser = argument_parser(__doc__, quick="10,000 events and 2 kills in place of 1,000,000 and 20")
    parser.add_argument("--events", type=int, help="how many events the space has")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    plan = plan._replace(events=options.events or plan.events)
    print(machine())
    with tempfile.TemporaryDirectory(prefix="mica-bench-") as temporary:
        home = Path(temporary)
        store = home / "space.db"
        asyncio.run(fill(store, plan.events))
        server = Running(home, store, free_port())
        server.start()
        page_times(server, 1)
        brief_times(server.port, server.headers, 5)
        asyncio.run(listen(server, plan._replace(notified=5)))
        before = server.rss_bytes()  # everything was used once
        pages = page_times(server, plan.rounds)
        briefs, size_bytes = brief_times(server.port, server.headers, plan.briefs)
        delays_ms = asyncio.run(listen(server, plan))
        growth = server.rss_bytes() / before
        with bare(size_bytes) as port:
            plain, _ = brief_times(port, server.headers, plan.briefs)
        lost, gaps, acknowledged = killed_under_load(server, store, plan)
        server.stop()
        within = asyncio.run(briefs_within(store, plan.briefs))

    show(
        f"Pages over {plan.events:,} events, ms",
        ["page", "p50", "p95"],
        [[path, f"{median(times_ms):,.1f}", f"{percentile(times_ms, 0.95):,.1f}"] for path, times_ms in pages.items()],
    )
    show(
        "Briefs, ms",
        ["", "p50", "p95"],
        [
            [name, f"{median(times_ms):,.2f}", f"{percentile(times_ms, 0.95):,.2f}"]
            for name, times_ms in (("over HTTP", briefs), ("within a process", within), ("bare handler", plain))
        ],
    )
    show(
        f"An event to {plan.listeners} listeners, ms",
        ["", "p50", "p99", "worst"],
        [
            [
                "until received",
                f"{median(delays_ms):,.1f}",
                f"{percentile(delays_ms, 0.99):,.1f}",
                f"{max(delays_ms):,.1f}",
            ]
        ],
    )
    show(
        f"{plan.kills} kills under load",
        ["acknowledged", "lost", "missed or twice"],
        [[f"{acknowledged:,}", str(lost), str(gaps)]],
    )
    finish(
        {
            "events": plan.events,
            "page_p95_ms": max(percentile(times_ms, 0.95) for times_ms in pages.values()),
            "sse_p99_ms": percentile(delays_ms, 0.99),
            "brief_vs_bare": median(briefs) / median(plain),
            "brief_vs_process": median(briefs) / median(within),
            "acknowledged": acknowledged,
            "lost_acked": lost,
            "gaps": gaps,
            "rss_growth": growth,
        }
    )
    check(not lost and not gaps, "no acknowledged event is lost, and the listener misses none")


if __name__ == "__main__":
    main()
