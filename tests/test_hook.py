"""`mica-hook`, run as agents run it: as a separate program with a payload on standard input."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hook_process import INSTALLED_HOOK, PATIENT_HOOK, PROGRAM, in_time, limit_cpu

from mica import hook
from mica.clients.installer import write_launcher
from mica.clients.spool import Cursor, PromptAnswer, SessionAnswer, Spools, hooks_folder
from mica.settings import load_settings
from mica.store.space import space_of

SECRET = "token-of-the-host-that-nobody-stores"


class Agent:
    """A user with a project, whose agent runs hooks."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.data = self.home / ".local" / "share" / "mica"
        self.project = folder / "shop"
        self.program: tuple[str, ...] = PATIENT_HOOK
        (self.project / ".git").mkdir(parents=True)
        self.home.mkdir()
        self.spools = Spools(hooks_folder(space_of(self.project, home=self.data).file))

    def run(
        self,
        *words: str,
        stdin: bytes | None = None,
        limit: Callable[[], None] | None = None,
        variables: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.program, *words],
            input=stdin,
            capture_output=True,
            env={"HOME": str(self.home), "CLAUDE_CODE_MESSAGING_TOKEN": SECRET, **(variables or {})},
            cwd=self.project,
            preexec_fn=limit,
            check=False,
        )

    def send(self, client: str, event: str, **payload: object) -> subprocess.CompletedProcess[bytes]:
        return self.run(client, event, stdin=self.payload(event, **payload))

    def payload(self, event: str, **payload: object) -> bytes:
        return json.dumps({"session_id": "s1", "cwd": str(self.project), "hook_event_name": event, **payload}).encode()

    def lines(self) -> list[dict[str, object]]:
        files = sorted((self.spools.folder / "spool").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def reasons(self) -> list[str]:
        return [failure.reason for failure in [*self.spools.failures(), *Spools(self.data).failures()]]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    before = os.umask(0o022)  # files of these tests are like those of an earlier mica
    yield Agent(tmp_path)
    os.umask(before)


def silent(done: subprocess.CompletedProcess[bytes]) -> bool:
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one line on standard error of a hook that changes nothing else for its agent."""
    assert (done.returncode, done.stdout) == (0, b"")
    (line,) = done.stderr.decode().splitlines()
    return line


# -- Observing


def test_an_event_is_one_line_in_a_spool_that_only_its_owner_reads(agent: Agent) -> None:
    """keeps: A-01. Observing prints nothing and costs one append."""
    assert silent(agent.send("claude", "PostToolUse", tool_name="Read", tool_use_id="t1", user_email="a@b.c"))
    assert silent(agent.send("claude", "Stop", last_assistant_message="done"))

    (file,) = (agent.spools.folder / "spool").iterdir()
    assert file.name == "s1.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [line["event"] for line in agent.lines()] == ["PostToolUse", "Stop"]
    assert agent.lines()[0]["client"] == "claude"


def test_neither_environment_nor_email_reaches_the_spool(agent: Agent) -> None:
    """Only names of variables are looked at, and an address is dropped at once."""
    agent.send("cursor", "sessionStart", user_email="somebody@example.org", nested={"a": 1})

    text = "".join(file.read_text() for file in (agent.spools.folder / "spool").iterdir())
    assert "somebody@example.org" not in text
    assert SECRET not in text
    assert "nested" in text


@pytest.mark.parametrize(
    "switch", ["setting", "variable", "space"], ids=["by a setting", "by a variable", "for one space"]
)
def test_prompts_never_reach_the_spool_when_they_are_switched_off(agent: Agent, switch: str) -> None:
    """keeps: A-39, U-01"""
    variables = {"MICA_OBSERVE_PROMPTS": "false"} if switch == "variable" else {}
    if switch == "setting":
        (agent.home / ".config/mica").mkdir(parents=True)
        (agent.home / ".config/mica/config.toml").write_text("[brief]\nbudget_tokens = 5\n[observe]\nprompts = false\n")
    if switch == "space":
        agent.spools.switch(prompts=False)
    payload = {"session_id": "s1", "cwd": str(agent.project), "prompt": "the secret plan", "prompt_id": "p1"}

    assert silent(agent.run("claude", "UserPromptSubmit", stdin=json.dumps(payload).encode(), variables=variables))
    opencode = {
        "input": {"sessionID": "s2"},
        "output": {"message": {"id": "m1"}, "parts": [{"text": "the secret plan"}]},
    }
    assert silent(agent.run("opencode", "chat.message", stdin=json.dumps(opencode).encode(), variables=variables))

    first, second = agent.lines()
    assert first["payload"] == {"session_id": "s1", "cwd": str(agent.project), "prompt_id": "p1"}
    assert second["payload"] == {"input": {"sessionID": "s2"}, "output": {"message": {"id": "m1"}}}


def test_prompts_are_redacted_before_they_are_spooled(agent: Agent, tmp_path: Path) -> None:
    """keeps: A-39, U-01. A secret pasted into a prompt is in no file of mica, not even until the next ingest."""
    key = "ghp_" + "a1B2" * 9
    opencode = {"input": {"sessionID": "s2"}, "output": {"message": {"id": "m1"}, "parts": [{"text": f"use {key}"}]}}
    launcher = write_launcher(tmp_path / "bin")
    for program in (PATIENT_HOOK, [str(launcher)]):
        for words, payload in (
            (("claude", "UserPromptSubmit"), {"session_id": "s1", "prompt": f"deploy with {key} please"}),
            (("opencode", "chat.message"), opencode),
            (("opencode", "command.execute.before"), {"input": {"arguments": f"--token {key}", "sessionID": "s2"}}),
        ):
            done = subprocess.run(
                [*program, *words],
                input=json.dumps({**payload, "cwd": str(agent.project)}).encode(),
                capture_output=True,
                env={"HOME": str(agent.home)},
                cwd=agent.project,
                check=True,
            )
            assert silent(done)

    text = "".join(file.read_text() for file in (agent.spools.folder / "spool").iterdir())
    assert key not in text
    assert text.count("deploy with [redacted:github] please") == 2
    assert len(agent.lines()) == 6
    assert agent.reasons() == []


def test_a_prompt_that_cannot_be_redacted_is_not_spooled(agent: Agent, tmp_path: Path) -> None:
    """keeps: A-39. If redaction is unavailable, the turn is recorded without its text, and the reason is reported."""
    alone = tmp_path / "alone" / "mica_hook.py"
    alone.parent.mkdir()
    alone.write_text(PROGRAM.read_text())
    payload = {"session_id": "s1", "prompt": "a plan", "prompt_id": "p1", "cwd": str(agent.project)}
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(alone), "claude", "UserPromptSubmit"],
        input=json.dumps(payload).encode(),
        capture_output=True,
        env={"HOME": str(agent.home)},
        cwd=agent.project,
        check=True,
    )

    assert complaint(done).startswith("mica: the text of this prompt was not recorded: redact.py is missing")
    (line,) = agent.lines()
    assert line["payload"] == {"session_id": "s1", "prompt_id": "p1", "cwd": str(agent.project)}
    assert "redact.py is missing" in agent.reasons()[0]


@pytest.mark.parametrize(
    "text",
    [
        "[observe] # what hooks record\nenabled = false # for now\n",
        "  [ observe ]\n\tenabled=false\n",
        '["observe"]\nenabled = false\n',
        "observe = { enabled = false }\n",
        "observe = { prompts = true, enabled = false } # all\n[brief]\nbudget_tokens = 5\n",
        "observe.enabled = false\n",
        "observe . enabled = false\n",
        '"observe".enabled = false\n',
        "[observe]\n'enabled' = false\n",
        '[observe]\nenabled = "false"\n',
        "[observe]\nenabled = 0\n",
        '[observe]\nexclude_tools = [\n  "a",\n  ["b"],\n]\nenabled = false\n',
        'x = """\n[observe]\nenabled = true\n[brief]\n"""\n[observe]\nenabled = false\n',
        "[observe\nenabled = false\n",
    ],
)
def test_every_way_to_write_the_setting_switches_recording_off(agent: Agent, text: str) -> None:
    """keeps: A-39, A-47. Any valid TOML spelling is obeyed, and an unreadable file switches recording off too."""
    (agent.home / ".config/mica").mkdir(parents=True)
    (agent.home / ".config/mica/config.toml").write_text(text)

    assert silent(agent.send("claude", "UserPromptSubmit", prompt="the secret plan"))

    assert agent.lines() == []


@pytest.mark.parametrize(
    "text",
    [
        "[observe] # enabled = false\n# enabled = false\n[brief]\nenabled = false\n",
        "[[observe.more]]\nenabled = false\n",
        'x = """\n[observe]\nenabled = false\n"""\n',
        "observe = { prompts = true }\nother = { enabled = false }\n",
    ],
)
def test_other_settings_leave_recording_on(agent: Agent, text: str) -> None:
    (agent.home / ".config/mica").mkdir(parents=True)
    (agent.home / ".config/mica/config.toml").write_text(text)

    agent.send("claude", "UserPromptSubmit", prompt="go")

    assert len(agent.lines()) == 1


def test_a_hook_that_is_switched_off_writes_and_prints_nothing(agent: Agent) -> None:
    """keeps: TA-10, A-47. Stored events stay, and it can be switched on again."""
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="hello"))
    agent.send("claude", "Stop")
    agent.spools.switch(on=False)

    assert silent(agent.send("claude", "SessionStart"))
    assert silent(agent.run("codex", "Stop", stdin=json.dumps({"session_id": "s9"}).encode()))
    elsewhere = {"session_id": "s1", "cwd": str(agent.home), "hook_event_name": "Stop"}
    assert silent(agent.run("codex", "Stop", stdin=json.dumps(elsewhere).encode()))

    assert len(agent.lines()) == 1
    assert len(list(agent.data.rglob("*.jsonl"))) == 2, "the event of another directory is of another space"
    agent.spools.switch(on=True)
    assert agent.send("claude", "SessionStart").stdout


@pytest.mark.parametrize("variable", ["MICA_DISABLE", "MICA_CHILD"])
def test_a_variable_switches_the_hook_off_and_prevents_recursion(agent: Agent, variable: str) -> None:
    assert silent(agent.run("claude", "Stop", stdin=b'{"session_id": "s1"}', variables={variable: "1"}))
    assert not agent.data.exists()


def test_the_settings_file_may_name_the_data_folder(agent: Agent, tmp_path: Path) -> None:
    (agent.home / ".config/mica").mkdir(parents=True)
    (agent.home / ".config/mica/config.toml").write_text(f'home = "{tmp_path}/elsewhere"  # ours\n')

    assert silent(agent.send("claude", "Stop"))

    assert list((tmp_path / "elsewhere" / "spaces").iterdir())


# -- Failing open


HOSTILE = {
    "nothing": b"",
    "no JSON": b"hello",
    "another value": b"[1, 2]",
    "half a value": b'{"session_id": "s1", "tool_',
    "binary": bytes(range(256)) * 50,
    "nested": b'{"a":' * 50_000,
    "too much": b'{"a":"' + b"x" * (17 * 2**20) + b'"}',
    "a number": b'{"session_id": 7, "cwd": 8, "hook_event_name": 9}',
    "half a surrogate": b'{"session_id": "\\ud800", "cwd": "/\\udcff", "prompt": "\\udfff"}',
    "a NUL": b'{"session_id": "a\\u0000b", "cwd": "/a\\u0000b"}',
    "a way out": b'{"session_id": "../../../../escape", "cwd": "/nowhere"}',
    "a long name": b'{"session_id": "' + b"a" * 5_000 + b'"}',
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_input_never_reaches_the_agent(agent: Agent, raw: bytes) -> None:
    """keeps: A-39, TA-15. For any input the hook exits 0, answers nothing and writes only inside the data folder."""
    before = {path for path in agent.home.parent.rglob("*") if not path.is_relative_to(agent.data)}

    done = agent.run("claude", "PostToolUse", stdin=raw)

    assert (done.returncode, done.stdout) == (0, b"")
    assert len(done.stderr.splitlines()) <= 1
    assert len(list(agent.data.rglob("spool/*.jsonl"))) == (b"not recorded" not in done.stderr), "lost and not said"

    after = {path for path in agent.home.parent.rglob("*") if not path.is_relative_to(agent.data)}
    assert after - before <= {agent.home / ".local", agent.home / ".local/share"}
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in agent.data.rglob("*.jsonl"))


def test_failures_are_recorded_in_a_file_of_limited_size(agent: Agent) -> None:
    """keeps: A-39. Nothing of the payload is recorded."""
    done = agent.run("claude", "Stop", stdin=b"not JSON, but private")
    assert complaint(done) == "mica: this event was not recorded: standard input is not a JSON object"

    assert agent.reasons() == ["standard input is not a JSON object"]
    (agent.spools.folder / "failures.jsonl").write_bytes(b"x" * (hook.FAILURES_BYTES_MAX + 1))
    agent.run("claude", "Stop", stdin=b"not JSON")
    sizes = [file.stat().st_size for file in agent.spools.folder.glob("failures.jsonl*")]
    assert sum(sizes) < 2 * hook.FAILURES_BYTES_MAX
    assert agent.reasons() == ["standard input is not a JSON object"]


def test_the_hook_ends_even_if_the_client_never_closes_its_pipe(agent: Agent) -> None:
    """keeps: TA-15. A hook has its own time limit."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [*INSTALLED_HOOK, "claude", "Stop"],
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"HOME": str(agent.home)},
            cwd=agent.project,
        )
        out, err = process.communicate()  # would wait for ever
    finally:
        os.close(reading)
        os.close(writing)

    assert (process.returncode, out, err) == (0, b"", b"")


