"""How long does a coding agent wait for mica's MCP server, and how long for the same server made with the official SDK?

    python bench/serving.py

Each round starts both once, in turn: ours as clients start it, and a server with the same tool list written with the
`mcp` package. It takes the time from the start until `initialize` and `tools/list` are answered, and the CPU time of
the whole process. The last line of the output is one JSON object. Without that package only ours is measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _table import check, finish, machine, median, show, spread
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
ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
SENT = [
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": ABOUT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
]


def start(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Milliseconds until the tools are listed, and CPU milliseconds until the end."""
    environment = os.environ | {"MICA_HOME": str(folder), "MICA_CONFIG": str(folder / "config.toml")}
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    )
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    process.stdin.write("".join(json.dumps(each) + "\n" for each in SENT).encode())
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    waited = time.perf_counter() - began
    check(len(answers[1]["result"]["tools"]) == len(TOOLS), "every tool is listed")
    process.stdin.close()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    check(process.returncode == 0, "the server leaves when its input ends")
    return waited * 1_000, (usage.ru_utime + usage.ru_stime) * 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5 rounds in place of 15")
    rounds = 5 if parser.parse_args().quick else 15

    listed = json.dumps([tool.listed() for tool in TOOLS])
    programs = {"python -m mica.mcp": [sys.executable, "-P", "-m", "mica.mcp"]}
    if importlib.util.find_spec("mcp") is not None:
        programs["the same tools, official SDK"] = [sys.executable, "-P", "-c", SDK, listed]
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory(prefix="mica-bench-") as temporary:
        folder = Path(temporary)
        (folder / "config.toml").touch()
        for _ in range(rounds + 1):  # the first round writes bytecode and fills caches
            for name, command in programs.items():
                taken[name].append(start(command, folder))

    waits = {name: [waited for waited, _ in values[1:]] for name, values in taken.items()}
    costs = {name: [cpu for _, cpu in values[1:]] for name, values in taken.items()}
    print(machine())
    rows = [(name, spread(waits[name], digits=0), spread(costs[name], digits=0)) for name in programs]
    show(f"{rounds} rounds in turn", ("", "ms until tools are listed (min – median)", "CPU ms (min – median)"), rows)
    ours, *others = programs
    schema = len(json.dumps([tool.listed() for tool in TOOLS], separators=(",", ":"), ensure_ascii=False)) / 4
    result = {"ready_ms": median(waits[ours]), "cpu_ms": median(costs[ours]), "schema_tokens": schema}
    for name in others:
        result |= {"sdk_ready_ms": median(waits[name]), "sdk_cpu_ms": median(costs[name])}
    finish(result)


if __name__ == "__main__":
    main()
