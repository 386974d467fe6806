"""How long does a coding agent wait for mica's MCP server, and how long for the same server made with the official SDK?

    python bench/serving.py

Each round starts both once, in turn: ours as clients start it, and a server with the same tool list written with the
`mcp` package. It measures the time from the start until `initialize` and `tools/list` are answered, and the CPU time of
the whole process. Then both serve HTTP: `mica up`, with its guard and its tokens, and the SDK's server without any list
their tools in turn, one request after the other on one connection; ours also searches a space of 1,000 marks, over HTTP
and on standard output. The last line of the output is one JSON object. Without that
package only ours is measured.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2

import mica
from _table import argument_parser, check, finish, machine, median, percentile, show, spread
from mica.mcp.tools import TOOLS

SDK = """
import asyncio, json, sys
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult, Tool
tools = [Tool.model_validate(each) for each in json.loads(sys.argv[1])]
async def listed(context, params):
    return ListToolsResult(tools=tools)
async def main():
    server = Server("mica", version="0", on_list_tools=listed)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
asyncio.run(main())
"""
SDK_HTTP = """
import json, socket, sys, uvicorn
from mcp.server.lowlevel import Server
from mcp_types import ListToolsResult, Tool
tools = [Tool.model_validate(each) for each in json.loads(sys.argv[1])]
async def listed(context, params):
    return ListToolsResult(tools=tools)
