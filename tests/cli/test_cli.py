"""The command line: every command works, says what is wrong, and speaks JSON."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import click
import pytest
from click import Command, Group
from click.testing import CliRunner, Result

from mica.cli import cli
from mica.cli import transcripts as importing
from mica.format.lines import size
from mica.settings import load_settings
from mica.store.postgres.server import SCHEMA
from mica.store.space import space_of
from mica.testing.builders import build
from mica.testing.postgres import Server
from mica.web.process import alone

FIXTURES = Path(__file__).parents[1] / "fixtures" / "claude-code"


class Terminal:
    """A user's shell: a home folder, a project, and the `mica` command."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.variables = {
            "HOME": str(home),
            "XDG_DATA_HOME": "",
            "XDG_CONFIG_HOME": "",
            "MICA_HOME": "",
            "MICA_STORE": "",
            "MICA_SEMANTIC": "off",
        }

    def run(self, *arguments: str, stdin: str | None = None, **variables: str) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, env=self.variables | variables, prog_name="mica")

    def json(self, *arguments: str, **variables: str) -> object:
        result = self.run(*arguments, "--json", **variables)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return Terminal(tmp_path / "home")


@pytest.fixture
def transcripts(terminal: Terminal) -> Path:
    """The recorded sessions, where Claude Code would keep them."""
    folder = terminal.home / ".claude" / "projects" / "-home-dev-shop"
    folder.mkdir(parents=True)
    for path in FIXTURES.glob("*transcript*.jsonl"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder.parent


def test_a_mark_can_be_found_shown_and_traced(terminal: Terminal) -> None:
    first = terminal.json("mark", "The cookie is set before the redirect", "--tag", "gotcha", "--session", "s1")
    assert isinstance(first, dict)
    terminal.run("mark", "Moved it", "--parent", str(first["position"]), "--agent", "scout", "--why", "it works")

    found = terminal.json("search", "cookies")
    shown = terminal.json("events", "show", str(first["id"]))
    tree = terminal.json("events", "tree", f"#{first['position']}")
    up = terminal.json("events", "tree", "2", "--ancestry")

    assert isinstance(found, dict)
    assert found["hits"][0]["mark"]["id"] == first["id"]
    assert isinstance(shown, dict)
    assert shown["data"] == {"text": "The cookie is set before the redirect", "tags": ["gotcha"]}
    assert shown["context"] == {"session": "s1"}
    assert shown["origin"] == "user"
    assert isinstance(tree, dict)
    assert [child["data"]["text"] for child in tree["children"]] == ["Moved it"]
    assert tree["children"][0]["origin"] == "agent"
    assert isinstance(up, dict)
    assert up["id"] == first["id"]
    assert "Moved it" in terminal.run("events", "tree", "1").stdout


def test_a_mark_is_read_from_standard_input(terminal: Terminal) -> None:
    assert terminal.run("mark", stdin="from a pipe\n").exit_code == 0
    assert "by a dash" in terminal.run("mark", "-", "--json", stdin="by a dash\n").stdout
    assert "from a pipe" in terminal.run("events", "tail").stdout


def test_a_mark_is_dated_as_other_times_are_given(terminal: Terminal) -> None:
    """B-43: a time of the zone that is set, one with a zone of its own, or how long ago; all lines alike."""
    terminal.variables["MICA_TIME_ZONE"] = "Asia/Kathmandu"
    for at in ("2024-11-05T09:30", "2024-11-05T03:45:00Z", "90s", "last Tuesday"):
        assert terminal.run("mark", "It was the proxy", "--at", at).exit_code == 0
    terminal.run("mark", "--lines", "--at", "2024-11-05", stdin="one\ntwo\n")
    late = terminal.run("mark", "and this", "--parent", "1", "--at", "2024-11-04")

    marks = terminal.json("events", "query", "--name", "mark")
    assert isinstance(marks, list)
    dated = [each["at"] for each in sorted(marks, key=lambda each: int(each["position"]))]
    assert [dated[0], dated[1]] == ["2024-11-05T03:45:00Z"] * 2
    assert dated[4:] == ["2024-11-04T18:15:00Z"] * 2
    assert (late.exit_code, late.stdout) == (1, "")
    assert "cannot come before what led to it" in late.stderr


@pytest.mark.parametrize(
    ("at", "code", "said"),
    [
        ("someday", 2, "'someday' is no time"),
        ("0001-01-01T00:00:00Z", 1, "older than 1970; give when it was observed"),
        ("2199-01-01", 2, "still to come; give when it was observed"),
    ],
)
def test_a_mark_of_a_time_that_cannot_be_meant_is_refused(terminal: Terminal, at: str, code: int, said: str) -> None:
    refused = terminal.run("mark", "It was the proxy", "--at", at)

    assert (refused.exit_code, refused.stdout) == (code, "")
    assert said in refused.stderr
    assert terminal.json("events", "tail") == []


def test_a_mark_without_text_is_refused(terminal: Terminal) -> None:
    result = terminal.run("mark", stdin="")
    assert (result.exit_code, result.stderr) == (1, "mica: a mark needs a text, not ''\n")


def test_a_brief_goes_to_stdout_and_its_cost_to_stderr(terminal: Terminal) -> None:
    """B-27"""
    terminal.run("mark", "The cookie is set before the redirect")
    result = terminal.run("brief", "cookie", "--budget", "300")
    assert result.stdout.startswith("<memory")
    assert result.stdout.endswith("</memory>\n")
    assert "of 300 tokens (estimated)" in result.stderr
    assert "receipt" in result.stderr
    document = terminal.json("brief", "cookie")
    assert isinstance(document, dict)
    assert set(document) >= {"text", "passages", "missing", "receipt", "tokens", "budget_tokens", "left_out"}


def test_events_can_be_asked_for_in_every_way(terminal: Terminal) -> None:
    terminal.run("mark", "alpha beta", "--session", "s1", "--agent", "scout")
    terminal.run("mark", "beta gamma", "--session", "s2", BAGGAGE="mica.user=ann")

    def texts(*arguments: str) -> list[str]:
        rows = terminal.json("events", *arguments)
        assert isinstance(rows, list)
        return [row["data"]["text"] for row in rows]

    assert texts("tail", "-n", "1") == ["beta gamma"]
    assert texts("query", "--session", "s1") == ["alpha beta"]
    assert texts("query", "--agent", "scout") == ["alpha beta"]
    assert texts("query", "--user", "ann") == ["beta gamma"]
    assert texts("query", "--user", "bob") == []
    assert texts("query", "--text", "gamma") == ["beta gamma"]
    assert texts("query", "--name", "ma*", "--since", "1h") == ["alpha beta", "beta gamma"]
    assert texts("query", "--until", "2020-01-01") == []
    assert texts("query", "--errors") == []
    assert texts("chain", "2") == ["beta gamma"]


def test_empty_answers_say_what_to_do(terminal: Terminal) -> None:
    assert "Nothing found" in terminal.run("search", "nothing").stdout
    assert "No events fit" in terminal.run("events", "tail").stdout
    assert "this space is empty" in terminal.run("doctor").stdout
    assert "No spaces yet" in Terminal(terminal.home / "other").run("spaces").stdout


def test_spaces_say_where_they_belong_also_before_any_session(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    terminal.run("mark", "seen here")
    listed = terminal.json("spaces")
    assert isinstance(listed, list)
    assert [row["directory"] for row in listed] == [str(tmp_path / "shop")]
    monkeypatch.chdir(tmp_path)
    assert "not known: no session was recorded" in terminal.run("spaces").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["events", "show", "99"], "no event '99' in this space"),
        (["events", "show", build(1).id], "no event"),
        (["events", "show", "xyz"], "'xyz' is not an event id"),
        (["events", "query", "--text", "the"], "nothing to look for in 'the'"),
        (["search", "?!", "…"], "the query '?! …' has no word to search for"),
        (["search", "x", "--space", "nowhere"], "no space and no directory is called 'nowhere'"),
        (["search", "x", "--store", "mysql://localhost/x"], "no store for the address"),
        (["import", "claude-code", "--store", "/proc/none/x.db", "."], "cannot make the folder"),
    ],
)
def test_our_errors_are_one_line_and_exit_1(terminal: Terminal, arguments: list[str], said: str) -> None:
    (Path.cwd() / "t.jsonl").write_bytes(next(FIXTURES.glob("*transcript-a*")).read_bytes())
    result = terminal.run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("mica: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_wrong_usage_exits_2(terminal: Terminal) -> None:
    for arguments in (
        ["search"],
        ["search", "", " "],
        ["brief", "--budget", "-5"],
        ["brief", "--budget", "0"],
        ["handoff", "--budget", "0"],
        ["defrag", "service:app:login", "--budget", "0"],
        ["events", "query", "--since", "soon"],
        ["embed"],
        ["nope"],
    ):
        assert terminal.run(*arguments).exit_code == 2


def test_a_bad_settings_file_names_the_key(terminal: Terminal, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[brief]\nbudget_tokens = 'many'\n")
    result = terminal.run("doctor", MICA_CONFIG=str(config))
    assert result.exit_code == 1
    assert "$.brief.budget_tokens" in result.stderr
    assert str(config) in result.stderr


def test_search_is_narrowed_by_time_agent_and_tag_and_says_what_it_understood(terminal: Terminal) -> None:
    """B-65"""
    terminal.run("mark", "The parser failed", "--tag", "gotcha", "--agent", "scout")
    terminal.run("mark", "The parser failed again")

    def found(*options: str) -> list[str]:
        document = terminal.json("search", "parser", *options)
        assert isinstance(document, dict)
        return sorted(hit["mark"]["text"] for hit in document["hits"])

    assert len(found()) == 2
    assert found("--tag", "gotcha") == found("--agent", "scout") == ["The parser failed"]
    assert len(found("--since", "yesterday")) == 2
    assert found("--until", "yesterday") == []
    asked = terminal.json("search", "parser last Tuesday")
    assert isinstance(asked, dict)
    assert [period["words"] for period in asked["periods"]] == ["last Tuesday"]
    assert "mica: understood last Tuesday: 20" in terminal.run("search", "parser last Tuesday").stderr


def test_what_needs_a_model_says_so_when_there_is_none(terminal: Terminal) -> None:
    """K-57: everything else works without it."""
    refused = terminal.run("search", "x", MICA_SEMANTIC="maybe")
    assert "MICA_SEMANTIC='maybe'" in refused.stderr
    assert "pip install 'mica[semantic]'" in terminal.run("embed").stderr
    document = terminal.json("doctor")
    assert isinstance(document, dict)
    assert document["marks_without_vector"] is None


def test_doctor_verify_and_rebuild_tell_the_state(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("mark", "one")
    document = terminal.json("doctor")
    assert isinstance(document, dict)
    assert document["healthy"] is True
    assert document["events"] == 1
    assert document["transcripts_waiting"] == 0  # they belong to another space
    assert terminal.json("verify") == {"events": 1, "problems": []}
    assert terminal.json("rebuild") == {"events": 1}


def test_age_turns_older_events_into_blocks(terminal: Terminal) -> None:
    """E-03: nothing is lost, and doctor tells how much has aged."""
    for text in ("one cookie", "two"):
        terminal.run("mark", text)
    assert isinstance(young := terminal.json("age"), dict)
    assert young["aged"] == 0

    assert isinstance(document := terminal.json("age", "--older-than", "0s"), dict)

    assert (document["aged"], document["events"], document["aged_in_all"]) == (2, 2, 2)
    assert isinstance(state := terminal.json("doctor"), dict)
    assert (state["aged"], state["blocks"], state["healthy"]) == (2, 1, True)
    assert "2 aged into 1 block" in " ".join(terminal.run("doctor").stdout.split())
    assert "one cookie" in terminal.run("search", "cookie").stdout
    assert "0 events aged" in terminal.run("age").stdout
    wrong = terminal.run("age", "--older-than", "soon")
    assert wrong.exit_code == 2
    assert "'soon' is no length of time" in wrong.stderr


# -- Import and the first minute ------------------------------------------------------------------------------


def test_import_takes_each_transcript_into_the_space_of_its_directory(terminal: Terminal, transcripts: Path) -> None:
    """A-12: what agents read and wrote, and nothing crosses the wall."""
    first = terminal.json("import", "claude-code")
    again = terminal.json("import", "claude-code")

    assert isinstance(first, dict)
    [(name, result)] = first["spaces"].items()
    assert name.startswith("shop-")
    assert result["files"] == 2
    assert result["events"] > 30
    assert result["tally"]["broken"] == 0
    assert isinstance(again, dict)
    assert again["spaces"][name]["events"] == 0
    assert again["spaces"][name]["unchanged"] == 2
    assert terminal.json("events", "tail") == []
    rows = terminal.json("events", "query", "--name", "file.read", "--space", name)
    assert isinstance(rows, list)
    assert {row["data"]["path"] for row in rows} == {"src/auth.py", "src/db.py", "src/missing.py"}
    spaces = terminal.json("spaces")
    assert isinstance(spaces, list)
    assert {row["name"] for row in spaces} >= {name}


def test_paths_are_relative_to_the_worktree_they_were_read_in(
    terminal: Terminal, transcripts: Path, tmp_path: Path
) -> None:
    """Worktrees share a space; each session has the root of its own."""
    shop, tree = tmp_path / "shop", tmp_path / "tree"
    for command in (
        ["git", "init", "-q", str(shop)],
        ["git", "-C", str(shop), *"-c user.name=x -c user.email=x@x commit -q --allow-empty -m first".split()],
        ["git", "-C", str(shop), "worktree", "add", "-q", str(tree)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    for path, folder in zip(sorted((transcripts / "-home-dev-shop").iterdir()), (shop, tree), strict=True):
        path.write_text(path.read_text().replace("/home/dev/shop", str(folder)))

    done = terminal.json("import", "claude-code")

    assert isinstance(done, dict)
    [name] = done["spaces"]
    rows = terminal.json("events", "query", "--name", "file.read", "--space", name)
    assert isinstance(rows, list)
    assert {row["data"]["path"] for row in rows} == {"src/auth.py", "src/db.py", "src/missing.py"}


@pytest.fixture
def histories(terminal: Terminal, transcripts: Path, opencode_db: Path) -> None:
    """The recorded sessions of five clients, where each would keep them."""
    recorded = FIXTURES.parent
    for source, place in [
        ("codex/rollout.jsonl", ".codex/sessions/2026/11/15/rollout-2026-11-15T11-37-43-01a1deff.jsonl"),
        ("gemini/session.jsonl", ".gemini/tmp/shop/chats/session-2026-11-15T11-40-24527a8c.jsonl"),
        ("copilot/events.jsonl", ".copilot/session-state/2f8cdfe9/events.jsonl"),
    ]:
        target = terminal.home / place
        target.parent.mkdir(parents=True)
        target.write_bytes((recorded / source).read_bytes())
    target = terminal.home / ".local" / "share" / "opencode" / "opencode.db"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(opencode_db.read_bytes())


@pytest.mark.usefixtures("histories")
def test_import_finds_every_clients_history_and_says_what_it_found(terminal: Terminal) -> None:
    """A-12: without a word, all; into the space of the directory that each session worked in."""
    first = terminal.json("import")
    assert isinstance(first, dict)
    found = {client: there["transcripts"] for client, there in first["clients"].items()}
    assert found == {"claude-code": 2, "codex": 1, "copilot": 1, "gemini": 1, "opencode": 1}
    [name] = first["spaces"]
    assert name.startswith("shop-")
    again = terminal.run("import", "auto")
    assert "codex: 1 transcript (" in again.stdout
    assert f"in {terminal.home / '.codex'}" in again.stdout
    assert "0 events from 0 transcripts, 6 unchanged" in again.stdout
    document = terminal.json("events", "query", "--name", "session.started", "--space", name)
    assert isinstance(document, list)
    assert {row["data"]["client"] for row in document} == set(found)


@pytest.mark.usefixtures("histories")
@pytest.mark.parametrize("client", ["claude-code", "codex", "copilot", "gemini", "opencode"])
def test_import_of_one_client_leaves_the_others(terminal: Terminal, client: str) -> None:
    done = terminal.json("import", client)
    assert isinstance(done, dict)
    assert list(done["clients"]) == [client]


@pytest.mark.usefixtures("histories")
def test_a_path_needs_no_client(terminal: Terminal, tmp_path: Path) -> None:
    places = [str(terminal.home / name) for name in (".codex", ".copilot", ".local", ".gemini")]
    done = terminal.json("import", *places)
    assert isinstance(done, dict)
    assert sorted(done["clients"]) == ["codex", "copilot", "gemini", "opencode"]
    wrong = terminal.run("import", "claude-code", str(next((terminal.home / ".codex").rglob("*.jsonl"))))
    assert (wrong.exit_code, "is no transcript of claude-code" in wrong.stderr) == (1, True)
    typo = terminal.run("import", "codx")
    assert (typo.exit_code, "clients are auto, claude-code, codex" in typo.stderr) == (2, True)


@pytest.mark.usefixtures("histories")
def test_histories_follow_the_variables_of_their_clients(terminal: Terminal, tmp_path: Path) -> None:
    for name, place in [("CODEX_HOME", ".codex"), ("COPILOT_HOME", ".copilot"), ("GEMINI_CLI_HOME", "")]:
        (tmp_path / "moved").mkdir(exist_ok=True)
        moved = tmp_path / "moved" / name
        if not place:
            moved.mkdir()
        (terminal.home / (place or ".gemini")).rename(moved if place else moved / ".gemini")
        terminal.variables[name] = str(moved)
    data = tmp_path / "moved" / "data"
    (terminal.home / ".local" / "share").rename(data)
    found = terminal.json("import", XDG_DATA_HOME=str(data))
    assert isinstance(found, dict)
    assert len(found["clients"]) == 5


def test_import_without_any_history_says_where_it_looked(terminal: Terminal) -> None:
    result = terminal.run("import")
    assert result.exit_code == 1
    assert str(terminal.home / ".codex") in result.stderr


def test_import_names_what_it_skips(terminal: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    good = next(FIXTURES.glob("*transcript-a*")).read_bytes()
    torn = b'{"type":"user","message":{"role":"us'
    strange = b'{"type":"from-the-future","sessionId":"x","uuid":"y"}\n'
    (folder / "t.jsonl").write_bytes(good + strange + b"\xff\xfe not json\n" + torn)
    (folder / "notes.jsonl").write_text('{"a": 1}\n')

    result = terminal.run("import", "claude-code", str(folder), "--store", str(tmp_path / "s.db"))

    assert result.exit_code == 1, result.output  # as its help says, though all else is stored
    assert "from-the-future (1)" in result.stdout
    assert "1 record could not be read" in result.stdout
    assert "still being written" in result.stdout
    assert "1 file is no transcript" in result.stdout


def test_doctor_does_not_send_anybody_to_import_half_a_line(terminal: Terminal, transcripts: Path) -> None:
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_bytes(path.read_bytes() + b'{"type":"user","message":{"role":"us')
    assert terminal.run("import", "claude-code").exit_code == 0
    rows = terminal.json("spaces")
    assert isinstance(rows, list)

    documents = [terminal.json("doctor", "--space", row["name"]) for row in rows]

    assert documents
    assert [each["transcripts_waiting"] for each in documents if isinstance(each, dict)] == [0] * len(rows)


def test_a_file_that_cannot_be_read_is_named_and_the_others_go_on(terminal: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "good.jsonl").write_bytes(next(FIXTURES.glob("*transcript-a*")).read_bytes())
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    result = terminal.run("import", "claude-code", str(folder), "--store", str(tmp_path / "s.db"))
    assert "events from 1 transcript\n" in result.stdout


@pytest.mark.parametrize("cwd", [r"C:\Users\ann\shop", "~nobodyx", "/home/a\0b"])
def test_a_session_of_another_machine_crosses_no_wall(terminal: Terminal, transcripts: Path, cwd: str) -> None:
    """Its paths mean nothing here: not the current directory, not a home."""
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_text(path.read_text().replace('"/home/dev/shop"', json.dumps(cwd)))

    done = terminal.json("import", "claude-code")

    assert isinstance(done, dict)
    assert list(done["spaces"]) == ["unknown"]
    assert terminal.json("events", "tail") == []


def test_up_without_transcripts_shows_the_sample_and_says_so(terminal: Terminal) -> None:
    """U-11: one command to a first look, offline."""
    result = terminal.run("up", "--once")
    assert result.exit_code == 0, result.output
    assert "this is the bundled sample" in result.stdout
    assert "What your agents did lately" in result.stdout
    assert "What the next agent would be told" in result.stdout
    assert "mica search" in result.stdout
    assert "--space sample" in result.stdout
    assert "mica navigate" not in result.stdout  # its files are not on this machine
    document = terminal.json("up")
    assert isinstance(document, dict)
    assert document["is_sample"] is True
    assert document["imported"]["sample"]["events"] == 0
    assert document["brief"]["text"]


def test_up_imports_what_it_finds(terminal: Terminal, transcripts: Path) -> None:
    result = terminal.run("up", "--once")
    assert result.exit_code == 0, result.output
    assert "Found 2 transcripts" in result.stdout
    assert "Explain how auth works" in result.stdout
    assert "src/auth.py" in result.stdout
    assert "sample" not in result.stdout


@pytest.mark.parametrize("command", [["up", "--yes", "--once"], ["import", "claude-code"]])
@pytest.mark.parametrize("enough", [10, 1_000])
def test_an_import_ages_what_is_old_when_it_fills_a_block(
    terminal: Terminal, transcripts: Path, command: list[str], enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TE-12: whoever runs only commands has a small file, too, and reads the same from it."""
    monkeypatch.setattr(importing, "BLOCK_EVENTS", enough)
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace('"2026-', '"2025-'), encoding="utf-8")

    assert terminal.run(*command).exit_code == 0

    [row] = json.loads(terminal.run("spaces", "--json").stdout)
    document = terminal.json("doctor", "--space", row["name"])
    assert isinstance(document, dict)
    assert (document["aged"] > 0.9 * document["events"]) == (enough < document["events"])
    assert (document["healthy"], document["problems"]) == (True, [])


def test_doctor_counts_the_transcripts_of_its_own_space(terminal: Terminal, transcripts: Path) -> None:
    [first, *_] = sorted((transcripts / "-home-dev-shop").iterdir())
    hidden = first.rename(transcripts / "later")
    terminal.run("import", "claude-code")
    [row] = json.loads(terminal.run("spaces", "--json").stdout)
    assert row["directory"] == "/home/dev/shop"
    hidden.rename(first)
    document = terminal.json("doctor", "--space", row["name"])
    assert isinstance(document, dict)
    assert document["transcripts_waiting"] == 1
    assert "1 transcript with something new" in terminal.run("doctor", "--space", row["name"]).stdout


def test_reading_makes_no_store(terminal: Terminal, tmp_path: Path) -> None:
    for command in (["search", "x"], ["events", "tail"], ["brief", "x"], ["verify"], ["overview"]):
        assert terminal.run(*command).exit_code == 0
        result = terminal.run(*command, "--store", str(tmp_path / "typo.db"))
        assert result.exit_code == 1
        assert "there is no store" in result.stderr
    assert not list(tmp_path.rglob("*.db"))


def test_a_store_that_is_none_is_refused_in_words(terminal: Terminal, tmp_path: Path) -> None:
    for command in (["mark", "x"], ["events", "tail"], ["import", "claude-code"], ["up", "--once"]):
        assert "--store needs a file or an address" in terminal.run(*command, "--store", "").stderr
    for command in (["mark", "x"], ["events", "tail"]):
        refused = terminal.run(*command, "--store", str(tmp_path))
        assert (refused.exit_code, "Traceback" in refused.output) == (1, False)
        assert refused.stderr == f"mica: {tmp_path} is a directory; give a file, such as {tmp_path / 'space.db'}\n"


def test_a_mistyped_store_reads_alike_however_it_is_named(terminal: Terminal, tmp_path: Path) -> None:
    named = terminal.run("events", "tail", "--store", "nosuch.db")
    assert (named.exit_code, "there is no store nosuch.db" in named.stderr) == (1, True)
    assert terminal.run("events", "tail", MICA_STORE="nosuch.db").stderr == named.stderr
    assert not list(tmp_path.rglob("*.db"))


@pytest.mark.parametrize("command", [["events", "follow"], ["stream"]])
def test_following_makes_no_store_of_a_mistyped_name(terminal: Terminal, tmp_path: Path, command: list[str]) -> None:
    refused = terminal.run(*command, "--store", str(tmp_path / "typo.db"), "-n", "1")

    assert (refused.exit_code, "there is no store" in refused.stderr) == (1, True)
    assert not list(tmp_path.rglob("typo.db*"))


def test_a_copy_makes_no_folder(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("mark", "one")

    refused = terminal.run("copy", str(tmp_path / "nosuch" / "x.db"))

    assert (refused.exit_code, "there is no folder" in refused.stderr) == (1, True)
    assert not (tmp_path / "nosuch").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["search", "x", "--since", "1h", "--until", "2h"], "is not before --until"),
        (["events", "query", "--since", "1h", "--until", "2h"], "is not before --until"),
        (["crystals", "--since", "1h", "--until", "2h"], "is not before --until"),
        (["brief", "--at", "2999-01-01"], "is still to come"),
    ],
)
def test_times_that_cannot_be_are_refused(terminal: Terminal, command: list[str], said: str) -> None:
    refused = terminal.run(*command)

    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.split())


def test_reading_makes_no_space_on_a_server(terminal: Terminal, server: Server) -> None:
    """A mistyped name must not become a space; the directory's own is empty until something is written."""
    address = server.address(space="here")
    nosuch, unnamed = address.replace("space=here", "space=nosuch"), address.replace("space=here", "")
    assert terminal.run("mark", "one", "--store", address).exit_code == 0
    for command in (["events", "tail"], ["search", "x"], ["doctor"], ["overview"]):
        refused = terminal.run(*command, "--store", nosuch)
        assert refused.exit_code == 1, refused.output
        assert "there is no store postgresql://" in refused.stderr
        assert terminal.run(*command, MICA_STORE=nosuch).stderr == refused.stderr
        assert terminal.run(*command, MICA_STORE=unnamed).exit_code == 0
    assert "one" in terminal.run("events", "tail", "--store", address).stdout
    assert asyncio.run(_space_names(server)) & {"here", "nosuch"} == {"here"}
    assert not [name for name in asyncio.run(_space_names(server)) if name.startswith("project-")]


async def _space_names(server: Server) -> set[str]:
    connection = await asyncpg.connect(server.dsn())
    try:
        return {row["name"] for row in await connection.fetch(f"SELECT name FROM {SCHEMA}.spaces")}
    finally:
        await connection.close()


def test_a_folder_without_transcripts_shows_the_sample(terminal: Terminal, transcripts: Path) -> None:
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_text("")
    result = terminal.run("up", "--once")
    assert result.exit_code == 0, result.output
    assert "this is the bundled sample" in result.stdout


def test_up_without_import_shows_what_is_there_beside_a_server(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("mark", "The cookie is set before the redirect")
    settings = load_settings(terminal.variables)
    with alone(space_of(Path.cwd(), home=settings.home).file, address="http://127.0.0.1:1"):
        shown = terminal.run("up", "--once", "--no-import")
        document = terminal.json("up", "--no-import")

    assert shown.exit_code == 0, shown.output
    assert "The cookie is set before the redirect" in shown.stdout
    assert isinstance(document, dict)
    assert "cookie" in document["brief"]["text"]
    assert "imported" not in document


def test_up_again_says_that_nothing_is_new(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("up", "--once")
    assert "Nothing new in 2 transcripts" in terminal.run("up", "--once").stdout


def test_up_into_one_store_says_so(terminal: Terminal, transcripts: Path, tmp_path: Path) -> None:
    result = terminal.run("up", "--once", "--store", str(tmp_path / "one.db"))
    assert "all go into" in result.stdout.replace("\n", " ")
    assert f"--store {tmp_path / 'one.db'}" in result.stdout


def test_an_unreadable_folder_is_named_and_the_others_go_on(terminal: Terminal, transcripts: Path) -> None:
    (transcripts / "loop").symlink_to(transcripts / "loop")
    (transcripts / "-home-dev-shop" / "dir.jsonl").mkdir()
    result = terminal.run("import", "claude-code")
    assert "events from 2 transcripts" in result.stdout


def test_control_characters_do_not_reach_the_terminal(terminal: Terminal) -> None:
    terminal.run("mark", "esc \x1b[31mred\x07")
    for command in (["search", "esc"], ["events", "tail"], ["overview"], ["brief", "esc"]):
        output = terminal.run(*command).stdout
        assert "red" in output
        assert "\x1b" not in output
        assert "\x07" not in output


def test_numbers_beyond_any_store_are_no_traceback(terminal: Terminal) -> None:
    terminal.run("mark", "one")
    assert "no event" in terminal.run("events", "show", "9" * 30).stderr
    assert terminal.run("events", "tail", "-n", "9" * 30).exit_code == 2
    assert terminal.run("events", "query", "--text", " ".join(f"w{n}" for n in range(2_000))).exit_code == 0
    assert terminal.run("search", "x", "--store", "a", "--space", "b").exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        *(["events", "query", option, "a\udcffb"] for option in ("--session", "--agent", "--user", "--text")),
        *(["purge", option, "a\udcffb", "--yes"] for option in ("--session", "--user", "--value")),
        ["purge", "1", "--yes", "--reason", "a\udcffb"],
        ["copy", "a\udcffb.db"],
    ],
)
def test_bytes_of_another_encoding_are_one_line(terminal: Terminal, command: list[str]) -> None:
    """U-11: a shell hands them on as they are; nothing is looked for, and nothing purged, by halves of characters."""
    terminal.run("mark", "one")

    result = terminal.run(*command)

    assert result.exit_code == 1
    assert "the byte 0xff at character 2, which is not UTF-8" in result.stderr
    assert terminal.json("events", "query", "--name", "log.*") == []


def test_a_space_can_be_copied(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("mark", "one")
    terminal.run("mark", "two")
    target = str(tmp_path / "copy.db")
    assert terminal.json("copy", target) == {"events": 2, "stored": 2, "repeated": 0}
    assert "2 events in" in terminal.run("copy", target).stdout
    assert terminal.json("verify", "--store", target) == {"events": 2, "problems": []}
    assert "is this space itself" in terminal.run("copy", target, "--store", target).stderr
    third = str(tmp_path / "third.db")
    assert terminal.json("copy", target, third) == {"events": 2, "stored": 2, "repeated": 0}
    assert terminal.run("copy", target, third, "--store", target).exit_code == 2
    assert "3 stores are given" in terminal.run("copy", target, third, third).stderr
    assert "would be gone with this command" in terminal.run("copy", ":memory:").stderr
    assert "gone when this command ends" in terminal.run("mark", "four", "--store", ":memory:").stderr
    terminal.run("mark", "three", "--store", str(tmp_path / "other.db"))
    assert "holds another space" in terminal.run("copy", target, "--store", str(tmp_path / "other.db")).stderr
    assert terminal.run("copy", str(tmp_path / "other.db"), "--into-other").exit_code == 0
    assert terminal.json("events", "tail", "--store", target) == terminal.json("events", "tail")


UNPRIVILEGED = """
import os, sys
from mica.cli import cli
cli(["mark", "one", "--store", sys.argv[-1]], prog_name="mica", standalone_mode=False)
os.chmod(sys.argv[-1], 0o444)
os.chmod(sys.argv[-1] + "-segments", 0o777)
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
cli(sys.argv[1:], prog_name="mica")
"""


def test_a_mark_that_the_store_cannot_take_is_said_to_be_kept(terminal: Terminal) -> None:
    """U-04: what is said to have failed must not appear later, or whoever tries again has it twice."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        store = Path(folder) / "space.db"
        command = [sys.executable, "-c", UNPRIVILEGED, "mark", "two", "--json", "--store", str(store)]
        variables = os.environ | terminal.variables | {"HOME": folder}
        said = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        store.chmod(0o644)

        assert said.returncode == 0, said.stderr
        assert f"cannot write {store}" in said.stderr
        document = json.loads(said.stdout[said.stdout.index("{") :])
        assert (document.keys(), document["position"]) == ({"id", "position", "text"}, None)
        rows = terminal.json("events", "tail", "--store", str(store))
        assert isinstance(rows, list)
        assert [row["data"]["text"] for row in rows] == ["one", "two"]


def test_doctor_names_what_cannot_be_written(terminal: Terminal) -> None:
    """A store that takes nothing is not healthy, however whole it is."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        store = Path(folder) / "space.db"
        command = [sys.executable, "-c", UNPRIVILEGED, "doctor", "--json", "--store", str(store)]
        variables = os.environ | terminal.variables | {"HOME": folder}
        said = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

        document = json.loads(said.stdout[said.stdout.index("{") :])
        assert (said.returncode, document["healthy"]) == (1, False)
        assert document["problems"][0].startswith(f"{store} cannot be written, so that nothing new is kept: check")


def test_doctor_stores_what_a_killed_process_left_before_it_counts(terminal: Terminal, tmp_path: Path) -> None:
    """TE-03: nobody writes just now, so nothing is on the way."""
    store = tmp_path / "killed.db"
    code = (
        "import asyncio, os, signal, mica\n"
        "async def main():\n"
        f"    memory = await mica.open({str(store)!r})\n"
        "    for number in range(6_000):\n"  # more than every read stores first
        "        memory.emit('tool.ran', {'number': number})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | terminal.variables, check=False)

    document = terminal.json("doctor", "--store", str(store))

    assert isinstance(document, dict)
    assert (document["events"], document["backlog"]["events"], document["healthy"]) == (6_000, 0, True)
    assert not [line for line in document["advice"] if "on the way" in line]


def without_json(command: Command, name: str) -> Iterator[str]:
    if isinstance(command, Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from without_json(found, f"{name} {inner}".strip())
    elif not any(option.name == "as_json" for option in command.params):
        yield name


def test_every_command_takes_json_but_screens_and_protocols() -> None:
    """As the README says: what is in a command's help is not refused."""
    assert sorted(without_json(cli, "")) == ["hook", "mcp", "tui"]


def test_doctor_says_where_a_space_would_live(terminal: Terminal, tmp_path: Path) -> None:
    document = terminal.json("doctor")
    assert isinstance(document, dict)
    assert (document["healthy"], document["exists"]) == (True, False)
    assert document["store"].endswith(".db")
    assert "(made by what is first written)" in terminal.run("doctor").stdout

    (tmp_path / "file").touch()
    said = terminal.run("doctor", MICA_HOME=str(tmp_path / "file" / "home"))
    assert said.exit_code == 1
    assert "1 problem" in said.stdout
    assert f"{tmp_path / 'file'} cannot be written" in said.stdout


def test_a_mark_is_kept_while_the_server_is_away(terminal: Terminal, server: Server) -> None:
    """U-04, TE-03, E-28: and the doctor says how much waits, though the store does not answer."""
    store = ["--store", server.address()]
    assert terminal.run("mark", "one", *store).exit_code == 0
    server.kill()
    try:
        marked = terminal.run("mark", "two", *store)
        asked = terminal.run("doctor", *store)
        document = json.loads(terminal.run("doctor", "--json", *store).stdout)
    finally:
        server.restart()

    assert asked.exit_code == 1
    assert asked.stdout.startswith("1 problem  postgresql://")
    assert "does not answer" in asked.stdout
    assert "→ 1 event (" in asked.stdout
    assert document["backlog"]["events"] == 1
    assert not document["healthy"]
    assert marked.exit_code == 0, marked.output
    assert marked.stdout.startswith("kept here, stored when the store can be written again  ")
    assert "does not answer" in marked.stderr
    rows = terminal.json("events", "query", "--name", "mark", *store)
    assert isinstance(rows, list)
    assert [row["data"]["text"] for row in rows] == ["one", "two"]


def test_the_tree_that_the_readme_shows_is_one(terminal: Terminal) -> None:
    terminal.run("up", "--once", "--yes")
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    [number] = re.findall(r"mica events tree (\d+) --space sample", readme)
    assert terminal.run("events", "tree", number, "--space", "sample").stdout.count("\n") > 3


def test_overview_of_a_space(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("up", "--once")
    [name] = [row["name"] for row in json.loads(terminal.run("spaces", "--json").stdout)]
    document = terminal.json("overview", "--space", name)
    assert isinstance(document, dict)
    assert document["overview"]["usage"]["answers"] == 15
    assert document["overview"]["files"][0]["path"] == "src/auth.py"


# -- The command as a process ---------------------------------------------------------------------------------


def test_the_core_imports_nothing_heavy() -> None:
    """Start-up is latency: numpy, servers and models stay out until they are used."""
    heavy = (
        "numpy asyncpg starlette uvicorn mcp textual onnxruntime pydantic discord xllamacpp pytest hypothesis".split()
    )
    script = f"import sys, mica; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_python_m_mica_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "mica", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mica 0.")


def test_a_closed_pipe_is_no_traceback(terminal: Terminal, transcripts: Path) -> None:
    command = f"{sys.executable} -m mica up --once | head -1"
    done = subprocess.run(["bash", "-c", command], env=terminal.variables, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "said"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2_500_000_000, "2.5 GB")])
def test_sizes_are_for_people(number: int, said: str) -> None:
    assert size(number) == said


def test_what_was_said_several_times_is_shown_once_and_counted(terminal: Terminal) -> None:
    """U-01: near-duplicates, whatever their case and punctuation."""
    for text in ("The cookie is set early", "the cookie is set EARLY!", "The cookie is set late"):
        terminal.run("mark", text)
    shown = terminal.run("search", "cookie", "set").stdout
    assert shown.count("\n") == 2
    assert "said 2 times" in shown
    hits = json.loads(terminal.run("search", "cookie", "set", "--json").stdout)["hits"]
    assert sorted(hit["times"] for hit in hits) == [1, 2]


def test_a_tree_is_walked_to_a_depth_and_drawn_with_its_relations(terminal: Terminal) -> None:
    """B-25"""
    terminal.run("mark", "The cookie is lost")
    terminal.run("mark", "Moved it", "--parent", "1")
    terminal.run("mark", "Login works again", "--parent", "2", "--relation", "fulfills")

    near, whole = terminal.json("tree", "1", "--depth", "1"), terminal.json("tree", "1")
    drawn = terminal.run("tree", "1").stdout

    assert isinstance(near, dict)
    assert isinstance(whole, dict)
    assert near["children"][0]["children"] == []
    [last] = whole["children"][0]["children"]
    assert (last["data"]["text"], last["data"]["relation"]) == ("Login works again", "fulfills")
    assert drawn.index("The cookie is lost") < drawn.index("Moved it") < drawn.index("fulfills")


def test_marking_needs_no_model_and_what_waits_is_counted(terminal: Terminal) -> None:
    """U-02: what it costs is measured by bench/witness.py."""
    code = (
        "import asyncio, sys, mica\n"
        "async def main():\n"
        "    async with mica.open('space.db') as memory:\n"
        "        memory.mark('one'); await memory.durable(); print(await memory.backlog())\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith(('mica.llm.models', 'pydantic_ai', 'onnxruntime'))])"
    )
    variables = {**os.environ, **terminal.variables}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=True)

    counted, loaded = done.stdout.splitlines()
    assert counted.startswith("(")
    assert loaded == "[]"
    assert "backlog" in terminal.run("doctor", "--json").stdout


@pytest.mark.parametrize("how", ["signal.raise_signal(signal.SIGINT)", "del module"])
def test_ctrl_c_ends_a_command_with_one_line_wherever_it_falls(how: str) -> None:
    """U-11: Python drops what is raised in a callback of its own, as while it loads modules; this is heard."""
    script = f"""if True:
        import signal, sys, time, weakref
        from mica.cli import cli, main

        class Module: ...

        @cli.command()
        def press() -> None:
            module = Module()
            callback = weakref.ref(module, lambda _: signal.raise_signal(signal.SIGINT))
            {how}
            time.sleep(60)

        sys.argv[1:] = ["press"]
        main()
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mica: stopped\n")


def test_ctrl_c_ends_a_command_with_one_line_from_the_moment_it_is_heard() -> None:
    """U-11: whoever presses it as the last module is loaded meets neither a traceback nor another word."""
    script = """if True:
        import signal, sys
        from mica.cli import main

        hear = signal.signal

        def pressed(number, handler):
            hear(number, handler)
            signal.raise_signal(number)

        hear(signal.SIGINT, signal.SIG_DFL)
        signal.signal = pressed
        sys.argv[1:] = ["version"]
        main()
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mica: stopped\n")
