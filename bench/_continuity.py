"""Scenarios of `bench/continuity.py`: the history of a project, the facts that the next agent needs, and the score."""

from __future__ import annotations

import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

Ask = Literal["start", "task", "handoff", "week"]
Alternatives = list[list[str]]  # each alternative is a list of strings that must all occur
KINDS = ("decision", "rule", "next", "state", "answer", "gotcha", "preference", "fact")


class Turn(msgspec.Struct, frozen=True):
    """One turn of a session: a prompt, words of the agent, or a tool call."""

    user: str | None = None
    say: str | None = None
    read: str | None = None
    lines: tuple[int, int] = (1, 60)
    bash: str | None = None
    out: str = ""
    failed: bool = False
    edit: str | None = None
    old: str = ""
    new: str = ""


class Session(msgspec.Struct, frozen=True):
    """One session of a coding agent."""

    id: str
    start: datetime
    turns: list[Turn]
    branch: str = "main"

    def times(self) -> list[datetime]:
        """Return the time of each turn: a prompt comes minutes after the last turn, a tool call half a minute."""
        at, found = self.start.astimezone(UTC), []
        for number, turn in enumerate(self.turns):
            if number:
                seconds = 95 + 13 * (number % 5) if turn.user is not None else 21 + 4 * (number % 4)
                at += timedelta(seconds=seconds)
            found.append(at)
        return found

    def closes(self, number: int) -> bool:
        """True if the turn with this number is the last before the next prompt, or of the session."""
        return number + 1 == len(self.turns) or self.turns[number + 1].user is not None


class NotedMark(msgspec.Struct, frozen=True):
    """A mark that an assistant makes through the Python API."""

    at: datetime
    session: str
    text: str
    id: str | None = None
    agent: str | None = None
    user: str | None = None
    tags: list[str] | None = None
    parent: str | None = None
    why: str | None = None
    principles: list[str] | None = None
    origin: str | None = None
    relation: str | None = None


class Gold(msgspec.Struct, frozen=True):
    """A statement that a brief must contain, or must not contain."""

    id: str
    any_of: Alternatives
    unless: Alternatives = []
    weight: float = 1
    type: str = "fact"


class Check(msgspec.Struct, frozen=True):
    """A question to mica after a session, and the contents of a correct answer."""

    id: str
    after: str
    ask: Ask
    budgets: list[int]
    query: str | None = None
    must: list[Gold] = []
    stale: list[Gold] = []
    noise: list[Gold] = []


class Scenario(msgspec.Struct, frozen=True):
    """The history of one project over several days."""

    name: str
    kind: Literal["coding", "assistant"]
    project: str
    cwd: str
    checks: list[Check]
    sessions: list[Session] = []
    marks: list[NotedMark] = []

    def moments(self) -> list[Moment]:
        """Return the moments at which work is stored and checked, in order, each with its checks."""
        return _with_checks(self, _after_sessions(self) if self.kind == "coding" else _after_marks(self))


class Moment(msgspec.Struct):
    """The end of a session or of a run of marks, and the checks that run then."""

    session: str
    end: datetime
    mark: str | None = None
    checks: list[Check] = []


def load(path: Path) -> list[Scenario]:
    """Load the scenarios of a folder, or of one file."""
    files = [path] if path.is_file() else sorted(path.glob("*.json"))
    return [msgspec.json.decode(file.read_bytes(), type=Scenario) for file in files]


def _after_sessions(scenario: Scenario) -> list[Moment]:
    found, last = [], datetime.min.replace(tzinfo=UTC)
    for session in scenario.sessions:
        last = max(last, session.times()[-1])
        found.append(Moment(session.id, last))
    return found


def _after_marks(scenario: Scenario) -> list[Moment]:
    checked = {check.after for check in scenario.checks}
    following = [*(mark.session for mark in scenario.marks[1:]), None]
    return [
        Moment(mark.session, mark.at.astimezone(UTC), mark.id)
        for mark, after in zip(scenario.marks, following, strict=True)
        if mark.id in checked or mark.session != after
    ]


def _with_checks(scenario: Scenario, moments: list[Moment]) -> list[Moment]:
    for check in scenario.checks:
        matching = [moment for moment in moments if check.after in {moment.session, moment.mark}]
        if not matching:
            raise SystemExit(f"{scenario.name}: check {check.id} is after {check.after!r}, which does not exist")
        matching[-1].checks = [*matching[-1].checks, check]
    return moments


def woven(scenario: Scenario, others: Sequence[Scenario]) -> Scenario:
    """Return the scenario with sessions of other projects between its own: one of each after every session.

    They are moved to the time after it and seem to happen in the same project. Nothing follows its last session.
    """
    sessions: list[Session] = []
    for number, own in enumerate(scenario.sessions):
        sessions.append(own)
        at = own.times()[-1] + PAUSE
        for other in others if own is not scenario.sessions[-1] else ():
            session = other.sessions[number % len(other.sessions)]
            moved = msgspec.structs.replace(session, id=f"{other.name}-{session.id}-{number}", start=at)
            sessions.append(moved)
            at = moved.times()[-1] + PAUSE
    return msgspec.structs.replace(scenario, sessions=sessions)


