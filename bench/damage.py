"""Does a flipped bit ever change an answer without a word?

    python bench/damage.py

Files of a space are copied, one random bit of one file is flipped, and everything is read through the public API:
events, chains, search, crystals and a brief. The files are a store with rows and with compressed blocks, its
write-ahead log and the segments that killed processes left, an export, and a spool that hooks wrote. A flip is
*noticed* if a read raises an error of mica, or if verify or a message about damaged files says so. It is *silent* if an
answer differs and nothing says so, *raw* if another exception gets out, and *hung* if there is no answer in time. The
reads run in a child process. The last line of the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import mica
from _table import argument_parser, check, finish, machine, show
from mica import hook
from mica.errors import MicaError
from mica.store.space import space_of

SEED = 20261117
FLIPS, FLIPS_QUICK = 2_400, 216
LIMIT_S = 60.0  # for one flip, some hundred times as long as it takes
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HEADER_BYTES, HEADER_SHARE = 1_024, 0.2  # of the flips are near the beginning, where one bit can matter most
OUTCOMES = ("silent", "raw", "hung")
WORDS = "cookie redirect login session cart mail header token index backup".split()
SPACE = "space.db"
EXPORT = "export.jsonl"

Answers = dict[str, object]


class Kind(NamedTuple):
    """One kind of damaged file: the folder with undamaged files, those whose bits are flipped, and the space."""

    name: str
    folder: Path
    targets: tuple[Path, ...]  # relative to the folder
    space: Path


class Reply(NamedTuple):
    """What reading a folder gave: answers, messages about damage, and the traceback of an unexpected exception."""

    answers: Answers
    notices: list[str]
    raw: str = ""


# -- Files ----------------------------------------------------------------------------------------------------


def opened(path: Path) -> mica.memory.Opening:
    home = path.parent
    return mica.open(path, settings=mica.Settings(home=home, transcripts=home), clock=lambda: NOW, reads_ahead=False)


def work(memory: mica.Memory, chance: random.Random, *, sessions: int, first: int = 0) -> None:
    """Record sessions with prompts, tool calls, marks and chains; a few events have large data."""
    for number in range(first, first + sessions):
        at = NOW - timedelta(days=3) + timedelta(hours=number)
        with memory.context(session=f"s{number}", agent=f"agent-{number % 3}", user="ann", task="mend the login"):
            memory.emit("session.started", {"cwd": "/shop"}, at=at)
            parent = None
            for step in range(6):
                text = f"The {chance.choice(WORDS)} of part {number} needs the {' '.join(chance.choices(WORDS, k=6))}"
                when = at + timedelta(minutes=step)
                parent = memory.mark(text, tags=["gotcha"], parent=parent, at=when)
                memory.emit("tool.ran", {"tool": "search", "query": text[:20], "n": step}, parent=parent, at=when)
            memory.emit("tool.ran", {"output": " ".join(chance.choices(WORDS, k=1_200))}, at=at, error=True)
            memory.emit("session.ended", {"text": "Still open: the cart"}, at=at + timedelta(minutes=30))


async def make_store(folder: Path, chance: random.Random, *, age: timedelta | None) -> None:
    async with opened(folder / SPACE) as memory:
        work(memory, chance, sessions=8)
        await memory.crystals.close_due()
        if age is not None:
            await memory.upkeep.age(age)
    (folder / EXPORT).unlink(missing_ok=True)


async def make_export(folder: Path, chance: random.Random) -> None:
    async with opened(folder / SPACE) as memory:
        work(memory, chance, sessions=3)
        await memory.events.export(folder / EXPORT)
    (folder / SPACE).unlink()


async def leave(path: Path, *, is_stored: bool) -> None:
    """Record work and end this process by force: the events are in the write-ahead log, or still in segments."""
    memory = await opened(path)
    for number in range(8, 12):
        work(memory, random.Random(number), sessions=1, first=number)
        await memory.durable()
        if is_stored:
            await memory.events.position()
    os.kill(os.getpid(), signal.SIGKILL)


def make_killed(folder: Path, *, is_stored: bool) -> None:
    asyncio.run(make_store(folder, random.Random(SEED), age=timedelta(days=2)))
    process = multiprocessing.Process(target=_leave, args=(folder / SPACE, is_stored))
    process.start()
    process.join()
    check(process.exitcode == -signal.SIGKILL, "a process was killed")


def _leave(path: Path, is_stored: bool) -> None:  # noqa: FBT001
    asyncio.run(leave(path, is_stored=is_stored))


def make_spool(folder: Path) -> Path:
    """Run the hook program as an agent does; returns the file of the space, whose spool it wrote."""
    project = folder / "shop"
    (project / ".git").mkdir(parents=True)
    (folder / hook.COMMAND.decode()).write_text("/bin/true\ningest\n")
    for number in range(6):
        payload = {"session_id": "s1", "hook_event_name": "UserPromptSubmit", "cwd": str(project)}
        payload |= {"prompt_id": f"p{number}", "prompt": f"please mend the {WORDS[number]} of the login page"}
        subprocess.run(
            [sys.executable, "-I", hook.__file__, "claude", "UserPromptSubmit"],
            input=json.dumps(payload).encode(),
            env={"HOME": str(folder), "MICA_HOME": str(folder), "MICA_SEMANTIC": "off"},
            cwd=project,
            check=True,
            capture_output=True,
        )
    return space_of(project, home=folder).file


def kinds(folder: Path) -> list[Kind]:
    """Make the undamaged files of every kind."""
    chance = random.Random(SEED)
    names = ("store", "blocks", "wal", "segments", "exports", "spools")
    places = {name: folder / name for name in names}
    for place in places.values():
        place.mkdir()
    asyncio.run(make_store(places["store"], chance, age=timedelta(days=2, hours=21)))  # half of them
    asyncio.run(make_store(places["blocks"], chance, age=timedelta(0)))
    make_killed(places["wal"], is_stored=True)
    make_killed(places["segments"], is_stored=False)
    asyncio.run(make_export(places["exports"], chance))
    spooled = make_spool(places["spools"]).relative_to(places["spools"])
    targets = {
        "store": [places["store"] / SPACE],
        "blocks": [places["blocks"] / SPACE],
        "wal": [places["wal"] / f"{SPACE}-wal"],
        "segments": sorted((places["segments"] / f"{SPACE}-segments").rglob("*.segment")),
        "exports": [places["exports"] / EXPORT],
        "spools": sorted(places["spools"].rglob("*.jsonl")),
    }
    for name, files in targets.items():
        check(bool(files) and all(file.stat().st_size for file in files), f"there are {name}")
    return [
        Kind(name, places[name], tuple(each.relative_to(places[name]) for each in targets[name]),
             spooled if name == "spools" else Path(SPACE))
        for name in names
    ]  # fmt: skip


# -- Reading, in a child process ------------------------------------------------------------------------------


async def read_all(folder: Path, space: Path) -> Reply:
    """Read everything in a folder. An error of mica and every message about damage is a notice."""
    answers: Answers = {}
    notices: list[str] = []
    try:
        async with opened(folder / space) as memory:
            export = folder / EXPORT
            if export.exists():
                await _attempt(memory.events.import_log(export), notices)
            await _ask(memory, answers, notices)
            problems = await _attempt(memory.upkeep.verify(), notices)
            notices += [*(problems if isinstance(problems, list) else []), *memory.upkeep.damaged]
            notices += [] if memory.clients.spools is None else memory.clients.spools.damaged
    except MicaError as error:
        notices.append(str(error))
    return Reply(answers, notices)


async def _attempt(call: Awaitable[object], notices: list[str]) -> object:
    try:
        return await call
    except MicaError as error:
        notices.append(f"{type(error).__name__}: {error}")
        return None


async def _ask(memory: mica.Memory, answers: Answers, notices: list[str]) -> None:
    events = await _attempt(memory.events.query(mica.EventQuery(limit=None)), notices)
    answers["events"] = [_plain(event) for event in events] if isinstance(events, list) else None
    for query in (
        mica.EventQuery(session="s3"),
        mica.EventQuery(names=("tool.*",), errors=True),
        mica.EventQuery(text="cart"),
    ):
        found = await _attempt(memory.events.query(query), notices)
        answers[repr(query)] = [_plain(event) for event in found] if isinstance(found, list) else None
    for words in ("cookie redirect", "what does the mail need"):
        hits = await _attempt(memory.search(words, limit=5), notices)
        answers[words] = [(hit.id, hit.text) for hit in hits] if isinstance(hits, list) else None
    crystals = await _attempt(memory.crystals.list(), notices)
    answers["crystals"] = (
        [(each.id, each.text, each.sources) for each in crystals] if isinstance(crystals, list) else None
    )
    if isinstance(events, list) and events:
        chain = await _attempt(memory.events.chain(events[len(events) // 2]), notices)
        answers["chain"] = [_plain(event) for event in chain] if isinstance(chain, list) else None
    brief = await _attempt(memory.brief("mend the login", now=NOW, deadline_s=LIMIT_S / 4, is_preview=True), notices)
    if isinstance(brief, mica.Brief):
        answers["brief"] = None if brief.missing else brief.text
        notices += [f"the brief lacks {name}: {reason}" for name, reason in brief.missing.items()]


def _plain(event: mica.Event) -> tuple[object, ...]:
    context = event.context
    own = event.id, event.name, event.at, event.body, event.parent_id, event.root_id, event.depth, event.error
    return (*own, event.origin, context.session, context.agent, context.user, context.task, context.labels)


def serve(connection: Connection) -> None:
    """Read one folder after another, until the parent closes the connection."""
    logging.disable()
    with suppress(EOFError):
        while True:
            folder, space = connection.recv()
            try:
                with suppress_output():
                    reply = asyncio.run(read_all(folder, space))
            except BaseException:  # noqa: BLE001 - it is what this benchmark counts
                reply = Reply({}, [], traceback.format_exc())
            connection.send(reply)


class suppress_output:  # noqa: N801 - used like a function
    """Drop what libraries write to standard error meanwhile."""

    def __enter__(self) -> None:
        self._stderr, sys.stderr = sys.stderr, io.StringIO()

    def __exit__(self, *_: object) -> None:
        sys.stderr = self._stderr


class Reader:
    """A child process that reads folders; a new one takes the place of one that hangs."""

    def __init__(self) -> None:
        self._process: multiprocessing.Process | None = None

    def read(self, folder: Path, space: Path) -> Reply | None:
        """Return the reply; None if there is none in time, or if the process ended."""
        if self._process is None:
            self._connection, theirs = multiprocessing.Pipe()
            self._process = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._connection.send((folder, space))
            if self._connection.poll(LIMIT_S):
                reply = self._connection.recv()
                assert isinstance(reply, Reply)
                return reply
        except (EOFError, OSError):
            self.close()
            return Reply({}, [], "the process ended")
        self.close()
        return None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


# -- Flips ----------------------------------------------------------------------------------------------------


def places_of(file: Path) -> Sequence[int]:
    """Return the offsets of the bytes to damage. In a file with holes, they are in the header and near other data."""
    raw = file.read_bytes()
    if raw.count(0) < len(raw) // 2:
        return range(len(raw))
    used = {start for start in range(0, len(raw), 64) if start < HEADER_BYTES or any(raw[start : start + 64])}
    return [place for start in sorted(used) for place in range(start, min(start + 64, len(raw)))]


def flip(file: Path, offset: int, bit: int) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(offset)
        byte = opened_file.read(1)[0]
        opened_file.seek(offset)
        opened_file.write(bytes([byte ^ 1 << bit]))


def classify(reply: Reply | None, truth: Reply) -> str:
    if reply is None:
        return "hung"
    if reply.raw:
        return "raw"
    if reply.notices:
        return "noticed"
    return "harmless" if reply.answers == truth.answers else "silent"


def measure(kind: Kind, folder: Path, flips: int, reader: Reader, report: Callable[[str], None]) -> Counter[str]:
    """Flip bits one at a time; returns how often each outcome occurred."""
    chance = random.Random(f"{SEED} {kind.name}")
    copy = folder / "copy"
    shutil.copytree(kind.folder, copy)
    truth = reader.read(copy, kind.space)
    shutil.rmtree(copy)
    check(truth is not None and not truth.raw and not truth.notices, f"undamaged {kind.name} can be read: {truth}")
    assert truth is not None
    check(bool(truth.answers["events"]), f"{kind.name} hold events")
    places = {target: places_of(kind.folder / target) for target in kind.targets}
    outcomes: Counter[str] = Counter()
    for _ in range(flips):
        target = chance.choices(kind.targets, [len(places[each]) for each in kind.targets])[0]
        near = places[target] if chance.random() > HEADER_SHARE else places[target][:HEADER_BYTES]
        offset, bit = chance.choice(near), chance.randrange(8)
        shutil.copytree(kind.folder, copy)
        flip(copy / target, offset, bit)
        reply = reader.read(copy, kind.space)
        outcome = classify(reply, truth)
        if outcome in OUTCOMES:
            report(f"{outcome}: bit {bit} of byte {offset:,} of {target} ({kind.name}) {reply.raw if reply else ''}")
        outcomes[outcome] += 1
        shutil.rmtree(copy)
    return outcomes


def main() -> None:
    parser = argument_parser(__doc__, quick=f"{FLIPS_QUICK} flips instead of {FLIPS:,}")
    parser.add_argument("--flips", type=int, help="how many bits are flipped, over all kinds")
    parser.add_argument("--only", help="only this kind of file, such as wal")
    options = parser.parse_args()
    flips = options.flips or (FLIPS_QUICK if options.quick else FLIPS)
    print(machine())
    multiprocessing.set_start_method("fork")
    memory = Path("/dev/shm")  # copies are synced, which a disk would make slow
    began = time.monotonic()
    reader = Reader()
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        folder = Path(name)
        every = [kind for kind in kinds(folder) if options.only in (None, kind.name)]
        found = {kind.name: measure(kind, folder, flips // len(every), reader, print) for kind in every}
        reader.close()
    total: Counter[str] = sum(found.values(), Counter())
    columns = ("flips", *OUTCOMES, "noticed", "harmless")
    rows = {**found, "all": total}
    show(
        "One flipped bit each",
        ("file", *columns),
        [(name, str(each.total()), *(str(each[column]) for column in columns[1:])) for name, each in rows.items()],
    )
    print(f"\n{time.monotonic() - began:.0f} s")
    finish({"flips": total.total(), **{column: total[column] for column in columns[1:]}})


if __name__ == "__main__":
    main()
