"""`mica-hook CLIENT EVENT`: what a coding agent runs at its events. One file, standard library, no import of mica.

It appends what happened to a spool, which the next mica process ingests. At the start of a session it prints what was
rendered beforehand, and at a prompt what the engine says that an ingest wrote out for it. It exits 0 and is silent
whatever happens; reasons stand in `failures.jsonl`.

Agents wait for it, so it costs little more than the interpreter: `posix`, `_json` and `_signal` are the C halves of
`os`, `json` and `signal`, whose Python halves take as long to import as the interpreter to start. Paths are bytes here.
"""

from __future__ import annotations

import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TIME_LIMIT_S = 1.0  # Codex gives the end of a session one second, Claude Code one and a half
PAYLOAD_BYTES_MAX = 16 * 2**20  # a payload holds a file or an output, and clients cut both long before
CUT_BYTES = 2**20  # that are kept of a longer one: its time limit holds, and who said what is at its beginning
FAILURES_BYTES_MAX = 64 * 1024  # some 300 reasons; then the oldest half goes
ANSWER_CHARACTERS_MAX = 9_500  # beyond 10,000 clients move the text into a file, or drop it
ANSWERS_BYTES_MAX = 4 * 2**20
CHILD_LIMIT_S = 300  # of the ingest child; what it has not done, the next does
SPOOLED_BYTES_MAX = 2**18  # of a session's spool that are looked at for a prompt: what was done last
COMMAND_CHARACTERS_MAX = 2_000  # of a command, in which paths are looked for
PATH_KEYS = ("file_path", "filePath", "absolute_path", "notebook_path", "path")  # by which clients give them
CHILD_PAUSE_S = 30  # between two children at the ends of turns

HOOKS = b"-hooks"  # behind the name of a space's file: the folder of all that is below
SPOOL, FAILURES, OFF, NO_PROMPTS = b"spool", b"failures.jsonl", b"off", b"no-prompts"
SHOWN = b"shown"  # lines that sessions were shown, where the read gate is on
SESSION_ANSWER, PROMPT_ANSWER, CHILD = b"session.json", b"prompt.json", b"child"
BRIEFS, OFFERS = "briefs", "offers"  # that sessions are held out of, each by a draw of its own
COMMAND = b"ingest-command"  # in the data folder: the words that start the ingest child, one on each line

CLIENTS = ("claude", "codex", "gemini", "copilot", "opencode", "cursor")
STARTS = ("SessionStart", "sessionStart", "session", "session.created")
PROMPTS = ("UserPromptSubmit", "BeforeAgent", "userPromptSubmitted", "beforeSubmitPrompt", "prompt", "chat.message")
ENDS = ("Stop", "AfterAgent", "agentStop", "stop", "session.idle", "SessionEnd", "sessionEnd")
COMPACTS = ("preCompact",)  # Cursor starts no session after it: the next prompt is answered in its place
# What is not worth a line: it repeats another event, or says nothing of where an agent goes.
PASSED_OVER = frozenset(
    "PreToolUse BeforeTool preToolUse tool.execute.before PostToolBatch PermissionRequest permissionRequest "
    "PermissionDenied Notification MessageDisplay InstructionsLoaded BeforeModel AfterModel BeforeToolSelection "
    "PreCompress beforeShellExecution beforeMCPExecution beforeReadFile afterAgentThought system.transform "
    "experimental.chat.system.transform FileChanged CwdChanged ConfigChange Elicitation ElicitationResult".split()
)
SAID = frozenset(
    "prompt initial_prompt initialPrompt last_assistant_message prompt_response compact_summary custom_instructions "
    "command_args session_title attachments text".split()
)
TYPED = (*PROMPTS, "command.execute.before")  # what people type, and what secrets are pasted into
NEVER_KEPT = ("user_email", "originalFile", "originalContent", "permission_suggestions")


class _Failed(Exception):
    """Why nothing was observed or answered."""


class Here:
    """Where a hook writes: known step by step, so that a failure is recorded as near as possible."""

    client = event = ""
    home = directory = b""
    hooks = b""  # the folder of the space
    size = 0  # of the payload, as far as it was read
    is_cut = False  # only its beginning is used
    is_kept = False  # what was observed


