"""Finds the files and lines that a Codex CLI tool call accessed. Codex has no read tool: it reads with shell commands.

In hooks, every shell tool is named `Bash`, and its arguments and result have the command and the output as text. In a
rollout, which is Codex's transcript, it is `exec_command`, `shell` or `shell_command`, and the result has an exit code.
The same call results in the same events in both forms.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from urllib.parse import unquote

import msgspec

from mica.clients import tool_effects
from mica.clients.line_ranges import count_lines
from mica.clients.records import ImportTally, Shape
from mica.clients.tool_effects import ClientCall, EventDraft, FileNames, Hunk

SHELL = "Bash"  # the name of every shell tool in hooks and in events
PATCH = "apply_patch"
_SHELLS = (SHELL, "exec_command", "shell", "shell_command", "local_shell", "container.exec")
_LOGIN = ("-c", "-lc", "-ic", "-lic")
_REFUSED = re.compile(
    r"unsupported (?:custom tool )?call: |failed to parse function arguments|exec_command failed|"
    r"(?:command|patch|exec) (?:was )?(?:rejected|denied|declined)|rejected by user|aborted by user|sandbox denied",
    re.IGNORECASE,
)
# "Exit code: 0\nWall time: …\nOutput:\n", or "Chunk ID: …\nWall time: …\nProcess exited with code 0\n…Output:\n"
_PREFACE = re.compile(r"(?:[A-Z][A-Za-z ]{0,40}(?::| running with| exited with)[^\n]{0,200}\n){1,8}Output:\n")
_EXIT_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d{1,6})$", re.MULTILINE)
_CUT = re.compile(r"^(?:Total output lines: \d+\n|.*…\d+ (?:tokens|chars|lines) truncated…)", re.MULTILINE)


class CodexInput(msgspec.Struct, gc=False):
    command: str | list[str] | None = None
    cmd: str | None = None
    workdir: str | None = None
    cwd: str | None = None
    input: str | None = None
    patch: str | None = None
    path: str | None = None
    name: str | None = None


class CodexFileChange(msgspec.Struct, gc=False):
    type: str | None = None
    unified_diff: str | None = None
    content: str | None = None
    move_path: str | None = None


class CodexResult(msgspec.Struct, gc=False):
    """The result of a tool call: an `item_completed` record of a command or patch.

    Old versions write a function's output instead, in a structure with some of the same fields.
    """

    output: str | None = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    status: str | None = None
    cwd: str | None = None
    changes: dict[str, CodexFileChange] | None = None
    stdout: str | None = None
    stderr: str | None = None


_INPUT = Shape(CodexInput)
_RESULT = Shape(CodexResult)


def drafts(call: ClientCall, files: FileNames, tally: ImportTally) -> list[EventDraft]:
    """Return drafts of the events of a tool call, in the order described in `mica.clients.tool_effects`."""
    arguments = _INPUT.fit(call.arguments, tally) if isinstance(call.arguments, dict) else None
    if arguments is None:
        arguments = CodexInput(input=call.arguments if isinstance(call.arguments, str) else None)
    result = (_RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or CodexResult()
    text = call.result if isinstance(call.result, str) else _first(result.aggregated_output, result.output, "")
    if call.denied or result.status == "declined" or _REFUSED.match(text):
        return [tool_effects.failure(call, text)]
    if call.tool in _SHELLS and (command := _command(arguments)) is not None:
        if (patch := _patch_in(command)) is not None:
            return _patch(msgspec.structs.replace(call, tool=PATCH), patch, result, text, files)
        return _shell(call, command, arguments, result, files, text=text)
    if call.tool == PATCH:
        patch = (
            arguments.input
            or arguments.patch
            or (arguments.command if isinstance(arguments.command, str) else None)
            or ""
        )
        return _patch(call, patch, result, text, files)
    if call.failed:
        return [tool_effects.failure(call, text)]
    if call.tool in ("read_file", "view_image") and arguments.path:
        return [tool_effects.read(call, arguments.path, files, tool_effects.UNKNOWN_LINES, text=text)]
    if call.tool == "list_dir" and arguments.path:
        return [tool_effects.listing(call, arguments.path, files, pattern=None, text=text)]
    return [tool_effects.run(call)]


def _first(*texts: str | None) -> str:
    return next((text for text in texts if text is not None), "")


# -- The shell ------------------------------------------------------------------------------------------


def _command(arguments: CodexInput) -> str | None:
    """Return the command as text; for `bash -lc TEXT`, only TEXT."""
    typed = arguments.cmd if arguments.cmd is not None else arguments.command
    if not isinstance(typed, list):
        return typed
    if len(typed) == 3 and typed[1] in _LOGIN:
        return typed[2]
    return shlex.join(typed) if typed else None


def _shell(
    call: ClientCall, command: str, arguments: CodexInput, result: CodexResult, files: FileNames, *, text: str
) -> list[EventDraft]:
    preface = _PREFACE.match(text)
    printed = text[preface.end() :] if preface else text
    code = result.exit_code
    if code is None and preface and (stated := _EXIT_CODE.search(preface[0])):
        code = int(stated[1])
    ok = not call.failed and code in (0, None) and result.status not in ("failed", "declined")
    if cut := _CUT.search(printed):  # if an output is cut in the middle, only the part before the cut is used
        printed = printed[: cut.start()]
    folder = _folder(arguments.workdir or arguments.cwd or result.cwd)
    here = msgspec.structs.replace(call, tool=SHELL, cwd=files.absolute(folder, call.cwd) if folder else call.cwd)
    code = 0 if code is None and ok and not preface else code
    return tool_effects.shell(here, command, files, printed=printed, ok=ok, exit_code=code)


def _folder(named: str | None) -> str | None:
    if named is None or not named.startswith("file://"):
        return named
    path = unquote(named.removeprefix("file://"))
    return path[1:] if re.match(r"/[A-Za-z]:/", path) else path


# -- Patches --------------------------------------------------------------------------------------------


def _patch_in(command: str) -> str | None:
    """Return the patch in `apply_patch <<'EOF' …`, a command that Codex executes itself; None for other commands."""
    if not command.lstrip().startswith((PATCH, "applypatch")) and f"&& {PATCH}" not in command[:2_000]:
        return None
    _, begin, rest = command.partition("*** Begin Patch")
    return begin + rest if begin else None


def _patch(call: ClientCall, patch: str, result: CodexResult, text: str, files: FileNames) -> list[EventDraft]:
    """Return drafts for a patch. Line numbers are known only if `result` has them; the text of `patch` has none."""
    code = _EXIT_CODE.search(text)
    if call.failed or result.status in ("failed", "declined") or (code is not None and code[1] != "0"):
        return [tool_effects.failure(call, text or result.stderr or result.stdout or "")]
    made: list[EventDraft] = []
    if result.changes:
        output = result.stdout or text
        for path, change in list(result.changes.items())[: tool_effects.STEPS_MAX]:
            made += _change(call, path, change, files, output if not made else "")
    else:
        for path, kind, target, lines in _files_in(patch):
            if len(made) >= tool_effects.STEPS_MAX:
                break
            if kind == "Add":
                made.append(tool_effects.create(call, path, files, lines=lines, text="" if made else text))
            else:
                made += _edit(call, path, target, files, (), text="" if made else text)
    return made or [tool_effects.run(call)]


def _change(call: ClientCall, path: str, change: CodexFileChange, files: FileNames, text: str) -> list[EventDraft]:
    if change.type == "add":
        lines = None if change.content is None else count_lines(change.content)
        return [tool_effects.create(call, path, files, lines=lines, text=text)]
    return _edit(call, path, change.move_path, files, tool_effects.hunks(change.unified_diff or ""), text=text)


def _edit(
    call: ClientCall, path: str, target: str | None, files: FileNames, hunks: list[Hunk] | tuple[()], *, text: str
) -> list[EventDraft]:
    made = tool_effects.edit(call, path, files, hunks, text=text)
    if target:
        for draft in made:
            draft.fields["moved_to"] = files.name(target, call.cwd)
    return made


def _files_in(patch: str) -> Iterator[tuple[str, str, str | None, int]]:
    """Yield the files in a patch: path, kind (Add, Update, Delete), new path or None, and number of added lines."""
    path = kind = ""
    target: str | None = None
    lines = 0
    for line in patch.split("\n"):
        if head := re.match(r"\*\*\* (Add|Update|Delete) File: (.+)", line):
            if path:
                yield path, kind, target, lines
            kind, path, target, lines = head[1], head[2].strip(), None, 0
        elif line.startswith("*** Move to: "):
            target = line.removeprefix("*** Move to: ").strip()
        else:
            lines += line.startswith("+")
    if path:
        yield path, kind, target, lines
