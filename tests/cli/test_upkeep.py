"""mica upkeep: spaces, copies, compression."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.terminal import Terminal


def test_spaces_are_listed_with_their_directories(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    terminal.run("mark", "seen here")
    listed = terminal.json("upkeep", "spaces")
    assert isinstance(listed, list)
    assert [row["directory"] for row in listed] == [str(tmp_path / "shop")]
    for other in (tmp_path, tmp_path / "shop" / "src", tmp_path / "far" / "away"):
        other.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(other)
        assert terminal.documents("upkeep", "spaces")[0]["directory"] == str(tmp_path / "shop"), other


def test_a_space_made_for_a_named_directory_is_listed_with_it(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "far" / "shop").mkdir(parents=True)

    terminal.run("mark", "seen there", "--space", str(tmp_path / "far" / "shop"))

    assert terminal.documents("upkeep", "spaces")[0]["directory"] == str(tmp_path / "far" / "shop")


def test_a_store_of_unknown_origin_has_no_directory(terminal: Terminal) -> None:
    terminal.run("mark", "one", "--store", str(terminal.home / ".local/share/mica/spaces/ours.db"))

    assert terminal.documents("upkeep", "spaces")[0]["directory"] is None
    assert "unknown" in terminal.run("upkeep", "spaces").stdout


def test_a_command_that_needs_a_model_says_so(terminal: Terminal) -> None:
    """keeps: K-57. Everything else works without it."""
    refused = terminal.run("search", "x", MICA_SEMANTIC="maybe")
    assert "MICA_SEMANTIC='maybe'" in refused.stderr
    assert "pip install 'mica[semantic]'" in terminal.run("upkeep", "embed").stderr
    document = terminal.json("doctor")
    assert isinstance(document, dict)
    assert document["marks_without_vector"] is None


def test_age_compresses_old_events_into_blocks(terminal: Terminal) -> None:
    """keeps: E-03. Nothing is lost, and `mica doctor` reports how much has aged."""
    for text in ("one cookie", "two"):
        terminal.run("mark", text)
    assert isinstance(young := terminal.json("upkeep", "age"), dict)
    assert young["aged"] == 0

    assert isinstance(document := terminal.json("upkeep", "age", "--older-than", "0s"), dict)

    assert (document["aged"], document["events"], document["aged_in_all"]) == (2, 2, 2)
    assert isinstance(state := terminal.json("doctor"), dict)
    assert (state["aged"], state["blocks"], state["healthy"]) == (2, 1, True)
    assert "2 compressed into 1 block" in " ".join(terminal.run("doctor").stdout.split())
    assert "one cookie" in terminal.run("search", "cookie").stdout
    assert "0 events compressed" in terminal.run("upkeep", "age").stdout
    wrong = terminal.run("upkeep", "age", "--older-than", "soon")
    assert wrong.exit_code == 2
    assert "'soon' is not a duration" in wrong.stderr


def test_a_copy_creates_no_folder(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("mark", "one")

    refused = terminal.run("upkeep", "copy", str(tmp_path / "nosuch" / "x.db"))

    assert (refused.exit_code, "there is no folder" in refused.stderr) == (1, True)
    assert not (tmp_path / "nosuch").exists()


def test_a_space_can_be_copied(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("mark", "one")
    terminal.run("mark", "two")
    target = str(tmp_path / "copy.db")
    copied = {"events": 2, "stored": 2, "repeated": 0, "purged": 0, "unreached": []}
    assert terminal.json("upkeep", "copy", target) == copied
    assert "2 events in" in terminal.run("upkeep", "copy", target).stdout
    assert terminal.json("upkeep", "verify", "--store", target) == {"events": 2, "problems": []}
    assert "is this space itself" in terminal.run("upkeep", "copy", target, "--store", target).stderr
    third = str(tmp_path / "third.db")
    assert terminal.json("upkeep", "copy", target, third) == copied
    assert terminal.run("upkeep", "copy", target, third, "--store", target).exit_code == 2
    assert "3 stores are given" in terminal.run("upkeep", "copy", target, third, third).stderr
    assert "would be lost when this command ends" in terminal.run("upkeep", "copy", ":memory:").stderr
    assert "is lost when this command ends" in terminal.run("mark", "four", "--store", ":memory:").stderr
    terminal.run("mark", "three", "--store", str(tmp_path / "other.db"))
    assert "holds another space" in terminal.run("upkeep", "copy", target, "--store", str(tmp_path / "other.db")).stderr
    assert terminal.run("upkeep", "copy", str(tmp_path / "other.db"), "--into-other").exit_code == 0
    assert terminal.json("events", "tail", "--store", target) == terminal.json("events", "tail")