class _TooLong(_Failed):
    """The payload was cut. Its size is told as it is known when it is recorded."""

    def __init__(self, here: Here) -> None:
        self._here = here

    def __str__(self) -> str:
        size = f"{self._here.size:,}"
        return f"a payload of {size} bytes; {PAYLOAD_BYTES_MAX:,} are read, of a longer one {CUT_BYTES:,}"


def main(words: list[str] | None = None) -> None:
    """The `mica-hook` command. It never returns, and always exits 0."""
    here = Here()
    try:
        _limit_time(here)
        try:
            answer = respond(sys.argv[1:] if words is None else words, posix.environ, _stdin(here), here)
            if answer:
                _write(1, answer.encode())
            _start_child(here)
        finally:
            _drop_rest(here)
        if here.is_cut and here.event:
            raise _TooLong(here)
    except BaseException as error:  # noqa: BLE001 - an agent must never stop for its memory
        _record(here, error)
    posix._exit(0)


def respond(words: list[str], environment: dict[bytes, bytes], raw: bytes, here: Here) -> str:
    """Observe one event; returns what the client is to be told, in its own shape, or nothing."""
    if environment.get(b"MICA_DISABLE", b"0") not in (b"", b"0") or environment.get(b"MICA_CHILD"):
        return ""
    client, event = _asked(words)
    here.home, settings = _configured(environment)
    project = environment.get(b"CLAUDE_PROJECT_DIR", b"") if client == "claude" else b""
    project = project if project.startswith(b"/") else b""
    directory = project or _working_directory()
    if directory and _is_off(here, directory, settings) and (project or _speaks_of(raw, directory)):
        return ""  # before anything is decoded: who switched it off pays for nothing
    payload = _beginning(raw, here) if here.is_cut else _decoded(raw)
    client = client or _client(payload, environment)
    if client == "claude" and b"CURSOR_VERSION" in environment:
        client = "cursor"  # it runs Claude's hooks too; told as its own, what it says twice is stored once
    here.client, event = client, event or _text(payload, "hook_event_name", "k", "_event")
    directory = project or _directory(payload) or directory
    if not directory and settings.get(b"enabled") != b"false":
        raise _Failed("the working directory is gone, and the payload names no other")
    if _is_off(here, directory, settings):
        return ""
    here.event, here.directory = event, directory
    session = session_of(payload)
    if settings.get(b"read_gate") == b"true" and client == "claude":
        try:
            if told := _read_gate(here, payload, session):
                return told
        except (OSError, TypeError, ValueError) as error:  # the read goes on, and is observed
            _record(here, error)
    if event in PASSED_OVER:
        return ""
    answer = ""
    offered: dict[str, object] = {}
    try:
        answer, offered = _answer(here, payload, session)
    except Exception as error:  # noqa: BLE001 - whatever an answer lacks, what happened is observed
        _record(here, error)
    keeps_prompts = settings.get(b"prompts") != b"false" and not _exists(here.hooks + b"/" + NO_PROMPTS)
    if keeps_prompts and event in TYPED:
        try:
            payload = _redacted(payload, _redactor())
        except Exception as error:  # noqa: BLE001 - a secret is worth more than a prompt
            keeps_prompts = False
            _record(here, error)
    line: dict[str, object] = {
        "v": 1,
        "at": time.time_ns() // 1_000,
        "client": client,
        "event": event,
        "directory": directory.decode("utf-8", "replace"),
        "payload": _kept(payload, event, keeps_prompts=keeps_prompts),
    }
    if offered:
        line["offered"] = offered
    _append(here.hooks + b"/" + SPOOL, session, _line(line))
    here.is_kept = True
    return answer


def _is_off(here: Here, directory: bytes, settings: dict[bytes, bytes]) -> bool:
    here.hooks = hooks_folder(directory, home=here.home)
    return settings.get(b"enabled") == b"false" or _exists(here.hooks + b"/" + OFF)


def _working_directory() -> bytes:
    try:
        return posix.getcwdb()
    except OSError:  # removed under the agent
        return b""


