"""mica up: from transcripts to a first look, with the user's own and with the sample."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.terminal import FIXTURES, Terminal

from mica.settings import load_settings
from mica.store.remote.servers import RunningServer, announce
from mica.store.space import space_of
from mica.web.process import listen, only_server


def test_up_without_transcripts_shows_the_sample_and_says_so(terminal: Terminal) -> None:
    """keeps: U-11. One command gives a first look, offline."""
    result = terminal.run("up", "--once")
    assert result.exit_code == 0, result.output
    assert "This is the bundled sample" in result.stdout
    assert "What happened lately" in result.stdout
    assert "What the next agent will receive" in result.stdout
    assert "mica search" in result.stdout
    assert "--space sample" in result.stdout
    assert "mica navigate" not in result.stdout  # its files are not on this machine
    document = terminal.json("up")
    assert isinstance(document, dict)
    assert document["is_sample"] is True
    assert document["imported"]["sample"]["events"] == 0
    assert document["brief"]["text"]


def test_up_imports_the_transcripts_it_finds(terminal: Terminal, transcripts: Path) -> None:
    result = terminal.run("up", "--once", "--yes")
    assert result.exit_code == 0, result.output
    assert "Found 2 transcripts" in result.stdout
    assert "Explain how auth works" in result.stdout
    assert "src/auth.py" in result.stdout
    assert "sample" not in result.stdout


def test_a_folder_without_transcripts_shows_the_sample(terminal: Terminal, transcripts: Path) -> None:
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_text("")
    result = terminal.run("up", "--once")
    assert result.exit_code == 0, result.output
    assert "This is the bundled sample" in result.stdout


def test_up_without_import_shows_a_space_that_a_server_holds(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("mark", "The cookie is set before the redirect")
    settings = load_settings(terminal.variables)
    with only_server(space_of(Path.cwd(), home=settings.home).file, address="http://127.0.0.1:1"):
        shown = terminal.run("up", "--once", "--no-import")
        document = terminal.json("up", "--no-import")

    assert shown.exit_code == 0, shown.output
    assert "The cookie is set before the redirect" in shown.stdout
    assert isinstance(document, dict)
    assert "cookie" in document["brief"]["text"]
    assert "imported" not in document


def test_up_again_says_that_nothing_is_new(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("up", "--once", "--yes")
    assert "Nothing new in 2 transcripts" in terminal.run("up", "--once").stdout


def test_up_into_one_store_says_so(terminal: Terminal, transcripts: Path, tmp_path: Path) -> None:
    result = terminal.run("up", "--once", "--yes", "--store", str(tmp_path / "one.db"))
    assert f"in 1 project; all go into {tmp_path / 'one.db'}." in result.stdout
    assert f"--store {tmp_path / 'one.db'}" in result.stdout


def test_overview_of_a_space(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("up", "--once", "--yes")
    [name] = [row["name"] for row in json.loads(terminal.run("upkeep", "spaces", "--json").stdout)]
    document = terminal.json("events", "overview", "--space", name)
    assert isinstance(document, dict)
    assert document["overview"]["usage"]["answers"] == 15
    assert document["overview"]["files"][0]["path"] == "src/auth.py"


def projects(terminal: Terminal, *directories: Path) -> None:
    """A transcript for each directory, the last one the latest."""
    source = next(FIXTURES.glob("*transcript-a*")).read_text()
    for number, directory in enumerate(directories):
        directory.mkdir(parents=True, exist_ok=True)
        file = terminal.home / ".claude" / "projects" / f"-{number}" / f"{number}.jsonl"
        file.parent.mkdir(parents=True)
        moved = source.replace("/home/dev/shop", str(directory))
        file.write_text(moved.replace('sessionId":"', f'sessionId":"{number}'))
        os.utime(file, (number, number))


def test_up_lists_several_projects_with_the_current_directorys_first(terminal: Terminal, tmp_path: Path) -> None:
    projects(terminal, Path.cwd(), tmp_path / "mail", tmp_path / "shop")

    shown = terminal.run("up", "--once", "--yes")

    assert shown.exit_code == 0, shown.output
    assert "Found 3 transcripts" in shown.stdout
    assert "in 3 projects" in shown.stdout
    table = shown.stdout.partition("directory")[2].splitlines()[1:]
    assert [line.partition("-")[0] for line in table if " kB " in line] == ["project", "shop", "mail"]
    assert "(here)" in table[0]
    assert 'mica brief "your task" ' in shown.stdout
    steps = shown.stdout.partition("What to type next")[2]
    assert "--space" not in steps, "commands typed here are about the project shown"


def test_up_elsewhere_shows_the_latest_project_and_how_to_name_it(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects(terminal, tmp_path / "mail", tmp_path / "shop")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    shown = terminal.run("up", "--once", "--yes").stdout

    assert 'mica search "words" --space shop ' in shown
    [others] = [line for line in shown.splitlines() if "other project" in line]
    assert others.startswith("1 other project: mail-")
    assert others.endswith(" (1 session); `mica up --space NAME` shows one")
    assert terminal.run("search", "session", "--space", "shop").exit_code == 0


def test_the_sample_is_shown_at_any_time(terminal: Terminal, transcripts: Path) -> None:
    shown = terminal.run("up", "--sample", "--once")

    assert shown.exit_code == 0, shown.output
    assert "This is the bundled sample, an invented web shop." in shown.stdout
    assert "No transcripts" not in shown.stdout
    assert [row["name"] for row in terminal.documents("upkeep", "spaces")] == ["sample"], "nothing else was imported"
    assert terminal.documents("up", "--sample", "--once")[0]["is_sample"] is True
    assert terminal.run("up", "--sample", "--no-import").exit_code == 2


def test_up_says_how_a_shell_finds_mica(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "mica"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "up"])

    hidden = terminal.run("up", "--sample", "--once", PATH="/nowhere").stdout
    found = terminal.run("up", "--sample", "--once", PATH=str(program.parent)).stdout

    assert f'export PATH="{program.parent}:$PATH"' in hidden
    assert "export PATH" not in found


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `mica` below this directory that PATH does not contain, as in a fresh clone."""
    program = tmp_path / "project" / ".venv" / "bin" / "mica"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "up"])
    return program


