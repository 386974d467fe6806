"""What does a hook cost the waiting agent, compared with a bare interpreter?

    python bench/hooks.py

Every round runs each hook once, in turn with `python -I -S -c pass` of the same interpreter, and takes the CPU time of
the child (user and system). Observing hooks append a line, answering hooks also print a brief of 9,000 characters, or
rank the files of a project (400 files, 300 tasks with a commit each; `--files` for another size) and print the best
with their lines. A session that starts beside another one also gets what that one has spooled: `SessionStart, news`.
`file` is the program run as one file, which Python compiles each time; `launcher` imports it compiled. Every line must
be in the spool, and an ingest must store each once. The cost of a background ingest is shown separately, because the
agent does not wait for it.

Then 50 prompts are sent at once while eight processes use all the time they get: short ones, and such of 1 MB. `lost`
counts those that are not whole in the spool afterwards. The last line of the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import mica
from _table import argument_parser, check, finish, machine, median, percentile, show
from mica import hook
from mica.clients.installer import write_launcher
from mica.clients.spool import AnswerLine, SessionAnswer, Spools, hooks_folder
from mica.format.fence import CLOSING, OPENING
from mica.model.event import EventQuery
from mica.store.space import space_of

NEWS = "SessionStart, news"
BARE = "python -I -S -c pass"
FILES, TASKS, TAUGHT = 400, 300, 60
LINES = 150  # of a file
AT_ONCE, BUSY = 50, 8  # prompts at the same time, beside so many processes that use all the time they get
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
PROMPT = "please mend the login of the cart: the page of the user shows a note twice after the mail was sent " * 2
WORDS = [
    f"{first}{second}" for first in ("cart", "mail", "user", "page", "task", "note") for second in ("", *"abcdefgh")
]


class Stage:
    """A home folder, a project with its history, and the payloads that an agent sends to hooks."""

    def __init__(self, folder: Path, *, files: int) -> None:
        self.home = folder / "data"
        self.project = folder / "shop"
        self.project.mkdir()
        self.paths = [f"src/{WORDS[n % len(WORDS)]}/{WORDS[n // 7 % len(WORDS)]}_{n}.py" for n in range(files)]
        self.spools = Spools(hooks_folder(space_of(self.project, home=self.home).file))
        self.off = folder / "off"
        (self.off / ".git").mkdir(parents=True)
        Spools(hooks_folder(space_of(self.off, home=self.home).file)).switch(on=False)
        command = self.home / hook.COMMAND.decode()
        command.write_text("/bin/true\ningest\n")  # starting an ingest is part of the cost
        command.chmod(0o600)

    def write(self, chance: random.Random) -> None:
        """Write the files and their repository."""
        git = ["git", "-C", str(self.project), "-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run([*git, "init", "-q"], check=True)
        for path in self.paths:
            text = "".join(
                f"def {chance.choice(WORDS)}_{line}():  # {' '.join(chance.choices(WORDS, k=5))}\n"
                for line in range(LINES)
            )
            (self.project / path).parent.mkdir(parents=True, exist_ok=True)
            (self.project / path).write_text(text)
        subprocess.run([*git, "add", "-A"], check=True)
        before = {"GIT_COMMITTER_DATE": (BEGIN - timedelta(days=1)).isoformat()}  # tasks refer to the original files
        subprocess.run([*git, "commit", "-qm", "Begin"], check=True, env=os.environ | before)

    async def fill(self, chance: random.Random) -> None:
        """Record tasks and commits to learn from, and prepare the hooks' lookup files."""
        async with self.open_memory() as memory:
            memory.emit("session.started", {"cwd": str(self.project)})
            for number in range(TASKS):
                place = chance.randrange(len(self.paths))
                near = [self.paths[(place + step) % len(self.paths)] for step in range(1 + number % 6)]
                words = [*near[0].removesuffix(".py").replace("/", "_").split("_"), *chance.choices(WORDS, k=8)]
                at = BEGIN + timedelta(hours=number)
                memory.trails.record(" ".join(words), search_steps(near), session=f"s{number // 3}", at=at)
                commit = {"sha": f"{number:040x}", "subject": " ".join(words[:6]), "files": near, "renamed": []}
                memory.emit("git.commit", commit, at=at, origin="imported")
            for number in range(4):  # the prompt to answer was asked before, also in its session
                at = BEGIN + timedelta(hours=TASKS + number)
                memory.trails.record(PROMPT, search_steps(self.paths[:4]), session="s1", at=at)
            await memory.trails.learn_tasks(root=self.project, limit=TAUGHT)
            await memory.clients.ingest()
            lines = [f"- note: {number:03} The auth flow is in src/auth.py" for number in range(190)]
            text = "\n".join([OPENING, *lines, CLOSING])
            places = [(start := text.index(line), start + len(line)) for line in lines]
            known = tuple(
                AnswerLine(start=start, end=end, said_start=start, said_end=end, score=number)
                for number, (start, end) in enumerate(places)
            )
            self.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text=text, budget_tokens=4_000, lines=known))

    def open_memory(self) -> mica.memory.Opening:
        variables = {"HOME": str(self.home), "MICA_HOME": str(self.home), "MICA_SEMANTIC": "off"}
        settings = mica.load_settings({**variables, "MICA_OBSERVE_HOLDOUT": "0"})
        return mica.open(space_of(self.project, home=self.home).file, settings=settings)

    def payload(self, event: str) -> dict[str, object]:
        session = "s2" if event == NEWS else "s1"
        event = "SessionStart" if event == NEWS else event
        fields: dict[str, object] = {"session_id": session, "prompt_id": "p1", "hook_event_name": event}
        if event == "PostToolUse":
            content = "".join(f"    value = compute({number})  # line {number}\n" for number in range(400))
            file = {
                "filePath": f"{self.project}/a.py",
                "content": content,
                "numLines": 400,
                "startLine": 1,
                "totalLines": 401,
            }
            fields |= {"tool_name": "Read", "tool_input": {"file_path": f"{self.project}/a.py"}}
            fields |= {"tool_response": {"type": "text", "file": file}}
        elif event == "UserPromptSubmit":
            fields |= {"prompt": PROMPT}
        elif event == "Stop":
            fields |= {"last_assistant_message": "All done. " * 100}
        return fields


