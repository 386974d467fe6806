"""mica purge: a preview, a question, the purge and its report."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.residue import residue

import mica
from mica.cli import cli

VARIABLES = {"XDG_DATA_HOME": "", "XDG_CONFIG_HOME": "", "MICA_HOME": "", "MICA_STORE": ""}
SECRET = "vault-NeedleInTheHay"


class Shell:
    """The `mica` command on one store."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "space.db"
        self.variables = VARIABLES | {"HOME": str(folder)}

        async def filled() -> None:
            async with mica.open(self.store, settings=mica.load_settings({"HOME": str(folder)})) as memory:
                with memory.context(session="s1"):
                    memory.emit("tool.ran", {"text": SECRET})
                memory.emit("tool.ran", {"text": "open"})

        asyncio.run(filled())

    def run(self, *arguments: str, input: str | None = None) -> Result:
        command = [*arguments, "--store", str(self.store)]
        return CliRunner().invoke(cli, command, env=self.variables, prog_name="mica", input=input)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_dry_run_shows_what_would_be_removed(shell: Shell) -> None:
    """keeps: K-53. Nothing is removed before a person agrees."""
    shown = shell.run("purge", "--value", SECRET, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "1 event: tool.ran ×1" in shown.stdout
    assert "#1" in shown.stdout
    assert "of s1" in shown.stdout

    refused = shell.run("purge", "--value", SECRET)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "without a terminal it cannot ask for confirmation; give --yes" in refused.stderr
    assert residue(shell.store.parent, [SECRET])


def test_a_dry_run_lists_the_spellings_of_a_value(shell: Shell) -> None:
    """Issue 4: purging a value finds its other spellings, and a person sees them before agreeing."""
    other = SECRET.lower().replace("-", " ")
    assert shell.run("mark", f"said: {other}").exit_code == 0

    shown = shell.run("purge", "--value", SECRET, "--dry-run")
    document = json.loads(shell.run("purge", "--value", SECRET, "--dry-run", "--json").stdout)
    hidden = shell.run("purge", "--ask-value", "--dry-run", "--json", input=SECRET)
    done = json.loads(shell.run("purge", "--value", SECRET, "--yes", "--json").stdout)

    assert f"  written '{other}' in 1 event:\n    said: {other}\n" in shown.stdout
    assert f"  written '{SECRET}' in 1 event:\n    {SECRET}\n" in shown.stdout
    assert [(each["text"], each["events"]) for each in document["matches"]] == [(other, 1), (SECRET, 1)]
    assert document["spellings"] == {other: 1, SECRET: 1}
    assert SECRET not in hidden.stdout
    assert other not in hidden.stdout
    assert (done["events"], done["spellings"]) == (2, {})


def test_a_purge_removes_content_and_reports_it(shell: Shell) -> None:
    """keeps: K-53, U-08, TE-16. It reaches exports too; the event is shown as purged, with the reason."""
    file = shell.store.parent / "export.jsonl"
    assert shell.run("export", str(file)).exit_code == 0

    done = shell.run("purge", "--value", SECRET, "--reason", "leaked key", "--yes", "--json")

    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["events"], document["exports"], document["unreached"]) == (1, [str(file)], [])
    assert residue(shell.store.parent, [SECRET]) == []
    assert "event.purged" in shell.run("events", "tail").stdout
    assert "leaked key" in shell.run("events", "tail").stdout
    assert (
        json.loads(shell.run("events", "show", document["ids"][0], "--json").stdout)["data"]["reason"] == "leaked key"
    )
    assert "no event matches" in shell.run("purge", "--value", SECRET, "--yes").stdout