def test_suggested_commands_can_be_pasted_when_mica_is_not_on_the_path(
    terminal: Terminal, transcripts: Path, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    declined = answered(terminal, monkeypatch, "n\n", "up", "--once").stdout
    refused = terminal.run("search", "x", "--space", "nowhere").stderr
    empty = terminal.run("search", "x").stdout
    monkeypatch.chdir(tmp_path)
    elsewhere = terminal.run("server", "open").stderr
    monkeypatch.setenv("PATH", str(program.parent))
    on_path = terminal.run("server", "open").stderr

    assert "Nothing was imported. `.venv/bin/mica up --sample` shows an invented web shop." in declined
    assert f'export PATH="{program.parent}:$PATH"' in declined
    assert "`.venv/bin/mica upkeep spaces` lists the spaces" in refused
    assert "`.venv/bin/mica up` imports" in empty
    assert "`project/.venv/bin/mica up` starts one" in elsewhere
    assert "`mica up` starts one" in on_path


# -- The sample has a space of its own ------------------------------------------------------------------------------


def texts(terminal: Terminal, *options: str) -> list[str]:
    return [row["data"]["text"] for row in terminal.documents("events", "query", "--name", "mark", *options)]


@pytest.mark.parametrize("mode", [("--once",), ("--json",), ("--once", "--yes")])
def test_without_transcripts_a_named_store_is_shown_as_it_is(
    terminal: Terminal, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """It may be shared: nothing invented is ever added to it."""
    store = str(tmp_path / "shared.db")
    terminal.run("mark", "Payments are retried three times", "--store", store)
    events = terminal.documents("events", "query", "--store", store)

    shown = terminal.run("up", *mode, "--store", store)
    by_setting = terminal.run("up", *mode, MICA_STORE=store)

    for result in (shown, by_setting):
        assert result.exit_code == 0, result.output
        assert "Payments are retried three times" in result.stdout
        assert "This is what shared holds" in result.stdout + result.stderr
        assert "sample" not in result.stdout.replace('"is_sample": false', "")
    assert terminal.documents("events", "query", "--store", store) == events
    assert json.loads(terminal.run("upkeep", "spaces", "--json").stdout) == []


@pytest.mark.parametrize("option", [".", "project"])
def test_without_transcripts_a_named_space_is_shown_as_it_is(terminal: Terminal, option: str) -> None:
    terminal.run("mark", "The cookie is set before the redirect")
    events = terminal.documents("events", "query")

    shown = terminal.run("up", "--once", "--space", option)

    assert "The cookie is set before the redirect" in shown.stdout
    assert "bundled" not in shown.stdout
    assert terminal.documents("events", "query") == events


def test_an_empty_named_space_is_shown_as_empty(terminal: Terminal) -> None:
    shown = terminal.run("up", "--once", "--space", ".")

    assert shown.exit_code == 0, shown.output
    assert "there is no memory of . yet" in " ".join(shown.stdout.split())
    assert ":memory:" not in shown.stdout
    assert "bundled" not in shown.stdout
    assert json.loads(terminal.run("upkeep", "spaces", "--json").stdout) == []


@pytest.mark.parametrize("option", ["--store", "--space"])
def test_the_sample_is_not_put_into_a_named_store(terminal: Terminal, tmp_path: Path, option: str) -> None:
    terminal.run("mark", "one")

    refused = terminal.run("up", "--sample", "--once", option, str(tmp_path / "project"))

    assert refused.exit_code == 2
    assert f"in their own space; leave out {option}\n" in refused.stderr


def test_the_sample_has_its_own_space_beside_a_configured_store(terminal: Terminal, tmp_path: Path) -> None:
    store = str(tmp_path / "shared.db")
    terminal.run("mark", "one", "--store", store)

    assert terminal.run("up", "--sample", "--once", MICA_STORE=store).exit_code == 0

    assert texts(terminal, "--store", store) == ["one"]
    assert [row["name"] for row in terminal.documents("upkeep", "spaces")] == ["sample"]


def session_here(terminal: Terminal) -> None:
    """A session of an agent in the space of this directory, without a transcript."""
    terminal.run("events", "emit", "session.started", "--session", "s1", "--agent", "scout")
    terminal.run("mark", "The cookie is set before the redirect")


def test_without_transcripts_the_sessions_of_this_directory_are_shown(terminal: Terminal) -> None:
    session_here(terminal)

    shown = terminal.run("up", "--once")

    assert "The cookie is set before the redirect" in shown.stdout
    assert "`mica up --sample` shows an invented web shop" in shown.stdout
    assert "What to type next" in shown.stdout
    assert [row["name"].partition("-")[0] for row in terminal.documents("upkeep", "spaces")] == ["project"]


def test_the_sessions_of_this_directory_are_shown_before_other_projects(terminal: Terminal, transcripts: Path) -> None:
    session_here(terminal)

    shown = terminal.run("up", "--once", "--yes").stdout

    assert "The cookie is set before the redirect" in shown
    assert "shop-" in shown.partition("What to type next")[0]
    assert "0 transcripts" not in shown


def test_marks_alone_do_not_hide_what_agents_did_elsewhere(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("mark", "The cookie is set before the redirect")

    shown = terminal.run("up", "--once", "--yes").stdout

    assert "What happened lately" in shown
    assert "Explain how auth works" in shown
    [note] = [line for line in shown.splitlines() if "the space of this directory" in line]
    assert note.startswith("project-")
    assert "has only 1 mark and no session; `mica up --space .` shows it." in note


def test_marks_alone_do_not_hide_the_sample(terminal: Terminal) -> None:
    terminal.run("mark", "The cookie is set before the redirect")

    shown = terminal.run("up", "--once").stdout

    assert "This is the bundled sample" in shown
    assert "has only 1 mark and no session" in shown


def test_if_the_import_is_declined_the_marks_of_this_directory_are_shown(
    terminal: Terminal, transcripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("mark", "The cookie is set before the redirect")

    shown = answered(terminal, monkeypatch, "n\n", "up", "--once").stdout

    assert "What the next agent will receive" in shown
    assert "The cookie is set before the redirect" in shown


# -- Which transcripts are imported ---------------------------------------------------------------------------------


def test_without_a_terminal_transcripts_go_into_their_own_spaces_only(
    terminal: Terminal, transcripts: Path, tmp_path: Path
) -> None:
    """Merging cannot be undone, so that needs --yes where there is no one to ask."""
    store = str(tmp_path / "shared.db")
    refused = terminal.run("up", "--once", "--store", store)
    shown = terminal.run("up", "--once")

    assert (refused.exit_code, shown.exit_code) == (1, 0)
    assert "Nothing was imported: there is no terminal to ask in. --yes imports 2 transcripts." in refused.stdout
    assert not Path(store).exists()
    assert "each goes into its project's own space" in shown.stdout
    assert [row["name"].partition("-")[0] for row in terminal.documents("upkeep", "spaces")] == ["shop"]


def test_a_space_takes_only_the_transcripts_of_its_project(terminal: Terminal, tmp_path: Path) -> None:
    projects(terminal, tmp_path / "bakery", tmp_path / "mail", tmp_path / "shop")
    terminal.run("mark", "Bread is baked at four", "--space", str(tmp_path / "bakery"))

    shown = terminal.run("up", "--once", "--yes", "--space", "bakery")

    assert shown.exit_code == 0, shown.output
    assert "2 transcripts of 2 other projects left to their own spaces" in shown.stdout
    assert "Found 1 transcript " in shown.stdout
    assert [row["name"].partition("-")[0] for row in terminal.documents("upkeep", "spaces")] == ["bakery"]
    read = terminal.documents("events", "query", "--name", "transcript.read", "--space", "bakery")
    assert len(read) == 1


def test_a_space_without_transcripts_of_its_own_takes_none(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("mark", "The cookie is set before the redirect")
    events = terminal.documents("events", "query")

    shown = terminal.run("up", "--once", "--yes", "--space", ".")

    assert "2 transcripts of 1 other project left to their own spaces" in shown.stdout
    assert "No transcripts of project-" in shown.stdout
    assert "No transcripts in" not in shown.stdout, "there are some, of another project"
    assert "The cookie is set before the redirect" in shown.stdout
    assert terminal.documents("events", "query") == events


def answered(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, answer: str, *arguments: str) -> Result:
    """The result of a command in a terminal in which this answer is typed."""
    with monkeypatch.context() as patch:
        patch.setattr("mica.cli.start.has_terminal", lambda: True)
        return terminal.run(*arguments, stdin=answer)


def test_merging_projects_into_a_store_is_asked_with_no_as_default(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects(terminal, tmp_path / "mail", tmp_path / "shop")
    store = str(tmp_path / "shared.db")
    terminal.run("mark", "Payments are retried three times", "--store", store)

    declined = answered(terminal, monkeypatch, "\n", "up", "--once", "--store", store)
    marks = texts(terminal, "--store", store)
    agreed = answered(terminal, monkeypatch, "y\n", "up", "--once", "--store", store)

    assert f"in 2 projects; all are merged into {store}." in declined.stdout
    assert f"Merge 2 projects into {store}? [y/N]" in declined.stdout
    assert marks == ["Payments are retried three times"]
    assert "Payments are retried three times" in declined.stdout, "the store is shown all the same"
    assert len(texts(terminal, "--store", store)) > 2, agreed.output


def test_an_unclear_answer_is_asked_again(
    terminal: Terminal, transcripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answered(terminal, monkeypatch, "wat\nn\n", "up", "--once")

    assert asked.stdout.count("Import them? [Y/n]") == 2
    assert "Nothing was imported" in asked.stdout
    assert terminal.run("upkeep", "spaces", "--json").stdout == "[]\n"


def test_ctrl_c_at_the_question_is_no_error(
    terminal: Terminal, transcripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make run` would print `make: *** Error`. The end of the input is the same to click as Ctrl-C."""
    stopped = answered(terminal, monkeypatch, "", "up", "--once")

    assert stopped.exit_code == 0, stopped.output
    assert "mica: nothing was imported" in stopped.stderr
    assert "Aborted" not in stopped.output
    assert "What the next agent" not in stopped.output
    assert terminal.run("upkeep", "spaces", "--json").stdout == "[]\n"


def test_up_names_transcripts_that_cannot_be_read(terminal: Terminal, transcripts: Path) -> None:
    (transcripts / "-home-dev-shop" / "text.jsonl").write_text("not json\n")

    shown = terminal.run("up", "--once", "--yes")

    assert shown.exit_code == 0, shown.output
    assert "1 transcript could not be read, the first: " in shown.stdout
    assert "text.jsonl" in shown.stdout


def test_every_count_of_events_counts_what_its_line_says(terminal: Terminal) -> None:
    shown = terminal.run("up", "--sample", "--once").stdout

    [first] = [line for line in shown.splitlines() if line.startswith("sample  ")]
    [imported] = [line for line in shown.splitlines() if line.startswith("✓ sample")]
    assert first.split()[1:3] == imported.split()[2:4] == ["121", "events"]
    assert "121 events since" in terminal.run("up", "--once", "--no-import", "--space", "sample").stdout
    assert "Events include mica's own records" in terminal.run("upkeep", "spaces").stdout


def test_the_first_look_names_what_it_counts(terminal: Terminal) -> None:
    shown = terminal.run("up", "--sample", "--once").stdout

    assert "What mica found" in shown
    assert "Would naming files in advance have paid?" not in shown, "the account of navigation is `mica trails replay`"
    assert "What happened lately, session by session" in shown


def test_if_another_server_runs_the_first_look_is_shown_before_the_reason(terminal: Terminal) -> None:
    settings = load_settings(terminal.variables)
    with (
        closing(listen("127.0.0.1", 0, home=settings.home)) as taken,
        announce(
            RunningServer(address=f"http://127.0.0.1:{taken.getsockname()[1]}", pid=os.getpid(), token="t", space="x"),
            home=settings.home,
        ),
    ):
        shown = terminal.run("up", "--sample", "--port", str(taken.getsockname()[1]))

    assert shown.exit_code == 1
    assert "What happened lately" in shown.stdout
    assert "mica already serves at http://127.0.0.1:" in shown.stderr
