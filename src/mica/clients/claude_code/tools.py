"""Finds the files and lines that a Claude Code tool call accessed, and the tokens of its result."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

import msgspec

from mica.clients import tool_effects
from mica.clients.claude_code.records import (
    INPUT,
    RESULT,
    TEXT,
    ClaudeInput,
    ClaudePatch,
    ClaudeResult,
    reason_of_refusal,
)
from mica.clients.line_ranges import (
    Excerpt,
    changed_range,
    count_lines,
    excerpt_from_counts,
    excerpt_from_numbers,
    relative_path,
)
from mica.clients.records import ImportTally, Shape, TextPart, text_of
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.clients.tool_effects import ClientCall, EventDraft, FileNames, Hunk, verbatim
from mica.model.event import MARK

_REFUSED = re.compile(
    r"(?:Error: )?(?:Claude requested permissions|The user doesn't want to|Permission (?:to use|for this)"
    r"|No such tool available|InputValidationError|Sibling tool call errored|Cancelled: parallel tool call)"
)
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,3})(?:\n|$)")
_MOVED_AWAY = "<persisted-output>"  # stands in for a long output that Claude Code moved into a file
_PARTS = Shape(list[TextPart])


class ClaudeToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded tool call and its result."""

    call: ClientCall
    arguments: ClaudeInput
    lines: int | None = None  # the number of lines that a Write call writes
    result: ClaudeResult
    text: str  # what the model received


