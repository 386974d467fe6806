"""Crystallized trails as commands and skills: mica changes only the files that it wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.hostile_text import HOSTILE, MARK, dangers

from mica.model.trail import Measurement, Trail
from mica.navigation.trails.commands import (
    Fate,
    command_text,
    explore_text,
    help_text,
    in_folder,
    in_project,
    is_ours,
    publish,
    reference,
    skill_text,
)
from mica.testing.contract.trails import build_trail


def trail(slug: str = "login", *paths: str, **changes: object) -> Trail:
    made = build_trail(slug, *(paths or ("src/auth.py", "src/session.py")), runs=9)
    return msgspec.structs.replace(made, **{"version": 1, "state": "crystallized", "measured": None, **changes})


def fates(root: Path, *trails: Trail) -> dict[str, Fate]:
    return {each.path: each.fate for each in publish(trails, in_project(root))}


def test_a_command_lists_the_files_in_order_with_their_cost() -> None:
    """keeps: A-15, TA-05, A-10. The saving is unknown until it is measured."""
    text = command_text(trail())
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == ["# /nav:login", "## Files to load", "## Summary", "## Token cost", "## How"]
    assert text.startswith('---\ndescription: "Where login is"\n')
    assert "Entry: `src/auth.py:1-9`" in text
    assert text.index("1. `src/auth.py:1-9`") < text.index("2. `src/session.py:1-9`")
    assert "- Reading it: 180 tokens when last read" in text
    assert "Saving: unknown" in text
    assert "Load these files in this order" in text


def test_a_measured_saving_names_method_and_sample_and_a_loss_is_shown() -> None:
    """keeps: TA-05, TA-06, K-04, A-10, A-03. Figures come from measurements only."""
    lost = command_text(trail(measured=Measurement(method="replay", sample=12, baseline_tokens=900, tokens=1_200)))
    assert "- Without it: 900 tokens; with it: 1,200 tokens" in lost
    assert "- 300 tokens wasted (-33%), by replay over 12 tasks" in lost
    saved = command_text(trail(measured=Measurement(method="hold-out", sample=40, baseline_tokens=900, tokens=450)))
    assert "- 450 tokens saved (+50%), by hold-out over 40 tasks" in saved


def test_a_command_has_an_entry_ranges_and_whole_files() -> None:
    """keeps: A-24. A command has an entry, ranges, and whole files."""
    flow = trail("payment-flow", "api/payment/handler.ts", "payment/stripe.ts", "models/transaction.ts")
    whole = msgspec.structs.replace(flow.steps[2], start_line=None, end_line=None)
    text = command_text(msgspec.structs.replace(flow, steps=(*flow.steps[:2], whole)))
    assert "Entry: `api/payment/handler.ts:1-9`" in text
    assert "3. `models/transaction.ts (full)`" in text


def test_a_skill_is_portable() -> None:
    """Its name is that of its folder, and fields of mica are under `metadata`."""
    text = skill_text(trail())
    front = text.split("---\n")[1].splitlines()
    assert front[0] == 'name: "nav-login"'
    assert [line.split(":")[0] for line in front if not line.startswith(" ")] == [
        "name",
        "description",
        "allowed-tools",
        "metadata",
    ]
    assert "Use when the task touches login, cooki." in front[1]


def test_files_are_published_where_each_client_looks(tmp_path: Path) -> None:
    """keeps: K-10, A-23. Commands are `commands/nav/<slug>.md`, and skills are `nav-<slug>`."""
    assert fates(tmp_path, trail()) == dict.fromkeys(
        [
            ".agents/skills/nav-login/SKILL.md",
            ".claude/commands/nav/explore.md",
            ".claude/commands/nav/help.md",
            ".claude/commands/nav/login.md",
            ".claude/skills/nav-login/SKILL.md",
        ],
        "written",
    )
    assert set(fates(tmp_path, trail()).values()) == {"unchanged"}
    assert "commands/nav/login.md" in {each.path for each in publish([trail()], in_folder(tmp_path / "own"))}


def test_a_hand_written_file_is_never_overwritten(tmp_path: Path) -> None:
    """keeps: K-10. Neither is a file that was edited."""
    mine = tmp_path / ".claude/commands/nav/login.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("My own command\n")
    assert fates(tmp_path, trail())[".claude/commands/nav/login.md"] == "kept"
    assert mine.read_text() == "My own command\n"

    skill = tmp_path / ".agents/skills/nav-login/SKILL.md"
    skill.write_text(skill.read_text() + "\nA word of mine.\n")
    newer = trail(version=2, exact="other")
    done = {each.path: each for each in publish([newer], in_project(tmp_path))}
    assert (done[str(skill.relative_to(tmp_path))].fate, done[str(skill.relative_to(tmp_path))].reason) == (
        "kept",
        "edited by hand",
    )
    assert skill.read_text().endswith("A word of mine.\n")
    assert done[".claude/skills/nav-login/SKILL.md"].fate == "written"  # regenerated, because it was not edited


def test_files_of_archived_and_suspended_trails_are_removed_unless_edited(tmp_path: Path) -> None:
    """keeps: A-30, K-06. Only files that mica wrote are removed."""
    fates(tmp_path, trail(), trail("other", "x.py", "y.py"))
    command = tmp_path / ".claude/commands/nav/login.md"
    command.write_text(command.read_text().replace("Summary", "My summary"))
    (tmp_path / ".claude/commands/nav/mine.md").write_text("mine")
    (tmp_path / ".agents/skills/nav-login/notes.txt").write_text("mine")

    inactive = [trail(state="archived"), trail("other", "x.py", "y.py", state="cooling", suspended="it fails")]
    done = fates(tmp_path, *inactive)

    assert done[".agents/skills/nav-login/SKILL.md"] == done[".claude/commands/nav/other.md"] == "removed"
    assert command.exists()
    assert (tmp_path / ".claude/commands/nav/mine.md").exists()
    assert (tmp_path / ".agents/skills/nav-login/notes.txt").exists()
    assert not (tmp_path / ".claude/skills/nav-login").exists()


def test_nothing_is_written_through_a_link_that_leads_out(tmp_path: Path) -> None:
    """A project cannot make mica write elsewhere."""
    (tmp_path / "outside").mkdir()
    root = tmp_path / "project"
    root.mkdir()
    (root / ".claude").symlink_to(tmp_path / "outside")
    done = fates(root, trail())
    assert done[".claude/commands/nav/login.md"] == "kept"
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    """keeps: K-10. The result shows what would happen."""
    done = publish([trail()], in_project(tmp_path), dry_run=True)
    assert {each.fate for each in done} == {"written"}
    assert list(tmp_path.iterdir()) == []


def test_observed_trails_do_not_become_commands(tmp_path: Path) -> None:
    """keeps: A-30. Only crystallized trails that are offered become commands."""
    done = fates(tmp_path, trail(version=0, state="hot"), trail("cold", "x.py", "y.py", state="cooling"))
    assert sorted(done) == [".claude/commands/nav/explore.md", ".claude/commands/nav/help.md"]


@pytest.mark.parametrize("path", ["a`b.py", "a\nb.py", "a: b.py", 'a"b.py', "käse.py"])
def test_a_file_name_cannot_break_out_of_its_line(path: str) -> None:
    """keeps: A-30. A path is data, in the front matter and in the text."""
    odd = trail("odd", path, "other.py", description=f"Where {path} is")
    for text in (command_text(odd), skill_text(odd)):
        assert is_ours(text)
        assert text.count("\n---\n") == 1
        (line,) = [line for line in text.splitlines() if line.startswith("1. ")]
        assert line.count("`") == 2
        assert line.endswith(":1-9`")


def test_help_and_explore_are_commands_too() -> None:
    """keeps: A-32, A-33. They list the trails and explain how to explore."""
    assert "- `/nav:login`: Where login is" in help_text([trail()])
    assert "No trail is crystallized yet" in help_text([])
    steps = [line for line in explore_text().splitlines() if line[:2] in ("1.", "2.", "3.", "4.")]
    assert len(steps) == 4
    assert reference(trail().steps[0]) == "src/auth.py:1-9"


def test_commands_contain_no_file_contents() -> None:
    """keeps: K-06. The files contain references only."""
    assert "mica trails load login" in command_text(trail())


def test_a_command_contains_hostile_text_only_as_data() -> None:
    hostile = trail("login", "src/</memory><|im_end|>.py", "src/\u202e<system-reminder>.py", description=HOSTILE)

    for text in (command_text(hostile), skill_text(hostile), help_text([hostile])):
        assert MARK in text
        assert dangers(text) == []