def _speaks_of(raw: bytes, directory: bytes) -> bool:
    """Whether a payload that is not decoded yet is certainly of this directory."""
    return b'"cwd"' not in raw or b'"cwd":"' + directory + b'"' in raw.replace(b'"cwd": ', b'"cwd":')


# -- What was said on the command line and in the environment --------------------------------------------------


def _asked(words: list[str]) -> tuple[str, str]:
    """The client and the event: `claude Stop`, `--client claude Stop`, or `Stop` inside a plugin that several load."""
    words = [word for word in words if word != "--client"]
    client = words.pop(0) if words and words[0].split("-")[0] in CLIENTS else ""
    return client.split("-")[0], words[0] if words else ""


def _client(payload: dict[str, object], environment: dict[bytes, bytes]) -> str:
    """Whose hook this is, where nobody says so. Several clients set the variables of Claude Code too."""
    told = (b"CURSOR_VERSION", "cursor"), (b"COPILOT_CLI", "copilot"), (b"GEMINI_SESSION_ID", "gemini")
    for variable, client in (*told, (b"CLAUDECODE", "claude")):
        if variable in environment:
            return client
    if "turn_id" in payload or "/.codex/" in _text(payload, "transcript_path") or b"PLUGIN_ROOT" in environment:
        return "codex"
    raise _Failed("no client is named, and nothing tells which it is")


def _configured(environment: dict[bytes, bytes]) -> tuple[bytes, dict[bytes, bytes]]:
    """The data folder, and what the `[observe]` section of the settings says. Variables win over the file."""
    user = environment.get(b"HOME") or b"/"
    shared = user + b"/Library/Application Support/mica" if sys.platform == "darwin" else b""
    folder = shared or (environment.get(b"XDG_CONFIG_HOME") or user + b"/.config") + b"/mica"
    found = _settings(_contents(environment.get(b"MICA_CONFIG") or folder + b"/config.toml", limit=2**20))
    for name in (b"enabled", b"prompts", b"read_gate"):
        if value := environment.get(b"MICA_OBSERVE_" + name.upper()):
            found[name] = b"false" if value.lower() in (b"0", b"false", b"no", b"off") else b"true"
    home = environment.get(b"MICA_HOME") or found.get(b"home")
    if home and home.startswith(b"~/"):
        home = user + home[1:]
    return home or shared or (environment.get(b"XDG_DATA_HOME") or user + b"/.local/share") + b"/mica", found


def _settings(text: bytes | None) -> dict[bytes, bytes]:
    """The few settings that hooks obey, from lines of TOML: `home`, and three of `[observe]`."""
    found: dict[bytes, bytes] = {}
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
            found[name.removeprefix(b"observe.")] = inside
            is_plain &= b"\\" not in inside
    if not is_plain and (b"observe" in text or b"home" in text):
        found = _parsed(text)
    for name in (b"enabled", b"prompts", b"read_gate"):
        if found.get(name, b"").lower() in (b"0", b"1", b"false", b"true"):
            found[name] = b"true" if found[name].lower() in (b"1", b"true") else b"false"
    return found


def _is_quoted(name: bytes) -> bool:
    return b'"' in name or b"'" in name


def _parsed(text: bytes) -> dict[bytes, bytes]:
    """The same from any TOML, which takes longer. Where nobody can tell what is switched off, everything is."""
    from tomllib import loads

    try:
        given = loads(text.decode())
    except ValueError:
        return {b"enabled": b"false"}
    section = given.get("observe")
    values = {**(section if isinstance(section, dict) else {}), "home": given.get("home", "")}
    return {name.encode(): str(value).encode() for name, value in values.items()}


# -- Where the space is ----------------------------------------------------------------------------------------


def hooks_folder(directory: bytes, *, home: bytes) -> bytes:
    """The folder of the hooks of a directory's space. The same space as `mica.store.space`, without running git."""
    identity = _identity(directory)
    name = identity.rstrip(b"/").rpartition(b"/")[2].decode("utf-8", "surrogateescape").lower()
    slug = "".join(character if character in "abcdefghijklmnopqrstuvwxyz0123456789" else " " for character in name)
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    named = f"{'-'.join(slug.split())[:40] or 'root'}-{blake2b(identity, digest_size=4).hexdigest()}"
    return home + b"/spaces/" + named.encode() + b".db" + HOOKS