app = Server("mica", version="0", on_list_tools=listed).streamable_http_app(json_response=True)
listening = socket.create_server(("127.0.0.1", 0))
print("Open http://127.0.0.1:%d/" % listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run([listening])
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
MARKS = 1_000
ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
MESSAGES = [
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": ABOUT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
]


def start(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run a server until its tools are listed. Returns the milliseconds until then, and its CPU milliseconds in all."""
    environment = environment_of(folder)
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    )
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    process.stdin.write("".join(json.dumps(each) + "\n" for each in MESSAGES).encode())
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    waited = time.perf_counter() - began
    check(len(answers[1]["result"]["tools"]) == len(TOOLS), "every tool is listed")
    process.stdin.close()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    check(process.returncode == 0, "the server exits when its input ends")
    return waited * 1_000, (usage.ru_utime + usage.ru_stime) * 1_000


def environment_of(folder: Path) -> dict[str, str]:
    config = folder / "config.toml"
    return os.environ | {"MICA_HOME": str(folder), "MICA_CONFIG": str(config), "MICA_SEMANTIC": "off"}


@contextmanager
def serving(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Run a server, and yield the address that it prints on a line beginning with Open."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=environment_of(folder), text=True
    )
    if process.stdout is None:
        raise AssertionError("it is a pipe")
    try:
        link = next((line for line in process.stdout if line.startswith("Open ")), "")
        check(bool(link), "the server prints its address")
        yield link.split()[1].rpartition("/")[0]
    finally:
        process.terminate()
        process.communicate()


def send_over_http(client: httpx2.Client, method: str, **params: object) -> float:
    """Send a request without a session over HTTP, and return the milliseconds until it is answered."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
    headers["mcp-method"] = method
    if "name" in params:
        headers["mcp-name"] = str(params["name"])
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
    began = time.perf_counter()
    answer = client.post("/mcp", json=body, headers=headers)
    took = time.perf_counter() - began
    check(answer.status_code == 200 and "result" in answer.json(), f"{method} is answered")
    return took * 1_000


class Lines:
    """A long-running server on standard input and output."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environment_of(folder)
        )

    def ask(self, method: str, **params: object) -> float:
        """Send a request, and return the milliseconds until it is answered."""
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("both are pipes")
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
        line = json.dumps(body).encode() + b"\n"
        began = time.perf_counter()
        self._process.stdin.write(line)
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        took = time.perf_counter() - began
        check("result" in answer, f"{method} is answered")
        return took * 1_000

    def leave(self) -> None:
        self._process.communicate()


async def fill(file: Path) -> None:
    """Fill a space with marks to search."""
    async with mica.open(file, settings=mica.load_settings({"HOME": str(file.parent)})) as memory:
        for number in range(MARKS):
            memory.mark(f"Step {number} of the login sets its cookie before the redirect of page {number % 7}")
        await memory.durable()


def measure_calls(calls: int, *, with_sdk: bool) -> dict[str, list[float]]:
    """Measure the milliseconds of each call, by server and request."""
    search = {"name": "search", "arguments": {"query": "cookie redirect page", "limit": 10}}
    mica_command = [sys.executable, "-P", "-m", "mica"]
    listed = json.dumps([tool.listing() for tool in TOOLS])
    with tempfile.TemporaryDirectory(prefix="mica-bench-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        (folder / "config.toml").touch()
        file = folder / "shop.db"
        asyncio.run(fill(file))
        made = subprocess.run(
            [*mica_command, "server", "token", "make", "bench", "--json"],
            env=environment_of(folder),
            stdout=subprocess.PIPE,
            check=True,
        )
        token = {"authorization": f"Bearer {json.loads(made.stdout)['token']}"}
        nothing = folder / "transcripts"
        nothing.mkdir()
        up = ["up", "--yes", "--no-browser", "--port", "0", "--store", str(file), "--transcripts", str(nothing)]
        address = stack.enter_context(serving([*mica_command, *up], folder))
        client = stack.enter_context(httpx2.Client(base_url=address, headers=token, timeout=60))
        lines = Lines([*mica_command, "mcp", "--store", str(file)], folder)
        stack.callback(lines.leave)
        ways: dict[str, Callable[[], float]] = {
            "http_list": lambda: send_over_http(client, "tools/list"),
            "stdio_list": lambda: lines.ask("tools/list"),
            "http_search": lambda: send_over_http(client, "tools/call", **search),
            "stdio_search": lambda: lines.ask("tools/call", **search),
        }
        if with_sdk:
            there = stack.enter_context(serving([sys.executable, "-P", "-c", SDK_HTTP, listed], folder))
            other = stack.enter_context(httpx2.Client(base_url=there, timeout=60))
            ways["sdk_http_list"] = lambda: send_over_http(other, "tools/list")
        results: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(calls + 3):  # the first calls also open connections and the space
            for name, way in ways.items():
                results[name].append(way())
    return {name: values[3:] for name, values in results.items()}


def main() -> None:
    parser = argument_parser(__doc__, quick="5 rounds in place of 15")
    rounds = 5 if parser.parse_args().quick else 15

    listed = json.dumps([tool.listing() for tool in TOOLS])
    programs = {"python -m mica.mcp": [sys.executable, "-P", "-m", "mica.mcp"]}
    if importlib.util.find_spec("mcp") is not None:
        programs["the same tools, official SDK"] = [sys.executable, "-P", "-c", SDK, listed]
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory(prefix="mica-bench-") as temporary:
        folder = Path(temporary)
        (folder / "config.toml").touch()
        for _ in range(rounds + 1):  # the first round writes bytecode and fills caches
            for name, command in programs.items():
                results[name].append(start(command, folder))

    waits = {name: [waited for waited, _ in values[1:]] for name, values in results.items()}
    costs = {name: [cpu for _, cpu in values[1:]] for name, values in results.items()}
    print(machine())
    rows = [(name, spread(waits[name], digits=0), spread(costs[name], digits=0)) for name in programs]
    show(f"{rounds} rounds in turn", ("", "ms until tools are listed (min – median)", "CPU ms (min – median)"), rows)
    ours, *others = programs
    schema = len(json.dumps([tool.listing() for tool in TOOLS], separators=(",", ":"), ensure_ascii=False)) / 4
    result = {"ready_ms": median(waits[ours]), "cpu_ms": median(costs[ours]), "schema_tokens": schema}
    calls = measure_calls(50 if rounds == 5 else 300, with_sdk=bool(others))
    titles = {
        "http_list": "mica up: tools/list over HTTP",
        "sdk_http_list": "official SDK: tools/list over HTTP",
        "stdio_list": "mica mcp: tools/list on standard output",
        "http_search": f"mica up: search among {MARKS:,} marks over HTTP",
        "stdio_search": "mica mcp: the same on standard output",
    }
    rows = [
        (title, spread(calls[name]), f"{percentile(calls[name], 0.95):.2f}")
        for name, title in titles.items()
        if name in calls
    ]
    show(f"{len(calls['http_list'])} calls in turn", ("", "ms (min – median)", "p95"), rows)
    result |= {f"{name}_ms": median(values) for name, values in calls.items()}
    if "sdk_http_list" in calls:
        result["http_vs_sdk"] = median(calls["http_list"]) / median(calls["sdk_http_list"])
    for name in others:
        result |= {"sdk_ready_ms": median(waits[name]), "sdk_cpu_ms": median(costs[name])}
    finish(result)


if __name__ == "__main__":
    main()
