"""Finds the files and lines that a Gemini CLI tool call accessed.

A result has the form of a hook's `tool_response`: `llmContent` is for the model, `returnDisplay` for people. A session
file has the same two fields under other names; `mica.clients.gemini.transcript` converts them to this form.
"""

from __future__ import annotations

import re

import msgspec

from mica.clients import tool_effects
from mica.clients.line_ranges import Excerpt, count_lines
from mica.clients.prompts import remove_element
from mica.clients.records import Count, ImportTally, Shape, TextPart, text_of
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.tool_effects import ClientCall, EventDraft, FileNames

_SHOWING = re.compile(r"Showing lines (\d{1,9})-(\d{1,9}) of (\d{1,9})")
_READ_LINES = re.compile(r"Read lines (\d{1,9})-(\d{1,9}) of (\d{1,9})")
_CONTENT = re.compile(r"--- FILE CONTENT \(truncated\) ---\n")
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,6})$", re.MULTILINE)
_HIT = re.compile(r"L(\d{1,9}): ")


class GeminiInput(msgspec.Struct, gc=False):
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


class GeminiDisplay(msgspec.Struct, rename="camel", gc=False):
    summary: str | None = None
    matches: list[Match] | None = None
    file_diff: str | None = None
    file_path: str | None = None
    new_content: str | None = None
    is_new_file: bool | None = None
    files: list[str] | None = None


class GeminiFailure(msgspec.Struct, gc=False):
    message: str | None = None


class GeminiToolResult(msgspec.Struct, rename="camel", gc=False):
    llm_content: str | list[TextPart] | None = None
    return_display: str | GeminiDisplay | None = None
    error: str | GeminiFailure | None = None


_INPUT = Shape(GeminiInput)
_RESULT = Shape(GeminiToolResult)


def without_hooks(text: str) -> str:
    """Return the text without the `hook_context` elements that hooks added."""
    stripped = remove_element(text, "hook_context")
    return text if stripped is text else stripped.removesuffix("\n\n")  # the addition follows an empty line


def drafts(call: ClientCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    """Return drafts of the events of a tool call, in the order described in `mica.clients.tool_effects`."""
    arguments = _INPUT.fit(call.arguments, tally) or GeminiInput()
    result = (_RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or GeminiToolResult()
    text = without_hooks(call.result if isinstance(call.result, str) else text_of(result.llm_content))
    display = result.return_display if isinstance(result.return_display, GeminiDisplay) else GeminiDisplay()
    display_text = result.return_display if isinstance(result.return_display, str) else ""
    error = result.error.message if isinstance(result.error, GeminiFailure) else result.error
    if call.failed or call.denied or error:
        return _failure(call, arguments, error or text, files)
    match call.tool:
        case "read_file" if path := arguments.file:
            return [tool_effects.read(call, path, files, _excerpt_read(arguments, text, display_text), text=text)]
        case "read_many_files":
            found = [_read_whole(call, path, files) for path in display.files or ()][: tool_effects.STEPS_MAX]
        case "replace" | "edit" | "write_file" if path := display.file_path or arguments.file:
            return _edit(call, path, arguments, display, files, text=text)
        case "grep_search" | "search_file_content":
            found = tool_effects.hits(call, _hits(arguments, display, text), files, text=text)
        case "glob" | "list_directory":
            return [tool_effects.listing(call, arguments.folder, files, pattern=arguments.pattern, text=text)]
        case "run_shell_command" if arguments.command is not None:
            return _shell(call, arguments.command, arguments, files, text=text, display_text=display_text)
        case _:
            found = []
    return found or [tool_effects.run(call, skill=arguments.name if call.tool == "activate_skill" else None)]


def _failure(call: ClientCall, arguments: GeminiInput, text: str, files: FileNames) -> list[EventDraft]:
    if call.tool == "read_file" and arguments.file and not call.denied:
        return [tool_effects.failed_read(call, arguments.file, files, text)]
    return [tool_effects.failure(call, text)]


def _read_whole(call: ClientCall, path: str, files: FileNames) -> EventDraft:
    return tool_effects.touch(call, "file.read", files.name(path, call.cwd), hashed=True)


def _excerpt_read(arguments: GeminiInput, text: str, display_text: str) -> Excerpt:
    """Return the part of a file that a read returned; see `excerpt_from_counts` about the number of lines."""
    content = _CONTENT.search(text)
    if lines := _SHOWING.search(text[:2_000]) or _READ_LINES.match(display_text):
        start, end, total = int(lines[1]), int(lines[2]), int(lines[3])
        shown = text[content.end() :] if content else None
        if end >= total and shown is not None and not shown.endswith("\n"):
            return Excerpt(start, end, total, shown)
        return Excerpt(start, min(end, total - 1), total - 1, shown)
    start = arguments.start_line or (arguments.offset or 0) + 1
    if arguments.start_line or arguments.end_line or arguments.offset or arguments.limit:
        requested_end = arguments.end_line or (start + arguments.limit - 1 if arguments.limit else None)
        count = count_lines(text)
        last = min(requested_end, start + count - 1) if requested_end else start + count - 1
        return Excerpt(start, last, None, text) if count and last >= start else Excerpt()
    total = count_lines(text)
    return Excerpt(1, total, total, text) if total else Excerpt(total=0, text=text)


def _edit(
    call: ClientCall, path: str, arguments: GeminiInput, display: GeminiDisplay, files: FileNames, *, text: str
) -> list[EventDraft]:
    content = display.new_content if display.new_content is not None else arguments.content
    lines = None if content is None else count_lines(content)
    if display.is_new_file:
        return [tool_effects.create(call, path, files, lines=lines, text=text)]
    return tool_effects.edit(call, path, files, tool_effects.hunks(display.file_diff or ""), text=text, length=lines)


def _hits(arguments: GeminiInput, display: GeminiDisplay, text: str) -> list[ShellStep]:
    """Parse the hits of a search: those in `display` if there are any, otherwise those in `text`."""
    pattern = arguments.pattern or ""
    found: list[ShellStep] = []
    for match in display.matches or ():
        name, number = match.absolute_path or match.file_path, match.line_number
        if name:
            found.append(_hit(name, number, pattern))
    if found:
        return found
    path, folder = "", arguments.folder
    for line in text.split("\n"):
        if line.startswith("File: "):
            path = line.removeprefix("File: ").strip()
            path = path if folder is None or path.startswith("/") else f"{folder.rstrip('/')}/{path}"
        elif path and (hit := _HIT.match(line)):
            found.append(_hit(path, int(hit[1]), pattern))
    return found


def _hit(path: str, line: int | None, pattern: str) -> ShellStep:
    return ShellStep(operation="search", path=path, start_line=line, end_line=line, pattern=pattern)


def _shell(
    call: ClientCall, command: str, arguments: GeminiInput, files: FileNames, *, text: str, display_text: str
) -> list[EventDraft]:
    inside = text.removeprefix("<untrusted_context>\n").removesuffix("</untrusted_context>")
    code = _EXIT_CODE.search(inside)
    printed = display_text
    if not printed and "\nOutput: " in f"\n{inside}":
        printed = f"\n{inside}".partition("\nOutput: ")[2]
        printed = re.split(r"\n(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): ", printed)[0]
        printed = "" if printed == "(empty)" else printed
    exit_code = int(code[1]) if code else 0
    folder = arguments.dir_path or arguments.directory
    here = msgspec.structs.replace(call, cwd=files.absolute(folder, call.cwd)) if folder else call
    return tool_effects.shell(here, command, files, printed=printed, ok=exit_code == 0, exit_code=exit_code)
