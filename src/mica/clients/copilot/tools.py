"""What a Copilot CLI tool call touched (A-12).

Three shapes of one thing: native hooks say `textResultForLlm`, hooks of a Claude-format plugin `text_result_for_llm`
and Claude's tool names, the session file `content` and `detailedContent`. Arguments have Copilot's own names in all.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from mica.clients import tool_effects as touching
from mica.clients.line_ranges import Shown, line_count, relative
from mica.clients.records import Shape, Tally
from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import steps
from mica.clients.tool_effects import Call, Draft, Files

_GUIDANCE = re.compile(r'\n\nTool "[^"\n]{1,200}" (?:succeeded|failed)\. Additional guidance from \w+ hooks:\n')
_SHELL_END = re.compile(r"\n?<(?:shellId: [^>\n]*|exited) (?:completed )?with exit code (-?\d{1,6})>\s*$")
_RUNNING = re.compile(r"<(?:command with )?shellId: [^>\n]*(?:still running|running in background)")
_NUMBERED_HIT = re.compile(r"^(?:[^\n:]{1,1000}:)?\d{1,9}:", re.MULTILINE)
_NUMBERED = re.compile(r"^(\d{1,9})\. ", re.MULTILINE)
# Hooks of a Claude-format plugin use Claude's names; events carry Copilot's own.
NAMES = {"Read": "view", "Edit": "edit", "Write": "create", "Bash": "bash", "Grep": "grep", "Glob": "glob"}


class Input(msgspec.Struct, gc=False):
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


class Result(msgspec.Struct, gc=False):
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
        said = (self.content, self.native, self.plugin, self.error, self.message)
        return next((text for text in said if text is not None), "")


_INPUT = Shape(Input)
_RESULT = Shape(Result)


def without_hooks(text: str) -> str:
    """A text as it was before hooks added theirs."""
    added = _GUIDANCE.search(text)
    return text[: added.start()] if added else text


def drafts(call: Call, files: Files, tally: Tally) -> list[Draft]:
    """The events of one call, in order of access; a `tool.run` or a `tool.failed` where it led nowhere."""
    call = msgspec.structs.replace(call, tool=NAMES.get(call.tool, call.tool))
    given = _INPUT.fit(call.given, tally) or Input()
    result = (_RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or Result()
    text = without_hooks(call.result if isinstance(call.result, str) else result.text)
    kind = result.kind or result.plugin_kind or "success"
    succeeded = kind == "success" and not call.failed
    if call.denied or kind in ("denied", "rejected"):
        return [touching.failure(call, text)]
    is_shell = call.tool in ("bash", "powershell", "local_shell") and given.command is not None
    if not succeeded and not is_shell:
        if call.tool == "view" and given.file:
            return [touching.failed_read(call, given.file, files, text)]
        return [touching.failure(call, text)]
    match call.tool:
        case "view" if path := given.file:
            return [_view(call, path, given, files, detailed=result.detailed, text=text)]
        case "edit" | "str_replace" | "insert" if path := given.file:
            return touching.edit(call, path, files, touching.hunks(result.detailed or ""), text=text)
        case "create" if path := given.file:
            lines = None if given.file_text is None else line_count(given.file_text)
            return [touching.create(call, path, files, lines=lines, text=text)]
        case "grep" | "rg":
            found = touching.hits(call, _hits(call, given, text), files, text=text)
        case "glob":
            return [touching.listing(call, given.path, files, pattern=given.pattern, text=text)]
        case _ if is_shell and given.command is not None:
            return _shell(call, given.command, result, files, text=text, succeeded=succeeded)
        case _:
            found = []
    return found or [touching.run(call, skill=given.skill, agent_type=given.agent_type)]


def _view(call: Call, path: str, given: Input, files: Files, *, detailed: str | None, text: str) -> Draft:
    asked = given.view_range or []
    start = asked[0] if asked and asked[0] > 0 else 1
    if not asked and _is_folder(text, detailed):
        return touching.listing(call, path, files, pattern=None, text=text)
    plain = _NUMBERED.sub("", text) if text.startswith(f"{start}. ") else text
    count = line_count(plain)
    reaches_end = len(asked) < 2 or asked[1] < 0 or asked[1] >= start + count
    end = start + count - 1
    if not count:
        seen = Shown(total=0 if start == 1 and reaches_end else None, text="")
    else:
        seen = Shown(start, end, end if reaches_end else None, plain)
    return touching.read(call, path, files, seen, text=text)


def _is_folder(text: str, detailed: str | None) -> bool:
    """A view of a folder is a list of paths; of a file, its text, which the session file repeats as a diff."""
    if detailed is not None:
        return not detailed.lstrip("\n").startswith("diff --git") and detailed.lstrip().startswith(("/", "Directory"))
    return text.startswith("Directory contents")


def _hits(call: Call, given: Input, text: str) -> list[ShellStep]:
    """File names where only they were asked for, else the lines of `path:N:text`."""
    pattern = given.pattern or ""
    place = given.path or "."
    place = place if text.startswith("/") else relative(place, root=call.cwd, cwd=call.cwd)
    if text.startswith(("No matches found", "No files found")):
        return []
    option = "-n" if _NUMBERED_HIT.search(text) else "-l"
    return steps(f"rg {option} -e {shlex.quote(pattern)} -- {shlex.quote(place)}", output=text)


def _shell(call: Call, command: str, result: Result, files: Files, *, text: str, succeeded: bool) -> list[Draft]:
    end = _SHELL_END.search(text)
    printed = text[: end.start()] if end else text
    code = int(end[1]) if end else result.exit_code
    running = _RUNNING.search(text[-400:]) is not None
    ok = succeeded and code in (0, None)
    shown = None if running else printed
    exit_code = code if code is not None else 0 if ok and not running else None
    return touching.shell(call, command, files, printed=shown, ok=ok, exit_code=exit_code)