def test_a_prompt_that_cannot_be_written_is_reported_to_the_user(agent: Agent) -> None:
    """keeps: A-39, U-04. On a full disk or without a data folder nothing breaks the agent, and the loss is reported."""

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = agent.run("claude", "UserPromptSubmit", stdin=agent.payload("", prompt="go"), limit=full)
    assert complaint(done).startswith(f"mica: this event was not recorded: {agent.spools.folder}/spool/s1.jsonl cannot")
    assert complaint(done).endswith("; free some space")

    for path in sorted(agent.data.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    agent.data.rmdir()
    agent.data.write_text("a file where the folder should be")
    done = agent.run("claude", "Stop", stdin=agent.payload("Stop"))
    assert complaint(done).endswith("Not a directory; choose another data folder with MICA_HOME")
    assert agent.data.read_text() == "a file where the folder should be"


def test_a_torn_line_does_not_spoil_the_next(agent: Agent) -> None:
    """A full disk leaves the beginning of a line; the event after it is read whole."""
    agent.send("claude", "UserPromptSubmit", prompt="first", prompt_id="p1")
    file = agent.spools.folder / "spool" / "s1.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    agent.send("claude", "UserPromptSubmit", prompt="second", prompt_id="p2")

    (portion,) = agent.spools.portions(Cursor(), file)

    assert [line.payload["prompt"] for line in portion.lines] == ["second"]


HASTY = (  # time is up at once, and the agent waits as long as it takes
    "import sys; sys.path.insert(0, {folder!r}); import hook; del sys.path[0]; "
    "hook.TIME_LIMIT_S, hook.WAIT_LIMIT_S = 1e-6, 300; hook.main()"
)


@pytest.mark.parametrize("size", [20, 1_000_000])
def test_a_prompt_is_recorded_even_if_time_is_up_at_once(agent: Agent, size: int) -> None:
    """keeps: U-04. Only the answer has a time limit, and the secret in the prompt is removed all the same."""
    agent.program = (sys.executable, "-I", "-S", "-c", HASTY.format(folder=str(PROGRAM.parent)))
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="hello"))
    key = "ghp_" + "a1B2" * 9

    assert silent(agent.send("claude", "UserPromptSubmit", prompt=f"use {key} " + "to deploy " * (size // 10)))
    assert silent(agent.send("claude", "SessionStart"))

    prompt, start = agent.lines()
    assert isinstance(prompt["payload"], dict)
    assert prompt["payload"]["prompt"] == "use [redacted:github] " + "to deploy " * (size // 10)
    assert "offered" not in start, "nothing was printed"
    assert all("the event is recorded in the background" in reason for reason in agent.reasons())
    assert len(agent.reasons()) == 2


def test_a_prompt_whose_redaction_never_ends_is_recorded_without_its_text(agent: Agent, tmp_path: Path) -> None:
    """keeps: A-39, U-01. The child process has a limit too, and a secret is not written for it."""
    (tmp_path / "hook.py").write_text(PROGRAM.read_text())
    (tmp_path / "redact.py").write_text(
        "def redact(text):\n"
        "    import signal\n"
        "    signal.raise_signal(signal.SIGALRM)  # the limit of the hook: its child continues here\n"
        "    signal.raise_signal(signal.SIGALRM)  # the limit of the child\n"
        "    return text\n"
    )
    code = HASTY.replace("1e-6", "300").format(folder=str(tmp_path))
    agent.program = (sys.executable, "-I", "-S", "-c", code)

    assert silent(agent.send("claude", "UserPromptSubmit", prompt="a secret", prompt_id="p1"))

    (line,) = agent.lines()
    assert line["payload"] == {
        "session_id": "s1",
        "cwd": str(agent.project),
        "hook_event_name": "UserPromptSubmit",
        "prompt_id": "p1",
    }
    # The parent and its child each write a reason; either may be first.
    assert sorted(reason.partition(",")[0] for reason in agent.reasons()) == [
        "not finished within 300 s",
        "not recorded within 300 s",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_hook_that_its_client_ends_still_records(agent: Agent, number: signal.Signals) -> None:
    """keeps: U-04. The client's own time limit loses no event whose input has arrived."""
    payload = agent.payload("UserPromptSubmit", prompt="mend the login")
    reading, writing = os.pipe()
    alive, inherited = os.pipe()
    process = subprocess.Popen(
        [*PATIENT_HOOK, "claude", "UserPromptSubmit"],
        stdin=reading,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"HOME": str(agent.home)},
        cwd=agent.project,
        pass_fds=[inherited],
    )
    os.close(inherited)
    os.write(writing, payload[:10])
    while fcntl.ioctl(reading, termios.FIONREAD, bytes(4)) != bytes(4):  # until the hook reads
        os.sched_yield()
    process.send_signal(number)
    out, err = process.communicate()  # it ends at once
    assert agent.lines() == []
    os.write(writing, payload[10:])
    os.close(writing)
    os.close(reading)
    assert os.read(alive, 1) == b""  # its child has ended
    os.close(alive)

    assert (process.returncode, out, err) == (0, b"", b"")
    (line,) = agent.lines()
    assert line["payload"] == json.loads(payload)


def test_processes_that_create_the_same_folder_do_not_fail(tmp_path: Path) -> None:
    """The first hooks of a space often run at once."""
    for number in range(100):
        folder = os.fsencode(tmp_path / str(number) / "a" / "b" / "c" / "d")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(hook._make, [folder] * 8))


def test_without_home_hook_and_mica_use_the_same_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")

    assert Path(os.fsdecode(hook._load_settings({})[0])) == load_settings({}).home


@pytest.mark.parametrize("place", ["/proc/1/mica", "/dev/null"], ids=["read-only", "no folder"])
def test_a_home_that_cannot_be_written_is_reported(agent: Agent, place: str) -> None:
    done = agent.run("claude", "Stop", stdin=agent.payload("Stop"), variables={"HOME": place})

    assert complaint(done).startswith(f"mica: this event was not recorded: {place}/.local/share/mica/spaces/")
    assert complaint(done).endswith("choose another data folder with MICA_HOME")


def test_a_closed_output_pipe_does_not_fail_the_hook(agent: Agent) -> None:
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="hello"))
    reading, writing = os.pipe()
    os.close(reading)
    payload = json.dumps({"session_id": "s1", "cwd": str(agent.project)}).encode()
    done = subprocess.run(
        [*PATIENT_HOOK, "claude", "SessionStart"],
        input=payload,
        stdout=writing,
        stderr=subprocess.PIPE,
        env={"HOME": str(agent.home)},
        cwd=agent.project,
        check=False,
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (0, b"")


# -- Answering

TEXT = 'The auth flow is in <src/auth.py> & "db.py": lines 10-40\nünïcode'
SPECIFIC = "hookSpecificOutput"
SHAPES = {
    ("claude", "SessionStart"): {SPECIFIC: {"hookEventName": "SessionStart", "additionalContext": TEXT}},
    ("codex", "SessionStart"): {SPECIFIC: {"hookEventName": "SessionStart", "additionalContext": TEXT}},
    ("copilot", "SessionStart"): {"additionalContext": TEXT},
    ("copilot", "sessionStart"): {"additionalContext": TEXT},
    ("cursor", "sessionStart"): {"additional_context": TEXT},
}


@pytest.mark.parametrize(("client", "event"), SHAPES)
def test_the_start_of_a_session_is_answered_in_the_format_of_its_client(agent: Agent, client: str, event: str) -> None:
    """keeps: U-14, A-18. One key too many and Codex drops it all; the same input gives the same bytes."""
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text=TEXT, receipt="r1"))

    first, second = agent.send(client, event, source="startup"), agent.send(client, event, source="startup")

    assert first.stdout == second.stdout
    assert json.loads(first.stdout) == SHAPES[client, event]
    assert (first.returncode, first.stderr) == (0, b"")
    assert agent.lines()[0]["offered"] == {"kind": "session", "receipt": "r1"}


