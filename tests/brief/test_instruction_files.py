"""The instruction files of a project, which an agent has before it anyway."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from mica.brief.instruction_files import BYTES_MAX, read_instructions, without_instructed
from mica.model.brief import Passage
from mica.testing.builders import START_AT, build


def passage(text: str, number: int = 1) -> Passage:
    return Passage(
        text=text,
        sources=(build(number).id,),
        tokens=0,
        score=1.0,
        at=START_AT + timedelta(days=number),
        source="beliefs",
        section="rules",
    )


def test_a_brief_does_not_repeat_what_the_instruction_files_say(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("# Project\n\n- Always use `uv run`, never plain python.\n- Write tests.\n")
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "copilot-instructions.md").write_text("Commits in English please\n")
    rules = [passage("always use uv run"), passage("commits in English", 2), passage("never floats for money", 3)]

    left = without_instructed(rules, read_instructions(tmp_path))

    assert [each.text for each in left] == ["never floats for money"]


def test_files_that_are_missing_links_or_huge_do_not_matter(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.write_text("always use uv run")
    project = tmp_path / "project"
    project.mkdir()
    (project / "AGENTS.md").symlink_to(secret)
    (project / "GEMINI.md").mkdir()
    (project / "CLAUDE.md").write_bytes(b"\xff\xfe" + b"x " * BYTES_MAX)

    lines = read_instructions(project)

    assert not any("uv run" in line for line in lines)
    assert sum(map(len, lines)) <= BYTES_MAX
    assert read_instructions(project / "no such folder") == []
