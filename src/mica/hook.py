"""`mica-hook CLIENT EVENT`, the program that coding agents (clients) run at events such as a prompt or a tool call.

It imports nothing of mica. It first appends the event to a file, the spool, and then answers. A later mica process (an
ingest) stores the spooled events and prepares what the next hooks print: a brief at the start of a session, and
suggested files at a prompt. The program always exits 0. If it fails, it writes the reason to `failures.jsonl`; if an
event was lost or a file refused, also to standard error.

Agents wait for this program, so an answer has a time limit. Recording has none that could end it: when time is up, or
when the client ends the program, a child process completes it.

The program takes little longer than starting Python. Importing `os`, `json` and `signal` would
double that time, so it uses their C parts `posix`, `_json` and `_signal` instead. Paths are bytes.
"""

from __future__ import annotations

import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from collections.abc import Callable

TIME_LIMIT_S = 1.0  # for the answer; then a child completes the recording, so that a client's own limit ends nothing
END_LIMIT_S = 0.5  # the same at the end of a session: Codex gives it one second, Claude Code one and a half
WAIT_LIMIT_S = 3.0  # that the agent then waits for that child; `mica install` gives most hooks 5 s in all
PAYLOAD_BYTES_MAX = 16 * 2**20  # a payload holds a file or an output, and clients truncate both well below this
CUT_BYTES = 2**20  # read of a longer payload: enough for the fields at its beginning, and within the time limit
FAILURES_BYTES_MAX = 64 * 1024  # about 300 failures; then the older half is dropped
ANSWER_CHARACTERS_MAX = 9_500  # clients move a text of more than 10,000 into a file, or drop it
ANSWERS_BYTES_MAX = 4 * 2**20
CHILD_LIMIT_S = 300  # for a child; an ingest is continued by the next, and no recording takes nearly as long
SPOOL_TAIL_BYTES_MAX = 2**18  # of a session's spool that are read for the answer to a prompt
COMMAND_CHARACTERS_MAX = 2_000  # of a command that is searched for paths
PATH_KEYS = ("file_path", "filePath", "absolute_path", "notebook_path", "path")  # arguments of tool calls
CHILD_PAUSE_S = 30  # between two ingests that are started by ends of turns

HOOKS = b"-hooks"  # added to the name of a space's file: the folder with the files below
SPOOL, FAILURES, OFF, NO_PROMPTS = b"spool", b"failures.jsonl", b"off", b"no-prompts"
SHOWN = b"shown"  # the lines that each session has read, if the read gate is on
SESSION_ANSWER, PROMPT_ANSWER, CHILD = b"session.json", b"prompt.json", b"child"
NEXT_CHILD = b"next-child"  # the lock of an ingest that waits for a running one to end
BRIEFS, OFFERS = "briefs", "offers"  # kinds of answer; a session may be held out from each kind separately
COMMAND = b"ingest-command"  # in the data folder: the command that starts an ingest, one word per line
OLD_ENTRY = "mica.inject.prompting:answer"  # the function that ranks files, if prompt.json has none

# For each client, the environment variable by which it is recognized if its name is not in the command. Several clients
# also set CLAUDECODE.
CLIENTS = {
    "cursor": b"CURSOR_VERSION",
    "copilot": b"COPILOT_CLI",
    "gemini": b"GEMINI_SESSION_ID",
    "claude": b"CLAUDECODE",
    "codex": b"PLUGIN_ROOT",
    "opencode": b"",
}
STARTS = ("SessionStart", "sessionStart", "session", "session.created")
PROMPTS = ("UserPromptSubmit", "BeforeAgent", "userPromptSubmitted", "beforeSubmitPrompt", "prompt", "chat.message")
SESSION_ENDS = ("SessionEnd", "sessionEnd")
ENDS = ("Stop", "AfterAgent", "agentStop", "stop", "session.idle", *SESSION_ENDS)
ANSWERED = "mica.answered"  # of a line that records what was printed for the prompt in an earlier line
COMPACTS = ("preCompact",)  # Cursor starts no session afterwards, so the next prompt gets the session's brief
# Events that are not recorded: they repeat another one, or do not concern files and prompts.
PASSED_OVER = frozenset(
    "PreToolUse BeforeTool preToolUse tool.execute.before PostToolBatch PermissionRequest permissionRequest "
    "PermissionDenied Notification MessageDisplay InstructionsLoaded BeforeModel AfterModel BeforeToolSelection "
    "PreCompress beforeShellExecution beforeMCPExecution beforeReadFile afterAgentThought system.transform "
    "experimental.chat.system.transform FileChanged CwdChanged ConfigChange Elicitation ElicitationResult".split()
)
TEXT_KEYS = frozenset(
    "prompt initial_prompt initialPrompt last_assistant_message prompt_response compact_summary custom_instructions "
    "command_args session_title attachments text".split()
)
TYPED = (*PROMPTS, "command.execute.before")  # events with text that a person typed, possibly secrets
DROPPED_KEYS = ("user_email", "originalFile", "originalContent", "permission_suggestions")


class _HookError(Exception):
    """The reason why an event was not recorded or not answered."""


class HookPaths:
    """What is known so far about one hook call: its client, event and folders, and how much of its payload was read."""

    client = event = ""
    home = directory = b""
    hooks = b""  # the folder of the space
    size = 0  # bytes of the payload read so far
    is_cut = False  # only the beginning of the payload is used
    is_incomplete = False  # the payload ended too early
    is_recorded = False  # the event is in the spool, or is not to be recorded
    is_child = False  # the process that continues when time is up
    at = 0  # when the event was recorded, in microseconds
    umask = 0o022  # of the client
    start = 0  # where its line begins in the spool file of the session


class _Refused(_HookError):
    """A file or folder that another user owns or can change is not used."""


class _PayloadTooLong(_HookError):
    """A payload is longer than the limit. Only its beginning was used, or nothing if that could not be decoded."""

    def __init__(self, here: HookPaths) -> None:
        self._here = here

    def __str__(self) -> str:
        size = f"{self._here.size:,}"
        return f"payload of {size} bytes exceeds {PAYLOAD_BYTES_MAX:,}; only its first {CUT_BYTES:,} bytes are used"


def main(words: list[str] | None = None) -> None:
    """Run the `mica-hook` command. Never returns; always exits 0."""
    here = HookPaths()
    try:
        words = sys.argv[1:] if words is None else words
        here.umask = posix.umask(0o077)
        _limit_time(here, END_LIMIT_S if words and words[-1] in SESSION_ENDS else TIME_LIMIT_S)
        try:
            answer = respond(words, posix.environ, _stdin(here), here)
            if answer and not here.is_child:
                _write(1, answer.encode())
            _start_child(here)
        finally:
            _drop_rest(here)
        if here.is_cut and here.event:
            raise _PayloadTooLong(here)
    except BaseException as error:  # noqa: BLE001 - an agent must never stop for its memory
        _record(here, error, loss=None if here.is_recorded else "this event was not recorded: ")
    posix._exit(0)