PAUSE = timedelta(minutes=3)  # between the sessions of different projects


# -- Scores ------------------------------------------------------------------------------------------------------


class Score(msgspec.Struct, frozen=True):
    """The correctness of an answer: shares by kind of statement, and the expected statements it contains."""

    must: float
    stale: float
    noise: float | None
    stale_any: float  # outdated statements that are mentioned at all, corrected or not
    says: frozenset[str]

    @property
    def truth(self) -> float:
        return max(0.0, self.must - self.stale)


def score(check: Check, answer: str) -> Score:
    """Score an answer, ignoring the fence, headings, letter case and white space."""
    lines = [line for line in answer.splitlines() if not re.match(r"(</?memory\b|#{1,6} )", line)]
    text = _normalize(" ".join(lines))
    says = frozenset(gold.id for gold in check.must if _has(text, gold.any_of))
    weight = sum(gold.weight for gold in check.must)
    stale = [gold for gold in check.stale if _has(text, gold.any_of) and not _has(text, gold.unless)]
    mentioned = [gold for gold in check.stale if _has(text, gold.any_of)]
    noise = [gold for gold in check.noise if _has(text, gold.any_of)]
    return Score(
        must=sum(gold.weight for gold in check.must if gold.id in says) / weight if weight else 1.0,
        stale=len(stale) / len(check.stale) if check.stale else 0.0,
        noise=len(noise) / len(check.noise) if check.noise else None,
        stale_any=len(mentioned) / len(check.stale) if check.stale else 0.0,
        says=says,
    )


def _normalize(text: str) -> str:
    return " ".join(text.casefold().split())


def _has(text: str, alternatives: Alternatives) -> bool:
    return any(all(_normalize(each) in text for each in together) for together in alternatives)


# -- Baseline: newest words ----------------------------------------------------------------------------------------


def conversation(scenario: Scenario, check: Check) -> list[str]:
    """Return prompts and closing words up to a check, oldest first, as lines.

    A check of a handoff limits them to its session, a check of a week to that week.
    """
    spoken = list(_spoken_before(scenario, check))
    if check.ask == "handoff":
        session = next((mark.session for mark in scenario.marks if mark.id == check.after), check.after)
        spoken = [each for each in spoken if each[1] == session]
    if check.ask == "week":
        week = spoken[-1][0].isocalendar()[:2]
        spoken = [each for each in spoken if each[0].isocalendar()[:2] == week]
    return [f"- {at:%Y-%m-%d} {speaker}: {text}" for at, _, speaker, text in spoken]


def _spoken_before(scenario: Scenario, check: Check) -> Iterator[tuple[datetime, str, str, str]]:
    for session in scenario.sessions:
        for number, (turn, at) in enumerate(zip(session.turns, session.times(), strict=True)):
            if turn.user is not None:
                yield at, session.id, "user", turn.user
            elif turn.say is not None and session.closes(number):
                yield at, session.id, "agent", turn.say
        if session.id == check.after:
            return
    last = max((n for n, mark in enumerate(scenario.marks) if check.after in {mark.id, mark.session}), default=-1)
    for mark in scenario.marks[: last + 1]:
        yield mark.at.astimezone(UTC), mark.session, "user", mark.text


# -- Transcripts ---------------------------------------------------------------------------------------------------


def session_name(scenario: Scenario, session: str) -> str:
    """Return the session id that a scenario's session has in its transcript."""
    return _identifier(scenario.name, session)


def _identifier(*parts: object) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "continuity/" + "/".join(map(str, parts))))


def make_tree(scenario: Scenario, folder: Path) -> Path:
    """Create a git working tree with the files that a scenario names; no check depends on their contents."""
    tree = folder / scenario.name / (Path(scenario.cwd).name or scenario.project)
    tree.mkdir(parents=True)
    names = {name for session in scenario.sessions for turn in session.turns for name in (turn.read, turn.edit) if name}
    for name in sorted(names):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{path.stem} line {number}\n" for number in range(1, 161)), encoding="utf-8")
    (tree / "README").write_text(f"{scenario.project}\n", encoding="utf-8")
    if scenario.sessions:
        _commit_all(tree, scenario.sessions[0].start - timedelta(days=2))
    return tree


