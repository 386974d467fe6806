"""How fast are transcripts imported, compared with plain `json.loads` of the same bytes?

    python bench/import.py
    python bench/import.py --size 200 --out corpus      # keeps the corpus in a folder

A seeded generator makes the corpus from recorded transcripts: the recorded records in their recorded order, with
fresh ids, other paths, prompts, commands and files, and tool results as long as real ones. Vendor texts that the
recordings cut stay cut: they would only add bytes that both sides skip. Every round measures, one after the other,
`json.loads` of every line, the import into a new file, and the import of the same files again. The generator
counts its records, and all of them must be in the store. The last line of the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import mica
from _table import Cost, argument_parser, check, finish, machine, measure, median, show, spread
from mica.clients.importer import Imported

SEED = 20261115
RECORDINGS = Path(__file__).parent.parent / "tests" / "fixtures" / "claude-code"
PROJECT = "/home/dev/shop"
SETUPS = ("prompt_snapshot", "api-request-shape")  # the system prompt and the tools, long and rare
SETUPS_MAX = 2  # of each in a session, as recorded
SUBAGENT_SHARE = 0.5  # of the calls of a subagent that get a transcript of their own, in a separate file
HOOKED_SHARE = 0.5  # of the sessions that ran with hooks, as the recorded ones did; every hook adds records
LATER_SHARE = 0.15  # of the turns after the first that begin as a recorded later turn, compaction included
# How often tools are used, by what a session of ours would do; recorded calls of other tools weigh 1.
WEIGHTS = {"Read": 40, "Bash": 36, "Edit": 14, "Write": 4}

Record = dict[str, Any]  # as the vendor writes it


# -- Words, code and a repository -----------------------------------------------------------------------------


NOUNS = (
    "session cookie order cart payment invoice user token cache index query worker queue retry timeout header route"
    " schema migration report export filter label price stock basket login redirect password profile address event"
    " cursor page button form template layout metric budget limit window batch journal segment record store reader"
).split()
VERBS = (
    "load save parse merge check build render send fetch close open update remove count find write read sort".split()
)
FAULTS = (
    "is set before the redirect|is read twice|never reaches the database|holds a stale value after a restart|is dropped"
    " when two requests meet|is compared as text, not as a number|is closed while a request still waits for it|grows"
    " without a limit|is written in another order than it is read|is empty for users without an address"
).split("|")
SYLLABLES = "ba cor del fen gar hul im jen kor lam mer nov or pel quin ras sol tam ur ven wex yor zan".split()


class Author:
    """Generates sentences and code, the same for the same seed."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        names = {"".join(chance.choices(SYLLABLES, k=chance.choice((2, 2, 3)))) for _ in range(900)}
        self._names = sorted(names)
        chance.shuffle(self._names)
        self._weights = [1 / (rank + 8) for rank in range(len(self._names))]
        self.files = dict(self._file() for _ in range(240))
        self.paths = list(self.files)
        self._popular = [1 / (rank + 4) for rank in range(len(self.paths))]

    def names(self, count: int) -> list[str]:
        return self.chance.choices(self._names, self._weights, k=count)

    def path(self) -> str:
        """Choose a file of the repository; a few files are chosen most of the time."""
        return self.chance.choices(self.paths, self._popular)[0]

    def sentence(self) -> str:
        pick = self.chance.choice
        name, other = self.names(2)
        return pick(
            (
                f"The {pick(NOUNS)} of {name} {pick(FAULTS)}.",
                f"`{pick(VERBS)}_{pick(NOUNS)}()` in {self.path()} {pick(FAULTS)}, so the {pick(NOUNS)} is lost.",
                f"Please {pick(VERBS)} the {pick(NOUNS)} before the {pick(NOUNS)} of {other}, keep {name} as it is.",
                f"Line {self.chance.randint(1, 900)} of {self.path()} should {pick(VERBS)} the {name} {pick(NOUNS)}.",
                f"I moved the {pick(NOUNS)} check from {name} to {other} because its {pick(NOUNS)} {pick(FAULTS)}.",
                f"All {self.chance.randint(3, 400)} tests pass; {name}-{self.chance.randint(10, 999)} is still open.",
            )
        )

    def text(self, middle: int) -> str:
        """Generate some sentences, usually about `middle`, sometimes ten times as many."""
        return " ".join(self.sentence() for _ in range(self.size(middle, most=middle * 12)))

    def size(self, middle: int, *, most: int) -> int:
        return max(1, min(most, round(middle * self.chance.lognormvariate(0, 0.9))))

    def lines(self, count: int) -> list[str]:
        """Generate lines of code, rarely the same twice."""
        pick, made = self.chance.choice, []
        for name, other in zip(self.names(count), self.names(count), strict=True):
            verb, noun, number = pick(VERBS), pick(NOUNS), self.chance.randint(0, 9_999)
            made.append(
                pick(
                    (
                        f"def {verb}_{name}_{noun}(self, {other}: str, *, limit: int = {number}) -> {noun.title()}:",
                        f'    """The {noun} of a {name}; None when its {other} {pick(FAULTS)}."""',
                        f"    {name} = self.{other}.{verb}({noun}={number}, {other}={name!r})",
                        f"    if {name} is None or {name}.{noun} > {number}:",
                        f'        raise {name.title()}Error(f"no {noun} for {{{other}!r}}")',
                        f"    return {noun}[{number % 97}] if {other} else {name}.{verb}()",
                        f"        for {noun} in self.{verb}_all({name}, key=lambda {other}: {other}.at):",
                        f"    # {name} {pick(FAULTS)}, see {other}-{number}",
                        "",
                    )
                )
            )
        return made

    def _file(self) -> tuple[str, list[str]]:
        first, second = self.names(2)
        path = f"{self.chance.choice(NOUNS)}/{first}/{second}_{self.chance.choice(NOUNS)}.py"
        return path, self.lines(self.size(260, most=1_800))

    def stretch(self, path: str, middle: int) -> tuple[int, int]:
        """Choose a plausible range of lines of a file."""
        whole = len(self.files[path])
        count = min(whole, self.size(middle, most=whole))
        start = self.chance.randint(1, whole - count + 1)
        return start, start + count - 1