def respond(words: list[str], environment: dict[bytes, bytes], raw: bytes, here: HookPaths) -> str:
    """Record one event, and return the answer to print: a text in the client's format, empty for most events.

    `words` are those of the command line. `raw` is the payload: JSON that the client wrote to standard input.
    """
    if _is_disabled(environment):
        return ""
    here.home, settings = _load_settings(environment)
    payload = _identify(words, environment, raw, here, settings)
    if payload is None:
        return ""
    session = session_of(payload)
    answer = ""
    if here.event in PASSED_OVER:
        here.is_recorded = True
    else:
        answer = _spool(here, payload, session, settings)
    if here.is_child:
        return ""
    if settings.get(b"read_gate") == b"true" and here.client == "claude":
        try:
            if refusal := _read_gate(here, payload, session):
                return refusal
        except (OSError, TypeError, ValueError) as error:  # the read continues and is recorded
            _record(here, error)
    if answer or here.event not in PROMPTS:
        return answer
    try:
        text, offered = _prompt_answer(here, payload, session)
        answer = _checked_answer(here, payload, text)
        if offered:
            _spool_offer(here, payload, session, offered)
    except Exception as error:  # noqa: BLE001 - an agent continues without an answer
        _record(here, error)
        return ""
    return answer


def _identify(
    words: list[str],
    environment: dict[bytes, bytes],
    raw: bytes,
    here: HookPaths,
    settings: dict[bytes, bytes],
) -> dict[str, object] | None:
    """Set the client, event and folders of a call, and return its payload; None if hooks are switched off there."""
    client, event = _parse_words(words)
    project = environment.get(b"CLAUDE_PROJECT_DIR", b"") if client == "claude" else b""
    project = project if project.startswith(b"/") else b""
    directory = project or _working_directory()
    if directory and _is_off(here, directory, settings) and (project or _is_about(raw, directory)):
        return None  # before anything is decoded: a hook that is switched off costs nothing
    payload = _decode_payload(raw, here)
    client = client or _detect_client(payload, environment)
    if client == "claude" and b"CURSOR_VERSION" in environment:
        client = "cursor"  # it runs Claude's hooks too; under its own name both reports become one event
    here.client, event = client, event or _text(payload, "hook_event_name", "k", "_event")
    directory = project or _directory(payload) or directory
    if not directory and settings.get(b"enabled") != b"false":
        raise _HookError("the working directory no longer exists, and the input of the hook names no other")
    if _is_off(here, directory, settings):
        return None
    here.event, here.directory = event, directory
    return payload


def _spool(here: HookPaths, payload: dict[str, object], session: str, settings: dict[bytes, bytes]) -> str:
    """Write the event to the spool, and return the prepared answer to it; empty for most events.

    Text that a person typed is redacted before it is written; if that fails, it is left out.
    """
    if not _secure_folders(here):
        _make_spool(here.hooks + b"/" + SPOOL)
        _secure_folders(here)  # a folder that another user has just made is refused
    keeps_prompts = settings.get(b"prompts") != b"false" and not _exists(here.hooks + b"/" + NO_PROMPTS)
    stored = payload
    if keeps_prompts and here.event in TYPED:
        try:
            stored = _redact_payload(payload, _load_redact())
        except Exception as error:  # noqa: BLE001 - rather lose a prompt than store a secret
            keeps_prompts = False
            _record(here, error, loss="the text of this prompt was not recorded: ")
    stored = _filter_payload(stored, here.event, keeps_prompts=keeps_prompts)
    answer = ""
    offered: dict[str, object] = {}
    try:
        answer, offered = _prepared_answer(here, payload, session)
    except Exception as error:  # noqa: BLE001 - the event is recorded even when its answer fails
        _record(here, error)
    here.at = time.time_ns() // 1_000
    line = _spool_line(here, here.event, here.at, stored, offered=offered)
    here.start = _append(here.hooks + b"/" + SPOOL, session, line)
    here.is_recorded = True
    if here.is_incomplete:
        reason = f"the input of the hook ended within its JSON, after {here.size:,} bytes; what it says was recorded"
        _record(here, _HookError(reason), loss="")
    return answer


