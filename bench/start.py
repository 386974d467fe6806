"""What does starting mica cost, above a bare interpreter?

    python bench/start.py

A hook, a command or an agent's tool call starts a process each time, so start-up is paid thousands of times a day.
Every round starts each program once, one after the other, and takes the CPU time of the child (user and system).
Two programs of the standard library serve as a reference. The last line of the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import mica
from _table import argument_parser, check, finish, machine, median, show, spread
from mica.cli.sample import transcripts

IMPORT_TIME = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| ( *)(\S+)")
SLOWEST = 5


def cpu_ms(command: Sequence[str], *, folder: Path) -> float:
    """Run a command, and return its CPU milliseconds, including those of the processes it waits for."""
    environment = os.environ | {"MICA_HOME": str(folder), "MICA_CONFIG": str(folder / "config.toml")}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    check(process.returncode == 0, f"{' '.join(command)} ends well: {(folder / 'output').read_text()[-500:]}")
    return (usage.ru_utime + usage.ru_stime) * 1_000


async def fill(store: Path) -> int:
    """Fill a small space with the bundled sample, and return its number of events."""
    settings = mica.Settings(home=store.parent, transcripts=store.parent)
    async with mica.open(store, settings=settings) as memory:
        done = await memory.clients.import_transcripts(sorted(transcripts().rglob("*.jsonl")))
    return done.events


def slowest_imports(folder: Path) -> list[tuple[str, str, str]]:
    """Return the slowest modules of `import mica`: name, own milliseconds, milliseconds with their imports."""
    command = [sys.executable, "-X", "importtime", "-c", "import mica"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    bare = subprocess.run([*command[:3], "-c", "pass"], capture_output=True, text=True, cwd=folder, check=True)
    known = {name for _, _, _, name in IMPORT_TIME.findall(bare.stderr)}
    found = [
        (int(own), int(whole), name) for own, whole, _, name in IMPORT_TIME.findall(done.stderr) if name not in known
    ]
    return [(name, f"{own / 1_000:.1f}", f"{whole / 1_000:.1f}") for own, whole, name in sorted(found)[-SLOWEST:][::-1]]


def main() -> None:
    parser = argument_parser(__doc__, quick="9 rounds in place of 25")
    rounds = 9 if parser.parse_args().quick else 25

    python = sys.executable
    with tempfile.TemporaryDirectory(prefix="mica-bench-") as temporary:
        folder = Path(temporary)
        (folder / "config.toml").touch()
        store = folder / "space.db"
        events = asyncio.run(fill(store))
        programs = {
            "a bare interpreter": [python, "-c", "pass"],
            "import asyncio": [python, "-c", "import asyncio"],
            "python -m json.tool --help": [python, "-m", "json.tool", "--help"],
            "import mica": [python, "-c", "import mica"],
            "mica --help": [python, "-m", "mica", "--help"],
            "mica search cookie": [python, "-m", "mica", "search", "cookie", "--store", str(store)],
        }
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(rounds + 1):
            for name, command in programs.items():
                times[name].append(cpu_ms(command, folder=folder))
        times = {name: values[1:] for name, values in times.items()}  # the first round writes bytecode and fills caches
        imports = slowest_imports(folder)

    bare = times["a bare interpreter"]
    print(f"{machine()}; a space of {events:,} events")
    rows = [
        (name, spread(values, digits=1), f"{min(values) - min(bare):.1f} – {median(values) - median(bare):.1f}")
        for name, values in times.items()
    ]
    show(f"{rounds} rounds in turn", ("", "CPU ms (min – median)", "above bare"), rows)
    show("slowest imports of `import mica`, one run", ("module", "own ms", "with what it imports"), imports)
    finish(
        {
            "import_ms": median(times["import mica"]) - median(bare),
            "help_ms": median(times["mica --help"]),
            "search_ms": median(times["mica search cookie"]),
            "bare_ms": median(bare),
            "asyncio_ms": median(times["import asyncio"]),
            "json_tool_ms": median(times["python -m json.tool --help"]),
        }
    )


if __name__ == "__main__":
    main()
