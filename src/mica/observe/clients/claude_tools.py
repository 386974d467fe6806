"""What a Claude Code tool call touched: which files, which lines, and what it cost (A-12, TA-02)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from mica.model import MARK, Origin
from mica.observe.clients.claude_prompts import said_in_refusal
from mica.observe.clients.claude_records import TEXT, Hunk, Input, Result
from mica.observe.clients.commits import commits
from mica.observe.clients.ranges import Shown, changed, line_count, numbered, relative, shown
from mica.observe.clients.records import Tally
from mica.observe.redact import redact
from mica.observe.shell import steps
from mica.observe.shell_lines import ShellStep
from mica.tokens import about

COMMAND_CHARACTERS_MAX = 20_000  # longer ones carry a file or a program, whose text is no evidence of navigation
ERROR_CHARACTERS_MAX = 2_000  # an error says at its beginning what is wrong; what follows is tool output
SECRET_CHARACTERS_MAX = 10_000  # a private key has a few thousand
STEPS_MAX = 200  # places of one call; a search that finds more led nowhere in particular
LENGTHS_MAX = 10_000  # files whose length is remembered, some 2 MB

_REFUSED = re.compile(
    r"(?:Error: )?(?:Claude requested permissions|The user doesn't want to|Permission (?:to use|for this)"
    r"|No such tool available|InputValidationError|Sibling tool call errored|Cancelled: parallel tool call)"
)
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,3})(?:\n|$)")
_NOWHERE = Shown()
_MOVED_AWAY = "<persisted-output>"  # stands where the host moved a long output into a file


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call and what came back."""

    id: str
    tool: str
    given: Input
    lines: int | None = None  # of the text that was given to be written
    result: Result
    text: str  # what the model was shown
    failed: bool
    denied: bool  # a person or a rule refused it
    cwd: str | None


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

    def length(self, name: str) -> int | None:
        return self._lengths.get(name)

    def learn(self, name: str, length: int | None) -> None:
        self._lengths.pop(name, None)
        if length is not None:
            self._lengths[name] = length
        if len(self._lengths) > LENGTHS_MAX:
            del self._lengths[next(iter(self._lengths))]


def drafts(call: Call, files: Files, tally: Tally) -> list[Draft]:
    """The events of one call, in order of access; a `tool.run` or a `tool.failed` where it led nowhere."""
    if call.failed:
        return _failure(call, files)
    match call.tool:
        case "Read" | "NotebookRead":
            found = _read(call, files)
        case "Edit" | "MultiEdit" | "Write" | "NotebookEdit":
            found = _edit(call, files, tally)
        case "Bash" if call.given.command is not None:
            found = _shell(call, call.given.command, files)
        case "Grep":
            found = _grep(call, files, tally)
        case "Glob" | "LS":
            found = [_list(call, files)]
        case _:
            found = []
    return found or [_run(call)]


def guess(result: Result) -> str | None:
    """The tool that returns such a result, for calls whose own record was lost."""
    if result.file is not None:
        return "Read"
    if result.structured_patch is not None and result.file_path:
        return "Write" if result.type in ("create", "update") else "Edit"
    return None


def verbatim(text: str, *, limit: int) -> str:
    """A text without secrets and without NUL, which PostgreSQL refuses; cut, and saying so, at the limit."""
    clean = redact(text[: limit + SECRET_CHARACTERS_MAX].replace("\0", "�"))  # a secret cut in two is not seen
    return clean if len(text) <= limit else f"{clean[:limit]}… ({len(text) - limit:,} characters left out)"


# -- Without navigation ---------------------------------------------------------------------------------


def _run(call: Call) -> Draft:
    fields: dict[str, object] = {"tool": call.tool, "call": call.id}
    if call.given.skill:
        fields["skill"] = call.given.skill
    if agent_type := call.given.subagent_type or call.result.agent_type:
        fields["agent_type"] = agent_type
        fields["description"] = verbatim(call.given.description or "", limit=ERROR_CHARACTERS_MAX)
        fields["agent"] = call.result.agent_id
    return Draft("tool.run", fields)