def _spool_offer(here: HookPaths, payload: dict[str, object], session: str, offered: dict[str, object]) -> None:
    """Record what is printed for a prompt that is in the spool already."""
    turn = _text(payload, "prompt_id", "turn_id", "generation_id")
    fields: dict[str, object] = {"session_id": session, "prompt_id": turn} if turn else {"session_id": session}
    line = _spool_line(here, ANSWERED, time.time_ns() // 1_000, fields, offered=offered)
    _append(here.hooks + b"/" + SPOOL, session, line)


def _spool_line(
    here: HookPaths, event: str, at: int, payload: dict[str, object], *, offered: dict[str, object]
) -> bytes:
    line: dict[str, object] = {
        "v": 1,
        "at": at,
        "client": here.client,
        "event": event,
        "directory": here.directory.decode("utf-8", "replace"),
        "payload": payload,
    }
    if offered and not here.is_child:  # a child prints nothing
        line["offered"] = offered
    return _checked(_line(line))


def _is_disabled(environment: dict[bytes, bytes]) -> bool:
    return environment.get(b"MICA_DISABLE", b"0") not in (b"", b"0") or bool(environment.get(b"MICA_CHILD"))


def _is_off(here: HookPaths, directory: bytes, settings: dict[bytes, bytes]) -> bool:
    here.hooks = hooks_folder(directory, home=here.home)
    return settings.get(b"enabled") == b"false" or _exists(here.hooks + b"/" + OFF)


def _working_directory() -> bytes:
    try:
        return posix.getcwdb()
    except OSError:  # it was removed while the agent runs
        return b""


def _is_about(raw: bytes, directory: bytes) -> bool:
    """Return True if the payload `raw` (encoded JSON) has `directory` as its working directory, or has none."""
    return b'"cwd"' not in raw or b'"cwd":"' + directory + b'"' in raw.replace(b'"cwd": ', b'"cwd":')


# -- Command line, environment and settings --------------------------------------------------


def _parse_words(words: list[str]) -> tuple[str, str]:
    """Return a pair, the client and the event, from command-line words such as `claude Stop` or `--client claude Stop`.

    A word that is missing is returned as an empty string. The first of two words is the client, even if it is not in
    CLIENTS, so that new clients work without a change. A single word is the client if it is in CLIENTS, else the event.
    """
    words = [word for word in words if word != "--client"]
    is_named = len(words) > 1 or (words and words[0].split("-")[0] in CLIENTS)
    client = words.pop(0) if is_named else ""
    known = client.split("-")[0]  # claude-code is claude
    return known if known in CLIENTS else client, words[0] if words else ""


def _detect_client(payload: dict[str, object], environment: dict[bytes, bytes]) -> str:
    """Detect the client from the environment or the payload. Raises _HookError if that is impossible."""
    for client, variable in CLIENTS.items():
        if variable in environment:
            return client
    if "turn_id" in payload or "/.codex/" in _text(payload, "transcript_path"):
        return "codex"
    raise _HookError("the command names no client, and the environment does not show which one runs it")


def _load_settings(environment: dict[bytes, bytes]) -> tuple[bytes, dict[bytes, bytes]]:
    """Return a pair: the data folder, and the `[observe]` settings. Environment variables override the file."""
    user = environment.get(b"HOME") or _home_of_user()
    shared = user + b"/Library/Application Support/mica" if sys.platform == "darwin" else b""
    folder = shared or (environment.get(b"XDG_CONFIG_HOME") or user + b"/.config") + b"/mica"
    settings = _parse_settings(_read_file(environment.get(b"MICA_CONFIG") or folder + b"/config.toml", limit=2**20))
    for name in (b"enabled", b"prompts", b"read_gate"):
        if value := environment.get(b"MICA_OBSERVE_" + name.upper()):
            settings[name] = b"false" if value.lower() in (b"0", b"false", b"no", b"off") else b"true"
    home = environment.get(b"MICA_HOME") or settings.get(b"home")
    if home and home.startswith(b"~/"):
        home = user + home[1:]
    return home or shared or (environment.get(b"XDG_DATA_HOME") or user + b"/.local/share") + b"/mica", settings


def _home_of_user() -> bytes:
    from pwd import getpwuid

    try:
        return getpwuid(posix.getuid()).pw_dir.encode("utf-8", "surrogateescape")
    except KeyError:
        raise _HookError("HOME is not set, and this user has no home folder; set HOME or MICA_HOME") from None


def _parse_settings(text: bytes | None) -> dict[bytes, bytes]:
    """Read `home` and three keys of `[observe]` from simple TOML. For other TOML, call the slower `_parse_toml`."""
    settings: dict[bytes, bytes] = {}
    section, is_plain = b"", True
    text = text or b""
    for line in map(bytes.strip, text.splitlines()):
        if not line or line.startswith(b"#"):
            continue
        if line.startswith(b"["):
            title, end, rest = line[1:].partition(b"]")
            section = b"".join(title.split()) + b"."
            is_plain &= end != b"" and rest.lstrip(b"] \t")[:1] in (b"", b"#") and not _is_quoted(title)
            continue
        key, is_set, value = line.partition(b"=")
        name, value = section + b"".join(key.split()), value.strip()
        is_plain &= is_set != b"" and name != b"observe" and not _is_quoted(key)
        is_plain &= value.count(b"[") == value.count(b"]") and b'"""' not in value and b"'''" not in value
        if name in (b"home", b"observe.enabled", b"observe.prompts", b"observe.read_gate"):
            quote = value[:1]
            inside = value[1:].partition(quote)[0] if quote in (b'"', b"'") else value.partition(b"#")[0].strip()
            settings[name.removeprefix(b"observe.")] = inside
            is_plain &= b"\\" not in inside
    if not is_plain and (b"observe" in text or b"home" in text):
        settings = _parse_toml(text)
    for name in (b"enabled", b"prompts", b"read_gate"):
        if settings.get(name, b"").lower() in (b"0", b"1", b"false", b"true"):
            settings[name] = b"true" if settings[name].lower() in (b"1", b"true") else b"false"
    return settings


def _is_quoted(name: bytes) -> bool:
    return b'"' in name or b"'" in name


def _parse_toml(text: bytes) -> dict[bytes, bytes]:
    """Read the settings of `_parse_settings` with the full TOML parser. Invalid TOML switches recording off."""
    from tomllib import loads

    try:
        document = loads(text.decode())
    except ValueError:
        return {b"enabled": b"false"}
    section = document.get("observe")
    values = {**(section if isinstance(section, dict) else {}), "home": document.get("home", "")}
    return {name.encode(): str(value).encode() for name, value in values.items()}


# -- The folder of the space ----------------------------------------------------------------------------------------


def hooks_folder(directory: bytes, *, home: bytes) -> bytes:
    """Return the hooks folder of the space that a directory belongs to, by the same rule as `mica.store.space`."""
    identity = _space_identity(directory)
    name = identity.rstrip(b"/").rpartition(b"/")[2].decode("utf-8", "surrogateescape").lower()
    slug = "".join(character if character in "abcdefghijklmnopqrstuvwxyz0123456789" else " " for character in name)
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    named = f"{'-'.join(slug.split())[:40] or 'root'}-{blake2b(identity, digest_size=4).hexdigest()}"
    return home + b"/spaces/" + named.encode() + b".db" + HOOKS


def _space_identity(directory: bytes) -> bytes:
    """Return the path that identifies a space: the git repository around the directory, else the directory itself."""
    folder = b"/" + b"/".join(part for part in directory.split(b"/") if part not in (b"", b"."))
    start = folder
    while True:
        git = folder.rstrip(b"/") + b"/.git"
        try:
            kind = posix.stat(git).st_mode & 0o170000
        except (OSError, ValueError):
            kind = 0
        common = _git_common_directory(git, is_folder=kind == 0o040000) if kind in (0o040000, 0o100000) else None
        if common is not None:
            return common.removesuffix(b"/.git") or b"/"
        if folder == b"/":
            return start
        folder = folder.rpartition(b"/")[0] or b"/"


def _git_common_directory(git: bytes, *, is_folder: bool) -> bytes | None:
    """Return the git directory that all worktrees share. `git` is the path of `.git`; if it is invalid, return None."""
    if is_folder and not _has_link(git):
        return git
    from posixpath import join, realpath

    if is_folder:
        return realpath(git)
    try:
        pointer = (_read_file(git) or b"").decode().removeprefix("gitdir:").strip().encode()
        folder = realpath(join(git.rpartition(b"/")[0], pointer))
        shared = _read_file(folder + b"/commondir")
        return folder if shared is None else realpath(join(folder, shared.decode().strip().encode()))
    except ValueError:
        return None


def _has_link(path: bytes) -> bool:
    parts = path.split(b"/")
    if b".." in parts:
        return True
    try:
        return any(
            posix.lstat(b"/".join(parts[:count])).st_mode & 0o170000 == 0o120000 for count in range(2, len(parts) + 1)
        )
    except OSError:
        return True


# -- The payload --------------------------------------------------------------------------------------


def _stdin(here: HookPaths) -> bytes:
    """Return standard input, or only its first CUT_BYTES if it is longer than PAYLOAD_BYTES_MAX."""
    parts: list[bytes] = []
    while part := posix.read(0, 2**20):
        parts.append(part)
        here.size += len(part)
        if here.size > PAYLOAD_BYTES_MAX:
            here.is_cut = True
            return b"".join(parts)[:CUT_BYTES]
    return b"".join(parts)


def _drop_rest(here: HookPaths) -> None:
    """Read and discard the rest of a payload that was cut. Otherwise a client that still writes it would block."""
    while here.is_cut and (part := posix.read(0, 2**20)):
        here.size += len(part)


def _decode_payload(raw: bytes, here: HookPaths) -> dict[str, object]:
    """Decode a payload; of one that is cut or incomplete, what can be decoded.

    Raises _PayloadTooLong if nothing of a payload that was cut can be decoded.
    """
    if not here.is_cut:
        try:
            return _decode(raw)
        except (ValueError, StopIteration):
            here.is_incomplete = True
    for whole in _closed(raw):
        try:
            return _decode(whole)
        except (ValueError, StopIteration):
            continue
    if here.is_cut:
        raise _PayloadTooLong(here)
    raise _HookError("standard input is an incomplete JSON object")


def _closed(raw: bytes) -> tuple[bytes, bytes]:
    """Return the beginning of a JSON object closed in two ways: at its end, and before its last incomplete member."""
    ends: list[bytes] = []  # the closing brackets that are missing, the outermost first
    ended: list[bytes] = []  # those that were found after `last`
    place = last = 0  # `last` is the last comma, or the place after the last opening bracket
    whole = raw
    while place < len(raw):
        quote = raw.find(b'"', place)
        for at in range(place, len(raw) if quote < 0 else quote):
            if (letter := raw[at]) in b"{[":
                ends.append(b"}" if letter == b"{"[0] else b"]")
                ended, last = [], at + 1
            elif letter in b"}]" and ends:
                ended.append(ends.pop())
            elif letter == b","[0]:
                ended, last = [], at
        place = len(raw) if quote < 0 else _string_end(raw, quote + 1)
        if not place:
            whole = _without_partial_escape(raw) + b'"'
            break
    return whole + b"".join(ends[::-1]), raw[:last] + b"".join([*ended, *ends[::-1]])


def _string_end(raw: bytes, start: int) -> int:
    """Return the place after the JSON string whose text begins at `start`; 0 if it does not end."""
    quote = raw.find(b'"', start)
    while quote >= 0:
        before = quote
        while before > start and raw[before - 1] == b"\\"[0]:
            before -= 1
        if (quote - before) % 2 == 0:
            return quote + 1
        quote = raw.find(b'"', quote + 1)
    return 0


def _without_partial_escape(raw: bytes) -> bytes:
    escape = raw.rfind(b"\\", len(raw) - 6) + 1
    is_open = escape and (escape - len(raw[:escape].rstrip(b"\\"))) % 2  # an even number of backslashes is complete
    return raw[: escape - 1] if is_open else raw


class _ScannerOptions:
    """The attributes that the C scanner of `json` reads from a `JSONDecoder`."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner's own


def _decode(raw: bytes) -> dict[str, object]:
    """Decode a JSON object. Empty text gives an empty object.

    Raises _HookError if the text is not an object, and ValueError or StopIteration if it is incomplete.
    """
    text = raw.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if not text:
        return {}
    if not text.startswith("{"):
        raise _HookError("standard input is not a JSON object")
    try:
        from _json import make_scanner

        scan = make_scanner(_ScannerOptions)  # type: ignore[arg-type]  # it reads attributes only
    except (ImportError, AttributeError, TypeError):  # a Python version whose C part has another interface
        from json import loads

        return dict(loads(text))
    try:
        return dict(scan(text, 0)[0])
    except SystemError as error:  # raised in place of the error class of `json`, which is not loaded
        raise ValueError("incomplete JSON object") from error


def _encode(value: object, *, escapes: bool = True) -> str:
    try:
        from _json import encode_basestring, encode_basestring_ascii, make_encoder

        texts = encode_basestring_ascii if escapes else encode_basestring
        encoder = make_encoder({}, repr, texts, None, ":", ",", *(False, False, True))
        return "".join(encoder(value, 0))
    except (ImportError, AttributeError, TypeError):
        from json import dumps

        return dumps(value, ensure_ascii=escapes, separators=(",", ":"))


def _line(value: object) -> bytes:
    """Encode a value as one line of JSON in valid UTF-8. An unpaired surrogate becomes a question mark."""
    text = _encode(value)
    if "\\ud" in text:  # a surrogate, paired or not; without escapes only an unpaired one fails to encode
        text = _encode(value, escapes=False)
    return text.encode("utf-8", "replace") + b"\n"


def _checked(line: bytes) -> bytes:
    """Add the checksum of a line, an encoded object, as its last field; the reader of the spool compares it."""
    from binascii import crc32

    return line[:-2] + b',"crc":"%08x"}\n' % crc32(line[:-2])


def _text(payload: object, *names: str) -> str:
    """Return the first of the fields `names` that has a non-empty string; else an empty string."""
    if isinstance(payload, dict):
        for name in names:
            value = payload.get(name)
            if isinstance(value, str) and value:
                return value
    return ""


def _directory(payload: dict[str, object]) -> bytes:
    roots = payload.get("workspace_roots")
    path = _text(payload, "cwd", "directory", "worktree") or _text(payload.get("input"), "directory", "worktree")
    if not path and isinstance(roots, list) and roots and isinstance(roots[0], str):
        path = roots[0]
    return path.encode("utf-8", "surrogateescape") if path.startswith("/") and "\0" not in path else b""


def session_of(payload: dict[str, object]) -> str:
    """Return the session id that the client put into the payload, or an empty string."""
    names = ("session_id", "sessionId", "sessionID", "conversation_id", "thread-id")
    inner = payload.get("input")
    properties = inner.get("properties") if isinstance(inner, dict) else None
    return _text(payload, *names) or _text(inner, *names) or _text(properties, *names)


def _filter_payload(payload: dict[str, object], event: str, *, keeps_prompts: bool) -> dict[str, object]:
    """Return the payload without fields that are never stored, and without prompt texts unless `keeps_prompts`."""
    stored = {key: value for key, value in payload.items() if key not in DROPPED_KEYS}
    for key in ("tool_response", "tool_result", "toolResult"):
        result = stored.get(key)
        if isinstance(result, dict):
            stored[key] = result = {name: value for name, value in result.items() if name not in DROPPED_KEYS}
            if isinstance(shown := result.get("returnDisplay"), dict):
                result["returnDisplay"] = {name: value for name, value in shown.items() if name not in DROPPED_KEYS}
    if keeps_prompts:
        return stored
    stored = {key: value for key, value in stored.items() if key not in TEXT_KEYS}
    if event in PROMPTS or event == "command.execute.before":
        inner = stored.pop("input", None)
        if isinstance(inner, dict):
            stored["input"] = {key: value for key, value in inner.items() if key != "arguments"}
        if isinstance(output := stored.pop("output", None), dict) and isinstance(output.get("message"), dict):
            stored["output"] = {"message": {"id": _text(output["message"], "id")}}
    return stored


def _load_redact() -> Callable[[str], str]:
    """Import the function `redact`. Raises _HookError if its file is missing."""
    redact: Callable[[str], str] = _load_beside("redact").redact
    return redact


def _load_beside(name: str) -> types.ModuleType:
    """Import a module from a file beside this one: `mica_NAME.py` beside an installed copy, `NAME.py` in the package.

    Raises _HookError if there is neither.
    """
    folder = __file__.rpartition("/")[0]
    for place, module in ((folder, f"mica_{name}"), (folder, name)):
        if _exists(f"{place}/{module}.py".encode("utf-8", "surrogateescape")):
            sys.path.insert(0, place)
            try:
                return __import__(module)
            finally:
                sys.path.remove(place)
    needed = "so prompts are not stored; " if name == "redact" else ""
    raise _HookError(f"{name}.py is missing, {needed}run `mica install`")


def _redact_payload(payload: dict[str, object], redact: Callable[[str], str]) -> dict[str, object]:
    """Return the payload with secrets redacted in its prompts, answers and messages. Other fields are unchanged."""

    def clean(value: object) -> object:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, list):
            return [clean(each) for each in value]
        return {key: clean(each) for key, each in value.items()} if isinstance(value, dict) else value

    typed = {*TEXT_KEYS, "input", "output"}
    return {key: clean(value) if key in typed else value for key, value in payload.items()}


# -- The answer -----------------------------------------------------------------------------------


def _prepared_answer(here: HookPaths, payload: dict[str, object], session: str) -> tuple[str, dict[str, object]]:
    """Return a pair: the text that was prepared for the start of a session, and what to record about it.

    Both are empty for other events.
    """
    again = here.hooks + b"/" + SPOOL + b"/" + _file_name(session) + b".again"
    if here.event in COMPACTS:
        _append(here.hooks + b"/" + SPOOL, session, b"", suffix=b".again")
    if here.event not in STARTS and not (here.event in PROMPTS and _exists(again)):
        return "", {}
    text, offered = _session_answer(here, session, resumed=_text(payload, "source") == "resume")
    if here.event in PROMPTS:
        posix.unlink(again)
    return _checked_answer(here, payload, text), offered


def _checked_answer(here: HookPaths, payload: dict[str, object], text: str) -> str:
    """Return a text in the client's format. Raises _HookError if it is too long."""
    if len(text) > ANSWER_CHARACTERS_MAX:
        raise _HookError(f"answer of {len(text):,} characters exceeds the limit of {ANSWER_CHARACTERS_MAX:,}")
    return format_answer(here.client, _text(payload, "hook_event_name") or here.event, text)


def format_answer(client: str, event: str, text: str) -> str:
    """Wrap a text in the format that the client expects.

    No key is added for all clients alike, because Codex drops an answer with a key that it does not know.
    """
    if not text or client == "opencode":
        return text
    if client == "copilot":
        return _encode({"additionalContext": text})
    if client == "cursor":
        return _encode({"additional_context": text})
    if client == "gemini":  # it escapes these characters
        text = text.replace("<", "‹").replace(">", "›").replace("&", "+")
    return _encode({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})


def _session_answer(here: HookPaths, session: str, *, resumed: bool) -> tuple[str, dict[str, object]]:
    made = _read_answer(here, SESSION_ANSWER)
    offered: dict[str, object] = {"kind": "session", "receipt": _text(made, "receipt")}
    if is_held_out(session, made.get("holdout"), kind=BRIEFS):
        return "", {**offered, "held_out": True} if _text(made, "text") else {}
    text, count = _text(made, "text"), 0
    if made.get("budget_tokens"):  # an older mica wrote none
        try:
            text, count = _with_news(here, made, session, resumed=resumed)
        except Exception as error:  # noqa: BLE001 - then the brief is as old as the last ingest
            _record(here, error)
    if count:
        offered["since"] = count
    is_brief = offered["receipt"] or count  # else the text says that briefs are switched off
    return text, offered if text and is_brief else {}


def _with_news(here: HookPaths, made: dict[str, object], session: str, *, resumed: bool) -> tuple[str, int]:
    """Return the rendered brief with what other sessions have spooled since, and the number of lines added.

    An agent that has `resumed` its session still knows what that session said, so these lines are left out.
    """
    own, folder = spool_name(session), here.hooks + b"/" + SPOOL
    names = posix.listdir(folder) if _exists(folder) else []
    others = [each for each in names if each.endswith(b".jsonl") and each.partition(b".")[0] != own.encode()]
    if not (others or resumed or made.get("running")):
        return _text(made, "text"), 0
    news = _load_beside("spool_news")
    reading = news.Reading(
        load=_load_beside,
        decode=_decode,
        tail=_tail,
        prompts=PROMPTS,
        turn_ends=ENDS,
        session_ends=SESSION_ENDS,
        characters_max=ANSWER_CHARACTERS_MAX,
    )
    parts = news.unread_parts(folder, others, made.get("read"), reading)
    result: tuple[str, int] = news.add_news(
        made, parts, session=session if resumed else "", own=own, now_s=time.time(), reading=reading
    )
    return result


def _prompt_answer(here: HookPaths, payload: dict[str, object], session: str) -> tuple[str, dict[str, object]]:
    """Return a pair: the suggestion of files for a prompt, and what to record about it.

    Both are empty if there is no suggestion. The text alone is empty if this session gets none, for comparison. The
    files are ranked by a copy of mica's ranking code (the engine), because importing mica itself takes too long.
    """
    made = _read_answer(here, PROMPT_ANSWER, version=2)
    prompt = _text(payload, "prompt", "text") or _parts(payload.get("output"))
    directory = here.directory.decode("utf-8", "surrogateescape") + "/"
    trees = made.get("trees")
    roots = [each for each in trees if directory.startswith(each.rstrip("/") + "/")] if isinstance(trees, dict) else []
    if not roots or not isinstance(trees, dict) or not prompt:
        return "", {}
    root = max(roots, key=len)
    _check_tree(_text(made, "engine").encode("utf-8", "surrogateescape"))
    opened = [_open_own(name.encode("utf-8", "surrogateescape")) for name in (trees[root], _text(made, "past"))]
    sys.path[:0] = [_text(made, "engine"), _text(made, "library")]
    module, _, function = (_text(made, "entry") or OLD_ENTRY).partition(":")
    text, paths = getattr(__import__(module, fromlist=[function]), function)(
        prompt, session, root=root, tree=opened[0], past=opened[1], spooled=_recent_steps(here, session, root)
    )
    if not paths:
        return "", {}
    offered: dict[str, object] = {"kind": "prompt", "paths": paths}
    if is_held_out(session or prompt, made.get("holdout"), kind=OFFERS):
        return "", {**offered, "held_out": True}
    return text, {**offered, "characters": len(text)}


def _recent_steps(here: HookPaths, session: str, root: str) -> list[tuple[float, list[str] | None]]:
    """Return the recent prompts and tool calls of this session from the spool, because they may not be stored yet.

    Each is a pair: its time, and the paths that the tool call used, or None for a prompt. Every word of a shell command
    that could be a path is included, because the engine ignores paths that are not in the working tree.
    """
    path = here.hooks + b"/" + SPOOL + b"/" + _file_name(session) + b".jsonl"
    steps: list[tuple[float, list[str] | None]] = []
    for line in _tail(path, end=here.start, limit=SPOOL_TAIL_BYTES_MAX):
        try:
            spooled = _decode(line)
        except (ValueError, StopIteration, _HookError):
            continue  # the line is being written
        at, event, payload = spooled.get("at"), _text(spooled, "event"), spooled.get("payload")
        if not isinstance(at, int) or not isinstance(payload, dict):
            continue
        if event in PROMPTS:
            steps.append((at / 1e6, None))
        elif paths := _paths(payload, _text(spooled, "directory"), root):
            steps.append((at / 1e6, paths))
    return steps


def _paths(payload: dict[str, object], directory: str, root: str) -> list[str]:
    """Return the paths in the arguments of a tool call, relative to `root`. Paths outside of `root` are left out."""
    inner = payload.get("input")
    places = [payload.get(name) for name in ("tool_input", "toolArgs", "args")]
    places += [inner, inner.get("args") if isinstance(inner, dict) else None, payload]
    named: list[str] = []
    for each in places:
        if isinstance(each, dict):
            named += [path for key in PATH_KEYS if isinstance(path := each.get(key), str)]
            if isinstance(command := each.get("command"), str):
                words = command[:COMMAND_CHARACTERS_MAX].replace('"', " ").replace("'", " ").split()
                named += [word for word in words if "." in word or "/" in word]
    base = root.rstrip("/") + "/"
    paths: dict[str, None] = {}
    for path in named:
        whole = path if path.startswith("/") else f"{directory.rstrip('/')}/{path.removeprefix('./')}"
        if whole.startswith(base):
            paths[whole[len(base) :]] = None
    return list(paths)


def _tail(path: bytes, *, end: int, limit: int, start: int = 0) -> list[bytes]:
    """Return the lines that begin in the last `limit` bytes before `end`, but not before `start`, where a line begins.

    An unreadable file gives an empty list.
    """
    try:
        file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError:
        return []
    try:
        begin = max(start, end - limit)
        posix.lseek(file, begin, 0)
        return posix.read(file, end - begin).split(b"\n")[1 if begin > start else 0 :]
    except OSError:
        return []
    finally:
        posix.close(file)


def _parts(output: object) -> str:
    """Return the text of an OpenCode message, without the parts that a plugin added."""
    parts = output.get("parts") if isinstance(output, dict) else None
    if not isinstance(parts, list):
        return ""
    texts = [_text(part, "text") for part in parts if isinstance(part, dict) and not part.get("synthetic")]
    return "\n".join(text for text in texts if text)


def _read_gate(here: HookPaths, payload: dict[str, object], session: str) -> str:
    """Return a refusal of a Read call if the agent has already seen all requested lines; else an empty string.

    The lines that each Read showed are recorded for each session and subagent. The record is removed when a session
    starts or is compacted, because the agent no longer sees those lines. A changed file may be read again.
    """
    window = session + _text(payload, "agent_id")
    shown = here.hooks + b"/" + SHOWN + b"/" + _file_name(window) + b".shown"
    if here.event in STARTS or here.event == "PreCompact":
        if _exists(shown):
            posix.unlink(shown)
        return ""
    arguments = payload.get("tool_input")
    path = _text(arguments, "file_path")
    if _text(payload, "tool_name") != "Read" or not path.startswith("/") or not isinstance(arguments, dict):
        return ""
    try:
        status = posix.stat(path.encode("utf-8", "surrogateescape"))
    except OSError:
        return ""  # the read itself will report it
    version = [path, status.st_mtime_ns, status.st_size]
    if here.event == "PostToolUse":
        response = payload.get("tool_response")
        file = response.get("file") if isinstance(response, dict) else None
        if isinstance(file, dict) and isinstance(first := file.get("startLine"), int):
            span = [first, first + int(file.get("numLines") or 0) - 1, int(file.get("totalLines") or 0)]
            line = _encode({"shown": [*version, *span]}).encode() + b"\n"
            _append(here.hooks + b"/" + SHOWN, window, line, suffix=b".shown")
        return ""
    if here.event != "PreToolUse":
        return ""
    views = map(_decode_view, (_read_file(shown, limit=2**20) or b"").splitlines())
    current = [view for view in views if view[:3] == version]
    lines = {line for view in current for line in range(view[3], view[4] + 1)}
    total = current[-1][5] if current else 0
    offset, count = arguments.get("offset"), arguments.get("limit")
    first = max(1, offset) if isinstance(offset, int) else 1
    requested = range(first, min(total, first + count - 1 if isinstance(count, int) else total) + 1)
    if not requested or not all(line in lines for line in requested):
        return ""
    numbers = f"{requested[0]}-{requested[-1]}"
    reason = f"Lines {numbers} of {path} were shown earlier in this session and have not changed since."
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
    return _encode({"hookSpecificOutput": decision})


def _decode_view(line: bytes) -> list[int]:
    """Return the values of one record that `_read_gate` wrote about the lines that a Read showed.

    They are path, modification time and size of the file, first and last line shown, and number of lines in the file.
    An incomplete record gives an empty list.
    """
    try:
        view = _decode(line).get("shown")
    except (ValueError, StopIteration):
        return []
    return view if isinstance(view, list) and len(view) == 6 else []


def is_held_out(session: str, share: object, *, kind: str) -> bool:
    """Return True if this session gets no answer of the kind `kind`, to compare it with sessions that do.

    `share`, from 0 to 1, is the share of sessions for which the result is True. The result depends only on the
    arguments. The groups of different kinds are independent, so that the effect of each kind can be measured
    separately.
    """
    if not session or not isinstance(share, int | float) or share <= 0:
        return False
    from binascii import crc32

    number = crc32(f"{kind} {session}".encode("utf-8", "replace"))
    for factor in (0x85EBCA6B, 0xC2B2AE35):  # mixes the bits: similar texts have similar checksums
        number = (number ^ number >> 15) * factor % 2**32
    return (number ^ number >> 16) / 2**32 < share


def _read_answer(here: HookPaths, name: bytes, *, version: int = 1) -> dict[str, object]:
    raw = _read_own(here.hooks + b"/" + name, limit=ANSWERS_BYTES_MAX)
    made = _decode(raw) if raw else {}
    return made if made.get("version") == version else {}


# -- Files -----------------------------------------------------------------------------------------------------


def _append(folder: bytes, session: str, line: bytes, *, suffix: bytes = b".jsonl") -> int:
    """Append a line to the file of a session in one write, or to a new file if an ingest has just removed that one.

    Return the offset of the line in the file. Raises _HookError if it cannot be written.
    """
    try:
        return _append_line(folder, session, line, suffix)
    except OSError as error:
        raise _unwritable(folder + b"/" + _file_name(session) + suffix, error) from error


def _make_spool(folder: bytes) -> None:
    try:
        _make(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(path: bytes, error: OSError) -> _HookError:
    from errno import EDQUOT, EFBIG, ENOSPC

    is_full = error.errno in (EDQUOT, EFBIG, ENOSPC)
    remedy = "free some space" if is_full else "choose another data folder with MICA_HOME"
    return _HookError(f"{path.decode('utf-8', 'replace')} cannot be written: {error.strerror}; {remedy}")


def _append_line(folder: bytes, session: str, line: bytes, suffix: bytes) -> int:
    from fcntl import LOCK_NB, LOCK_SH, flock

    flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC
    path = folder + b"/" + _file_name(session) + suffix
    try:
        file = posix.open(path, flags, 0o600)
    except FileNotFoundError:
        _make(folder)
        file = posix.open(path, flags, 0o600)
    status = posix.fstat(file)
    try:
        flock(file, LOCK_SH | LOCK_NB)
        is_removed = posix.fstat(file).st_nlink == 0
    except OSError:
        is_removed = True
    if is_removed:
        posix.close(file)
        beside = b".%d-%d" % (posix.getpid(), time.time_ns()) + suffix
        file = posix.open(folder + b"/" + _file_name(session) + beside, flags, 0o600)
        status = posix.fstat(file)
    try:
        if status.st_uid != posix.geteuid():
            raise _Refused(_foreign(path, status.st_uid))
        if status.st_mode & 0o077:
            posix.fchmod(file, 0o600)
        _write(file, line)
        return max(0, posix.lseek(file, 0, 1) - len(line))
    finally:
        posix.close(file)


def spool_name(session: str) -> str:
    """Return the name that a session has in the spool: that of its files, without a suffix."""
    return _file_name(session).decode()


def _file_name(session: str) -> bytes:
    """Return the file name for a session: its id, or an encoded form with a checksum if the id is not a safe name.

    The name is `unknown` for an empty id.
    """
    if 0 < len(session) <= 100 and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in session):
        return session.encode()
    if not session:
        return b"unknown"
    from binascii import crc32, hexlify

    return b"s-" + hexlify(session.encode("utf-8", "replace")[:16]) + b"-%d" % crc32(session.encode("utf-8", "replace"))


def _make(folder: bytes, *, makes_parents: bool = True) -> None:
    try:
        posix.mkdir(folder, 0o700)
    except FileExistsError:
        pass  # another process has just made it
    except FileNotFoundError:
        if not makes_parents:
            raise
        _make(folder.rpartition(b"/")[0])
        _make(folder, makes_parents=False)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[posix.write(file, data) :]


def _exists(path: bytes) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _read_file(path: bytes, *, limit: int = 2**16) -> bytes | None:
    """Return the content of a file; None if it cannot be read or is longer than `limit` bytes."""
    try:
        file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError:
        return None
    return _read_open(file, limit)


def _read_open(file: int, limit: int) -> bytes | None:
    try:
        content = posix.read(file, limit + 1)
    except OSError:
        return None
    finally:
        posix.close(file)
    return None if len(content) > limit else content


# -- Whose files these are ----------------------------------------------------------------------------------------


def _secure_folders(here: HookPaths) -> bool:
    """Take the rights of others away from the folders of the spool, and return False if one is missing.

    Raises _Refused if another user owns one.
    """
    spaces = here.hooks.rpartition(b"/")[0]
    return all(map(_secure_folder, (here.home, spaces, here.hooks, here.hooks + b"/" + SPOOL)))


def _secure_folder(folder: bytes) -> bool:
    """Make a folder private, and return False if it is missing. Raises _Refused if it belongs to another user."""
    try:
        status = posix.lstat(folder)
        if status.st_mode & 0o170000 == 0o120000 and status.st_uid in (0, posix.geteuid()):
            status = posix.stat(folder)  # a link that the user made
    except OSError:  # missing, or opening a file in it reports why
        return False
    if status.st_uid != posix.geteuid():
        raise _Refused(_foreign(folder, status.st_uid))
    if status.st_mode & 0o077 and status.st_mode & 0o170000 == 0o040000:
        try:
            posix.chmod(folder, 0o700)
        except OSError:  # a file system without rights; what is executed is checked separately
            return True
    return True


def _open_own(path: bytes) -> int:
    """Open a file that hooks execute or print. Raises _Refused if others own it or can write to it, and OSError."""
    try:
        file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        from errno import ELOOP

        if error.errno == ELOOP:
            shown = path.decode("utf-8", "replace")
            raise _Refused(f"{shown} is a symbolic link and is not used; remove it and run `mica ingest`") from error
        raise
    try:
        _check_own(path, posix.fstat(file))
    except _Refused:
        posix.close(file)
        raise
    return file


def _read_own(path: bytes, *, limit: int = 2**16) -> bytes | None:
    """Read a file as `_open_own` opens it. Returns None if it is missing, unreadable or longer than `limit` bytes."""
    try:
        file = _open_own(path)
    except OSError:
        return None
    return _read_open(file, limit)


def _check_tree(folder: bytes) -> None:
    """Check a folder of code and everything in it, as `_open_own` checks a file."""
    _check_own(folder, posix.lstat(folder))
    for entry in posix.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            _check_tree(entry.path)
        else:
            _check_own(entry.path, entry.stat(follow_symlinks=False))


def _check_own(path: bytes, status: posix.stat_result) -> None:
    if status.st_uid not in (0, posix.geteuid()):
        raise _Refused(_foreign(path, status.st_uid))
    if status.st_mode & 0o022 and status.st_mode & 0o170000 != 0o120000:  # a link's rights mean nothing
        shown = path.decode("utf-8", "replace")
        raise _Refused(f"other users can write to {shown}, so it is not used; run `mica ingest`, which replaces it")


def _foreign(path: bytes, owner: int) -> str:
    shown = path.decode("utf-8", "replace")
    return (
        f"{shown} belongs to another user (id {owner}) and is not used; "
        f"run `sudo chown -R {posix.geteuid()} {shown}` if it is yours, or choose another folder with MICA_HOME"
    )


# -- Failures and the ingest child -----------------------------------------------------------------------


def _limit_time(here: HookPaths, limit_s: float) -> None:
    """End the program after `limit_s`, or when the client ends it; a child process then completes the recording."""
    import _signal  # type: ignore[import-not-found]  # not in typeshed

    def end(number: int, _frame: object) -> None:
        is_late = number == _signal.SIGALRM
        late = f"not finished within {limit_s} s" if is_late else "ended by its client"
        if here.is_recorded:
            _record(here, _PayloadTooLong(here) if here.is_cut else _HookError(late))
            posix._exit(0)
        _hand_over(here, f"{late}, so nothing is answered; the event is recorded in the background", waits=is_late)

    for number in (_signal.SIGALRM, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT):
        _signal.signal(number, end)
    _signal.setitimer(_signal.ITIMER_REAL, limit_s)


def _hand_over(here: HookPaths, reason: str, *, waits: bool) -> None:
    """Return in a child process, which completes the recording and which the client cannot end.

    This process ends; if it `waits`, it first waits for the child, but not longer than WAIT_LIMIT_S. If there can be no
    child, the function returns in this process.
    """
    import _signal

    def end(*_: object) -> None:
        posix._exit(0)

    def give_up(*_: object) -> None:
        raise _HookError(f"not recorded within {CHILD_LIMIT_S} s")

    try:
        child = posix.fork()
    except OSError:
        return
    for number in (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT):
        _signal.signal(number, end if child else _signal.SIG_IGN)
    _signal.signal(_signal.SIGALRM, end if child else give_up)
    if child:
        _signal.setitimer(_signal.ITIMER_REAL, WAIT_LIMIT_S)
        _record(here, _HookError(reason))
        if waits:
            posix.waitpid(child, 0)
        posix._exit(0)
    here.is_child = True
    _signal.setitimer(_signal.ITIMER_REAL, CHILD_LIMIT_S)
    posix.setsid()
    nothing = posix.open(b"/dev/null", posix.O_RDWR)
    for stream in (1, 2):  # the client waits until they are closed
        posix.dup2(nothing, stream)


def _record(here: HookPaths, error: BaseException, *, loss: str | None = None) -> None:
    """Write the reason of a failure to a file, and to standard error too if a file was refused or there is a `loss`.

    `loss` is the beginning of a sentence that the reason completes.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if isinstance(error, _HookError) or trace is None else f" (line {trace.tb_lineno})"
    reason = f"{error}" if isinstance(error, _HookError) else f"{type(error).__name__}: {error}"
    if loss is not None or isinstance(error, _Refused):
        _say((loss or "") + reason)
    line = {"at": time.time_ns() // 1_000, "client": here.client, "event": here.event, "reason": reason[:300] + place}
    try:
        if not here.home and not _is_disabled(posix.environ):  # time was up before anything was read
            here.home = _load_settings(posix.environ)[0]
        _secure_folders(here)
    except _HookError:  # nothing can be written there
        return
    for folder in filter(None, (here.hooks, here.home)):
        try:
            path = folder + b"/" + FAILURES
            _make(folder)
            if _exists(path) and posix.stat(path).st_size > FAILURES_BYTES_MAX:
                posix.rename(path, path + b".old")
            file = posix.open(path, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW, 0o600)
            _write(file, _line(line))
            return
        except BaseException:  # noqa: BLE001 - try the next folder
            continue


def _say(reason: str) -> None:
    try:
        _write(2, f"mica: {reason}\n".encode("utf-8", "replace"))
    except OSError:  # the client reads no errors
        return


def _start_child(here: HookPaths) -> None:
    """Start an ingest, which stores the spooled events, in the background with low priority and a time limit.

    Only the start of a session and the end of a turn or session do this; at any other event, the function does nothing.
    No two ingests of a space run at the same time. At the end of a session, one that is running is followed by another,
    because it may have read the spool already. At the end of a turn, none is started if the last one started less than
    CHILD_PAUSE_S seconds ago.
    """
    if not (here.event in STARTS or here.event in ENDS):
        return
    words = (_read_own(here.home + b"/" + COMMAND) or b"").split(b"\n")
    if len(words) < 2 or not words[0].startswith(b"/"):
        return
    lock, following = _open_lock(here.hooks + b"/" + CHILD), -1
    if not _try_lock(lock):
        following = _open_lock(here.hooks + b"/" + NEXT_CHILD) if here.event in SESSION_ENDS else -1
        if following < 0 or not _try_lock(following):
            return  # one is running, or one that waits for it will read this event, too
    is_soon = time.time() - posix.fstat(lock).st_mtime < CHILD_PAUSE_S and posix.fstat(lock).st_size
    if here.event in ENDS and here.event not in SESSION_ENDS and is_soon:
        return
    if posix.fork():
        return
    _run_child(here, [word for word in words if word], lock=lock, following=following)


def _open_lock(path: bytes) -> int:
    return posix.open(path, posix.O_RDWR | posix.O_CREAT | posix.O_NOFOLLOW, 0o600)


def _try_lock(lock: int) -> bool:
    from fcntl import LOCK_EX, LOCK_NB, flock

    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return True


def _run_child(here: HookPaths, words: list[bytes], *, lock: int, following: int) -> None:
    """Become the ingest that `words` start. With `following`, a lock, first wait until another ingest has ended."""
    import _signal
    from fcntl import LOCK_EX, flock

    posix.setsid()
    posix.umask(here.umask)
    posix.nice(15)
    nothing = posix.open(b"/dev/null", posix.O_RDWR)
    for stream in (0, 1, 2):
        posix.dup2(nothing, stream)
    for number in (_signal.SIGALRM, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.setitimer(_signal.ITIMER_REAL, CHILD_LIMIT_S)
    if following >= 0:
        flock(lock, LOCK_EX)
        posix.close(following)  # from here on, another end of a session starts an ingest of its own
        _signal.setitimer(_signal.ITIMER_REAL, CHILD_LIMIT_S)
    posix.write(lock, b".")
    posix.ftruncate(lock, 1)
    posix.dup2(lock, 9)  # inherited, so the lock is held exactly as long as the child lives
    posix.chdir(here.directory)
    posix.execve(words[0], words, {**posix.environ, b"MICA_CHILD": b"1"})


if __name__ == "__main__":
    main()