def _identity(directory: bytes) -> bytes:
    folder = b"/" + b"/".join(part for part in directory.split(b"/") if part not in (b"", b"."))
    start = folder
    while True:
        git = folder.rstrip(b"/") + b"/.git"
        try:
            kind = posix.stat(git).st_mode & 0o170000
        except (OSError, ValueError):
            kind = 0
        common = _common(git, is_folder=kind == 0o040000) if kind in (0o040000, 0o100000) else None
        if common is not None:
            return common.removesuffix(b"/.git") or b"/"
        if folder == b"/":
            return start
        folder = folder.rpartition(b"/")[0] or b"/"


def _common(git: bytes, *, is_folder: bool) -> bytes | None:
    """The directory that all worktrees share."""
    if is_folder and not _has_link(git):
        return git
    from posixpath import join, realpath

    if is_folder:
        return realpath(git)
    try:
        pointer = (_contents(git) or b"").decode().removeprefix("gitdir:").strip().encode()
        folder = realpath(join(git.rpartition(b"/")[0], pointer))
        shared = _contents(folder + b"/commondir")
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


# -- What the client says --------------------------------------------------------------------------------------


def _stdin(here: Here) -> bytes:
    """What is on standard input; of more than a payload can be, the beginning."""
    parts: list[bytes] = []
    while part := posix.read(0, 2**20):
        parts.append(part)
        here.size += len(part)
        if here.size > PAYLOAD_BYTES_MAX:
            here.is_cut = True
            return b"".join(parts)[:CUT_BYTES]
    return b"".join(parts)


def _drop_rest(here: Here) -> None:
    """Read on, so that the client is not stuck: at last, because what was observed is kept before the time is over."""
    while here.is_cut and (part := posix.read(0, 2**20)):
        here.size += len(part)


def _beginning(raw: bytes, here: Here) -> dict[str, object]:
    """What a payload says that was cut, closed where it was: nearly always within a text, and not within an escape."""
    escape = raw.rfind(b"\\", len(raw) - 6) + 1
    if (escape - len(raw[:escape].rstrip(b"\\"))) % 2:  # of two, the second is a backslash that is meant
        raw = raw[: escape - 1]
    for end in (b'"}', b'"}}', b'"}}}', b'"]}', b'"}]}', b'"}]}}', b'"}}]}}'):
        try:
            return _decoded(raw + end)
        except (ValueError, StopIteration):
            continue
    raise _TooLong(here)