def search_steps(paths: Sequence[str]) -> list[dict[str, object]]:
    """Return the steps of a task: a search, and the reads of the files it found."""
    search: dict[str, object] = {"path": paths[0], "operation": "search", "tokens": 700}
    return [search, *({"path": path, "operation": "read", "tokens": 900} for path in paths)]


def cpu_ms(command: Sequence[str], payload: Mapping[str, object] | None, stage: Stage, *, folder: Path) -> float:
    """Run a child process on a payload, and return its CPU milliseconds; checks that it answers if it should."""
    environment = {"HOME": str(stage.home), "MICA_HOME": str(stage.home), "MICA_SEMANTIC": "off"}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}  # the hook ignores it
    raw = b"" if payload is None else json.dumps({**payload, "cwd": str(folder)}, separators=(",", ":")).encode()
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as output:
        stdin.write(raw)
        stdin.seek(0)
        streams = [
            (os.POSIX_SPAWN_DUP2, stdin.fileno(), 0),
            *((os.POSIX_SPAWN_DUP2, output.fileno(), n) for n in (1, 2)),
        ]
        before = Path.cwd()
        os.chdir(folder)
        process = os.posix_spawn(command[0], list(command), environment, file_actions=streams)
        os.chdir(before)
        _, status, usage = os.wait4(process, 0)
        check(status == 0, f"{' '.join(command)} ends well")
        output.seek(0)
        printed = output.read()
    if payload is not None and folder == stage.project:
        answers = payload["hook_event_name"] in (*hook.STARTS, *hook.PROMPTS)
        check(bool(printed) == answers, f"{payload['hook_event_name']} is answered, or not: {printed[:100]!r}")
    return (usage.ru_utime + usage.ru_stime) * 1_000


