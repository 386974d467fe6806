"""mica import: transcripts of every client, each into its space."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.cli.terminal import FIXTURES, Terminal

from mica.cli import transcripts as importing


@pytest.fixture
def histories(terminal: Terminal, transcripts: Path, opencode_db: Path) -> None:
    """The recorded sessions of five clients, each in its usual folder."""
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


def test_import_takes_each_transcript_into_the_space_of_its_directory(terminal: Terminal, transcripts: Path) -> None:
    """keeps: A-12. Reads and writes of agents are imported, and nothing crosses a space boundary."""
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
    spaces = terminal.json("upkeep", "spaces")
    assert isinstance(spaces, list)
    assert {row["name"] for row in spaces} >= {name}


def test_paths_are_relative_to_the_worktree_they_were_read_in(
    terminal: Terminal, transcripts: Path, tmp_path: Path
) -> None:
    """Worktrees share a space; each session has its own root."""
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


@pytest.mark.usefixtures("histories")
def test_import_finds_every_clients_history_and_reports_it(terminal: Terminal) -> None:
    """keeps: A-12. Without arguments all are imported, each session into the space of its directory."""
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
def test_import_of_one_client_leaves_out_the_others(terminal: Terminal, client: str) -> None:
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
    assert (wrong.exit_code, "is not a transcript of claude-code" in wrong.stderr) == (1, True)
    typo = terminal.run("import", "codx")
    assert (typo.exit_code, "give auto, claude-code, codex, copilot, gemini or opencode" in typo.stderr) == (2, True)


@pytest.mark.usefixtures("histories")
def test_transcripts_are_found_by_the_variables_of_their_clients(terminal: Terminal, tmp_path: Path) -> None:
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

    assert result.exit_code == 1, result.output  # as documented, although everything else is stored
    assert "from-the-future (1)" in result.stdout
    assert "1 record could not be read" in result.stdout
    assert "still being written" in result.stdout
    assert "1 file is not a transcript" in result.stdout


def test_an_unreadable_file_is_named_and_the_others_are_imported(terminal: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "good.jsonl").write_bytes(next(FIXTURES.glob("*transcript-a*")).read_bytes())
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    result = terminal.run("import", "claude-code", str(folder), "--store", str(tmp_path / "s.db"))
    assert "events from 1 transcript\n" in result.stdout
    assert "gone.jsonl could not be read: No such file or directory" in result.stdout
    assert result.exit_code == 1


@pytest.mark.parametrize("content", [b"not json\n", b"\xff\xfe\x00\n{}\n"])
def test_a_broken_transcript_ends_an_import_with_1(terminal: Terminal, transcripts: Path, content: bytes) -> None:
    (transcripts / "-home-dev-shop" / "broken.jsonl").write_bytes(content)

    result = terminal.run("import")
    single = terminal.run("import", str(transcripts / "-home-dev-shop" / "broken.jsonl"))

    assert "events from 2 transcripts\n" in result.stdout
    for each in (result, single):
        assert "broken.jsonl could not be read: its first line is not a record" in each.stdout
        assert each.exit_code == 1


@pytest.mark.parametrize("content", [b"", b"\n", b'{"a": 1}\n', b'{"type":"user","mess'])
def test_a_file_that_is_no_transcript_or_just_begun_is_no_failure(
    terminal: Terminal, transcripts: Path, content: bytes
) -> None:
    (transcripts / "-home-dev-shop" / "other.jsonl").write_bytes(content)

    assert terminal.run("import").exit_code == 0


@pytest.mark.parametrize("cwd", [r"C:\Users\ann\shop", "~nobodyx", "/home/a\0b"])
def test_a_session_of_another_machine_goes_into_no_local_space(terminal: Terminal, transcripts: Path, cwd: str) -> None:
    """Its paths have no meaning here, neither as the current directory nor as a home."""
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_text(path.read_text().replace('"/home/dev/shop"', json.dumps(cwd)))

    done = terminal.json("import", "claude-code")

    assert isinstance(done, dict)
    assert list(done["spaces"]) == ["unknown"]
    assert terminal.json("events", "tail") == []


@pytest.mark.parametrize("command", [["up", "--yes", "--once"], ["import", "claude-code"]])
@pytest.mark.parametrize("enough", [10, 1_000])
def test_an_import_compresses_old_events_that_fill_a_block(
    terminal: Terminal, transcripts: Path, command: list[str], enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: TE-12. Files stay small without a server too, and reads give the same events."""
    monkeypatch.setattr(importing, "BLOCK_EVENTS", enough)
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace('"2026-', '"2025-'), encoding="utf-8")

    assert terminal.run(*command).exit_code == 0

    [row] = json.loads(terminal.run("upkeep", "spaces", "--json").stdout)
    document = terminal.json("doctor", "--space", row["name"])
    assert isinstance(document, dict)
    new = document["events"] - document["aged"]  # the import itself and the brief for hooks
    assert (new <= 5) == (enough < document["events"])
    assert (document["healthy"], document["problems"]) == (True, [])


def test_an_unreadable_folder_is_named_and_the_others_are_imported(terminal: Terminal, transcripts: Path) -> None:
    (transcripts / "loop").symlink_to(transcripts / "loop")
    (transcripts / "-home-dev-shop" / "dir.jsonl").mkdir()
    result = terminal.run("import", "claude-code")
    assert "events from 2 transcripts" in result.stdout


@pytest.mark.parametrize("command", [("import", "claude-code"), ("up", "--once", "--yes")], ids=["import", "up"])
def test_the_first_session_after_an_import_receives_a_brief(
    terminal: Terminal, transcripts: Path, command: tuple[str, ...]
) -> None:
    """keeps: A-18. What hooks print is written with the import, not only by the first ingest."""
    assert terminal.run(*command).exit_code == 0

    [answer] = terminal.home.rglob("session.json")
    assert "Explain how auth works" in json.loads(answer.read_text())["text"]


def test_an_import_into_a_store_prepares_nothing_for_hooks(
    terminal: Terminal, transcripts: Path, tmp_path: Path
) -> None:
    assert terminal.run("import", "claude-code", "--store", str(tmp_path / "one.db")).exit_code == 0

    assert list(tmp_path.rglob("session.json")) == []
