"""What a Codex CLI tool call touched (A-12). Codex has no tool to read with: it reads through its shell.

A hook calls every shell tool `Bash` and gives the command as text and the output as text; a rollout calls it
`exec_command`, `shell` or `shell_command` and knows the exit code beside it. Both become the same events.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from urllib.parse import unquote

import msgspec

from mica.clients import tool_effects as touching
from mica.clients.line_ranges import line_count
from mica.clients.records import Shape, Tally
from mica.clients.tool_effects import Call, Draft, Files, Hunk

SHELL = "Bash"  # as hooks call every shell tool
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


class Input(msgspec.Struct, gc=False):
    command: str | list[str] | None = None
    cmd: str | None = None
    workdir: str | None = None
    cwd: str | None = None
    input: str | None = None
    patch: str | None = None
    path: str | None = None
    name: str | None = None


class Change(msgspec.Struct, gc=False):
    type: str | None = None
    unified_diff: str | None = None
    content: str | None = None
    move_path: str | None = None


class Result(msgspec.Struct, gc=False):
    """`item_completed` of a command or a patch, or the output of a function as old versions write it."""

    output: str | None = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    status: str | None = None
    cwd: str | None = None
    changes: dict[str, Change] | None = None
    stdout: str | None = None
    stderr: str | None = None


_INPUT = Shape(Input)
_RESULT = Shape(Result)


def drafts(call: Call, files: Files, tally: Tally) -> list[Draft]:
    """The events of one call, in order of access; a `tool.run` or a `tool.failed` where it led nowhere."""
    given = _INPUT.fit(call.given, tally) if isinstance(call.given, dict) else None
    if given is None:
        given = Input(input=call.given if isinstance(call.given, str) else None)
    result = (_RESULT.fit(call.result, tally) if isinstance(call.result, dict) else None) or Result()
    text = call.result if isinstance(call.result, str) else _first(result.aggregated_output, result.output, "")
    if call.denied or result.status == "declined" or _REFUSED.match(text):
        return [touching.failure(call, text)]
    if call.tool in _SHELLS and (command := _command(given)) is not None:
        if (patch := _patch_in(command)) is not None:
            return _patched(msgspec.structs.replace(call, tool=PATCH), patch, result, text, files)
        return _shell(call, command, given, result, files, text=text)
    if call.tool == PATCH:
        patch = given.input or given.patch or (given.command if isinstance(given.command, str) else None) or ""
        return _patched(call, patch, result, text, files)
    if call.failed:
        return [touching.failure(call, text)]
    if call.tool in ("read_file", "view_image") and given.path:
        return [touching.read(call, given.path, files, touching.NOWHERE, text=text)]
    if call.tool == "list_dir" and given.path:
        return [touching.listing(call, given.path, files, pattern=None, text=text)]
    return [touching.run(call)]


def _first(*texts: str | None) -> str:
    return next((text for text in texts if text is not None), "")


# -- The shell ------------------------------------------------------------------------------------------


def _command(given: Input) -> str | None:
    """The command as one would type it; `bash -lc TEXT` is the text."""
    typed = given.cmd if given.cmd is not None else given.command
    if not isinstance(typed, list):
        return typed
    if len(typed) == 3 and typed[1] in _LOGIN:
        return typed[2]
    return shlex.join(typed) if typed else None


def _shell(call: Call, command: str, given: Input, result: Result, files: Files, *, text: str) -> list[Draft]:
    preface = _PREFACE.match(text)
    printed = text[preface.end() :] if preface else text
    code = result.exit_code
    if code is None and preface and (said := _EXIT_CODE.search(preface[0])):
        code = int(said[1])
    ok = not call.failed and code in (0, None) and result.status not in ("failed", "declined")
    if cut := _CUT.search(printed):  # what is cut in the middle proves only its beginning
        printed = printed[: cut.start()]
    folder = _folder(given.workdir or given.cwd or result.cwd)
    here = msgspec.structs.replace(call, tool=SHELL, cwd=files.absolute(folder, call.cwd) if folder else call.cwd)
    code = 0 if code is None and ok and not preface else code
    return touching.shell(here, command, files, printed=printed, ok=ok, exit_code=code)


def _folder(named: str | None) -> str | None:
    if named is None or not named.startswith("file://"):
        return named
    path = unquote(named.removeprefix("file://"))
    return path[1:] if re.match(r"/[A-Za-z]:/", path) else path


# -- Patches --------------------------------------------------------------------------------------------


def _patch_in(command: str) -> str | None:
    """The patch of `apply_patch <<'EOF' …`, which Codex takes out of the shell's hands."""
    if not command.lstrip().startswith((PATCH, "applypatch")) and f"&& {PATCH}" not in command[:2_000]:
        return None
    _, begin, rest = command.partition("*** Begin Patch")
    return begin + rest if begin else None


def _patched(call: Call, patch: str, result: Result, text: str, files: Files) -> list[Draft]:
    """Where the lines are: the rollout's record knows, the patch itself does not."""
    code = _EXIT_CODE.search(text)
    if call.failed or result.status in ("failed", "declined") or (code is not None and code[1] != "0"):
        return [touching.failure(call, text or result.stderr or result.stdout or "")]
    made: list[Draft] = []
    if result.changes:
        said = result.stdout or text
        for path, change in list(result.changes.items())[: touching.STEPS_MAX]:
            made += _changed(call, path, change, files, said if not made else "")
    else:
        for path, kind, target, lines in _named(patch):
            if len(made) >= touching.STEPS_MAX:
                break
            if kind == "Add":
                made.append(touching.create(call, path, files, lines=lines, text="" if made else text))
            else:
                made += _edited(call, path, target, files, (), text="" if made else text)
    return made or [touching.run(call)]


def _changed(call: Call, path: str, change: Change, files: Files, text: str) -> list[Draft]:
    if change.type == "add":
        lines = None if change.content is None else line_count(change.content)
        return [touching.create(call, path, files, lines=lines, text=text)]
    return _edited(call, path, change.move_path, files, touching.hunks(change.unified_diff or ""), text=text)


def _edited(
    call: Call, path: str, target: str | None, files: Files, hunks: list[Hunk] | tuple[()], *, text: str
) -> list[Draft]:
    made = touching.edit(call, path, files, hunks, text=text)
    if target:
        for draft in made:
            draft.fields["moved_to"] = files.name(target, call.cwd)
    return made


def _named(patch: str) -> Iterator[tuple[str, str, str | None, int]]:
    """The files that a patch names: path, Add, Update or Delete, new name, and lines added."""
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
