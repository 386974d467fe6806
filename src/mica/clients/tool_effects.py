"""Builds the events of tool calls. They have the same names for all clients: `file.*`, `shell.run`, `tool.*`.

Each client's `tools.drafts(call, files, tally)` returns the drafts of a call's events, built with the functions here.
There is one draft for each file access, in order. For a shell command, the draft of the command comes first, and those
of its commits come last. A call that accessed no file results in `tool.run` or `tool.failed`. A `ClientCall` can come
from a transcript or from a hook; both result in the same events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from mica.clients.line_ranges import Excerpt, Range, changed_range, excerpt_from_numbers, relative_path
from mica.clients.shell.parser import commits
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.model.event import MARK, Origin
from mica.model.text_cache import remember_texts
from mica.redact import redact
from mica.tokens import about

COMMAND_CHARACTERS_MAX = 20_000  # a longer command carries a file or a program, which shows no navigation
ERROR_CHARACTERS_MAX = 2_000  # an error begins with its reason; tool output follows
SECRET_CHARACTERS_MAX = 10_000  # a private key has a few thousand
STEPS_MAX = 200  # accesses of one call; a search with more hits is too broad to learn from
LENGTHS_MAX = 10_000  # files whose length is remembered, about 2 MB
DIFF_CHARACTERS_MAX = 4_000_000  # a longer diff is of a generated file, whose lines do not matter

UNKNOWN_LINES = Excerpt()
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


class ClientCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call and its result, as JSON values in the client's own format."""

    id: str
    tool: str
    arguments: object = None  # mostly a mapping
    result: object = None  # a text or a mapping, depending on client and tool
    failed: bool = False  # the client reports a failure
    denied: bool = False  # a person or a rule refused it, so it touched nothing
    cwd: str | None = None  # the folder of relative paths


class EventDraft(msgspec.Struct, frozen=True):
    """An event without time, id and parent, which `EventBuilder` adds."""

    name: str
    fields: dict[str, object]
    origin: Origin = "tool"
    error: bool = False
    inner: bool = False  # its parent will be the first draft of the same call


@remember_texts(4_096)  # a session reads the same files again and again
def _redacted_path(path: str) -> str:
    return redact(path)


class FileNames:
    """Makes paths relative to a root folder, and remembers the last known number of lines of each file."""

    def __init__(self, root: str | None) -> None:
        self.root = root
        self._lengths: dict[str, int] = {}

    def name(self, path: str, cwd: str | None) -> str:
        """Return `path` relative to the root, or absolute if it is outside the root."""
        return _redacted_path(relative_path(path.replace("\0", "�"), root=self.root, cwd=cwd))

    def absolute(self, folder: str, cwd: str | None) -> str:
        """Return the absolute path of a folder in a tool call's arguments."""
        return _redacted_path(relative_path(folder.replace("\0", "�"), root=None, cwd=cwd or self.root))

    def length(self, name: str) -> int | None:
        """Return the last known number of lines of a file; None if unknown."""
        return self._lengths.get(name)

    def lengths(self) -> dict[str, int]:
        """Return the last known number of lines of each file by name, the most recent last."""
        return dict(self._lengths)

    def learn(self, name: str, length: int | None) -> None:
        """Remember the number of lines of a file. None means that it is unknown now."""
        self._lengths.pop(name, None)
        if length is not None:
            self._lengths[name] = length
        if len(self._lengths) > LENGTHS_MAX:
            del self._lengths[next(iter(self._lengths))]


class Hunk(msgspec.Struct, frozen=True):
    """One hunk of a diff: by how many lines it makes the file longer, and which lines of the new file it changed."""

    growth: int
    place: Range | None


def verbatim(text: str, *, limit: int) -> str:
    """Return a text without secrets and NUL, cut to `limit` characters; a note at the cut says how many are missing."""
    clean = redact(text[: limit + SECRET_CHARACTERS_MAX].replace("\0", "�"))  # so that no secret is cut in two
    return clean if len(text) <= limit else f"{clean[:limit]}… ({len(text) - limit:,} characters left out)"


def tokens_of(text: str) -> int | None:
    """Estimate the tokens of a text; None if the text is empty."""
    return about(text) if text else None


def digest(value: object) -> str:
    """Return a short hash of a JSON value, as a stable name for a call or prompt that has no id."""
    encoded = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return blake2b(encoded.encode(), digest_size=8).hexdigest()


# -- Calls that touch no file ---------------------------------------------------------------------------------