def drafts(call: ClientCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    """Return drafts of the events of a tool call that a hook reported.

    `call.result` is the payload's `tool_response`, or its error message if the call failed.
    """
    arguments = INPUT.fit(call.arguments, tally) or ClaudeInput()
    result = (RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or ClaudeResult()
    written = _text(arguments.content, tally) if call.tool == "Write" else None
    use = ClaudeToolCall(
        call=call,
        arguments=arguments,
        lines=None if written is None else count_lines(written),
        result=result,
        text=_text_of_result(call.result, result, tally),
    )
    return drafts_of(use, files, tally)


def _text_of_result(value: object, result: ClaudeResult, tally: ImportTally) -> str:
    """Return the text that the model received, as far as the result in a hook's payload contains it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return text_of(_PARTS.fit(value, tally))
    if result.file is not None:
        return result.file.content or ""
    return "\n".join(part for part in (result.stdout, result.stderr) if part)


def drafts_of(use: ClaudeToolCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    """Return drafts of the events of a tool call, in the order described in `mica.clients.tool_effects`."""
    if use.call.failed or use.call.denied:
        return _failure(use, files)
    match use.call.tool:
        case "Read" | "NotebookRead":
            found = _read(use, files)
        case "Edit" | "MultiEdit" | "Write" | "NotebookEdit":
            found = _edit(use, files, tally)
        case "Bash" if use.arguments.command is not None:
            found = _shell(use, use.arguments.command, files)
        case "Grep":
            found = _grep(use, files, tally)
        case "Glob" | "LS":
            pattern = use.arguments.pattern
            found = [tool_effects.listing(use.call, use.arguments.path, files, pattern=pattern, text=use.text)]
        case _:
            found = []
    return found or [_run(use)]


def guess(result: ClaudeResult) -> str | None:
    """Guess from a result which tool made it, if the record of the call is missing; None if it is not clear."""
    if result.file is not None:
        return "Read"
    if result.structured_patch is not None and result.file_path:
        return "Write" if result.type in ("create", "update") else "Edit"
    return None


# -- Calls that touch no file ---------------------------------------------------------------------------------


def _run(use: ClaudeToolCall) -> EventDraft:
    made = tool_effects.run(use.call, skill=use.arguments.skill)
    if agent_type := use.arguments.subagent_type or use.result.agent_type:
        made.fields["agent_type"] = agent_type
        description = verbatim(use.arguments.description or "", limit=tool_effects.ERROR_CHARACTERS_MAX)
        made.fields["description"] = description
        made.fields["agent"] = use.result.agent_id
    return made


def _failure(use: ClaudeToolCall, files: FileNames) -> list[EventDraft]:
    """Return drafts for a failed or refused call. A failed read is recorded with the name of the file."""
    call = use.call
    text = use.text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
    if not (call.denied or _REFUSED.match(text)):
        if call.tool in ("Read", "NotebookRead") and use.arguments.file:
            return [tool_effects.failed_read(call, use.arguments.file, files, text)]
        if call.tool == "Bash" and use.arguments.command is not None:
            return _shell(use, use.arguments.command, files)
    failed = tool_effects.failure(call, text)
    reason = reason_of_refusal(text) if call.denied else None
    if reason is None:
        return [failed]
    prompt: dict[str, object] = {"text": verbatim(reason, limit=len(reason)), "tags": ["prompt"]}
    return [failed, EventDraft(MARK, prompt, "user", inner=True)]


# -- Files ----------------------------------------------------------------------------------------------


def _read(use: ClaudeToolCall, files: FileNames) -> list[EventDraft]:
    file = use.result.file
    path = (file and file.file_path) or use.arguments.file
    if path is None:
        return []
    seen = None
    if file is not None and file.content is not None and file.start_line and file.num_lines is not None:
        total = file.total_lines or file.start_line + file.num_lines - 1
        seen = excerpt_from_counts(file.content, start=file.start_line, count=file.num_lines, total=total)
    elif file is None:  # a subagent's record has no result beside the message
        seen = excerpt_from_numbers(use.text, limit=use.arguments.limit)
    if seen is None and use.arguments.offset and use.arguments.limit:
        seen = Excerpt(use.arguments.offset, use.arguments.offset + use.arguments.limit - 1)
    return [tool_effects.read(use.call, path, files, seen or Excerpt(), text=use.text)]


def _edit(use: ClaudeToolCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    path = use.result.file_path or use.arguments.file
    if path is None:
        return []
    if _is_new(use):
        return [tool_effects.create(use.call, path, files, lines=_written(use, tally), text=use.text)]
    return tool_effects.edit(use.call, path, files, _hunks(use.result.structured_patch or ()), text=use.text)


def _is_new(use: ClaudeToolCall) -> bool:
    if use.call.tool != "Write":
        return False
    return use.result.type == "create" or (use.result.type is None and use.text.startswith("File created"))


def _written(use: ClaudeToolCall, tally: ImportTally) -> int | None:
    text = _text(use.result.content, tally) if use.lines is None else None
    return use.lines if text is None else count_lines(text)


def _hunks(patch: Iterable[ClaudePatch]) -> list[Hunk]:
    return [
        Hunk(hunk.new_lines - hunk.old_lines, changed_range(hunk.lines, start=hunk.new_start or 1)) for hunk in patch
    ]


def _grep(use: ClaudeToolCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    """Return drafts for the hits of a search. Its output has only file names, or lines such as `path:N:text`."""
    pattern = use.arguments.pattern or ""
    names = use.result.filenames or []
    text = use.text
    if use.result.mode == "content":
        text = _text(use.result.content, tally) or text
    elif not names and text.startswith("Found "):
        names = text.split("\n")[1:]
    if names:
        found = [ShellStep(operation="search", path=name, pattern=pattern) for name in names if name]
    elif text.startswith(("No matches found", "No files found")):
        return []
    else:
        # The same parser as for `rg` in a shell. It compares printed paths, mostly relative to the folder.
        place = use.arguments.path or "."
        place = place if text.startswith("/") else relative_path(place, root=use.call.cwd, cwd=use.call.cwd)
        found = steps(f"rg -n -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)
    return tool_effects.hits(use.call, found, files, text=use.text)


def _text(raw: msgspec.Raw, tally: ImportTally) -> str | None:
    try:
        return TEXT.read(raw, tally)
    except ValueError:
        return None


# -- The shell ------------------------------------------------------------------------------------------


def _shell(use: ClaudeToolCall, command: str, files: FileNames) -> list[EventDraft]:
    ok = not use.call.failed
    code = None if ok else _EXIT_CODE.match(use.text)
    printed = use.text[code.end() :] if code else use.text
    if use.result.stdout is not None:
        printed = use.result.stdout
    hidden = use.result.background_task_id is not None or printed.startswith(_MOVED_AWAY)
    return tool_effects.shell(
        use.call,
        command,
        files,
        printed=None if hidden else printed,
        ok=ok,
        exit_code=int(code[1]) if code else 0 if ok and not hidden else None,
        text=use.text,
    )