def test_a_held_out_session_gets_no_brief_and_that_is_recorded(agent: Agent) -> None:
    """keeps: C-54. The same draw decides for `Memory.brief`, so a session gets all briefs or none."""
    share = 0.5
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text=TEXT, receipt="r1", holdout=share))
    sessions = {hook.is_held_out(f"s{number}", share, kind=hook.BRIEFS): f"s{number}" for number in range(20)}

    for is_held_out, session in sessions.items():
        answer = agent.send("opencode", "session", session_id=session).stdout.decode()
        assert answer == ("" if is_held_out else TEXT)

    shown = {"kind": "session", "receipt": "r1"}
    offered = [line["offered"] for line in agent.lines()]
    assert sorted(offered, key=str) == sorted([shown, {**shown, "held_out": True}], key=str)


def test_answers_for_gemini_avoid_characters_that_it_escapes(agent: Agent) -> None:
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text=TEXT))

    text = json.loads(agent.send("gemini", "SessionStart").stdout)[SPECIFIC]["additionalContext"]

    assert not set("<>&") & set(text)
    assert "src/auth.py" in text


def test_answers_for_opencode_are_plain_text(agent: Agent) -> None:
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text=TEXT))

    assert agent.send("opencode", "session").stdout.decode() == TEXT


def test_an_answer_that_is_too_long_or_of_another_version_is_not_printed(agent: Agent) -> None:
    """keeps: A-40. Clients move longer texts into a file, or drop them."""
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="x" * (hook.ANSWER_CHARACTERS_MAX + 1)))
    assert silent(agent.send("claude", "SessionStart"))
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="later", version=2))
    assert silent(agent.send("claude", "SessionStart"))
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="x" * hook.ANSWER_CHARACTERS_MAX))
    assert agent.send("claude", "SessionStart").stdout


