"""What a tool call touched, told in one vocabulary whatever the client: `file.*`, `shell.run`, `tool.*` (A-12, TA-02).

Each client's `<client>_tools.drafts(call, files, tally)` says which file and which lines its tools mean; how that
becomes events is said here, once. A `Call` can be made from a transcript as well as from a hook's payload, so that
both tell the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from mica.clients.line_ranges import Range, Shown, changed, numbered, relative
from mica.clients.shell.commits import commits
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.model.event import MARK, Origin
from mica.redact import redact
from mica.tokens import about

COMMAND_CHARACTERS_MAX = 20_000  # longer ones carry a file or a program, whose text is no evidence of navigation
ERROR_CHARACTERS_MAX = 2_000  # an error says at its beginning what is wrong; what follows is tool output
SECRET_CHARACTERS_MAX = 10_000  # a private key has a few thousand
STEPS_MAX = 200  # places of one call; a search that finds more led nowhere in particular
LENGTHS_MAX = 10_000  # files whose length is remembered, some 2 MB
DIFF_CHARACTERS_MAX = 4_000_000  # a longer diff is a generated file; which lines it changed tells nothing

NOWHERE = Shown()
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call and what came back, as JSON values in the client's own shape."""

    id: str
    tool: str
    given: object = None  # the arguments: mostly a mapping
    result: object = None  # a text or a mapping, depending on client and tool
    failed: bool = False  # the client says that it did not succeed
    denied: bool = False  # a person or a rule refused it: it touched nothing
    cwd: str | None = None  # relative paths start here


class Draft(msgspec.Struct, frozen=True):
    """An event without its place in time and in the chain."""

    name: str
    fields: dict[str, object]
    origin: Origin = "tool"
    error: bool = False
    inner: bool = False  # it hangs under the first draft of its call


class Files:
    """How files are called, and how long they were when last seen."""

    def __init__(self, root: str | None) -> None:
        self.root = root
        self._lengths: dict[str, int] = {}

    def name(self, path: str, cwd: str | None) -> str:
        return relative(path.replace("\0", "�"), root=self.root, cwd=cwd)

    def absolute(self, folder: str, cwd: str | None) -> str:
        """A folder that a call names, seen from where it was made."""
        return relative(folder.replace("\0", "�"), root=None, cwd=cwd or self.root)

    def length(self, name: str) -> int | None:
        return self._lengths.get(name)

    def lengths(self) -> dict[str, int]:
        """Every length that is known, the latest last."""
        return dict(self._lengths)

    def learn(self, name: str, length: int | None) -> None:
        self._lengths.pop(name, None)
        if length is not None:
            self._lengths[name] = length
        if len(self._lengths) > LENGTHS_MAX:
            del self._lengths[next(iter(self._lengths))]


class Hunk(msgspec.Struct, frozen=True):
    """One stretch of a diff: how it changes the length of the file, and which lines of the new file it changed."""

    growth: int
    place: Range | None


def verbatim(text: str, *, limit: int) -> str:
    """A text without secrets and without NUL, which PostgreSQL refuses; cut, and saying so, at the limit."""
    clean = redact(text[: limit + SECRET_CHARACTERS_MAX].replace("\0", "�"))  # a secret cut in two is not seen
    return clean if len(text) <= limit else f"{clean[:limit]}… ({len(text) - limit:,} characters left out)"


def tokens_of(text: str) -> int | None:
    return about(text) if text else None


def digest(value: object) -> str:
    """A short name for a JSON value, the same wherever it is met: for what a client gives no name."""
    encoded = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return blake2b(encoded.encode(), digest_size=8).hexdigest()


# -- Without navigation ---------------------------------------------------------------------------------


def run(call: Call, **facts: str | None) -> Draft:
    """A call that led to no file."""
    fields: dict[str, object] = {"tool": call.tool, "call": call.id}
    return Draft("tool.run", fields | {key: value for key, value in facts.items() if value})


def failure(call: Call, text: str) -> Draft:
    """A call that was refused or failed: it touched nothing."""
    error = verbatim(text, limit=ERROR_CHARACTERS_MAX)
    return Draft("tool.failed", {"tool": call.tool, "call": call.id, "text": error}, error=True)


def failed_read(call: Call, path: str, files: Files, text: str) -> Draft:
    """A file that was looked at in vain is still a place that was looked at."""
    error = verbatim(text, limit=ERROR_CHARACTERS_MAX)
    return touch(call, "file.read", files.name(path, call.cwd), hashed=True, text=error, error=True)


# -- Files ----------------------------------------------------------------------------------------------


def touch(
    call: Call,
    name: str,
    path: str,
    seen: Shown = NOWHERE,
    *,
    tokens: int | None = None,
    hashed: bool = False,
    error: bool = False,
    inner: bool = False,
    **more: str | None,
) -> Draft:
    """An access to a file, by the name that `Files` gives it."""
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
    return Draft(name, fields, error=error, inner=inner)


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def read(call: Call, path: str, files: Files, seen: Shown, *, text: str) -> Draft:
    """A stretch of a file; `text` is what the model was shown."""
    name = files.name(path, call.cwd)
    if seen.total is not None:
        files.learn(name, seen.total)
    return touch(call, "file.read", name, seen, tokens=tokens_of(text), hashed=True)