class _Rules:
    """What the C half of `json` asks its Python half for."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner's own


def _decoded(raw: bytes) -> dict[str, object]:
    text = raw.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if not text:
        return {}
    if not text.startswith("{"):
        raise _Failed("standard input is no JSON object")
    try:
        from _json import make_scanner

        scan = make_scanner(_Rules)  # type: ignore[arg-type]  # it reads attributes only
    except (ImportError, AttributeError, TypeError):  # another Python, whose halves fit together differently
        from json import loads

        return dict(loads(text))
    try:
        return dict(scan(text, 0)[0])
    except SystemError as error:  # what it says where `json` is not loaded, whose error it would raise
        raise ValueError("no whole JSON object") from error


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
    """A line that every reader takes: half a character, which a client cut, becomes a question mark."""
    text = _encode(value)
    if "\\ud" in text:  # a half, or two that belong together: unescaped, only the former cannot be encoded
        text = _encode(value, escapes=False)
    return text.encode("utf-8", "replace") + b"\n"


def _text(payload: object, *names: str) -> str:
    """The first of these fields that holds a text."""
    if isinstance(payload, dict):
        for name in names:
            value = payload.get(name)
            if isinstance(value, str) and value:
                return value
    return ""


def _directory(payload: dict[str, object]) -> bytes:
    """Where the agent works, as the payload says."""
    roots = payload.get("workspace_roots")
    said = _text(payload, "cwd", "directory", "worktree") or _text(payload.get("input"), "directory", "worktree")
    if not said and isinstance(roots, list) and roots and isinstance(roots[0], str):
        said = roots[0]
    return said.encode("utf-8", "surrogateescape") if said.startswith("/") and "\0" not in said else b""


def session_of(payload: dict[str, object]) -> str:
    """What the client calls its session; empty where it does not say."""
    names = ("session_id", "sessionId", "sessionID", "conversation_id", "thread-id")
    given = payload.get("input")
    properties = given.get("properties") if isinstance(given, dict) else None
    return _text(payload, *names) or _text(given, *names) or _text(properties, *names)


def _kept(payload: dict[str, object], event: str, *, keeps_prompts: bool) -> dict[str, object]:
    """The payload without what is never kept, and without what was said where that is switched off."""
    kept = {key: value for key, value in payload.items() if key not in NEVER_KEPT}
    for key in ("tool_response", "tool_result", "toolResult"):
        result = kept.get(key)
        if isinstance(result, dict):
            kept[key] = result = {name: value for name, value in result.items() if name not in NEVER_KEPT}
            if isinstance(shown := result.get("returnDisplay"), dict):
                result["returnDisplay"] = {name: value for name, value in shown.items() if name not in NEVER_KEPT}
    if keeps_prompts:
        return kept
    kept = {key: value for key, value in kept.items() if key not in SAID}
    if event in PROMPTS or event == "command.execute.before":
        given = kept.pop("input", None)
        if isinstance(given, dict):
            kept["input"] = {key: value for key, value in given.items() if key != "arguments"}
        if isinstance(output := kept.pop("output", None), dict) and isinstance(output.get("message"), dict):
            kept["output"] = {"message": {"id": _text(output["message"], "id")}}
    return kept


def _redactor() -> Callable[[str], str]:
    """What takes secrets out of a text: beside the launcher's module, or in the package."""
    folder = __file__.rpartition("/")[0]
    for place, name in ((folder, "mica_redact"), (folder + "/observe", "redact")):
        if _exists(f"{place}/{name}.py".encode("utf-8", "surrogateescape")):
            sys.path.insert(0, place)
            try:
                redact: Callable[[str], str] = __import__(name).redact
                return redact
            finally:
                sys.path.remove(place)
    raise _Failed("what redacts is not here; `mica install` writes it, and what is typed is not kept until then")


def _redacted(payload: dict[str, object], redact: Callable[[str], str]) -> dict[str, object]:
    """A payload whose typed texts hold no secret; names and paths of the client stay as they are."""

    def clean(value: object) -> object:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, list):
            return [clean(each) for each in value]
        return {key: clean(each) for key, each in value.items()} if isinstance(value, dict) else value

    typed = {*SAID, "input", "output"}
    return {key: clean(value) if key in typed else value for key, value in payload.items()}


# -- What the client is told -----------------------------------------------------------------------------------


def _answer(here: Here, payload: dict[str, object], session: str) -> tuple[str, dict[str, object]]:
    """What is printed, in the client's shape, and what is recorded of it."""
    again = here.hooks + b"/" + SPOOL + b"/" + _file_name(session) + b".again"
    if here.event in COMPACTS:
        _append(here.hooks + b"/" + SPOOL, session, b"", suffix=b".again")
    if here.event in STARTS or (here.event in PROMPTS and _exists(again)):
        text, offered = _session_answer(here, session)
        if here.event in PROMPTS:
            posix.unlink(again)
    elif here.event in PROMPTS:
        text, offered = _prompt_answer(here, payload, session)
    else:
        return "", {}
    if len(text) > ANSWER_CHARACTERS_MAX:
        raise _Failed(f"an answer of {len(text):,} characters; clients take {ANSWER_CHARACTERS_MAX:,}")
    return shaped(here.client, _text(payload, "hook_event_name") or here.event, text), offered


def shaped(client: str, event: str, text: str) -> str:
    """A text in the shape in which a client takes it at an event. Codex drops the whole for one key too many."""
    if not text or client == "opencode":
        return text
    if client == "copilot":
        return _encode({"additionalContext": text})
    if client == "cursor":
        return _encode({"additional_context": text})
    if client == "gemini":  # it would escape these
        text = text.replace("<", "‹").replace(">", "›").replace("&", "+")
    return _encode({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})


