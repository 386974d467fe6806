"""Finds the files and lines that an OpenCode tool call accessed.

A result has the same form in the plugin hook `tool.execute.after` and in the database, in the `state` of a tool part:
`output` is the text that the model received, and `metadata` has the lines.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from mica.clients import tool_effects
from mica.clients.line_ranges import Excerpt, count_lines, relative_path
from mica.clients.records import Count, ImportTally, Shape
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.clients.tool_effects import ClientCall, EventDraft, FileNames

_SHOWING = re.compile(r"\(Showing lines (\d{1,9})-(\d{1,9}) of (\d{1,9})")
_END_OF_FILE = re.compile(r"\(End of file - total (\d{1,9}) lines\)")
_LINE = re.compile(r"(\d{1,9}): (.*)")
_OLD_LINE = re.compile(r"0*(\d{1,9})\| (.*)")
_GREP_LINE = re.compile(r"  Line (\d{1,9}):")
_REFUSED = ("The user rejected permission", "The user has specified a rule which prevents", "Permission denied by user")


class OpencodeInput(msgspec.Struct, gc=False):
    file_path: str | None = msgspec.field(default=None, name="filePath")
    path: str | None = None
    offset: Count | None = None
    limit: Count | None = None
    pattern: str | None = None
    command: str | None = None
    workdir: str | None = None
    content: str | None = None
    name: str | None = None
    subagent_type: str | None = None


class OpencodeDisplay(msgspec.Struct, rename="camel", gc=False):
    type: str | None = None
    path: str | None = None
    text: str | None = None
    line_start: Count | None = None
    line_end: Count | None = None
    total_lines: Count | None = None


class OpencodeFileChange(msgspec.Struct, rename="camel", gc=False):
    """The change of one file by a patch."""

    type: str | None = None
    file_path: str | None = None
    relative_path: str | None = None
    move_path: str | None = None
    diff: str | None = None
    patch: str | None = None
    after: str | None = None


class OpencodeMetadata(msgspec.Struct, gc=False):
    diff: str | None = None
    exists: bool | None = None
    exit: int | None = None
    output: str | None = None
    truncated: bool | None = None
    display: OpencodeDisplay | None = None
    files: list[OpencodeFileChange] | None = None


class OpencodeResult(msgspec.Struct, gc=False):
    output: str | None = None
    error: str | None = None
    metadata: OpencodeMetadata | None = None


_INPUT = Shape(OpencodeInput)
_RESULT = Shape(OpencodeResult)


def drafts(call: ClientCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    """Return drafts of the events of a tool call, in the order described in `mica.clients.tool_effects`."""
    arguments = _INPUT.fit(call.arguments, tally) or OpencodeInput()
    result = (_RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or OpencodeResult()
    facts = result.metadata or OpencodeMetadata()
    text = call.result if isinstance(call.result, str) else result.output or ""
    if call.failed or call.denied or result.error is not None:
        return _failure(call, arguments, result.error or text, files)
    match call.tool:
        case "read" if path := arguments.file_path or arguments.path:
            return [_read(call, path, arguments, facts, files, text=text)]
        case "edit" | "multiedit" if path := arguments.file_path:
            return tool_effects.edit(call, path, files, tool_effects.hunks(facts.diff or ""), text=text)
        case "write" if path := arguments.file_path:
            return _write(call, path, arguments, facts, files, text=text)
        case "patch" | "apply_patch":
            found = _patch(call, facts.files or [], text, files)
        case "bash" | "shell" if arguments.command is not None:
            return _shell(call, arguments.command, arguments, facts, files, text=text)
        case "grep":
            found = tool_effects.hits(call, _hits(call, arguments, text), files, text=text)
        case "glob" | "list" | "ls":
            return [tool_effects.listing(call, arguments.path, files, pattern=arguments.pattern, text=text)]
        case _:
            found = []
    return found or [
        tool_effects.run(
            call, skill=arguments.name if call.tool == "skill" else None, agent_type=arguments.subagent_type
        )
    ]


def _failure(call: ClientCall, arguments: OpencodeInput, text: str, files: FileNames) -> list[EventDraft]:
    path = arguments.file_path or arguments.path
    if call.tool == "read" and path and not call.denied and not text.startswith(_REFUSED):
        return [tool_effects.failed_read(call, path, files, text)]
    return [tool_effects.failure(call, text)]


def _read(
    call: ClientCall, path: str, arguments: OpencodeInput, facts: OpencodeMetadata, files: FileNames, *, text: str
) -> EventDraft:
    display = facts.display or OpencodeDisplay()
    if display.type == "directory" or "<type>directory</type>" in text[:2_000]:
        return tool_effects.listing(call, path, files, pattern=None, text=text)
    if display.line_start and display.line_end is not None:
        seen = Excerpt(display.line_start, display.line_end, display.total_lines, display.text)
        if display.line_end < display.line_start:
            seen = Excerpt(total=display.total_lines, text="")
        return tool_effects.read(call, path, files, seen, text=text)
    return tool_effects.read(call, path, files, _numbered(text) or _requested(arguments), text=text)


def _numbered(text: str) -> Excerpt | None:
    """Parse an excerpt whose lines begin with numbers: `10: text`, or `00010| text` in old versions; else None."""
    found: list[str] = []
    start = 0
    for line in text.split("\n"):
        match = _LINE.match(line) or _OLD_LINE.match(line)
        if match is not None and (not found or int(match[1]) == start + len(found)):
            start = start or int(match[1])
            found.append(match[2])
        elif found:
            break
    if not start:
        return None
    total = _SHOWING.search(text) or _END_OF_FILE.search(text)
    lines = int(total[3] if total.re is _SHOWING else total[1]) if total else None
    return Excerpt(start, start + len(found) - 1, lines, "\n".join(found))


def _requested(arguments: OpencodeInput) -> Excerpt:
    start = arguments.offset or 1
    return Excerpt(start, start + arguments.limit - 1) if arguments.limit else Excerpt()


def _write(
    call: ClientCall, path: str, arguments: OpencodeInput, facts: OpencodeMetadata, files: FileNames, *, text: str
) -> list[EventDraft]:
    lines = None if arguments.content is None else count_lines(arguments.content)
    if facts.exists:
        return tool_effects.edit(call, path, files, tool_effects.hunks(facts.diff or ""), text=text, length=lines)
    return [tool_effects.create(call, path, files, lines=lines, text=text)]


def _patch(call: ClientCall, changes: list[OpencodeFileChange], text: str, files: FileNames) -> list[EventDraft]:
    made: list[EventDraft] = []
    for change in changes[: tool_effects.STEPS_MAX]:
        path = change.file_path or change.relative_path
        if not path:
            continue
        output = "" if made else text
        if change.type == "add":
            lines = None if change.after is None else count_lines(change.after)
            made.append(tool_effects.create(call, path, files, lines=lines, text=output))
        else:
            made += tool_effects.edit(
                call, path, files, tool_effects.hunks(change.diff or change.patch or ""), text=output
            )
    return made


def _shell(
    call: ClientCall, command: str, arguments: OpencodeInput, facts: OpencodeMetadata, files: FileNames, *, text: str
) -> list[EventDraft]:
    printed = facts.output if facts.output is not None else text
    if facts.truncated:
        printed = text
    folder = arguments.workdir
    here = msgspec.structs.replace(call, cwd=files.absolute(folder, call.cwd)) if folder else call
    code = facts.exit if facts.exit is not None else 0
    return tool_effects.shell(here, command, files, printed=printed, ok=code == 0, exit_code=code)


def _hits(call: ClientCall, arguments: OpencodeInput, text: str) -> list[ShellStep]:
    """Parse the hits of a search: `path:` followed by lines ` Line N: text`, or lines such as `path:N:text`."""
    pattern = arguments.pattern or ""
    found: list[ShellStep] = []
    path = ""
    for line in text.split("\n"):
        if path and (hit := _GREP_LINE.match(line)):
            number = int(hit[1])
            found.append(ShellStep(operation="search", path=path, start_line=number, end_line=number, pattern=pattern))
        elif line.endswith(":") and not line.startswith(" ") and not line.startswith("Found "):
            path = line[:-1]
    if found or text.startswith(("No files found", "No matches found")):
        return found
    place = arguments.path or "."
    place = place if text.startswith("/") else relative_path(place, root=call.cwd, cwd=call.cwd)
    return steps(f"rg -n -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)
