"""What a Cursor tool call touched (A-12). From Cursor's documentation, not verified: no recording of it exists.

The result is a hook's `tool_output`: JSON inside a text. `beforeReadFile` and `afterFileEdit` name no tool; they are
given here as calls of `Read` with `file_path` and of `Write` with `file_path` and `edits`.
"""

from __future__ import annotations

import shlex

import msgspec

from mica.clients import tool_effects as touching
from mica.clients.claude_code.records import Count
from mica.clients.line_ranges import Shown, line_count
from mica.clients.records import Shape, Tally
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.clients.tool_effects import Call, Draft, Files


class Input(msgspec.Struct, gc=False):
    file_path: str | None = None
    path: str | None = None
    target_file: str | None = None
    offset: Count | None = None
    limit: Count | None = None
    command: str | None = None
    cwd: str | None = None
    pattern: str | None = None
    query: str | None = None

    @property
    def file(self) -> str | None:
        return self.file_path or self.target_file or self.path


class Result(msgspec.Struct, gc=False):
    output: str | None = None
    content: str | None = None
    exit_code: int | None = msgspec.field(default=None, name="exitCode")
    error: str | None = None


_INPUT = Shape(Input)
_RESULT = Shape(Result)


def drafts(call: Call, files: Files, tally: Tally) -> list[Draft]:
    """The events of one call, in order of access; a `tool.run` or a `tool.failed` where it led nowhere."""
    given = _INPUT.fit(call.given, tally) or Input()
    result, text = _result(call.result, tally)
    if call.denied:
        return [touching.failure(call, text)]
    if call.tool == "Shell" and given.command is not None:
        folder = given.cwd
        here = msgspec.structs.replace(call, cwd=files.absolute(folder, call.cwd)) if folder else call
        code = result.exit_code
        ok = not call.failed and code in (0, None)
        exit_code = 0 if code is None and ok else code
        return touching.shell(here, given.command, files, printed=text, ok=ok, exit_code=exit_code)
    if call.failed or result.error is not None:
        if call.tool == "Read" and given.file:
            return [touching.failed_read(call, given.file, files, result.error or text)]
        return [touching.failure(call, result.error or text)]
    match call.tool:
        case "Read" if path := given.file:
            return [touching.read(call, path, files, _seen(given, text), text=text)]
        case "Write" | "Edit" | "StrReplace" if path := given.file:
            return touching.edit(call, path, files, (), text=text)
        case "Grep":
            found = touching.hits(call, _hits(given, text), files, text=text)
        case "Glob" | "LS":
            return [touching.listing(call, given.path, files, pattern=given.pattern, text=text)]
        case _:
            found = []
    return found or [touching.run(call)]


def _result(value: object, tally: Tally) -> tuple[Result, str]:
    """The decoded output, and what was shown of it."""
    result: Result | None = None
    if isinstance(value, str):
        try:
            result = _RESULT.read(value.encode("utf-8", "replace"), tally)
        except ValueError:
            return Result(), value
    elif isinstance(value, dict):
        result = _RESULT.fit(value, tally)
    if result is None:
        return Result(), ""
    return result, next((text for text in (result.output, result.content) if text is not None), "")


def _seen(given: Input, text: str) -> Shown:
    """Without a range it is the whole file; a range is taken as asked for, as far as the text bears it out."""
    count = line_count(text)
    if not (given.offset or given.limit):
        return Shown(1, count, count, text) if count else Shown()
    start = given.offset or 1
    return Shown(start, start + count - 1, None, text) if count else Shown()


def _hits(given: Input, text: str) -> list[ShellStep]:
    pattern = given.pattern or given.query or ""
    place = given.path or "."
    return steps(f"rg -n -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)