def _session_answer(here: Here, session: str) -> tuple[str, dict[str, object]]:
    made = _answers(here, SESSION_ANSWER)
    text = _text(made, "text")
    if not text:
        return "", {}
    offered: dict[str, object] = {"kind": "session", "receipt": _text(made, "receipt")}
    if is_held_out(session, made.get("holdout"), what=BRIEFS):
        return "", {**offered, "held_out": True}
    return text, offered


def _prompt_answer(here: Here, payload: dict[str, object], session: str) -> tuple[str, dict[str, object]]:
    """What `navigate` would say, where saying it pays: ranked by the modules that an ingest wrote out for hooks."""
    made = _answers(here, PROMPT_ANSWER, version=2)
    prompt = _text(payload, "prompt", "text") or _parts(payload.get("output"))
    directory = here.directory.decode("utf-8", "surrogateescape") + "/"
    trees = made.get("trees")
    roots = [each for each in trees if directory.startswith(each.rstrip("/") + "/")] if isinstance(trees, dict) else []
    if not roots or not isinstance(trees, dict) or not prompt:
        return "", {}
    root = max(roots, key=len)
    opened = [posix.open(name, posix.O_RDONLY | posix.O_CLOEXEC) for name in (trees[root], _text(made, "past"))]
    sys.path[:0] = [_text(made, "engine"), _text(made, "library")]
    answer = __import__("mica.navigation.engine.prompt", fromlist=["answer"]).answer
    text, paths = answer(
        prompt, session, root=root, tree=opened[0], past=opened[1], spooled=_spooled(here, session, root)
    )
    if not paths:
        return "", {}
    offered: dict[str, object] = {"kind": "prompt", "paths": paths}
    if is_held_out(session or prompt, made.get("holdout"), what=OFFERS):
        return "", {**offered, "held_out": True}
    return text, {**offered, "characters": len(text)}


def _spooled(here: Here, session: str, root: str) -> list[tuple[float, list[str] | None]]:
    """What this session did lately, as it stands in its spool: when, and with which files; None for a prompt.

    The next ingest reads it all. Until then it is what counts most, so the paths are taken as they stand: of commands
    every word that could be one. What is no file of the tree counts for nothing.
    """
    path = here.hooks + b"/" + SPOOL + b"/" + _file_name(session) + b".jsonl"
    found: list[tuple[float, list[str] | None]] = []
    for line in _tail(path, limit=SPOOLED_BYTES_MAX):
        try:
            told = _decoded(line)
        except (ValueError, StopIteration, _Failed):
            continue  # it is being written
        at, event, payload = told.get("at"), _text(told, "event"), told.get("payload")
        if not isinstance(at, int) or not isinstance(payload, dict):
            continue
        if event in PROMPTS:
            found.append((at / 1e6, None))
        elif paths := _paths(payload, _text(told, "directory"), root):
            found.append((at / 1e6, paths))
    return found


def _paths(payload: dict[str, object], directory: str, root: str) -> list[str]:
    """The files that a call was given, by their paths below a root."""
    given = payload.get("input")
    inner = [payload.get(name) for name in ("tool_input", "toolArgs", "args")]
    inner += [given, given.get("args") if isinstance(given, dict) else None, payload]
    named: list[str] = []
    for each in inner:
        if isinstance(each, dict):
            named += [path for key in PATH_KEYS if isinstance(path := each.get(key), str)]
            if isinstance(command := each.get("command"), str):
                words = command[:COMMAND_CHARACTERS_MAX].replace('"', " ").replace("'", " ").split()
                named += [word for word in words if "." in word or "/" in word]
    base = root.rstrip("/") + "/"
    found: dict[str, None] = {}
    for path in named:
        whole = path if path.startswith("/") else f"{directory.rstrip('/')}/{path.removeprefix('./')}"
        if whole.startswith(base):
            found[whole[len(base) :]] = None
    return list(found)