# -- Tool calls -----------------------------------------------------------------------------------------------


class ToolCall(NamedTuple):
    """A tool call: its arguments, the result as the model sees it, and the result as the client records it."""

    arguments: Record
    text: str
    result: Record


def read(author: Author) -> ToolCall:
    path = author.path()
    lines = author.files[path]
    start, end = (1, len(lines)) if author.chance.random() < 0.4 else author.stretch(path, 90)
    shown = lines[start - 1 : end]
    arguments: Record = {"file_path": f"{PROJECT}/{path}"}
    if len(shown) < len(lines):
        arguments |= {"offset": start, "limit": len(shown)}
    else:
        shown = [*shown, ""]  # the empty line after the last line end counts, as in the recordings
    file = {
        "filePath": arguments["file_path"],
        "content": "\n".join(shown),
        "numLines": len(shown),
        "startLine": start,
        "totalLines": len(lines) + 1,
    }
    numbered = "\n".join(f"{number}\t{line}" for number, line in enumerate(shown, start))
    return ToolCall(arguments, numbered, {"type": "text", "file": file})


def edit(author: Author) -> ToolCall:
    path = author.path()
    lines = author.files[path]
    start, end = author.stretch(path, 4)
    old, new = lines[start - 1 : end], author.lines(author.size(5, most=60))
    before, after = lines[max(0, start - 4) : start - 1], lines[end : end + 3]
    first = start - len(before)
    hunk = {
        "oldStart": first,
        "oldLines": len(before) + len(old) + len(after),
        "newStart": first,
        "newLines": len(before) + len(new) + len(after),
        "lines": [
            *(f" {line}" for line in before),
            *(f"-{line}" for line in old),
            *(f"+{line}" for line in new),
            *(f" {line}" for line in after),
        ],
    }
    arguments = {"file_path": f"{PROJECT}/{path}", "old_string": "\n".join(old), "new_string": "\n".join(new)}
    result = {
        "filePath": arguments["file_path"],
        "oldString": arguments["old_string"],
        "newString": arguments["new_string"],
        "originalFile": "\n".join(lines) + "\n",
        "structuredPatch": [hunk],
        "userModified": False,
        "replaceAll": False,
    }
    author.files[path] = lines[: start - 1] + new + lines[end:]
    return ToolCall(arguments, f"The file {arguments['file_path']} has been updated successfully.", result)