@pytest.mark.parametrize(
    ("event", "name", "made"),
    [
        ("SessionStart", hook.SESSION_ANSWER, {"version": 1, "text": "x" * 9_600}),
        ("UserPromptSubmit", hook.PROMPT_ANSWER, {"version": 2, "trees": {"/": "nowhere"}, "past": "nowhere"}),
        ("UserPromptSubmit", hook.PROMPT_ANSWER, {"version": 2, "trees": {"/": 5}, "past": None}),
        ("UserPromptSubmit", hook.PROMPT_ANSWER, ["no object"]),
    ],
    ids=["too long", "files that are gone", "a file that is a number", "no object"],
)
def test_an_event_whose_answer_fails_is_still_recorded(agent: Agent, event: str, name: bytes, made: object) -> None:
    """keeps: A-01"""
    agent.spools.folder.mkdir(parents=True)
    (agent.spools.folder / name.decode()).write_text(json.dumps(made))

    assert silent(agent.send("claude", event, prompt="go"))

    assert [line["event"] for line in agent.lines()] == [event]
    assert len(agent.reasons()) == 1


def test_cursor_gets_the_brief_again_after_a_compaction(agent: Agent) -> None:
    agent.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="the brief"))

    agent.send("cursor", "preCompact")
    again = agent.send("cursor", "beforeSubmitPrompt", prompt="go on")
    after = agent.send("cursor", "beforeSubmitPrompt", prompt="go on")

    assert json.loads(again.stdout) == {"additional_context": "the brief"}
    assert silent(after)