def test_a_purge_that_matches_nothing_says_so(shell: Shell) -> None:
    """A mistyped name does not look like success; only an explicit option applies the purge to later events."""
    before = shell.run("events", "tail", "--json").stdout
    for arguments in (["--session", "nosuch"], ["--session", "nosuch", "--dry-run"]):
        tried = shell.run("purge", *arguments)
        assert (tried.exit_code, tried.stderr) == (0, "")
        assert tried.stdout.startswith("no event matches; with --yes")
    assert shell.run("events", "tail", "--json").stdout == before

    done = shell.run("purge", "--session", "nosuch", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("no event matches; the purge is recorded")
    assert json.loads(shell.run("purge", "--session", "nosuch", "--yes", "--json").stdout)["applies_later"]
    shell.run("purge", "1", "--yes")
    assert shell.run("purge", "1").stdout == "no event matches\n"
    assert shell.run("purge", "1", "--yes").stdout == "no event matches; nothing was purged\n"
    assert not json.loads(shell.run("purge", "1", "--yes", "--json").stdout)["applies_later"]


def test_a_value_can_be_typed_at_a_prompt(shell: Shell) -> None:
    """The value then appears neither in the shell's history nor in the output."""
    name, cut = f"ran.{SECRET}", "x" * 60 + SECRET

    async def more() -> None:
        async with mica.open(shell.store) as memory:
            with memory.context(session=f"of {SECRET}", agent=SECRET):
                memory.emit(name, {"text": cut, SECRET: [SECRET]})

    asyncio.run(more())
    in_words = "2 events: ran.*** ×1, tool.ran ×1"
    for arguments, text in ((["--dry-run"], in_words), (["--dry-run", "--json"], '"events": 2'), ([], in_words)):
        shown = shell.run("purge", "--ask-value", *arguments, input=f"{SECRET}\n")
        assert text in shown.output
        assert SECRET[:9] not in shown.output

    done = shell.run("purge", "--ask-value", "--yes", "--json", input=f"{SECRET}\n")
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["events"] == 2
    assert SECRET not in done.output


def test_a_purge_lists_rebuilt_and_ended_crystals(shell: Shell) -> None:
    """keeps: K-53. A period is not shown if its name contains the purged text."""

    async def crystallized() -> list[int]:
        async with mica.open(shell.store) as memory:
            refs: list[mica.Ref] = []
            for session in (f"of {SECRET}", "s2"):
                with memory.context(session=session):
                    refs.append(
                        root := memory.mark(
                            "The cookie is set before the redirect, so the session is lost on every login"
                        )
                    )
                    refs += [
                        memory.mark(f"The {word} cookie is set before the redirect, so {word} is lost", parent=root)
                        for word in ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
                    ]
            await memory.crystals.make(tree=refs[8].id, label="beginnings")
            await memory.crystals.make(level="day")
            return [(await memory.events.get(ref)).position or 0 for ref in refs]

    marks = asyncio.run(crystallized())

    result = shell.run("purge", str(marks[-1]), "--yes")
    plain = json.loads(shell.run("purge", str(marks[-2]), "--yes", "--json").stdout)
    hidden = shell.run("purge", "--ask-value", "--yes", input=SECRET)

    assert "✓ 3 crystals made again from what remains: session ×1, tree ×1, day ×1\n" in result.stdout
    assert "  beginnings, now revision 2\n" in result.stdout
    assert [each["level"] for each in plain["remade"]] == ["session", "session", "day"]
    assert plain["ended"] == []
    assert "→ no longer a crystal: session:of ***: too few of its sources remain\n" in hidden.stdout
    assert SECRET not in hidden.output


@pytest.mark.parametrize("stdin", ["", "\n", " \r\n"])
def test_an_empty_value_is_refused(shell: Shell, stdin: str) -> None:
    result = shell.run("purge", "--ask-value", "--yes", input=stdin)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "mica: standard input holds no value to purge; nothing was purged\n"


def test_events_beyond_the_first_are_counted(shell: Shell) -> None:
    async def more() -> None:
        async with mica.open(shell.store) as memory:
            for _ in range(7):
                memory.emit("tool.ran", {"text": "more"})

    asyncio.run(more())
    assert "  and 2 more\n" in shell.run("purge", "--value", "more", "--dry-run").stdout
    assert " more\n" not in shell.run("purge", "--value", SECRET, "--dry-run").stdout


@pytest.mark.parametrize(("answer", "left"), [("y\n", False), ("n\n", True), ("\n", True)])
def test_a_purge_asks_in_a_terminal(shell: Shell, answer: str, left: bool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mica", "purge", "1", "--store", str(shell.store)]
    environment = {**os.environ, **shell.variables}
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as it:
        os.write(ours, answer.encode())
        _, asked = it.communicate()
    os.close(theirs)
    os.close(ours)
    assert b"Remove their content for good? [y/N]" in asked
    assert it.returncode == int(left)
    assert bool(residue(shell.store.parent, [SECRET])) == left


@pytest.mark.parametrize(("argument", "asked"), [("1", b"[y/N]: "), ("--ask-value", b"value: ")])
def test_one_interrupt_ends_a_confirmation_prompt(shell: Shell, argument: str, asked: bytes) -> None:
    """keeps: K-53. One Ctrl-C is enough, and nothing is purged."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mica", "purge", argument, "--store", str(shell.store)]
    environment = {**os.environ, **shell.variables}
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
    ) as it:
        assert it.stderr is not None
        shown = b""
        while not shown.endswith(asked):
            some = os.read(it.stderr.fileno(), 1_000)
            assert some, shown
            shown += some
        # Between showing a question and reading the answer Python would notice a signal only after the read.
        while not subprocess.check_output(["ps", "-o", "state=", "-p", str(it.pid)]).startswith(b"S"):
            pass
        it.send_signal(signal.SIGINT)
        try:
            out, rest = it.communicate(timeout=120)
        finally:
            it.kill()
    os.close(theirs)
    os.close(ours)
    assert (it.returncode, out) == (1, b"")
    assert b"Aborted!" in rest
    assert b"Traceback" not in rest
    assert residue(shell.store.parent, [SECRET])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 1, "nothing is selected"),
        (["--value", ""], 1, "the value to purge is ''"),
        (["--value", "x" * 10_001], 1, "10,001 characters"),
        (["99"], 1, "no event '99' in this space"),
        (["nonsense"], 1, "'nonsense' is not an event id"),
        (["--since", "1d", "--until", "2d"], 1, "is not before until"),
        (["--value", SECRET, "--ask-value"], 2, "give --value or --ask-value, not both"),
        (["--since", "whenever"], 2, "'whenever' is not a time"),
        (["--value", "nee"], 1, "confirm it with --really"),
        (["--session", "s1", "--anywhere"], 1, "give the value, too"),
        (["--session", "s1", "--keep", "1"], 2, "belong to --matching"),
        (["--retract", "1"], 2, "belong to --matching"),
        (["--matching", "needle", "1"], 2, "leave out IDs and --ask-value"),
        (["--matching", "everything about the"], 1, "has no word to search for"),
        (["--matching", "open", "--keep", "1"], 1, "#1 is not among what was found"),
        (["--value", SECRET, "--reason", f"has {SECRET}"], 1, "the reason contains the content to purge"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_removed(
    shell: Shell, arguments: list[str], code: int, message: str
) -> None:
    result = shell.run("purge", *arguments, "--yes")
    assert result.exit_code == code
    assert message in result.stderr
    assert residue(shell.store.parent, [SECRET])


def test_a_purged_value_is_allowed_again_by_the_command_that_the_refusal_names(shell: Shell) -> None:
    """keeps: K-53"""
    shell.run("mark", "the login page is slow")
    shell.run("purge", "--value", "login", "--yes")
    refused = shell.run("mark", "the Login flow was rewritten")
    assert (refused.exit_code, refused.stderr.startswith("mica: 'Login' was purged on ")) == (1, True)
    assert "`mica purge --allow Login`" in refused.stderr

    assert shell.run("purge", "--allow", "Login", "--session", "s1").exit_code == 2
    assert shell.run("purge", "--allow", "Login").stdout == "it is allowed again; purged content is not restored\n"

    assert shell.run("mark", "the Login flow was rewritten").exit_code == 0
    assert shell.run("purge", "--allow", "Login").exit_code == 1


# -- By words ------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(shell: Shell) -> Shell:
    """A space with two marks about a proxy, an event that descends from the first, and an unrelated mark."""

    async def filled() -> None:
        async with mica.open(shell.store) as memory:
            with memory.context(session="s2"):
                root = memory.mark("The staging proxy drops long headers")
                memory.emit("tool.ran", {"text": "curl -v 10.0.0.7"}, parent=root)
                memory.mark("Restarted the proxy on staging at noon")
                memory.mark("The production proxy is fine")

    asyncio.run(filled())
    return shell


ABOUT = ("purge", "--matching", "everything about the staging proxy")


def test_everything_about_a_subject_is_shown_and_purged(proxy: Shell) -> None:
    """keeps: K-53. Issue 18. Each line has the number, the date and a short text; without confirmation nothing goes."""
    shown = proxy.run(*ABOUT, "--dry-run")
    document = json.loads(proxy.run(*ABOUT, "--dry-run", "--json").stdout)
    refused = proxy.run(*ABOUT)

    assert shown.exit_code == 0, shown.output
    assert "2 events match:" in shown.stdout
    assert "mark The staging proxy drops long headers" in shown.stdout
    assert "1 event descends from these:" in shown.stdout
    assert "tool.ran of #3 curl -v 10.0.0.7" in shown.stdout
    assert "1 event has only some of these words and stays" in shown.stdout
    assert [(each["number"], each["because"]) for each in document["items"][2:]] == [("#4", "descends")]
    assert {each["number"] for each in document["items"]} == {"#3", "#4", "#5"}
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "The staging proxy drops long headers" in refused.stderr

    done = proxy.run(*ABOUT, "--keep", "#5", "--yes")
    assert done.stdout.startswith("✓ 2 events purged\n")
    assert "The staging proxy drops long headers" in done.stderr
    assert "Restarted" not in done.stderr
    assert residue(proxy.store.parent, ["long headers", "10.0.0.7"]) == []
    assert residue(proxy.store.parent, ["Restarted"])


def test_nothing_about_a_subject_is_said(proxy: Shell) -> None:
    for options in ((), ("--yes",), ("--dry-run",)):
        result = proxy.run("purge", "--matching", "the kitchen sink", *options)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == "nothing matches these words, so nothing was purged\n"


def test_what_matches_can_be_retracted_instead(proxy: Shell) -> None:
    """keeps: K-53. It stays in the history."""
    done = proxy.run(*ABOUT, "--retract", "--yes", "--reason", "gone")
    assert "✓ 2 events retracted; they stay in the history\n" in done.stdout
    assert "1 other event cannot be retracted, only purged" in done.stdout
    assert "long headers" in proxy.run("events", "show", "3").stdout
    assert "long headers" not in proxy.run("search", "long headers").stdout

    purged = json.loads(proxy.run(*ABOUT, "--without-descendants", "--yes", "--json").stdout)
    assert purged["names"]["mark"] == 2
    assert residue(proxy.store.parent, ["long headers"]) == []
    assert residue(proxy.store.parent, ["10.0.0.7"])


@pytest.mark.parametrize(("answer", "left", "said"), [("p", [], "purged"), ("r", [1], "retracted"), ("", [1], "")])
def test_a_purge_by_words_asks_in_a_terminal(proxy: Shell, answer: str, left: list[int], said: str) -> None:
    """keeps: K-53. The default answer changes nothing."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mica", *ABOUT, "--store", str(proxy.store)]
    environment = {**os.environ, **proxy.variables}
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as it:
        os.write(ours, f"{answer}\n".encode())
        out, asked = it.communicate()
    os.close(theirs)
    os.close(ours)
    assert b"Purge their content for good (p), only retract them (r), or neither (n)? [n]" in asked
    assert b"The staging proxy drops long headers" in asked
    assert (said.encode() in out, it.returncode) == (True, int(not answer))
    assert bool(residue(proxy.store.parent, ["long headers"])) == bool(left)
