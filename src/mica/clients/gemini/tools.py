"""What a Gemini CLI tool call touched (A-12).

The result is what a hook's `tool_response` holds: `llmContent`, which the model was shown, and `returnDisplay`, which
people were. A session file says the same in other places; its reader puts them there.
"""

from __future__ import annotations

import re

import msgspec

from mica.clients import tool_effects as touching
from mica.clients.claude_code.records import Count, Piece, text_of
from mica.clients.line_ranges import Shown, line_count
from mica.clients.prompts import without
from mica.clients.records import Shape, Tally
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.tool_effects import Call, Draft, Files

_SHOWING = re.compile(r"Showing lines (\d{1,9})-(\d{1,9}) of (\d{1,9})")
_READ_LINES = re.compile(r"Read lines (\d{1,9})-(\d{1,9}) of (\d{1,9})")
_CONTENT = re.compile(r"--- FILE CONTENT \(truncated\) ---\n")
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,6})$", re.MULTILINE)
_HIT = re.compile(r"L(\d{1,9}): ")


class Input(msgspec.Struct, gc=False):
    file_path: str | None = None
    absolute_path: str | None = None
    path: str | None = None
    dir_path: str | None = None
    directory: str | None = None
    start_line: Count | None = None
    end_line: Count | None = None
    offset: Count | None = None
    limit: Count | None = None
    pattern: str | None = None
    include: list[str] | str | None = None
    paths: list[str] | None = None
    command: str | None = None
    content: str | None = None
    name: str | None = None

    @property
    def file(self) -> str | None:
        return self.file_path or self.absolute_path or self.path

    @property
    def folder(self) -> str | None:
        return self.dir_path or self.directory or self.path


class Match(msgspec.Struct, rename="camel", gc=False):
    file_path: str | None = None
    absolute_path: str | None = None
    line_number: Count | None = None


class Display(msgspec.Struct, rename="camel", gc=False):
    summary: str | None = None
    matches: list[Match] | None = None
    file_diff: str | None = None
    file_path: str | None = None
    new_content: str | None = None
    is_new_file: bool | None = None
    files: list[str] | None = None


class Failure(msgspec.Struct, gc=False):
    message: str | None = None


class Result(msgspec.Struct, rename="camel", gc=False):
    llm_content: str | list[Piece] | None = None
    return_display: str | Display | None = None
    error: str | Failure | None = None


_INPUT = Shape(Input)
_RESULT = Shape(Result)


def without_hooks(text: str) -> str:
    """A text as it was before hooks added theirs."""
    kept = without(text, "hook_context")
    return text if kept is text else kept.removesuffix("\n\n")  # they stand after an empty line


def drafts(call: Call, files: Files, tally: Tally) -> list[Draft]:
    """The events of one call, in order of access; a `tool.run` or a `tool.failed` where it led nowhere."""
    given = _INPUT.fit(call.given, tally) or Input()
    result = (_RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or Result()
    text = without_hooks(call.result if isinstance(call.result, str) else text_of(result.llm_content))
    display = result.return_display if isinstance(result.return_display, Display) else Display()
    said = result.return_display if isinstance(result.return_display, str) else ""
    error = result.error.message if isinstance(result.error, Failure) else result.error
    if call.failed or call.denied or error:
        return _failure(call, given, error or text, files)
    match call.tool:
        case "read_file" if path := given.file:
            return [touching.read(call, path, files, _seen(given, text, said), text=text)]
        case "read_many_files":
            found = [_whole(call, path, files) for path in display.files or ()][: touching.STEPS_MAX]
        case "replace" | "edit" | "write_file" if path := display.file_path or given.file:
            return _edit(call, path, given, display, files, text=text)
        case "grep_search" | "search_file_content":
            found = touching.hits(call, _hits(given, display, text), files, text=text)
        case "glob" | "list_directory":
            return [touching.listing(call, given.folder, files, pattern=given.pattern, text=text)]
        case "run_shell_command" if given.command is not None:
            return _shell(call, given.command, given, files, text=text, said=said)
        case _:
            found = []
    return found or [touching.run(call, skill=given.name if call.tool == "activate_skill" else None)]


def _failure(call: Call, given: Input, text: str, files: Files) -> list[Draft]:
    if call.tool == "read_file" and given.file and not call.denied:
        return [touching.failed_read(call, given.file, files, text)]
    return [touching.failure(call, text)]


def _whole(call: Call, path: str, files: Files) -> Draft:
    return touching.touch(call, "file.read", files.name(path, call.cwd), hashed=True)


def _seen(given: Input, text: str, said: str) -> Shown:
    """Gemini counts the empty line after a final line end; only a stretch that reaches it tells whether it is one."""
    content = _CONTENT.search(text)
    if lines := _SHOWING.search(text[:2_000]) or _READ_LINES.match(said):
        start, end, total = int(lines[1]), int(lines[2]), int(lines[3])
        shown = text[content.end() :] if content else None
        if end >= total and shown is not None and not shown.endswith("\n"):
            return Shown(start, end, total, shown)
        return Shown(start, min(end, total - 1), total - 1, shown)
    start = given.start_line or (given.offset or 0) + 1
    if given.start_line or given.end_line or given.offset or given.limit:
        asked = given.end_line or (start + given.limit - 1 if given.limit else None)
        count = line_count(text)
        last = min(asked, start + count - 1) if asked else start + count - 1
        return Shown(start, last, None, text) if count and last >= start else Shown()
    total = line_count(text)
    return Shown(1, total, total, text) if total else Shown(total=0, text=text)


def _edit(call: Call, path: str, given: Input, display: Display, files: Files, *, text: str) -> list[Draft]:
    content = display.new_content if display.new_content is not None else given.content
    lines = None if content is None else line_count(content)
    if display.is_new_file:
        return [touching.create(call, path, files, lines=lines, text=text)]
    return touching.edit(call, path, files, touching.hunks(display.file_diff or ""), text=text, length=lines)


def _hits(given: Input, display: Display, text: str) -> list[ShellStep]:
    """Where the pattern was found: as people were shown it, else as the model was."""
    pattern = given.pattern or ""
    found: list[ShellStep] = []
    for match in display.matches or ():
        name, number = match.absolute_path or match.file_path, match.line_number
        if name:
            found.append(_hit(name, number, pattern))
    if found:
        return found
    path, folder = "", given.folder
    for line in text.split("\n"):
        if line.startswith("File: "):
            path = line.removeprefix("File: ").strip()
            path = path if folder is None or path.startswith("/") else f"{folder.rstrip('/')}/{path}"
        elif path and (hit := _HIT.match(line)):
            found.append(_hit(path, int(hit[1]), pattern))
    return found


def _hit(path: str, line: int | None, pattern: str) -> ShellStep:
    return ShellStep(operation="search", path=path, start_line=line, end_line=line, pattern=pattern)


def _shell(call: Call, command: str, given: Input, files: Files, *, text: str, said: str) -> list[Draft]:
    inside = text.removeprefix("<untrusted_context>\n").removesuffix("</untrusted_context>")
    code = _EXIT_CODE.search(inside)
    printed = said
    if not printed and "\nOutput: " in f"\n{inside}":
        printed = f"\n{inside}".partition("\nOutput: ")[2]
        printed = re.split(r"\n(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): ", printed)[0]
        printed = "" if printed == "(empty)" else printed
    exit_code = int(code[1]) if code else 0
    folder = given.dir_path or given.directory
    here = msgspec.structs.replace(call, cwd=files.absolute(folder, call.cwd)) if folder else call
    return touching.shell(here, command, files, printed=printed, ok=exit_code == 0, exit_code=exit_code)