def _failure(call: Call, files: Files) -> list[Draft]:
    """What was refused, or what no tool answered, touched nothing; a failed read is a place looked at."""
    text = call.text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
    error = verbatim(text, limit=ERROR_CHARACTERS_MAX)
    if not (call.denied or _REFUSED.match(text)):
        if call.tool in ("Read", "NotebookRead") and call.given.file:
            name = files.name(call.given.file, call.cwd)
            return [_touch(call, "file.read", name, hashed=True, text=error, error=True)]
        if call.tool == "Bash" and call.given.command is not None:
            return _shell(call, call.given.command, files)
    failed = Draft("tool.failed", {"tool": call.tool, "call": call.id, "text": error}, error=True)
    said = said_in_refusal(text) if call.denied else None
    if said is None:
        return [failed]
    prompt: dict[str, object] = {"text": verbatim(said, limit=len(said)), "tags": ["prompt"]}
    return [failed, Draft(MARK, prompt, "user", inner=True)]


# -- Files ----------------------------------------------------------------------------------------------


def _touch(
    call: Call,
    name: str,
    path: str,
    seen: Shown = _NOWHERE,
    *,
    tokens: int | None = None,
    hashed: bool = False,
    error: bool = False,
    inner: bool = False,
    **more: str | None,
) -> Draft:
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
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _read(call: Call, files: Files) -> list[Draft]:
    file = call.result.file
    path = (file and file.file_path) or call.given.file
    if path is None:
        return []
    name = files.name(path, call.cwd)
    seen = None
    if file is not None and file.content is not None and file.start_line and file.num_lines is not None:
        total = file.total_lines or file.start_line + file.num_lines - 1
        seen = shown(file.content, start=file.start_line, count=file.num_lines, total=total)
    elif file is None:  # a subagent's record has no result beside the message
        seen = numbered(call.text, limit=call.given.limit)
    if seen is None and call.given.offset and call.given.limit:
        seen = Shown(call.given.offset, call.given.offset + call.given.limit - 1)
    seen = seen or Shown()
    if seen.total is not None:
        files.learn(name, seen.total)
    return [_touch(call, "file.read", name, seen, tokens=_tokens(call.text), hashed=True)]


def _edit(call: Call, files: Files, tally: Tally) -> list[Draft]:
    path = call.result.file_path or call.given.file
    if path is None:
        return []
    name = files.name(path, call.cwd)
    tokens = _tokens(call.text)
    hunks = call.result.structured_patch or []
    if _is_new(call):
        total = _written(call, tally)
        files.learn(name, total)
        seen = Shown(1, total, total) if total else Shown(total=total)
        return [_touch(call, "file.create", name, seen, tokens=tokens)]
    length = _grown(files.length(name), hunks)
    files.learn(name, length)
    places = [place for hunk in hunks[:STEPS_MAX] if (place := changed(hunk.lines, start=hunk.new_start or 1))]
    if not places:
        return [_touch(call, "file.edit", name, Shown(total=length), tokens=tokens)]
    costs = [tokens, *[None] * len(places)]  # what was returned is counted once
    return [
        _touch(call, "file.edit", name, Shown(start, end, length), tokens=cost)
        for (start, end), cost in zip(places, costs, strict=False)
    ]


def _is_new(call: Call) -> bool:
    if call.tool != "Write":
        return False
    return call.result.type == "create" or (call.result.type is None and call.text.startswith("File created"))


def _written(call: Call, tally: Tally) -> int | None:
    text = _text(call.result.content, tally) if call.lines is None else None
    return call.lines if text is None else line_count(text)


def _grown(length: int | None, hunks: Iterable[Hunk]) -> int | None:
    """The length of a file after a patch. Without a patch nothing is known any more."""
    changes = [hunk.new_lines - hunk.old_lines for hunk in hunks]
    return max(0, length + sum(changes)) if length is not None and changes else None


def _list(call: Call, files: Files) -> Draft:
    pattern = verbatim(call.given.pattern or "", limit=ERROR_CHARACTERS_MAX) or None
    name = files.name(call.given.path or ".", call.cwd)
    return _touch(call, "file.list", name, tokens=_tokens(call.text), pattern=pattern)


