"""Finds the files and lines that a Copilot CLI tool call accessed.

A result comes in three forms. Copilot's own hooks have the field `textResultForLlm`. Hooks of a plugin in Claude's
format have `text_result_for_llm`, and Claude's names of the tools. The session file has `content` and
`detailedContent`. In all three forms the arguments have Copilot's own names.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from mica.clients import tool_effects
from mica.clients.line_ranges import Excerpt, count_lines, relative_path
from mica.clients.records import ImportTally, Shape
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.clients.tool_effects import ClientCall, EventDraft, FileNames

_GUIDANCE = re.compile(r'\n\nTool "[^"\n]{1,200}" (?:succeeded|failed)\. Additional guidance from \w+ hooks:\n')
_SHELL_END = re.compile(r"\n?<(?:shellId: [^>\n]*|exited) (?:completed )?with exit code (-?\d{1,6})>\s*$")
_RUNNING = re.compile(r"<(?:command with )?shellId: [^>\n]*(?:still running|running in background)")
_NUMBERED_HIT = re.compile(r"^(?:[^\n:]{1,1000}:)?\d{1,9}:", re.MULTILINE)
_NUMBERED = re.compile(r"^(\d{1,9})\. ", re.MULTILINE)
# Hooks of a Claude-format plugin use Claude's names; events carry Copilot's own.
NAMES = {"Read": "view", "Edit": "edit", "Write": "create", "Bash": "bash", "Grep": "grep", "Glob": "glob"}


class CopilotInput(msgspec.Struct, gc=False):
    path: str | None = None
    file_path: str | None = None
    view_range: list[int] | None = None
    old_str: str | None = None
    new_str: str | None = None
    file_text: str | None = None
    insert_line: int | None = None
    pattern: str | None = None
    command: str | None = None
    skill: str | None = None
    agent_type: str | None = None

    @property
    def file(self) -> str | None:
        return self.path or self.file_path


class CopilotResult(msgspec.Struct, gc=False):
    content: str | None = None
    detailed: str | None = msgspec.field(default=None, name="detailedContent")
    native: str | None = msgspec.field(default=None, name="textResultForLlm")
    plugin: str | None = msgspec.field(default=None, name="text_result_for_llm")
    kind: str | None = msgspec.field(default=None, name="resultType")
    plugin_kind: str | None = msgspec.field(default=None, name="result_type")
    error: str | None = None
    message: str | None = None
    exit_code: int | None = msgspec.field(default=None, name="exitCode")

    @property
    def text(self) -> str:
        """The text that the model received."""
        texts = (self.content, self.native, self.plugin, self.error, self.message)
        return next((text for text in texts if text is not None), "")


_INPUT = Shape(CopilotInput)
_RESULT = Shape(CopilotResult)


def without_hooks(text: str) -> str:
    """Return the text without the part that hooks added at its end."""
    added = _GUIDANCE.search(text)
    return text[: added.start()] if added else text


def drafts(call: ClientCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    """Return drafts of the events of a tool call, in the order described in `mica.clients.tool_effects`."""
    call = msgspec.structs.replace(call, tool=NAMES.get(call.tool, call.tool))
    arguments = _INPUT.fit(call.arguments, tally) or CopilotInput()
    result = (_RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or CopilotResult()
    text = without_hooks(call.result if isinstance(call.result, str) else result.text)
    kind = result.kind or result.plugin_kind or "success"
    succeeded = kind == "success" and not call.failed
    if call.denied or kind in ("denied", "rejected"):
        return [tool_effects.failure(call, text)]
    is_shell = call.tool in ("bash", "powershell", "local_shell") and arguments.command is not None
    if not succeeded and not is_shell:
        if call.tool == "view" and arguments.file:
            return [tool_effects.failed_read(call, arguments.file, files, text)]
        return [tool_effects.failure(call, text)]
    match call.tool:
        case "view" if path := arguments.file:
            return [_view(call, path, arguments, files, detailed=result.detailed, text=text)]
        case "edit" | "str_replace" | "insert" if path := arguments.file:
            return tool_effects.edit(call, path, files, tool_effects.hunks(result.detailed or ""), text=text)
        case "create" if path := arguments.file:
            lines = None if arguments.file_text is None else count_lines(arguments.file_text)
            return [tool_effects.create(call, path, files, lines=lines, text=text)]
        case "grep" | "rg":
            found = tool_effects.hits(call, _hits(call, arguments, text), files, text=text)
        case "glob":
            return [tool_effects.listing(call, arguments.path, files, pattern=arguments.pattern, text=text)]
        case _ if is_shell and arguments.command is not None:
            return _shell(call, arguments.command, result, files, text=text, succeeded=succeeded)
        case _:
            found = []
    return found or [tool_effects.run(call, skill=arguments.skill, agent_type=arguments.agent_type)]


def _view(
    call: ClientCall, path: str, arguments: CopilotInput, files: FileNames, *, detailed: str | None, text: str
) -> EventDraft:
    view_range = arguments.view_range or []
    start = view_range[0] if view_range and view_range[0] > 0 else 1
    if not view_range and _is_folder(text, detailed):
        return tool_effects.listing(call, path, files, pattern=None, text=text)
    plain = _NUMBERED.sub("", text) if text.startswith(f"{start}. ") else text
    count = count_lines(plain)
    reaches_end = len(view_range) < 2 or view_range[1] < 0 or view_range[1] >= start + count
    end = start + count - 1
    if not count:
        seen = Excerpt(total=0 if start == 1 and reaches_end else None, text="")
    else:
        seen = Excerpt(start, end, end if reaches_end else None, plain)
    return tool_effects.read(call, path, files, seen, text=text)


def _is_folder(text: str, detailed: str | None) -> bool:
    """Return True if a `view` call listed a folder. For a file, `detailed` is a diff instead of a list of paths."""
    if detailed is not None:
        return not detailed.lstrip("\n").startswith("diff --git") and detailed.lstrip().startswith(("/", "Directory"))
    return text.startswith("Directory contents")


def _hits(call: ClientCall, arguments: CopilotInput, text: str) -> list[ShellStep]:
    """Parse the hits of a search. `text` has only file names, or lines such as `path:N:text`."""
    pattern = arguments.pattern or ""
    place = arguments.path or "."
    place = place if text.startswith("/") else relative_path(place, root=call.cwd, cwd=call.cwd)
    if text.startswith(("No matches found", "No files found")):
        return []
    option = "-n" if _NUMBERED_HIT.search(text) else "-l"
    return steps(f"rg {option} -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)


def _shell(
    call: ClientCall, command: str, result: CopilotResult, files: FileNames, *, text: str, succeeded: bool
) -> list[EventDraft]:
    end = _SHELL_END.search(text)
    printed = text[: end.start()] if end else text
    code = int(end[1]) if end else result.exit_code
    running = _RUNNING.search(text[-400:]) is not None
    ok = succeeded and code in (0, None)
    shown = None if running else printed
    exit_code = code if code is not None else 0 if ok and not running else None
    return tool_effects.shell(call, command, files, printed=shown, ok=ok, exit_code=exit_code)