# -- Whose hook, which space


@pytest.mark.parametrize(
    ("variables", "payload", "client"),
    [
        ({"CURSOR_VERSION": "3", "CLAUDECODE": "1"}, {}, "cursor"),
        ({"COPILOT_CLI": "1", "CLAUDE_PLUGIN_ROOT": "/p", "PLUGIN_ROOT": "/p"}, {}, "copilot"),
        ({"GEMINI_SESSION_ID": "g", "CLAUDE_PROJECT_DIR": "/p"}, {}, "gemini"),
        ({"CLAUDECODE": "1"}, {}, "claude"),
        ({}, {"turn_id": "t"}, "codex"),
        ({}, {"transcript_path": "/home/dev/.codex/sessions/r.jsonl"}, "codex"),
        ({"PLUGIN_ROOT": "/p"}, {}, "codex"),
    ],
)
def test_a_plugin_shared_by_several_clients_detects_which_one_runs_it(
    agent: Agent, variables: dict[str, str], payload: dict[str, str], client: str
) -> None:
    content = {"session_id": "s1", "cwd": str(agent.project), "hook_event_name": "Stop", **payload}

    assert silent(agent.run("Stop", stdin=json.dumps(content).encode(), variables=variables))

    assert [line["client"] for line in agent.lines()] == [client]


def test_a_client_that_runs_the_hooks_of_another_is_recorded_under_its_own_name(agent: Agent) -> None:
    """Cursor runs Claude's hooks beside its own; both are recorded as Cursor's, so that duplicates can be merged."""
    payload = json.dumps({"session_id": "s1", "cwd": str(agent.project)}).encode()

    agent.run("claude", "PostToolUse", stdin=payload, variables={"CURSOR_VERSION": "3.20"})
    agent.run("--client", "cursor", "postToolUse", stdin=payload, variables={"CURSOR_VERSION": "3.20"})

    assert [line["client"] for line in agent.lines()] == ["cursor", "cursor"]