def _grep(call: Call, files: Files, tally: Tally) -> list[Draft]:
    """Search hits: file names where only they were asked for, else the lines of `path:N:text`."""
    pattern = call.given.pattern or ""
    names = call.result.filenames or []
    text = call.text
    if call.result.mode == "content":
        text = _text(call.result.content, tally) or text
    elif not names and text.startswith("Found "):
        names = text.split("\n")[1:]
    if names:
        found = [ShellStep(operation="search", path=name, pattern=pattern) for name in names if name]
    elif text.startswith(("No matches found", "No files found")):
        return []
    else:
        # The same table as for `rg` in a shell. It compares paths as printed, mostly relative to the folder.
        place = call.given.path or "."
        place = place if text.startswith("/") else relative(place, root=call.cwd, cwd=call.cwd)
        found = steps(f"rg -n -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)
    drafts = [_step(call, step, files, inner=False) for step in found[:STEPS_MAX]]
    if drafts:
        drafts[0].fields["tokens"] = _tokens(call.text)
    return drafts


def _text(raw: msgspec.Raw, tally: Tally) -> str | None:
    try:
        return TEXT.read(raw, tally)
    except ValueError:
        return None


def _tokens(text: str) -> int | None:
    return about(text) if text else None


# -- The shell ------------------------------------------------------------------------------------------


def _shell(call: Call, command: str, files: Files) -> list[Draft]:
    """A command, the files it touched and the commits it made."""
    code = _EXIT_CODE.match(call.text) if call.failed else None
    printed = call.text[code.end() :] if code else call.text
    if call.result.stdout is not None:
        printed = call.result.stdout
    ok = not call.failed
    hidden = call.result.background_task_id is not None or printed.startswith(_MOVED_AWAY)
    found = steps(
        command,
        output=None if hidden else printed,
        ok=ok,
        lines_of=lambda path: files.length(files.name(path, call.cwd)),
    )
    fields: dict[str, object] = {
        "command": verbatim(command, limit=COMMAND_CHARACTERS_MAX),
        "ok": ok,
        "exit_code": int(code[1]) if code else 0 if ok and not hidden else None,
        "tokens": _tokens(call.text) or 0,
        "via": call.tool,
        "call": call.id,
    }
    if len(found) > STEPS_MAX:
        fields["steps_left_out"] = len(found) - STEPS_MAX
    shares = None if hidden else _shares(found, printed)
    made = [Draft("shell.run", fields, error=not ok)]
    for index, step in enumerate(found[:STEPS_MAX]):
        made.append(_step(call, step, files, text=shares[index] if shares else None))
    for commit in commits(command, output=printed, ok=ok):
        message = verbatim(commit.message, limit=COMMAND_CHARACTERS_MAX)
        mark: dict[str, object] = {"text": message, "tags": ["commit"]}
        if commit.sha is not None:
            mark["sha"] = commit.sha
        made.append(Draft(MARK, mark, "agent", inner=True))
    return made


def _step(call: Call, step: ShellStep, files: Files, *, text: str | None = None, inner: bool = True) -> Draft:
    name = files.name(step.path, call.cwd)
    total = files.length(name) if step.revision is None else None
    start, end = step.start_line, step.end_line
    if start is not None and end is None:
        end = total
    if step.from_end is not None and total is not None:
        start, end = max(1, total - step.from_end + 1), total
    if step.operation in ("edit", "create"):
        files.learn(name, None)
    pattern = None if step.pattern is None else verbatim(step.pattern, limit=ERROR_CHARACTERS_MAX)
    return _touch(
        call,
        f"file.{step.operation}",
        name,
        Shown(start, end, total, text),
        tokens=None if text is None else about(text),
        hashed=step.operation == "read",
        inner=inner,
        pattern=pattern,
        revision=step.revision,
    )


def _shares(found: Sequence[ShellStep], printed: str) -> list[str] | None:
    """Which part of the output belongs to which read; None unless the reads explain every line of it."""
    counts = [_count(step) for step in found]
    texts = printed.removesuffix("\n").split("\n")
    if not found or None in counts or sum(count or 0 for count in counts) != len(texts):
        return None
    shares: list[str] = []
    end = 0
    for step, count in zip(found, counts, strict=True):
        begin, end = end, end + (count or 0)
        share = "\n".join(texts[begin:end])
        plain = numbered(share, limit=count)
        shares.append(plain.text if plain and plain.text is not None and plain.start == step.start_line else share)
    return shares


def _count(step: ShellStep) -> int | None:
    if step.operation != "read" or step.start_line is None or step.end_line is None:
        return None
    return step.end_line - step.start_line + 1