def write(author: Author) -> ToolCall:
    first, second = author.names(2)
    path = f"{PROJECT}/{author.chance.choice(NOUNS)}/{first}_{second}.py"
    content = "\n".join(author.lines(author.size(60, most=600))) + "\n"
    result: Record = {
        "type": "create",
        "filePath": path,
        "content": content,
        "structuredPatch": [],
        "originalFile": None,
    }
    return ToolCall({"file_path": path, "content": content}, f"File created successfully at: {path}", result)


def run(author: Author) -> ToolCall:
    command, printed = author.chance.choice((_sed, _sed, _grep, _grep, _grep, _tests, _commit, _list))(author)
    result = {"stdout": printed, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    return ToolCall({"command": command, "description": author.sentence()}, printed, result)


def _sed(author: Author) -> tuple[str, str]:
    path = author.path()
    start, end = author.stretch(path, 60)
    return f"sed -n '{start},{end}p' {path}", "\n".join(author.files[path][start - 1 : end])


def _grep(author: Author) -> tuple[str, str]:
    word = author.names(1)[0]
    hits = [
        f"{path}:{number}:{line}"
        for path in author.chance.sample(author.paths, 12)
        for number, line in enumerate(author.files[path], 1)
        if word in line
    ]
    return f"grep -rn {word} --include=*.py . | head -40", "\n".join(hits[:40])


def _tests(author: Author) -> tuple[str, str]:
    count = author.size(60, most=900)
    dots = "\n".join("." * 72 for _ in range(count // 72 + 1))
    return "python -m pytest -q", f"{dots}\n{count} passed in {author.chance.random() * 20:.2f}s"


def _commit(author: Author) -> tuple[str, str]:
    first, second = author.names(2)
    subject = f"{first}: {author.chance.choice(VERBS)} the {author.chance.choice(NOUNS)} of {second}"
    printed = (
        f"[main {author.chance.getrandbits(28):07x}] {subject}\n 2 files changed, 14 insertions(+), 3 deletions(-)"
    )
    return f'git add -A && git commit -m "{subject}"', printed


def _list(author: Author) -> tuple[str, str]:
    folder = author.path().split("/", maxsplit=1)[0]
    return f"ls -1 {folder}", "\n".join(path for path in author.paths if path.startswith(folder))


CALLS = {"Read": read, "Edit": edit, "Write": write, "Bash": run}


# -- Recordings -----------------------------------------------------------------------------------------------


class Recording(NamedTuple):
    """The pieces of a recorded transcript, each a list of records in their order."""

    openings: list[list[Record]]  # the records before a turn's first answer; the first also has the set-up
    exchanges: list[list[Record]]  # an answer that calls tools, and everything up to the next answer
    closings: list[list[Record]]  # an answer that ends its turn, and the bookkeeping after it
    is_subagent: bool


def read_recording(path: Path) -> Recording:
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    openings: list[list[Record]] = [[]]
    answers: list[list[Record]] = []
    current = openings[0]
    answer = None
    for record in records:
        if record["type"] == "assistant":
            if record["requestRef"] != answer:
                answer = record["requestRef"]
                current = []
                answers.append(current)
        elif record["type"] == "queue-operation" and answer is not None:
            answer = None
            current = []
            openings.append(current)
        current.append(record)
    return Recording(
        openings=openings,
        exchanges=[records for records in answers if _tool(records)],
        closings=[records for records in answers if not _tool(records)],
        is_subagent="agentId" in records[0],
    )


def _blocks(record: Record, kind: str) -> list[Record]:
    content = record["message"]["content"] if record["type"] in ("user", "assistant") else ()
    return [block for block in content if isinstance(block, dict) and block.get("type") == kind]


def _tool(records: Sequence[Record]) -> str | None:
    """Return the name of the first tool that the records call, or None."""
    return next((block["name"] for record in records for block in _blocks(record, "tool_use")), None)


def _failed(records: Sequence[Record]) -> bool:
    return any(block.get("is_error") for record in records for block in _blocks(record, "tool_result"))


# -- Sessions -------------------------------------------------------------------------------------------------

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
ID = re.compile(rf"{UUID}|\b(?:msg|toolu|req)_\w+|\ba[0-9a-f]{{16}}\b|\b[0-9a-f]{{64}}\b")
COMMAND_ARGS = re.compile(r"<command-args>(.*?)</command-args>")


class Corpus:
    """Writes sessions into a folder and counts their contents."""

    def __init__(self, folder: Path, recordings: Sequence[Recording]) -> None:
        self.chance = random.Random(SEED)
        self.author = Author(self.chance)
        self.folder = folder / PROJECT.replace("/", "-")
        self.recordings = [recording for recording in recordings if not recording.is_subagent]
        self.subagents = [recording for recording in recordings if recording.is_subagent]
        self.exchanges = [exchange for recording in self.recordings for exchange in recording.exchanges]
        self.weights = [_weight(exchange) for exchange in self.exchanges]
        self.files: list[Path] = []
        self.size_bytes = 0
        self.expected: Counter[str] = Counter()  # what a reader must find
        self.kinds: Counter[str] = Counter()  # bytes by type of record

    def grow(self, size_bytes: int) -> None:
        at = datetime(2026, 9, 1, 8, tzinfo=UTC)
        while self.size_bytes < size_bytes:
            at += timedelta(minutes=self.chance.randint(20, 300))
            self._write(Session(self, at=at))

    def _write(self, session: Session) -> None:
        opening = self.chance.choice(self.recordings)
        closings = [closing for recording in self.recordings for closing in recording.closings]
        later = [records for recording in self.recordings for records in recording.openings[1:]]
        session.open(opening.openings[0])
        for turn in range(self.author.size(2, most=8)):
            if turn:
                is_later = bool(later) and self.chance.random() < LATER_SHARE
                session.open(self.chance.choice(later) if is_later else _prompt_only(opening.openings[0]))
            for exchange in self.chance.choices(self.exchanges, self.weights, k=self.author.size(6, most=60)):
                if _tool(exchange) == "Agent" and self.subagents and self.chance.random() < SUBAGENT_SHARE:
                    self._delegate(session)
                session.exchange(exchange)
            session.close(self.chance.choice(closings))
        self._save(session, self.folder / f"{session.id}.jsonl")
        self.expected["sessions"] += 1

    def _delegate(self, session: Session) -> None:
        recording = self.chance.choice(self.subagents)
        session.agent = f"a{self.chance.getrandbits(64):016x}"
        child = Session(self, at=session.at, parent=session)
        child.open(recording.openings[0])
        for exchange in self.chance.choices(recording.exchanges, k=self.author.size(5, most=40)):
            child.exchange(exchange)
        child.close(self.chance.choice(recording.closings))
        self._save(child, self.folder / session.id / "subagents" / f"agent-{session.agent}.jsonl")

    def _save(self, session: Session, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(session.lines))
        self.files.append(path)
        self.size_bytes += sum(map(len, session.lines))


class Session:
    """One transcript: recorded pieces with fresh ids, later times and other contents."""

    def __init__(self, corpus: Corpus, *, at: datetime, parent: Session | None = None) -> None:
        self.corpus, self.chance, self.author = corpus, corpus.chance, corpus.author
        self.at = at
        self.id: str = parent.id if parent else self._fresh("-")
        self.agent: str = parent.agent if parent else ""
        self.is_subagent = parent is not None
        self.has_hooks = self.chance.random() < HOOKED_SHARE
        self.lines: list[bytes] = []
        self.prompt: str = parent.prompt if parent else ""
        self._setups: Counter[str] = Counter()
        self._last = ""  # the uuid that the next record follows
        self._request = ""  # the request id of the next answer

    def open(self, records: Sequence[Record]) -> None:
        prompts = dict.fromkeys(record["promptId"] for record in records if "promptId" in record)
        names = {} if self.is_subagent else {name: self._fresh(name) for name in prompts}
        self.prompt = next(reversed(names.values()), self.prompt)
        # A typed text occurs in several records; plain text can be replaced after encoding.
        replacements = {text: self.author.text(3) for text in _typed_texts(records)}
        if not self.is_subagent:
            self.corpus.expected["prompts"] += sum(record.get("operation") == "enqueue" for record in records)
        self._add(records, names=names, replacements=replacements)

    def exchange(self, records: Sequence[Record]) -> None:
        done: dict[str, ToolCall] = {}
        if not _failed(records):
            for record in records:
                for block in _blocks(record, "tool_use"):
                    if block["name"] in CALLS:
                        done[block["id"]] = CALLS[block["name"]](self.author)
        self.corpus.expected["calls"] += sum(len(_blocks(record, "tool_result")) for record in records)
        self._answer([self._with_results(record, done) for record in records])

    def close(self, records: Sequence[Record]) -> None:
        closing = {"type": "text", "text": self.author.text(4)}
        self._answer(
            [_with_content(record, [closing]) if record["type"] == "assistant" else record for record in records]
        )

    def _answer(self, records: Sequence[Record]) -> None:
        usage = {
            "input_tokens": self.chance.randint(3, 12),
            "cache_creation_input_tokens": self.author.size(900, most=60_000),
            "cache_read_input_tokens": self.author.size(30_000, most=180_000),
            "output_tokens": self.author.size(250, most=8_000),
        }
        self.corpus.expected["answers"] += 1
        self._add([_with_usage(record, usage) if record["type"] == "assistant" else record for record in records])

    def _with_results(self, record: Record, done: dict[str, ToolCall]) -> Record:
        """Return a record of an exchange with new arguments and results of its calls."""
        if calls := _blocks(record, "tool_use"):
            blocks = [call | {"input": done[call["id"]].arguments} if call["id"] in done else call for call in calls]
            return _with_content(record, blocks)
        if results := _blocks(record, "tool_result"):
            call = results[0]["tool_use_id"]
            if call in done:
                filled = _with_content(record, [results[0] | {"content": done[call].text}])
                return filled | {"toolUseResult": done[call].result} if "toolUseResult" in record else filled
        return record

    def _add(
        self,
        records: Sequence[Record],
        *,
        names: dict[str, str] | None = None,
        replacements: dict[str, str] | None = None,
    ) -> None:
        names = dict(names or {})
        for record in records:
            names.setdefault(record.get("sessionId", ""), self.id)
            names.setdefault(record.get("promptId", ""), self.prompt)
            names.setdefault(record.get("agentId") or _subagent_of(record), self.agent or self._fresh("a"))
            if "requestRef" in record and self._request:
                names[record["requestRef"]], self._request = self._request, ""
        names.setdefault(next((record["parentUuid"] for record in records if record.get("parentUuid")), ""), self._last)
        del names[""]
        for record in records:
            if self._belongs(record):
                self._write(record, names, replacements or {})

    def _belongs(self, record: Record) -> bool:
        """True if the record may occur in this session: set-up records are limited, hook records need hooks."""
        kind = record.get("attachment", record)["type"]
        self._setups[kind] += kind in SETUPS
        return self._setups[kind] <= SETUPS_MAX and (self.has_hooks or not kind.startswith("hook_"))

    def _write(self, record: Record, names: dict[str, str], replacements: dict[str, str]) -> None:
        if "timestamp" in record:
            self.at += timedelta(milliseconds=self.chance.randint(20, 4_000))
            record = record | {"timestamp": f"{self.at:%Y-%m-%dT%H:%M:%S}.{self.at.microsecond // 1_000:03d}Z"}
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        for old, new in replacements.items():
            text = text.replace(old, new)
        text = ID.sub(lambda found: names.get(found[0]) or names.setdefault(found[0], self._fresh(found[0])), text)
        line = f"{text}\n".encode()
        self.lines.append(line)
        self.corpus.expected["lines"] += 1
        self.corpus.kinds[record["type"]] += len(line)
        if "uuid" in record:
            self._last = names[record["uuid"]]
        if record["type"] == "api-request":
            self._request = names[record["id"]]

    def _fresh(self, like: str) -> str:
        digits = f"{self.chance.getrandbits(128):032x}"
        if "_" in like:
            return f"{like.partition('_')[0]}_01{digits[:22]}"
        if len(like) == 64:
            return digits + digits[::-1]
        if "-" not in like:
            return f"a{digits[:16]}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def _weight(exchange: Sequence[Record]) -> float:
    """Return how often to choose an exchange; recorded failures and calls of other tools are chosen rarely."""
    return 1 if _failed(exchange) else WEIGHTS.get(_tool(exchange) or "", 1)


def _prompt_only(opening: Sequence[Record]) -> list[Record]:
    return [record for record in opening if record["type"] in ("queue-operation", "user")]


def _typed_texts(records: Sequence[Record]) -> Iterator[str]:
    """Yield the texts that the user typed in an opening: its prompts and the arguments of its commands."""
    for record in records:
        content = record["message"]["content"] if record["type"] == "user" and not record.get("isMeta") else None
        if isinstance(content, str):
            if args := COMMAND_ARGS.search(content):
                yield args[1]
            elif not content.startswith(("<", "This session is being continued")):
                yield content


def _with_content(record: Record, blocks: list[Record]) -> Record:
    return record | {"message": record["message"] | {"content": blocks}}


def _with_usage(record: Record, usage: dict[str, int]) -> Record:
    message = record["message"]
    return record | {"message": message | {"usage": message["usage"] | usage}}


def _subagent_of(record: Record) -> str:
    """Return the id of the subagent that a result is about, or an empty string."""
    result = record.get("toolUseResult")
    return str(result.get("agentId", "")) if isinstance(result, dict) else ""


# -- Measuring ------------------------------------------------------------------------------------------------


def load(files: Sequence[Path]) -> int:
    """Run the rival, `json.loads` of every line, and return the number of lines."""
    count = 0
    for path in files:
        with path.open("rb") as file:
            for line in file:
                json.loads(line)
                count += 1
    return count


def import_files(files: Sequence[Path], store: Path) -> Imported:
    async def run() -> Imported:
        async with mica.open(store, settings=settings(store.parent)) as memory:
            return await memory.clients.import_transcripts(files, root=Path(PROJECT))

    return asyncio.run(run())


def settings(folder: Path) -> mica.Settings:
    return mica.Settings(home=folder, transcripts=folder)  # independent of the settings of this machine


async def count_stored(store: Path) -> Counter[str]:
    """Count the stored records by kind, and the problems that `verify` finds."""
    found: Counter[str] = Counter()
    calls: set[object] = set()
    async with mica.open(store, settings=settings(store.parent)) as memory:
        events = await memory.events.query(mica.EventQuery(limit=None))
        found["stored"] = (await memory.upkeep.sizes()).events
        found["problems"] = len(await memory.upkeep.verify())
    for event in events:
        found["queryable"] += 1
        found["places"] += event.name == "transcript.read"
        found["answers"] += event.name == "model.answer"
        found["sessions"] += event.name == "session.started"
        found["prompts"] += event.origin == "user"
        calls.add(event.data.get("call"))
    found["calls"] = len(calls - {None})
    return found


def first_value_s(folder: Path, scratch: Path) -> tuple[float, bool]:
    """Run `mica up`. Returns the seconds until its first look, and whether it was still importing then."""
    command = [sys.executable, "-m", "mica", "up", "--yes", "--transcripts", str(folder)]
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=scratch, env=os.environ | {"MICA_HOME": str(scratch / "home")}
    ) as process:
        assert process.stdout is not None
        lines = (line for line in process.stdout if line.strip())
        next(lines, "")
        line = next(lines, "")
        seconds = time.perf_counter() - started
        is_importing = process.poll() is None
        for _ in lines:
            pass
    check(bool(line) and process.returncode == 0, f"{' '.join(command)} shows a first look and ends well")
    return seconds, is_importing


class Rounds(NamedTuple):
    loads: list[Cost]
    imports: list[Cost]
    again: list[Cost]
    copies: Cost
    result: Imported
    found: Counter[str]
    repeated: int
    size_bytes: int


def run_rounds(corpus: Corpus, scratch: Path, *, rounds: int) -> Rounds:
    loads: list[Cost] = []
    imports: list[Cost] = []
    again: list[Cost] = []
    store = scratch / "space.db"
    result = Imported()
    for _ in range(rounds):
        for file in scratch.glob("space.db*"):
            file.unlink()
        count, cost = measure(lambda: load(corpus.files))
        loads.append(cost)
        result, cost = measure(lambda: import_files(corpus.files, store))
        imports.append(cost)
        second, cost = measure(lambda: import_files(corpus.files, store))
        again.append(cost)
        check(count == corpus.expected["lines"], f"json.loads reads {corpus.expected['lines']} lines, it read {count}")
        check(result.tally.lines == count, f"the import reads {count} lines, it read {result.tally.lines}")
        check(not result.failed and not result.tally.broken, f"no broken lines: {result.tally.complaints[:1]}")
        check(not result.tally.unknown, f"no unknown records: {result.tally.unknown}")
        check(second.events == 0, f"a second import adds nothing, it added {second.events}")
        check(second.unchanged == len(corpus.files), "a second import finds every file unchanged")
    # The same transcripts under other names: everything is read again, and nothing may be stored twice.
    copied = Path(shutil.copytree(corpus.folder, scratch / "copies"))
    copies, cost = measure(lambda: import_files(sorted(copied.rglob("*.jsonl")), store))
    check(copies.events == 0, f"copies add nothing, they added {copies.events}")
    check(copies.repeated == result.events, f"copies repeat {result.events} events, they repeated {copies.repeated}")
    size_bytes = sum(file.stat().st_size for file in scratch.glob("space.db*"))
    return Rounds(loads, imports, again, cost, result, asyncio.run(count_stored(store)), copies.events, size_bytes)


def main() -> None:
    parser = argument_parser(__doc__, quick="20 MB, 5 rounds")
    parser.add_argument("--size", type=float, metavar="MB", help="size of the corpus (default 40)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the corpus here")
    parser.add_argument("--transcripts", type=Path, default=RECORDINGS, metavar="PATH", help="recorded transcripts")
    options = parser.parse_args()
    if options.out and options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} is not empty; give a new folder, its transcripts are counted")
    size_mb, rounds = options.size or (20 if options.quick else 40), 5 if options.quick else 7

    with tempfile.TemporaryDirectory(prefix="mica-bench-") as temporary:
        scratch = Path(temporary)
        folder = options.out or scratch / "projects"
        recordings = [read_recording(path) for path in sorted(options.transcripts.rglob("*.jsonl"))]
        check(bool(recordings), f"{options.transcripts} holds recorded transcripts")
        corpus = Corpus(folder, recordings)
        corpus.grow(int(size_mb * 1e6))
        first_s, is_importing = first_value_s(folder, scratch)
        measures = run_rounds(corpus, scratch, rounds=rounds)
        report(corpus, measures, first_s=first_s, is_importing=is_importing)


def report(corpus: Corpus, measures: Rounds, *, first_s: float, is_importing: bool) -> None:
    size_mb = corpus.size_bytes / 1e6
    found, events = measures.found, measures.result.events
    for kind in ("answers", "sessions", "prompts", "calls"):
        check(
            found[kind] == corpus.expected[kind], f"{corpus.expected[kind]} {kind} are stored, {found[kind]} were found"
        )
    check(found["stored"] == found["queryable"], f"{found['stored']} events can be queried, {found['queryable']} were")
    check(found["problems"] == 0, f"`verify` finds nothing, it found {found['problems']} problems")
    lost = events - (found["queryable"] - found["places"])
    check(lost == 0, f"{events} events went in, {lost} of them are missing")

    print(f"{machine()}; {size_mb:.1f} MB in {len(corpus.files)} transcripts, seed {SEED}")
    whole = sum(corpus.kinds.values())
    show("what the corpus is made of", ("records", "MB", "share"), [
        (kind, f"{size / 1e6:.1f}", f"{size / whole:.0%}") for kind, size in corpus.kinds.most_common(8)
    ])  # fmt: skip
    fastest = median([cost.wall_s for cost in measures.loads])
    rows = []
    for name, costs in (
        ("json.loads of every line", measures.loads),
        ("import", measures.imports),
        ("import again, nothing new", measures.again),
        ("import of copies, all known", [measures.copies]),
    ):
        wall, cpu = [cost.wall_s for cost in costs], [cost.cpu_s for cost in costs]
        per_s = "" if costs is measures.loads else f"{events / median(wall):,.0f}"
        speeds = f"{size_mb / median(wall):.1f}", f"{size_mb / median(cpu):.1f}"
        rows.append((name, spread(wall), spread(cpu), *speeds, per_s, f"{fastest / median(wall):.2f}"))
    columns = ("", "wall s (min – median)", "CPU s (min – median)", "MB/s wall", "MB/s CPU", "events/s", "× json.loads")
    show(f"{len(measures.imports)} rounds in turn, {events:,} events", columns, rows)
    per_record, per_event, stored = (
        corpus.size_bytes / corpus.expected["lines"],
        corpus.size_bytes / events,
        measures.size_bytes / events,
    )
    print(f"\n  bytes per record {per_record:,.0f}, per event {per_event:,.0f}, stored per event {stored:,.0f}")
    when = "during the import" if is_importing else "at the end of the import"
    print(f"  `mica up`: first look after {first_s:.2f} s, {when}")
    finish(
        {
            "mb_s": size_mb / median([cost.wall_s for cost in measures.imports]),
            "vs_json_loads": fastest / median([cost.wall_s for cost in measures.imports]),
            "first_value_s": first_s,
            "n": events,
            "size_mb": size_mb,
            "repeated": measures.repeated,
            "lost": lost,
        }
    )


if __name__ == "__main__":
    main()
