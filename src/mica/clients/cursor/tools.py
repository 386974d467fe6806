"""Finds the files and lines that a Cursor tool call accessed. Written from Cursor's documentation, without recordings.

A result is a hook's `tool_output`: JSON inside a text. The hooks `beforeReadFile` and `afterFileEdit` name no tool;
they arrive here as calls of `Read` with `file_path` and of `Write` with `file_path` and `edits`.
"""

from __future__ import annotations

import shlex

import msgspec

from mica.clients import tool_effects
from mica.clients.line_ranges import Excerpt, count_lines
from mica.clients.records import Count, ImportTally, Shape
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.clients.tool_effects import ClientCall, EventDraft, FileNames


class CursorInput(msgspec.Struct, gc=False):
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


class CursorResult(msgspec.Struct, gc=False):
    output: str | None = None
    content: str | None = None
    exit_code: int | None = msgspec.field(default=None, name="exitCode")
    error: str | None = None


_INPUT = Shape(CursorInput)
_RESULT = Shape(CursorResult)


def drafts(call: ClientCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    """Return drafts of the events of a tool call, in the order described in `mica.clients.tool_effects`."""
    arguments = _INPUT.fit(call.arguments, tally) or CursorInput()
    result, text = _result(call.result, tally)
    if call.denied:
        return [tool_effects.failure(call, text)]
    if call.tool == "Shell" and arguments.command is not None:
        folder = arguments.cwd
        here = msgspec.structs.replace(call, cwd=files.absolute(folder, call.cwd)) if folder else call
        code = result.exit_code
        ok = not call.failed and code in (0, None)
        exit_code = 0 if code is None and ok else code
        return tool_effects.shell(here, arguments.command, files, printed=text, ok=ok, exit_code=exit_code)
    if call.failed or result.error is not None:
        if call.tool == "Read" and arguments.file:
            return [tool_effects.failed_read(call, arguments.file, files, result.error or text)]
        return [tool_effects.failure(call, result.error or text)]
    match call.tool:
        case "Read" if path := arguments.file:
            return [tool_effects.read(call, path, files, _excerpt_read(arguments, text), text=text)]
        case "Write" | "Edit" | "StrReplace" if path := arguments.file:
            return tool_effects.edit(call, path, files, (), text=text)
        case "Grep":
            found = tool_effects.hits(call, _hits(arguments, text), files, text=text)
        case "Glob" | "LS":
            return [tool_effects.listing(call, arguments.path, files, pattern=arguments.pattern, text=text)]
        case _:
            found = []
    return found or [tool_effects.run(call)]


def _result(value: object, tally: ImportTally) -> tuple[CursorResult, str]:
    result: CursorResult | None = None
    if isinstance(value, str):
        try:
            result = _RESULT.read(value.encode("utf-8", "replace"), tally)
        except ValueError:
            return CursorResult(), value
    elif isinstance(value, dict):
        result = _RESULT.fit(value, tally)
    if result is None:
        return CursorResult(), ""
    return result, next((text for text in (result.output, result.content) if text is not None), "")


def _excerpt_read(arguments: CursorInput, text: str) -> Excerpt:
    count = count_lines(text)
    if not (arguments.offset or arguments.limit):
        return Excerpt(1, count, count, text) if count else Excerpt()
    start = arguments.offset or 1
    return Excerpt(start, start + count - 1, None, text) if count else Excerpt()


def _hits(arguments: CursorInput, text: str) -> list[ShellStep]:
    pattern = arguments.pattern or arguments.query or ""
    place = arguments.path or "."
    return steps(f"rg -n -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)