class Burst(NamedTuple):
    """What is left of prompts that were sent at the same time on a busy machine."""

    at_exit: int  # recorded when the last hook had ended
    recorded: int  # recorded when the child processes that hooks leave behind had ended, too
    slowest_s: float  # that an agent waited


def send_at_once(command: Sequence[str], folder: Path, *, characters: int) -> Burst:
    """Run a hook for AT_ONCE prompts at the same time, in a home folder without spools, beside BUSY busy processes."""
    project = folder / "shop"
    (project / ".git").mkdir(parents=True)
    texts = [(f"{number:03} {PROMPT}" * (characters // len(PROMPT) + 1))[:characters] for number in range(AT_ONCE)]
    fields = {"session_id": "s1", "hook_event_name": "UserPromptSubmit", "cwd": str(project)}
    for number, text in enumerate(texts):
        payload = {**fields, "prompt_id": f"p{number}", "prompt": text}
        (folder / f"{number}.json").write_text(json.dumps(payload))
    environment = {"HOME": str(folder), "MICA_HOME": str(folder / "data")}
    alive, inherited = os.pipe()
    busy = [subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        started = time.monotonic()
        hooks = []
        for number in range(AT_ONCE):
            with (folder / f"{number}.json").open() as stdin:
                hooks.append(
                    subprocess.Popen(
                        [*command, "claude", "UserPromptSubmit"],
                        stdin=stdin,
                        env=environment,
                        cwd=project,
                        pass_fds=[inherited],
                    )
                )
        os.close(inherited)
        codes = {process.wait() for process in hooks}
        check(codes == {0}, f"a hook always exits with 0: {codes}")
        slowest_s = time.monotonic() - started
        at_exit = count_recorded(folder, texts)
        os.read(alive, 1)  # ends when the last process has closed the other end
    finally:
        for process in busy:
            process.kill()
            process.wait()
        os.close(alive)
    return Burst(at_exit, count_recorded(folder, texts), slowest_s)


def count_recorded(folder: Path, texts: Sequence[str]) -> int:
    """Return how many of these prompts are whole in the spool, each counted once."""
    files = (folder / "data" / "spaces").glob("*/spool/*.jsonl")
    lines = [line for file in files for line in file.read_bytes().split(b"\n")[:-1]]
    return len({json.loads(line)["payload"].get("prompt") for line in lines} & set(texts))


async def ingest_all(stage: Stage) -> tuple[int, int]:
    """Ingest, and return the number of lines that were read, and of the tool calls that are stored."""
    async with stage.open_memory() as memory:
        done = await memory.clients.ingest()
        reads = await memory.events.query(EventQuery(names=("file.read",), limit=None))
        return done.lines, sum(read.data.get("path") == "a.py" for read in reads)


def main() -> None:
    parser = argument_parser(__doc__, quick="40 rounds in place of 200")
    parser.add_argument("--files", type=int, default=FILES, help=f"of the project that is ranked ({FILES})")
    options = parser.parse_args()
    rounds = 40 if options.quick else 200

    python = sys.executable
    with tempfile.TemporaryDirectory(prefix="mica-bench-") as temporary:
        stage = Stage(Path(temporary), files=options.files)
        chance = random.Random(0)
        stage.write(chance)
        asyncio.run(stage.fill(chance))
        ways = {
            "file": [python, "-I", "-S", str(Path(hook.__file__))],
            "launcher": [python, "-I", "-S", str(write_launcher(Path(temporary) / "bin"))],
        }
        events = {
            "PostToolUse": "observing",
            "Stop": "observing",
            "SessionStart": "answering",
            "UserPromptSubmit": "answering",
            NEWS: "answering",
        }
        times: dict[str, list[float]] = {BARE: []}
        calls = 0
        for number in range(rounds + 1):
            times[BARE].append(cpu_ms([python, "-I", "-S", "-c", "pass"], None, stage, folder=stage.project))
            for way, command in ways.items():
                for event in events:
                    payload = stage.payload(event) | {"tool_use_id": f"t{number}-{way}"}
                    words = "claude", str(payload["hook_event_name"])
                    cost = cpu_ms([*command, *words], payload, stage, folder=stage.project)
                    times.setdefault(f"{event} ({way})", []).append(cost)
                    calls += 1
                payload = stage.payload("PostToolUse")
                times.setdefault(f"switched off ({way})", []).append(
                    cpu_ms([*command, "claude", "PostToolUse"], payload, stage, folder=stage.off)
                )
        times = {name: values[1:] for name, values in times.items()}  # the first round writes bytecode
        lines, reads = asyncio.run(ingest_all(stage))
        answers = 2 * (rounds + 1)  # to prompts; each has a line of its own
        check(lines == calls + answers, f"every event is in the spool: {lines - answers} of {calls}")
        check(reads == 2 * (rounds + 1), f"every call is stored once: {reads} of {2 * (rounds + 1)}")
        files = list((stage.home / "spaces").glob("off-*/spool/*"))
        check(not files, "what is switched off writes nothing")
        command = [python, "-P", "-m", "mica", "ingest"]
        ingest = median([cpu_ms(command, None, stage, folder=stage.project) for _ in range(3)])
        bursts = {
            name: send_at_once(ways["launcher"], Path(temporary) / name, characters=characters)
            for name, characters in (("100 characters", 100), ("1 MB", 1_000_000))
        }

    bare = times[BARE]
    print(f"{machine()}; {calls:,} events, all stored once")
    rows = [
        (
            name,
            f"{percentile(values, 0.5):.1f}",
            f"{percentile(values, 0.95):.1f}",
            f"{median(values) / median(bare):.2f}",
            f"{percentile(values, 0.95) / percentile(bare, 0.95):.2f}",
        )
        for name, values in times.items()
    ]
    show(f"{rounds} rounds in turn, CPU ms", ("", "p50", "p95", "p50 / bare", "p95 / bare"), rows)
    print(f"\n  an ingest in the background, which no agent waits for: {ingest:.0f} ms CPU")

    waits = [(name, str(each.at_exit), str(each.recorded), f"{each.slowest_s:.1f}") for name, each in bursts.items()]
    columns = ("a prompt of", "recorded at exit", "recorded", "slowest, s")
    show(f"{AT_ONCE} prompts at once beside {BUSY} busy processes", columns, waits)

    def worst(kind: str, way: str, share: float) -> float:
        """Return the cost of the most expensive hook of a kind, as a multiple of the bare interpreter."""
        costs = [percentile(times[f"{event} ({way})"], share) for event, of in events.items() if of == kind]
        return max(costs) / percentile(bare, share)

    numbers: dict[str, float | int] = {
        "bare_ms": median(bare),
        "ingest_ms": ingest,
        "n": calls,
        "lost": AT_ONCE - bursts["100 characters"].recorded,
        "lost_1mb": AT_ONCE - bursts["1 MB"].recorded,
        "doubled": 0,
    }
    for way in ways:
        suffix = "" if way == "launcher" else f"_{way}"
        for kind in ("observing", "answering"):
            numbers[f"{kind}{suffix}"] = worst(kind, way, 0.5)
            numbers[f"{kind}_p95{suffix}"] = worst(kind, way, 0.95)
        numbers[f"off_ms{suffix}"] = median(times[f"switched off ({way})"]) - median(bare)
    finish(numbers)


if __name__ == "__main__":
    main()