def test_a_missing_working_directory_does_not_matter_if_the_payload_names_one(agent: Agent, tmp_path: Path) -> None:
    """keeps: A-01. Agents remove worktrees under themselves."""

    def lose_directory() -> None:
        folder = tmp_path / "removed"
        folder.mkdir()
        os.chdir(folder)
        folder.rmdir()

    payload = {"session_id": "s1", "cwd": str(agent.project)}
    assert silent(agent.run("codex", "Stop", stdin=json.dumps(payload).encode(), limit=lose_directory))
    assert len(agent.lines()) == 1
    assert agent.reasons() == []

    assert complaint(agent.run("codex", "Stop", stdin=b'{"session_id": "s1"}', limit=lose_directory))
    assert len(list(agent.data.rglob("s1.jsonl"))) == 1
    assert agent.reasons() == ["the working directory no longer exists, and the input of the hook names no other"]


def test_a_claude_session_belongs_to_the_project_it_was_started_in(agent: Agent) -> None:
    """An agent may change its folder; its session stays where it began, as in a transcript."""
    payload = json.dumps({"session_id": "s1", "cwd": "/elsewhere"}).encode()

    agent.run("claude", "Stop", stdin=payload, variables={"CLAUDE_PROJECT_DIR": str(agent.project)})

    assert len(agent.lines()) == 1


@given(name=st.text(min_size=1, max_size=50).filter(lambda name: "/" not in name and name not in (".", "..")))
def test_the_hook_and_mica_choose_the_same_space(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """One directory has one space, although the hook imports nothing of mica."""
    folder = tmp_path_factory.getbasetemp()
    try:
        directory = folder / "any" / name
        directory.mkdir(parents=True, exist_ok=True)
        encoded = os.fsencode(directory)
    except (ValueError, OSError, UnicodeError):
        return

    found = hook.hooks_folder(encoded, home=os.fsencode(folder))

    assert found == os.fsencode(hooks_folder(space_of(directory, home=folder).file))


def test_hook_and_mica_agree_on_worktrees_links_and_folders_without_git(tmp_path: Path) -> None:
    main = tmp_path / "Main Project"
    (main / ".git" / "worktrees" / "side").mkdir(parents=True)
    (main / ".git" / "worktrees" / "side" / "commondir").write_text("../..\n")
    side = tmp_path / "side"
    (side / "deep").mkdir(parents=True)
    (side / ".git").write_text(f"gitdir: {main}/.git/worktrees/side\n")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / ".git").write_bytes(b"gitdir: \xff\xfe")
    (tmp_path / "link").symlink_to(main)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / ".git").symlink_to(main / ".git")

    spaces = {}
    for path in (main, main / "src", side, side / "deep", broken, tmp_path / "link", tmp_path / "bare", Path("/")):
        spaces[path.name] = found = hook.hooks_folder(os.fsencode(path), home=b"/h")
        assert found == os.fsencode(hooks_folder(space_of(path, home=Path("/h")).file)), path

    assert spaces["side"] == spaces["deep"] == spaces["Main Project"] == spaces["src"]
    assert spaces["broken"] != spaces["side"]


# -- What it costs, and what it leaves behind


def test_nothing_heavy_is_imported(agent: Agent) -> None:
    """keeps: A-40.

    The C halves of `json`, `os` and `signal` are enough; `re` alone costs as much as the interpreter.
    """
    (agent.home / ".config/mica").mkdir(parents=True)
    plain = '[models] # mine\nfast = ["a:b"]\nknown = { a = 1 }\n\n[observe] # mine\nprompts = true # too\n'
    (agent.home / ".config/mica/config.toml").write_text(plain)
    code = (
        "import sys\nbefore = set(sys.modules)\n"
        f"sys.path.insert(0, {str(PROGRAM.parent)!r})\nimport hook\n"
        "environment, raw = {b'HOME': sys.argv[1].encode()}, b'{\"session_id\":\"s\"}'\n"
        "hook.respond(['claude', 'SessionStart'], environment, raw, hook.HookPaths())\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(agent.home)], capture_output=True, check=True, cwd=agent.project
    )

    assert set(eval(done.stdout)) <= {"hook", "__future__", "_json", "_blake2", "fcntl", "binascii"}


def test_the_launcher_works_like_the_module_and_needs_no_mica(agent: Agent, tmp_path: Path) -> None:
    """It is compiled once, and still exits 0 after mica was removed."""
    launcher = write_launcher(tmp_path / "bin")
    payload = json.dumps({"session_id": "s1", "cwd": str(agent.project)}).encode()

    done = subprocess.run(
        [launcher, "claude", "Stop"],
        input=payload,
        capture_output=True,
        env={"HOME": str(agent.home)},
        cwd=agent.project,
        check=False,
    )

    assert silent(done)
    assert len(agent.lines()) == 1


def test_one_ingest_is_started_and_does_not_delay_the_hook(agent: Agent, tmp_path: Path) -> None:
    """keeps: TA-15.

    A hung ingest delays no hook and is started once; it is detached from the agent and limited in time.
    """
    started = tmp_path / "started"
    pipe = tmp_path / "hangs"
    os.mkfifo(pipe)
    command = tmp_path / "ingest"
    command.write_text(f'#!/bin/sh\necho "$$ $MICA_CHILD $(pwd)" >> {started}\nread line < {pipe}\n')
    command.chmod(0o755)
    agent.data.mkdir(parents=True)
    (agent.data / "ingest-command").write_text(f"{command}\ningest\n")

    for event in ("SessionStart", "Stop", "SessionStart", "SessionEnd"):
        assert silent(agent.send("claude", event))
    with pipe.open("w") as opened:  # waits until the child reads
        (line,) = started.read_text().splitlines()
        process, guard, folder = line.split()
        assert (guard, folder) == ("1", str(agent.project))
        assert os.getsid(int(process)) != os.getsid(0)
        assert os.getpriority(os.PRIO_PROCESS, int(process)) > 10
        os.kill(int(process), signal.SIGKILL)
        opened.close()
    while True:  # the lock goes with the process
        assert silent(agent.send("claude", "SessionStart"))
        if len(started.read_text().splitlines()) == 2:
            break
    with pipe.open("w") as opened:
        opened.write("end\n")