def create(call: Call, path: str, files: Files, *, lines: int | None, text: str) -> Draft:
    """A new file of so many lines."""
    name = files.name(path, call.cwd)
    files.learn(name, lines)
    seen = Shown(1, lines, lines) if lines else Shown(total=lines)
    return touch(call, "file.create", name, seen, tokens=tokens_of(text))


def edit(
    call: Call, path: str, files: Files, hunks: Sequence[Hunk], *, text: str, length: int | None = None
) -> list[Draft]:
    """The places of a file that were changed, or the file where they are unknown. `length` is that of the new file."""
    name = files.name(path, call.cwd)
    known = files.length(name)
    if length is None and known is not None and hunks:
        length = max(0, known + sum(hunk.growth for hunk in hunks))
    files.learn(name, length)
    places = [hunk.place for hunk in hunks[:STEPS_MAX] if hunk.place is not None]
    tokens = tokens_of(text)
    if not places:
        return [touch(call, "file.edit", name, Shown(total=length), tokens=tokens)]
    costs = [tokens, *[None] * len(places)]  # what was returned is counted once
    return [
        touch(call, "file.edit", name, Shown(start, end, length), tokens=cost)
        for (start, end), cost in zip(places, costs, strict=False)
    ]


def hunks(diff: str) -> list[Hunk]:
    """The hunks of a unified diff of one file."""
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
        found.append(Hunk(new - old, changed(body, start=int(head[2]))))
    return found


def listing(call: Call, path: str | None, files: Files, *, pattern: str | None, text: str) -> Draft:
    shown = verbatim(pattern or "", limit=ERROR_CHARACTERS_MAX) or None
    return touch(call, "file.list", files.name(path or ".", call.cwd), tokens=tokens_of(text), pattern=shown)


def hits(call: Call, found: Iterable[ShellStep], files: Files, *, text: str) -> list[Draft]:
    """The places that a search found; what it printed is counted with the first."""
    made = [step(call, hit, files, inner=False) for hit in list(found)[:STEPS_MAX]]
    if made:
        made[0].fields["tokens"] = tokens_of(text)
    return made


# -- The shell ------------------------------------------------------------------------------------------


def shell(
    call: Call,
    command: str,
    files: Files,
    *,
    printed: str | None,
    ok: bool,
    exit_code: int | None,
    text: str | None = None,
) -> list[Draft]:
    """A command, the files it touched and the commits it made.

    `printed` is its output; None where that is not known. `text` is what the model was shown, where it is more.
    """
    found = steps(
        command,
        output=printed,
        ok=ok,
        lines_of=lambda path: files.length(files.name(path, call.cwd)),
    )
    said = (printed or "") if text is None else text
    fields: dict[str, object] = {
        "command": verbatim(command, limit=COMMAND_CHARACTERS_MAX),
        "ok": ok,
        "exit_code": exit_code,
        "tokens": tokens_of(said) or 0,
        "via": call.tool,
        "call": call.id,
    }
    if len(found) > STEPS_MAX:
        fields["steps_left_out"] = len(found) - STEPS_MAX
    shares = None if printed is None else _shares(found, printed)
    made = [Draft("shell.run", fields, error=not ok)]
    for index, access in enumerate(found[:STEPS_MAX]):
        made.append(step(call, access, files, text=shares[index] if shares else None))
    for commit in commits(command, output=printed or "", ok=ok):
        message = verbatim(commit.message, limit=COMMAND_CHARACTERS_MAX)
        mark: dict[str, object] = {"text": message, "tags": ["commit"]}
        if commit.sha is not None:
            mark["sha"] = commit.sha
        made.append(Draft(MARK, mark, "agent", inner=True))
    return made


def step(call: Call, access: ShellStep, files: Files, *, text: str | None = None, inner: bool = True) -> Draft:
    """One access of a shell command, or one hit of a search."""
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
        Shown(start, end, total, text),
        tokens=None if text is None else about(text),
        hashed=access.operation == "read",
        inner=inner,
        pattern=pattern,
        revision=access.revision,
    )


def _shares(found: Sequence[ShellStep], printed: str) -> list[str] | None:
    """Which part of the output belongs to which read; None unless the reads explain every line of it."""
    counts = [_count(access) for access in found]
    texts = printed.removesuffix("\n").split("\n")
    if not found or None in counts or sum(count or 0 for count in counts) != len(texts):
        return None
    shares: list[str] = []
    end = 0
    for access, count in zip(found, counts, strict=True):
        begin, end = end, end + (count or 0)
        share = "\n".join(texts[begin:end])
        plain = numbered(share, limit=count)
        shares.append(plain.text if plain and plain.text is not None and plain.start == access.start_line else share)
    return shares


def _count(access: ShellStep) -> int | None:
    if access.operation != "read" or access.start_line is None or access.end_line is None:
        return None
    return access.end_line - access.start_line + 1