def run(call: ClientCall, **facts: str | None) -> EventDraft:
    """Return the draft of a call that accessed no file. `facts` are further fields; empty ones are left out."""
    fields: dict[str, object] = {"tool": call.tool, "call": call.id}
    return EventDraft("tool.run", fields | {key: value for key, value in facts.items() if value})


def failure(call: ClientCall, text: str) -> EventDraft:
    """Return the draft of a call that was refused or failed. `text` is the error message."""
    error = verbatim(text, limit=ERROR_CHARACTERS_MAX)
    return EventDraft("tool.failed", {"tool": call.tool, "call": call.id, "text": error}, error=True)


def failed_read(call: ClientCall, path: str, files: FileNames, text: str) -> EventDraft:
    """Return the draft of a failed read. The draft has the path of the file, because the agent looked for it."""
    error = verbatim(text, limit=ERROR_CHARACTERS_MAX)
    return touch(call, "file.read", files.name(path, call.cwd), hashed=True, text=error, error=True)


# -- Files ----------------------------------------------------------------------------------------------


def touch(
    call: ClientCall,
    name: str,
    path: str,
    seen: Excerpt = UNKNOWN_LINES,
    *,
    tokens: int | None = None,
    hashed: bool = False,
    error: bool = False,
    inner: bool = False,
    **more: str | None,
) -> EventDraft:
    """Return the draft of a file access. `name` is the name of the event, `path` comes from `FileNames.name`.

    `seen` is the part of the file that was shown, `hashed` adds a hash of its text, and `more` are further fields.
    """
    fields: dict[str, object] = {
        "path": path,
        "start_line": seen.start,
        "end_line": seen.end,
        "total_lines": seen.total,
        "tokens": tokens,
        "via": call.tool,
        "call": call.id,
    }
    if hashed:
        fields["content_hash"] = None if seen.text is None else _hash(seen.text)
    fields |= {key: value for key, value in more.items() if value is not None}
    return EventDraft(name, fields, error=error, inner=inner)


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def read(call: ClientCall, path: str, files: FileNames, seen: Excerpt, *, text: str) -> EventDraft:
    """Return the draft of a read. `text` is what the model received."""
    name = files.name(path, call.cwd)
    if seen.total is not None:
        files.learn(name, seen.total)
    return touch(call, "file.read", name, seen, tokens=tokens_of(text), hashed=True)


def create(call: ClientCall, path: str, files: FileNames, *, lines: int | None, text: str) -> EventDraft:
    """Return the draft of a new file with this number of lines (None: unknown). `text` is what the model received."""
    name = files.name(path, call.cwd)
    files.learn(name, lines)
    seen = Excerpt(1, lines, lines) if lines else Excerpt(total=lines)
    return touch(call, "file.create", name, seen, tokens=tokens_of(text))


def edit(
    call: ClientCall, path: str, files: FileNames, hunks: Sequence[Hunk], *, text: str, length: int | None = None
) -> list[EventDraft]:
    """Return a draft for each changed range of a file, or a single draft if the ranges are unknown.

    `length` is the new number of lines of the file. By default it is computed from the last known number. `text` is
    what the model received.
    """
    name = files.name(path, call.cwd)
    known = files.length(name)
    if length is None and known is not None and hunks:
        length = max(0, known + sum(hunk.growth for hunk in hunks))
    files.learn(name, length)
    places = [hunk.place for hunk in hunks[:STEPS_MAX] if hunk.place is not None]
    tokens = tokens_of(text)
    if not places:
        return [touch(call, "file.edit", name, Excerpt(total=length), tokens=tokens)]
    costs = [tokens, *[None] * len(places)]  # the returned text is counted once
    return [
        touch(call, "file.edit", name, Excerpt(start, end, length), tokens=cost)
        for (start, end), cost in zip(places, costs, strict=False)
    ]


def hunks(diff: str) -> list[Hunk]:
    """Parse the hunks of a unified diff of one file."""
    found: list[Hunk] = []
    lines = diff.split("\n") if len(diff) <= DIFF_CHARACTERS_MAX else []
    index = 0
    while index < len(lines):
        head = _HUNK.match(lines[index])
        index += 1
        if head is None:
            continue
        old, new = (1 if count is None else int(count) for count in (head[1], head[3]))
        body: list[str] = []
        left_old, left_new = old, new
        while index < len(lines) and (left_old > 0 or left_new > 0):
            line = lines[index]
            index += 1
            left_old -= not line.startswith(("+", "\\"))
            left_new -= not line.startswith(("-", "\\"))
            body.append(line)
        found.append(Hunk(new - old, changed_range(body, start=int(head[2]))))
    return found


