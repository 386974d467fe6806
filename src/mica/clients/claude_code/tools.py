"""What a Claude Code tool call touched: which files, which lines, and what it cost (A-12, TA-02)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

import msgspec

from mica.clients import tool_effects as touching
from mica.clients.claude_code.prompts import said_in_refusal
from mica.clients.claude_code.records import INPUT, RESULT, TEXT, Input, Patch, Piece, Result, text_of
from mica.clients.line_ranges import Shown, changed, line_count, numbered, relative, shown
from mica.clients.records import Shape, Tally
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.clients.tool_effects import Call, Draft, Files, Hunk, verbatim
from mica.model.event import MARK

_REFUSED = re.compile(
    r"(?:Error: )?(?:Claude requested permissions|The user doesn't want to|Permission (?:to use|for this)"
    r"|No such tool available|InputValidationError|Sibling tool call errored|Cancelled: parallel tool call)"
)
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,3})(?:\n|$)")
_MOVED_AWAY = "<persisted-output>"  # stands where the host moved a long output into a file
_PIECES = Shape(list[Piece])


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call and what came back, decoded."""

    call: Call
    given: Input
    lines: int | None = None  # of the text that was given to be written
    result: Result
    text: str  # what the model was shown


def drafts(call: Call, files: Files, tally: Tally) -> list[Draft]:
    """The events of one call as a hook tells it: its `tool_input`, and its `tool_response` or error as the result."""
    given = INPUT.fit(call.given, tally) or Input()
    result = (RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or Result()
    written = _text(given.content, tally) if call.tool == "Write" else None
    told = Answered(
        call=call,
        given=given,
        lines=None if written is None else line_count(written),
        result=result,
        text=_said(call.result, result, tally),
    )
    return drafts_of(told, files, tally)


def _said(value: object, result: Result, tally: Tally) -> str:
    """What the model was shown, as far as a structured result tells."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return text_of(_PIECES.fit(value, tally))
    if result.file is not None:
        return result.file.content or ""
    return "\n".join(part for part in (result.stdout, result.stderr) if part)


def drafts_of(told: Answered, files: Files, tally: Tally) -> list[Draft]:
    """The events of one call, in order of access; a `tool.run` or a `tool.failed` where it led nowhere."""
    if told.call.failed or told.call.denied:
        return _failure(told, files)
    match told.call.tool:
        case "Read" | "NotebookRead":
            found = _read(told, files)
        case "Edit" | "MultiEdit" | "Write" | "NotebookEdit":
            found = _edit(told, files, tally)
        case "Bash" if told.given.command is not None:
            found = _shell(told, told.given.command, files)
        case "Grep":
            found = _grep(told, files, tally)
        case "Glob" | "LS":
            pattern = told.given.pattern
            found = [touching.listing(told.call, told.given.path, files, pattern=pattern, text=told.text)]
        case _:
            found = []
    return found or [_run(told)]


def guess(result: Result) -> str | None:
    """The tool that returns such a result, for calls whose own record was lost."""
    if result.file is not None:
        return "Read"
    if result.structured_patch is not None and result.file_path:
        return "Write" if result.type in ("create", "update") else "Edit"
    return None


# -- Without navigation ---------------------------------------------------------------------------------


def _run(told: Answered) -> Draft:
    made = touching.run(told.call, skill=told.given.skill)
    if agent_type := told.given.subagent_type or told.result.agent_type:
        made.fields["agent_type"] = agent_type
        description = verbatim(told.given.description or "", limit=touching.ERROR_CHARACTERS_MAX)
        made.fields["description"] = description
        made.fields["agent"] = told.result.agent_id
    return made


def _failure(told: Answered, files: Files) -> list[Draft]:
    """What was refused, or what no tool answered, touched nothing; a failed read is a place looked at."""
    call = told.call
    text = told.text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
    if not (call.denied or _REFUSED.match(text)):
        if call.tool in ("Read", "NotebookRead") and told.given.file:
            return [touching.failed_read(call, told.given.file, files, text)]
        if call.tool == "Bash" and told.given.command is not None:
            return _shell(told, told.given.command, files)
    failed = touching.failure(call, text)
    said = said_in_refusal(text) if call.denied else None
    if said is None:
        return [failed]
    prompt: dict[str, object] = {"text": verbatim(said, limit=len(said)), "tags": ["prompt"]}
    return [failed, Draft(MARK, prompt, "user", inner=True)]


# -- Files ----------------------------------------------------------------------------------------------


def _read(told: Answered, files: Files) -> list[Draft]:
    file = told.result.file
    path = (file and file.file_path) or told.given.file
    if path is None:
        return []
    seen = None
    if file is not None and file.content is not None and file.start_line and file.num_lines is not None:
        total = file.total_lines or file.start_line + file.num_lines - 1
        seen = shown(file.content, start=file.start_line, count=file.num_lines, total=total)
    elif file is None:  # a subagent's record has no result beside the message
        seen = numbered(told.text, limit=told.given.limit)
    if seen is None and told.given.offset and told.given.limit:
        seen = Shown(told.given.offset, told.given.offset + told.given.limit - 1)
    return [touching.read(told.call, path, files, seen or Shown(), text=told.text)]


def _edit(told: Answered, files: Files, tally: Tally) -> list[Draft]:
    path = told.result.file_path or told.given.file
    if path is None:
        return []
    if _is_new(told):
        return [touching.create(told.call, path, files, lines=_written(told, tally), text=told.text)]
    return touching.edit(told.call, path, files, _hunks(told.result.structured_patch or ()), text=told.text)


def _is_new(told: Answered) -> bool:
    if told.call.tool != "Write":
        return False
    return told.result.type == "create" or (told.result.type is None and told.text.startswith("File created"))


def _written(told: Answered, tally: Tally) -> int | None:
    text = _text(told.result.content, tally) if told.lines is None else None
    return told.lines if text is None else line_count(text)


def _hunks(patch: Iterable[Patch]) -> list[Hunk]:
    return [Hunk(hunk.new_lines - hunk.old_lines, changed(hunk.lines, start=hunk.new_start or 1)) for hunk in patch]


def _grep(told: Answered, files: Files, tally: Tally) -> list[Draft]:
    """Search hits: file names where only they were asked for, else the lines of `path:N:text`."""
    pattern = told.given.pattern or ""
    names = told.result.filenames or []
    text = told.text
    if told.result.mode == "content":
        text = _text(told.result.content, tally) or text
    elif not names and text.startswith("Found "):
        names = text.split("\n")[1:]
    if names:
        found = [ShellStep(operation="search", path=name, pattern=pattern) for name in names if name]
    elif text.startswith(("No matches found", "No files found")):
        return []
    else:
        # The same table as for `rg` in a shell. It compares paths as printed, mostly relative to the folder.
        place = told.given.path or "."
        place = place if text.startswith("/") else relative(place, root=told.call.cwd, cwd=told.call.cwd)
        found = steps(f"rg -n -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)
    return touching.hits(told.call, found, files, text=told.text)


def _text(raw: msgspec.Raw, tally: Tally) -> str | None:
    try:
        return TEXT.read(raw, tally)
    except ValueError:
        return None


# -- The shell ------------------------------------------------------------------------------------------


def _shell(told: Answered, command: str, files: Files) -> list[Draft]:
    ok = not told.call.failed
    code = None if ok else _EXIT_CODE.match(told.text)
    printed = told.text[code.end() :] if code else told.text
    if told.result.stdout is not None:
        printed = told.result.stdout
    hidden = told.result.background_task_id is not None or printed.startswith(_MOVED_AWAY)
    return touching.shell(
        told.call,
        command,
        files,
        printed=None if hidden else printed,
        ok=ok,
        exit_code=int(code[1]) if code else 0 if ok and not hidden else None,
        text=told.text,
    )