def _tail(path: bytes, *, limit: int) -> list[bytes]:
    """The last lines of a file, as many as are whole within so many bytes; none where it cannot be read."""
    try:
        file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError:
        return []
    try:
        start = max(0, posix.fstat(file).st_size - limit)
        posix.lseek(file, start, 0)
        return posix.read(file, limit).split(b"\n")[1 if start else 0 :]
    except OSError:
        return []
    finally:
        posix.close(file)


def _parts(output: object) -> str:
    """The texts of an OpenCode message that no plugin added."""
    parts = output.get("parts") if isinstance(output, dict) else None
    if not isinstance(parts, list):
        return ""
    texts = [_text(part, "text") for part in parts if isinstance(part, dict) and not part.get("synthetic")]
    return "\n".join(text for text in texts if text)


def _read_gate(here: Here, payload: dict[str, object], session: str) -> str:
    """Remember which lines a Read showed; refuse one that would show nothing but those, from an unchanged file.

    What a window no longer holds is forgotten: at a start, and where a conversation is compacted. A subagent has a
    window of its own.
    """
    window = session + _text(payload, "agent_id")
    shown = here.hooks + b"/" + SHOWN + b"/" + _file_name(window) + b".shown"
    if here.event in STARTS or here.event == "PreCompact":
        if _exists(shown):
            posix.unlink(shown)
        return ""
    given = payload.get("tool_input")
    path = _text(given, "file_path")
    if _text(payload, "tool_name") != "Read" or not path.startswith("/") or not isinstance(given, dict):
        return ""
    try:
        status = posix.stat(path.encode("utf-8", "surrogateescape"))
    except OSError:
        return ""  # gone meanwhile; the read says so itself
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
    seen = [told for told in map(_list, (_contents(shown, limit=2**20) or b"").splitlines()) if told[:3] == version]
    lines = {line for told in seen for line in range(told[3], told[4] + 1)}
    total = seen[-1][5] if seen else 0
    offset, count = given.get("offset"), given.get("limit")
    first = max(1, offset) if isinstance(offset, int) else 1
    wanted = range(first, min(total, first + count - 1 if isinstance(count, int) else total) + 1)
    if not wanted or not all(line in lines for line in wanted):
        return ""
    reason = f"Lines {wanted[0]}-{wanted[-1]} of {path} were shown earlier in this session and have not changed since."
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
    return _encode({"hookSpecificOutput": decision})


def _list(line: bytes) -> list[int]:
    try:
        told = _decoded(line).get("shown")
    except (ValueError, StopIteration):
        return []
    return told if isinstance(told, list) and len(told) == 6 else []


def is_held_out(session: str, share: object, *, what: str) -> bool:
    """Whether a session is one of the share that is not told something. The same session always is, or never.

    What is told is drawn for by itself: were the same sessions held out of two things, neither could be measured alone.
    """
    if not session or not isinstance(share, int | float) or share <= 0:
        return False
    from binascii import crc32

    number = crc32(f"{what} {session}".encode("utf-8", "replace"))
    for factor in (0x85EBCA6B, 0xC2B2AE35):  # a checksum of two beginnings differs by the same bits whatever follows
        number = (number ^ number >> 15) * factor % 2**32
    return (number ^ number >> 16) / 2**32 < share


def _answers(here: Here, name: bytes, *, version: int = 1) -> dict[str, object]:
    raw = _contents(here.hooks + b"/" + name, limit=ANSWERS_BYTES_MAX)
    made = _decoded(raw) if raw else {}
    return made if made.get("version") == version else {}


# -- Files -----------------------------------------------------------------------------------------------------


def _append(folder: bytes, session: str, line: bytes, *, suffix: bytes = b".jsonl") -> None:
    """Add a line in one write. Who empties a spool holds it locked, and then the line goes beside it."""
    from fcntl import LOCK_NB, LOCK_SH, flock

    flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC
    path = folder + b"/" + _file_name(session) + suffix
    try:
        file = posix.open(path, flags, 0o600)
    except FileNotFoundError:
        _make(folder)
        file = posix.open(path, flags, 0o600)
    try:
        flock(file, LOCK_SH | LOCK_NB)
        is_gone = posix.fstat(file).st_nlink == 0
    except OSError:
        is_gone = True
    if is_gone:
        posix.close(file)
        beside = b".%d-%d" % (posix.getpid(), time.time_ns()) + suffix
        file = posix.open(folder + b"/" + _file_name(session) + beside, flags, 0o600)
    _write(file, line)
    posix.close(file)