def _commit_all(tree: Path, at: datetime) -> None:
    dates = {"GIT_AUTHOR_DATE": at.isoformat(), "GIT_COMMITTER_DATE": at.isoformat(), "GIT_CONFIG_GLOBAL": os.devnull}
    person = ["-c", "user.name=dev", "-c", "user.email=dev@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], [*person, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *command], cwd=tree, env=os.environ | dates, check=True, stdout=subprocess.DEVNULL)


class Transcript:
    """One session in the transcript format of Claude Code."""

    def __init__(self, scenario: Scenario, session: Session, tree: Path) -> None:
        self._tree, self._branch = tree, session.branch
        self.name = session_name(scenario, session.id)
        self._rows: list[dict[str, object]] = []
        self._parent: str | None = None
        self._prompt, self._messages = "", 0
        for number, (turn, at) in enumerate(zip(session.turns, session.times(), strict=True)):
            self._at = at
            self._add(turn, number, ends=session.closes(number))

    def save(self, home: Path) -> Path:
        """Write the transcript where Claude Code puts it below a home folder; the file gets the last record's time."""
        folder = home / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(self._tree))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.name}.jsonl"
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self._rows), encoding="utf-8")
        os.utime(file, (self._at.timestamp(), self._at.timestamp()))
        return file

    def _add(self, turn: Turn, number: int, *, ends: bool) -> None:
        if turn.user is not None:
            self._prompt = _identifier(self.name, number, "prompt")
            self._row("user", {"role": "user", "content": turn.user}, promptId=self._prompt, permissionMode="default")
        elif turn.say is not None:
            self._assistant([{"type": "text", "text": turn.say}], "end_turn" if ends else "tool_use")
        elif turn.read is not None:
            self._read(turn.read, *turn.lines)
        elif turn.bash is not None:
            self._bash(turn.bash, turn.out, failed=turn.failed)
        elif turn.edit is not None:
            self._edit(turn.edit, turn.old, turn.new)

    def _row(self, kind: str, message: dict[str, object], **fields: object) -> None:
        name = _identifier(self.name, len(self._rows))
        at = self._at + timedelta(milliseconds=7 * (len(self._rows) % 90))
        self._rows.append(
            {
                "parentUuid": self._parent,
                "isSidechain": False,
                "type": kind,
                "message": message,
                **fields,
                "uuid": name,
                "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z",
                "userType": "external",
                "entrypoint": "cli",
                "cwd": str(self._tree),
                "sessionId": self.name,
                "version": "2.1.325",
                "gitBranch": self._branch,
            }
        )
        self._parent = name

    def _assistant(self, content: Sequence[dict[str, object]], stop: str) -> None:
        self._messages += 1
        size = len(json.dumps(content)) // 4
        message: dict[str, object] = {
            "id": f"msg_{self.name[:8]}{self._messages:04d}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5",
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 12,
                "cache_creation_input_tokens": 300 + size,
                "cache_read_input_tokens": 18_000 + 400 * self._messages,
                "output_tokens": 20 + size,
            },
        }
        self._row("assistant", message, requestId=f"req_{self.name[:8]}{self._messages}")

    def _call(self, tool: str, arguments: object, printed: str, result: object, *, failed: bool = False) -> None:
        call = f"toolu_{_identifier(self.name, len(self._rows), 'call').replace('-', '')[:20]}"
        self._assistant([{"type": "tool_use", "id": call, "name": tool, "input": arguments}], "tool_use")
        content: dict[str, object] = {"tool_use_id": call, "type": "tool_result", "content": printed}
        if failed:
            content["is_error"] = True
        self._row(
            "user",
            {"role": "user", "content": [content]},
            promptId=self._prompt,
            toolUseResult=result,
            sourceToolAssistantUUID=self._parent,
        )

    def _read(self, name: str, first: int, last: int) -> None:
        path = self._tree / name
        lines = path.read_text(encoding="utf-8").split("\n")
        shown = lines[first - 1 : last]
        file = {
            "filePath": str(path),
            "content": "\n".join(shown),
            "numLines": len(shown),
            "startLine": first,
            "totalLines": len(lines),
        }
        self._call(
            "Read",
            {"file_path": str(path), "offset": first, "limit": last - first + 1},
            "\n".join(f"{number}\t{line}" for number, line in enumerate(shown, first)),
            {"type": "text", "file": file},
        )

    def _bash(self, command: str, out: str, *, failed: bool) -> None:
        arguments = {"command": command, "description": "Run a command"}
        if failed:
            out = f"Exit code 1\n{out}"
            self._call("Bash", arguments, out, f"Error: {out}", failed=True)
            return
        result = {"stdout": out, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
        self._call("Bash", arguments, out, result)

    def _edit(self, name: str, old: str, new: str) -> None:
        path = str(self._tree / name)
        before, after = old.split("\n"), new.split("\n")
        first = 10 + len(name) % 40
        patch = {
            "oldStart": first,
            "oldLines": len(before),
            "newStart": first,
            "newLines": len(after),
            "lines": [f"-{line}" for line in before] + [f"+{line}" for line in after],
        }
        result = {
            "filePath": path,
            "oldString": old,
            "newString": new,
            "originalFile": "",
            "structuredPatch": [patch],
            "userModified": False,
            "replaceAll": False,
        }
        arguments = {"replace_all": False, "file_path": path, "old_string": old, "new_string": new}
        self._call("Edit", arguments, f"The file {path} has been updated successfully.", result)