def test_without_a_command_nothing_is_started(agent: Agent) -> None:
    assert silent(agent.send("claude", "SessionStart"))
    (agent.data / "ingest-command").write_text("relative\ningest\n")
    assert silent(agent.send("claude", "SessionStart"))
    (agent.data / "ingest-command").write_text("/not/there\ningest\n")
    assert silent(agent.send("claude", "SessionStart"))


# -- The read gate ----------------------------------------------------------------------------------------------


@pytest.fixture
def gated(agent: Agent) -> Agent:
    """An agent whose user has switched the read gate on, with a file of sixty lines that was shown from 10 to 30."""
    config = agent.home / ".config" / "mica"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[observe]\nread_gate = true\n")
    (agent.project / "cart.py").write_text("".join(f"line {number}\n" for number in range(1, 61)))
    assert _read(agent, "PreToolUse", offset=10, limit=21) == ""
    assert _read(agent, "PostToolUse", offset=10, limit=21) == ""
    return agent


def _read(agent: Agent, event: str, *, offset: int | None = None, limit: int | None = None, **more: object) -> str:
    path = str(agent.project / "cart.py")
    file = {"filePath": path, "startLine": offset or 1, "numLines": limit or 61, "totalLines": 61}
    arguments = {"file_path": path, "offset": offset, "limit": limit}
    payload = {"tool_name": "Read", "tool_input": arguments, "tool_response": {"type": "text", "file": file}, **more}
    return agent.send("claude", event, **payload).stdout.decode()


def test_a_read_that_would_show_no_new_line_is_refused(gated: Agent) -> None:
    """Opt-in; the reason names the lines, and the read itself stays observed once."""
    refused = json.loads(_read(gated, "PreToolUse", offset=12, limit=5))["hookSpecificOutput"]
    assert refused["permissionDecision"] == "deny"
    assert "Lines 12-16" in refused["permissionDecisionReason"]
    assert len(gated.lines()) == 1


@pytest.mark.parametrize("is_launched", [False, True], ids=["file", "launcher"])
def test_the_installed_hook_records_answers_and_refuses(gated: Agent, tmp_path: Path, is_launched: bool) -> None:
    """keeps: A-01, A-18, A-39. With its own time limit, and with no line of these tests in its process."""
    gated.spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text=TEXT))
    gated.program = (str(write_launcher(tmp_path / "bin")),) if is_launched else INSTALLED_HOOK

    refused = in_time(lambda: _read(gated, "PreToolUse", offset=12, limit=5), gated.reasons)
    observed = in_time(lambda: gated.send("claude", "Stop"), gated.reasons)
    answered = in_time(lambda: gated.send("opencode", "session"), gated.reasons)

    assert json.loads(refused)[SPECIFIC]["permissionDecision"] == "deny"
    assert silent(observed)
    assert [line["event"] for line in gated.lines()][1:2] == ["Stop"]
    assert answered.stdout.decode() == TEXT


def test_a_read_that_shows_a_new_line_is_allowed(gated: Agent) -> None:
    """One line more, the whole file, another window, or a changed file."""
    assert _read(gated, "PreToolUse", offset=12, limit=20) == ""
    assert _read(gated, "PreToolUse") == ""
    assert _read(gated, "PreToolUse", offset=12, limit=5, agent_id="a1") == ""
    assert _read(gated, "PreToolUse", offset=12, limit=5, session_id="s2") == ""
    (gated.project / "cart.py").write_text("changed\n" * 60)
    assert _read(gated, "PreToolUse", offset=12, limit=5) == ""


@pytest.mark.parametrize(("event", "more"), [("SessionStart", {"source": "compact"}), ("PreCompact", {})])
def test_lines_may_be_read_again_after_a_start_or_a_compaction(gated: Agent, event: str, more: dict[str, str]) -> None:
    """After a compaction nothing counts as shown."""
    gated.send("claude", event, **more)
    assert _read(gated, "PreToolUse", offset=12, limit=5) == ""


def test_the_read_gate_is_off_by_default(agent: Agent) -> None:
    """By default no read is ever refused, and nothing is recorded for it."""
    (agent.project / "cart.py").write_text("line\n" * 60)
    for event in ("PostToolUse", "PreToolUse"):
        assert _read(agent, event, offset=10, limit=5) == ""
    assert not (agent.spools.folder / "shown").exists()


@pytest.mark.parametrize(
    "arguments", [None, [], "x", {"file_path": 7}, {"file_path": "/nowhere/at/all", "offset": "x"}]
)
def test_a_read_with_unusual_arguments_is_never_refused(gated: Agent, arguments: object) -> None:
    """Arguments of a newer client do not stop the read."""
    for event in ("PreToolUse", "PostToolUse"):
        done = gated.send(
            "claude", event, tool_name="Read", tool_input=arguments, tool_response={"file": {"startLine": 1}}
        )
        assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)