def _file_name(session: str) -> bytes:
    """A session as the name of a file; one that is none is named by its hash."""
    if 0 < len(session) <= 100 and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in session):
        return session.encode()
    if not session:
        return b"unknown"
    from binascii import crc32, hexlify

    return b"s-" + hexlify(session.encode("utf-8", "replace")[:16]) + b"-%d" % crc32(session.encode("utf-8", "replace"))


def _make(folder: bytes) -> None:
    try:
        posix.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make(folder.rpartition(b"/")[0])
        posix.mkdir(folder, 0o700)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[posix.write(file, data) :]


def _exists(path: bytes) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _contents(path: bytes, *, limit: int = 2**16) -> bytes | None:
    """What a file holds, None where there is none, or more than allowed."""
    try:
        file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = posix.read(file, limit + 1)
    except OSError:
        return None
    finally:
        posix.close(file)
    return None if len(found) > limit else found


# -- Failing, and what is left to others -----------------------------------------------------------------------


def _limit_time(here: Here) -> None:
    import _signal  # type: ignore[import-not-found]  # not in typeshed

    def end(_number: int, _frame: object) -> None:
        late = _Failed(f"not done within {TIME_LIMIT_S} s")
        _record(here, _TooLong(here) if here.is_cut and here.is_kept else late)
        posix._exit(0)

    _signal.signal(_signal.SIGALRM, end)
    _signal.setitimer(_signal.ITIMER_REAL, TIME_LIMIT_S)


def _record(here: Here, error: BaseException) -> None:
    """Keep the reason, where that is possible; nothing of the payload."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if isinstance(error, _Failed) or trace is None else f" (line {trace.tb_lineno})"
    reason = f"{error}" if isinstance(error, _Failed) else f"{type(error).__name__}: {error}"
    line = {"at": time.time_ns() // 1_000, "client": here.client, "event": here.event, "reason": reason[:300] + place}
    for folder in filter(None, (here.hooks, here.home)):
        try:
            path = folder + b"/" + FAILURES
            _make(folder)
            if _exists(path) and posix.stat(path).st_size > FAILURES_BYTES_MAX:
                posix.rename(path, path + b".old")
            file = posix.open(path, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW, 0o600)
            _write(file, _line(line))
            return
        except BaseException:  # noqa: BLE001 - the next folder, or nobody hears of it
            continue


def _start_child(here: Here) -> None:
    """Start one ingest in the background: niced, limited in time, apart from the agent; none while one runs."""
    if not (here.event in STARTS or here.event in ENDS):
        return
    words = (_contents(here.home + b"/" + COMMAND) or b"").split(b"\n")
    if len(words) < 2 or not words[0].startswith(b"/"):
        return
    from fcntl import LOCK_EX, LOCK_NB, flock

    lock = posix.open(here.hooks + b"/" + CHILD, posix.O_RDWR | posix.O_CREAT | posix.O_NOFOLLOW, 0o600)
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except OSError:
        return
    if here.event in ENDS and time.time() - posix.fstat(lock).st_mtime < CHILD_PAUSE_S and posix.fstat(lock).st_size:
        return
    if posix.fork():
        return
    import _signal

    posix.setsid()
    posix.nice(15)
    posix.write(lock, b".")
    posix.ftruncate(lock, 1)
    posix.dup2(lock, 9)  # inherited: the lock is held as long as the child lives, and not longer
    nothing = posix.open(b"/dev/null", posix.O_RDWR)
    for stream in (0, 1, 2):
        posix.dup2(nothing, stream)
    _signal.setitimer(_signal.ITIMER_REAL, CHILD_LIMIT_S)
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
    posix.chdir(here.directory)
    environment = {**posix.environ, b"MICA_CHILD": b"1"}
    posix.execve(words[0], [word for word in words if word], environment)


if __name__ == "__main__":
    main()