def listing(call: ClientCall, path: str | None, files: FileNames, *, pattern: str | None, text: str) -> EventDraft:
    """Return the draft of listing a folder, by default the working directory. `text` is what the model received."""
    shown = verbatim(pattern or "", limit=ERROR_CHARACTERS_MAX) or None
    return touch(call, "file.list", files.name(path or ".", call.cwd), tokens=tokens_of(text), pattern=shown)


def hits(call: ClientCall, found: Iterable[ShellStep], files: FileNames, *, text: str) -> list[EventDraft]:
    """Return a draft for each hit of a search. The first one has the tokens of the whole output, which is `text`."""
    made = [step(call, hit, files, inner=False) for hit in list(found)[:STEPS_MAX]]
    if made:
        made[0].fields["tokens"] = tokens_of(text)
    return made


# -- The shell ------------------------------------------------------------------------------------------


def shell(
    call: ClientCall,
    command: str,
    files: FileNames,
    *,
    printed: str | None,
    ok: bool,
    exit_code: int | None,
    text: str | None = None,
) -> list[EventDraft]:
    """Return the drafts of a shell command: the command itself, the files it accessed, and the commits it made.

    `printed` is what the command printed, or None if unknown. `text` is what the model received, if that differs from
    `printed`. `ok` is True if the command succeeded.
    """
    found = steps(
        command,
        output=printed,
        ok=ok,
        lines_of=lambda path: files.length(files.name(path, call.cwd)),
    )
    received = (printed or "") if text is None else text
    fields: dict[str, object] = {
        "command": verbatim(command, limit=COMMAND_CHARACTERS_MAX),
        "ok": ok,
        "exit_code": exit_code,
        "tokens": tokens_of(received) or 0,
        "via": call.tool,
        "call": call.id,
    }
    if len(found) > STEPS_MAX:
        fields["steps_left_out"] = len(found) - STEPS_MAX
    shares = None if printed is None else _shares(found, printed)
    made = [EventDraft("shell.run", fields, error=not ok)]
    for index, access in enumerate(found[:STEPS_MAX]):
        made.append(step(call, access, files, text=shares[index] if shares else None))
    for commit in commits(command, output=printed or "", ok=ok):
        message = verbatim(commit.message, limit=COMMAND_CHARACTERS_MAX)
        mark: dict[str, object] = {"text": message, "tags": ["commit"]}
        if commit.sha is not None:
            mark["sha"] = commit.sha
        made.append(EventDraft(MARK, mark, "agent", inner=True))
    return made


def step(
    call: ClientCall, access: ShellStep, files: FileNames, *, text: str | None = None, inner: bool = True
) -> EventDraft:
    """Return the draft of one file access by a shell command, or of one hit of a search.

    `text` is the part of the output that belongs to this access; None if unknown.
    """
    name = files.name(access.path, call.cwd)
    total = files.length(name) if access.revision is None else None
    start, end = access.start_line, access.end_line
    if start is not None and end is None:
        end = total
    if access.from_end is not None and total is not None:
        start, end = max(1, total - access.from_end + 1), total
    if access.operation in ("edit", "create"):
        files.learn(name, None)
    pattern = None if access.pattern is None else verbatim(access.pattern, limit=ERROR_CHARACTERS_MAX)
    return touch(
        call,
        f"file.{access.operation}",
        name,
        Excerpt(start, end, total, text),
        tokens=None if text is None else about(text),
        hashed=access.operation == "read",
        inner=inner,
        pattern=pattern,
        revision=access.revision,
    )


def _shares(found: Sequence[ShellStep], printed: str) -> list[str] | None:
    """Return the part of the output that belongs to each read; None if the lengths of the reads do not add up to it."""
    counts = [_count(access) for access in found]
    texts = printed.removesuffix("\n").split("\n")
    if not found or None in counts or sum(count or 0 for count in counts) != len(texts):
        return None
    shares: list[str] = []
    end = 0
    for access, count in zip(found, counts, strict=True):
        begin, end = end, end + (count or 0)
        share = "\n".join(texts[begin:end])
        plain = excerpt_from_numbers(share, limit=count)
        shares.append(plain.text if plain and plain.text is not None and plain.start == access.start_line else share)
    return shares


def _count(access: ShellStep) -> int | None:
    if access.operation != "read" or access.start_line is None or access.end_line is None:
        return None
    return access.end_line - access.start_line + 1