@pytest.mark.parametrize("part", ["a" * 50, 'line\n"quoted" \\ ü ', "\\" * 51, "\x01\x02"])
@pytest.mark.parametrize("key", ["prompt", "tool_input"])
def test_the_beginning_of_a_payload_that_is_too_long_is_recorded(agent: Agent, part: str, key: str) -> None:
    """keeps: A-39. The event is observed, the size is recorded, and nothing stops the agent."""
    text = part * (hook.PAYLOAD_BYTES_MAX // len(part))
    event = "UserPromptSubmit" if key == "prompt" else "PostToolUse"
    encoded = agent.payload(event, **{key: text if key == "prompt" else {"command": text}})

    done = agent.run("claude", event, stdin=encoded, limit=limit_cpu)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (line,) = agent.lines()
    payload = line["payload"]
    assert isinstance(payload, dict)
    stored = payload[key] if key == "prompt" else payload[key]["command"]
    assert text.startswith(stored)
    assert hook.CUT_BYTES // 10 < len(stored) < hook.CUT_BYTES
    (failure,) = agent.spools.failures()
    assert "bytes exceeds 16,777,216; only its first 1,048,576 bytes are used" in failure.reason


def test_an_unreadable_payload_that_is_too_long_is_reported_with_its_size(agent: Agent) -> None:
    done = agent.run("claude", "Stop", stdin=b'{"a": [' + b"1," * hook.PAYLOAD_BYTES_MAX, limit=limit_cpu)

    assert (done.returncode, done.stdout) == (0, b"")
    assert "exceeds 16,777,216" in agent.spools.failures()[0].reason


PAYLOAD = json.dumps(
    {
        "session_id": "s1",
        "tool_input": {"lines": [1, 2.5, {"a": True}], "text": 'a "quoted" \\ word\u00fc \U0001f600', "none": None},
        "prompt": "mend the login",
    }
).encode()


@pytest.mark.parametrize("size", range(1, len(PAYLOAD)))
def test_every_beginning_of_a_payload_can_be_decoded(size: int) -> None:
    """keeps: U-04"""
    here = hook.HookPaths()

    decoded = hook._decode_payload(PAYLOAD[:size], here)

    assert here.is_incomplete
    assert list(decoded) in (keys := ["session_id", "tool_input", "prompt"], keys[:2], keys[:1], [])
    if size > PAYLOAD.index(b"login"):
        assert str(decoded["prompt"]).startswith("mend the ")


def test_a_payload_that_ends_too_early_is_recorded_and_reported(agent: Agent) -> None:
    """keeps: U-04. What arrived of a prompt is in the spool."""
    whole = agent.payload("UserPromptSubmit", prompt="mend the login, then deploy")

    done = agent.run("claude", "UserPromptSubmit", stdin=whole[:-9])

    reason = f"the input of the hook ended within its JSON, after {len(whole) - 9} bytes; what it says was recorded"
    assert complaint(done) == f"mica: {reason}"
    assert agent.reasons() == [reason]
    (line,) = agent.lines()
    assert line["payload"] == {**json.loads(whole), "prompt": "mend the login, then"}


@pytest.mark.parametrize(("words", "client"), [(("toy", "Stop"), "toy"), (("claude-code", "Stop"), "claude")])
def test_the_first_of_two_words_is_the_client(agent: Agent, words: tuple[str, str], client: str) -> None:
    """A client that the hook's own table does not list needs no change here."""
    assert silent(agent.run(*words, stdin=agent.payload("Stop")))

    assert [(line["client"], line["event"]) for line in agent.lines()] == [(client, "Stop")]


@pytest.mark.parametrize(
    ("entry", "module", "function"),
    [("toy.engine:suggest", "toy/engine.py", "suggest"), ("", "mica/inject/prompting.py", "answer")],
    ids=["named in the file", "written by a mica that named none"],
)
def test_a_prompt_is_answered_by_the_function_that_prompt_json_names(
    agent: Agent, tmp_path: Path, entry: str, module: str, function: str
) -> None:
    engine, data = tmp_path / "engine", tmp_path / "data"
    (engine / module).parent.mkdir(parents=True)
    (engine / module).write_text(f"def {function}(prompt, session, **rest): return f'see {{prompt}}', ['a.py']")
    data.touch()
    made = PromptAnswer(
        engine=str(engine), entry=entry, library="", past=str(data), trees={str(agent.project): str(data)}, holdout=0.0
    )
    agent.spools.write_answer(hook.PROMPT_ANSWER, made)

    done = agent.send("claude", "UserPromptSubmit", prompt="the login")

    assert agent.reasons() == []
    assert json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] == "see the login"
    assert [line["event"] for line in agent.lines()] == ["UserPromptSubmit", hook.ANSWERED]
    assert agent.lines()[1]["offered"] == {"kind": "prompt", "paths": ["a.py"], "characters": 13}


def test_a_prompt_is_in_the_spool_before_it_is_answered(agent: Agent, tmp_path: Path) -> None:
    """keeps: U-04. If ranking the files ends the process, the prompt is recorded."""
    engine, data = tmp_path / "engine", tmp_path / "data"
    engine.mkdir()
    (engine / "toy.py").write_text(
        "def suggest(*_, spooled, **rest): assert spooled == []; import posix; posix._exit(0)"
    )
    data.touch()
    made = PromptAnswer(
        engine=str(engine), entry="toy:suggest", library="", past=str(data), trees={str(agent.project): str(data)}
    )
    agent.spools.write_answer(hook.PROMPT_ANSWER, made)

    assert silent(agent.send("claude", "UserPromptSubmit", prompt="the login"))

    assert agent.reasons() == []
    assert [line["event"] for line in agent.lines()] == ["UserPromptSubmit"]
