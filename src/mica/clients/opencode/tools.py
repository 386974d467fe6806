"""What an OpenCode tool call touched (A-12).

The result is what a plugin's `tool.execute.after` is given and what the `state` of a tool part holds: `output`, which
the model was shown, and `metadata`, which has the lines.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from mica.clients import tool_effects as touching
from mica.clients.claude_code.records import Count
from mica.clients.line_ranges import Shown, line_count, relative
from mica.clients.records import Shape, Tally
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.clients.tool_effects import Call, Draft, Files

_SHOWING = re.compile(r"\(Showing lines (\d{1,9})-(\d{1,9}) of (\d{1,9})")
_END_OF_FILE = re.compile(r"\(End of file - total (\d{1,9}) lines\)")
_LINE = re.compile(r"(\d{1,9}): (.*)")
_OLD_LINE = re.compile(r"0*(\d{1,9})\| (.*)")
_GREP_LINE = re.compile(r"  Line (\d{1,9}):")
_REFUSED = ("The user rejected permission", "The user has specified a rule which prevents", "Permission denied by user")


class Input(msgspec.Struct, gc=False):
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


class Display(msgspec.Struct, rename="camel", gc=False):
    type: str | None = None
    path: str | None = None
    text: str | None = None
    line_start: Count | None = None
    line_end: Count | None = None
    total_lines: Count | None = None


class Change(msgspec.Struct, rename="camel", gc=False):
    """One file of a patch."""

    type: str | None = None
    file_path: str | None = None
    relative_path: str | None = None
    move_path: str | None = None
    diff: str | None = None
    patch: str | None = None
    after: str | None = None


class Metadata(msgspec.Struct, gc=False):
    diff: str | None = None
    exists: bool | None = None
    exit: int | None = None
    output: str | None = None
    truncated: bool | None = None
    display: Display | None = None
    files: list[Change] | None = None


class Result(msgspec.Struct, gc=False):
    output: str | None = None
    error: str | None = None
    metadata: Metadata | None = None


_INPUT = Shape(Input)
_RESULT = Shape(Result)


def drafts(call: Call, files: Files, tally: Tally) -> list[Draft]:
    """The events of one call, in order of access; a `tool.run` or a `tool.failed` where it led nowhere."""
    given = _INPUT.fit(call.given, tally) or Input()
    result = (_RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or Result()
    facts = result.metadata or Metadata()
    text = call.result if isinstance(call.result, str) else result.output or ""
    if call.failed or call.denied or result.error is not None:
        return _failure(call, given, result.error or text, files)
    match call.tool:
        case "read" if path := given.file_path or given.path:
            return [_read(call, path, given, facts, files, text=text)]
        case "edit" | "multiedit" if path := given.file_path:
            return touching.edit(call, path, files, touching.hunks(facts.diff or ""), text=text)
        case "write" if path := given.file_path:
            return _write(call, path, given, facts, files, text=text)
        case "patch" | "apply_patch":
            found = _patched(call, facts.files or [], text, files)
        case "bash" | "shell" if given.command is not None:
            return _shell(call, given.command, given, facts, files, text=text)
        case "grep":
            found = touching.hits(call, _hits(call, given, text), files, text=text)
        case "glob" | "list" | "ls":
            return [touching.listing(call, given.path, files, pattern=given.pattern, text=text)]
        case _:
            found = []
    return found or [
        touching.run(call, skill=given.name if call.tool == "skill" else None, agent_type=given.subagent_type)
    ]


def _failure(call: Call, given: Input, text: str, files: Files) -> list[Draft]:
    path = given.file_path or given.path
    if call.tool == "read" and path and not call.denied and not text.startswith(_REFUSED):
        return [touching.failed_read(call, path, files, text)]
    return [touching.failure(call, text)]


def _read(call: Call, path: str, given: Input, facts: Metadata, files: Files, *, text: str) -> Draft:
    display = facts.display or Display()
    if display.type == "directory" or "<type>directory</type>" in text[:2_000]:
        return touching.listing(call, path, files, pattern=None, text=text)
    if display.line_start and display.line_end is not None:
        seen = Shown(display.line_start, display.line_end, display.total_lines, display.text)
        if display.line_end < display.line_start:
            seen = Shown(total=display.total_lines, text="")
        return touching.read(call, path, files, seen, text=text)
    return touching.read(call, path, files, _numbered(text) or _asked(given), text=text)


def _numbered(text: str) -> Shown | None:
    """The lines that carry their numbers: `10: text`, in old versions `00010| text`."""
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
    return Shown(start, start + len(found) - 1, lines, "\n".join(found))


def _asked(given: Input) -> Shown:
    start = given.offset or 1
    return Shown(start, start + given.limit - 1) if given.limit else Shown()


def _write(call: Call, path: str, given: Input, facts: Metadata, files: Files, *, text: str) -> list[Draft]:
    lines = None if given.content is None else line_count(given.content)
    if facts.exists:
        return touching.edit(call, path, files, touching.hunks(facts.diff or ""), text=text, length=lines)
    return [touching.create(call, path, files, lines=lines, text=text)]


def _patched(call: Call, changes: list[Change], text: str, files: Files) -> list[Draft]:
    made: list[Draft] = []
    for change in changes[: touching.STEPS_MAX]:
        path = change.file_path or change.relative_path
        if not path:
            continue
        said = "" if made else text
        if change.type == "add":
            lines = None if change.after is None else line_count(change.after)
            made.append(touching.create(call, path, files, lines=lines, text=said))
        else:
            made += touching.edit(call, path, files, touching.hunks(change.diff or change.patch or ""), text=said)
    return made


def _shell(call: Call, command: str, given: Input, facts: Metadata, files: Files, *, text: str) -> list[Draft]:
    printed = facts.output if facts.output is not None else text
    if facts.truncated:
        printed = text
    folder = given.workdir
    here = msgspec.structs.replace(call, cwd=files.absolute(folder, call.cwd)) if folder else call
    code = facts.exit if facts.exit is not None else 0
    return touching.shell(here, command, files, printed=printed, ok=code == 0, exit_code=code)


def _hits(call: Call, given: Input, text: str) -> list[ShellStep]:
    """`path:` and below it `  Line N: text`; else the lines of `path:N:text`."""
    pattern = given.pattern or ""
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
    place = given.path or "."
    place = place if text.startswith("/") else relative(place, root=call.cwd, cwd=call.cwd)
    return steps(f"rg -n -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)
