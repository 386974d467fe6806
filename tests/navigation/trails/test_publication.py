"""Publications: their destinations, how git ignores them, and how they are removed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mica.model.trail import PUBLISHED
from mica.navigation.repository import git
from mica.navigation.trails.commands import AGENTS_SKILLS, COMMANDS, Destination, in_project, publish
from mica.navigation.trails.publication import (
    BEGIN,
    Publication,
    destination_of,
    publications_in,
    remember,
    republish,
    withdraw,
)
from mica.testing.builders import build


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    return root


def excluded(project: Path) -> str:
    return (project / ".git" / "info" / "exclude").read_text(encoding="utf-8")


def test_clients_find_commands_and_skills_where_they_look(project: Path) -> None:
    assert destination_of(project, []) is None
    assert destination_of(project, ["claude-code"]) == Destination(root=project, commands=COMMANDS)
    assert destination_of(project, ["codex"]) == Destination(root=project, skills=(AGENTS_SKILLS,))


def test_published_files_are_excluded_from_git_once(project: Path, tmp_path: Path) -> None:
    destination = in_project(project)
    before = excluded(project)

    remember(destination, home=tmp_path / "home")
    remember(destination, home=tmp_path / "home")

    assert excluded(project).count(BEGIN) == 1
    assert f"/{COMMANDS}/" in excluded(project)
    assert withdraw(tmp_path / "home") == []
    assert excluded(project) == before


def test_an_uninstall_removes_published_files_except_edited_ones(project: Path, tmp_path: Path) -> None:
    destination = Destination(root=project, commands=COMMANDS)
    remember(destination, home=tmp_path / "home")
    publish([], destination)
    edited = project / COMMANDS / "explore.md"
    edited.write_text(edited.read_text(encoding="utf-8") + "by hand\n", encoding="utf-8")

    kept_files = withdraw(tmp_path / "home")

    assert [each.name for each in (project / COMMANDS).iterdir()] == ["explore.md"]
    assert kept_files == [f"{edited} was not removed: edited by hand"]
    edited.unlink()
    assert withdraw(tmp_path / "home") == [], "the list of destinations is deleted"


def test_empty_folders_are_removed_with_the_last_file(project: Path, tmp_path: Path) -> None:
    destination = Destination(root=project, commands=COMMANDS)
    remember(destination, home=tmp_path / "home")
    publish([], destination)

    withdraw(tmp_path / "home")

    assert not (project / ".claude").exists()


def test_each_place_is_read_once_and_unreadable_events_are_ignored(project: Path) -> None:
    publication = Publication(host="here", destination=in_project(project))
    event = build(1, PUBLISHED, msgspec.to_builtins(publication, enc_hook=str))

    assert publications_in([event, event, build(2, PUBLISHED, {"host": 5})]) == [publication]


def test_commands_on_another_machine_are_named(project: Path) -> None:
    done = republish([], [Publication(host="another", destination=in_project(project))])

    assert (done.written, done.removed) == ((), ())
    assert len(done.unreached) == 1
    assert "on another" in done.unreached[0]
