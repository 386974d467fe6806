"""defrag, judge and warm on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mica.cli import cli

CONCEPT = "judgment:code_review:abc123"


class Terminal:
    """A user's shell in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.variables = {
            "HOME": str(folder),
            "XDG_DATA_HOME": "",
            "XDG_CONFIG_HOME": "",
            "MICA_BRIEF_DEADLINE_S": "30",
        }

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, env=self.variables, prog_name="mica")

    def documents(self, *arguments: str) -> list[dict[str, Any]]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        return found if isinstance(found, list) else [found]


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(tmp_path)


def test_what_was_judged_is_gathered_with_every_field(terminal: Terminal) -> None:
    """C-08"""
    judged = terminal.run("judge", CONCEPT, "GROWL", "--confidence", "0.52", "--reason", "tests passed")
    assert (judged.exit_code, judged.stdout) == (0, f"#1 {CONCEPT}: GROWL {judged.stdout.split('GROWL ')[1]}")

    told = terminal.run("defrag", CONCEPT)
    (document,) = terminal.documents("defrag", CONCEPT)

    assert "- [judgments] verdict: GROWL: tests passed (52%)" in told.stdout
    assert "1 fragment, agreement 75%; " in told.stderr
    assert "receipt 0" in told.stderr
    assert {
        "concept", "injection", "coherence", "fragments", "latency_ms", "tokens", "conflicts", "missing", "degraded",
    } <= document.keys()  # fmt: skip
    assert "judgments" in document["cached"], "the second question is answered from what the first one left"


def test_a_directory_without_a_space_is_told_nothing_and_gets_none(terminal: Terminal, tmp_path: Path) -> None:
    told = terminal.run("defrag", CONCEPT)

    assert (told.exit_code, told.stdout) == (0, "")
    assert "receipt" not in told.stderr
    assert "mica: not recorded: there is no space here yet" in told.stderr
    assert "mica: not recorded" in terminal.run("sources", "test", "judgments", CONCEPT).stderr
    assert not list(tmp_path.rglob("*.db"))

    terminal.run("mark", "There is one now")
    assert "not recorded" not in terminal.run("defrag", CONCEPT).stderr


def test_who_is_late_is_named_with_what_gives_more_time(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-09"""
    settings = tmp_path / "settings.toml"
    settings.write_text('[sources.slow]\ndriver = "python"\nentry = "slow_state:wait"\nconcepts = ["judgment:*"]\n')
    terminal.variables["MICA_CONFIG"] = str(settings)
    (tmp_path / "slow_state.py").write_text(
        "import asyncio\nasync def wait(concept):\n    await asyncio.Event().wait()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    for command in (["defrag", CONCEPT], ["brief", "--concept", CONCEPT]):
        told = terminal.run(*command, "--deadline", "0.2")
        assert "missing: slow (no answer within" in told.output
        assert "mica: --deadline SECONDS gives them more time" in told.stderr
    assert "--deadline" not in terminal.run("defrag", "other:kind:x").stderr


def test_what_is_no_concept_is_one_line(terminal: Terminal) -> None:
    told = terminal.run("defrag", "abc123")

    assert told.exit_code == 1
    assert told.stderr == "mica: 'abc123' is not a concept; name it domain:type:id, as judgment:code_review:abc123\n"
    assert terminal.run("judge", CONCEPT, "WAG", "--confidence", "2").exit_code == 2


def test_warming_gathers_what_was_judged_last(terminal: Terminal) -> None:
    """C-14"""
    assert "Nothing was judged yet" in terminal.run("warm").stdout
    terminal.run("judge", CONCEPT, "GROWL", "--confidence", "0.52", "--agent", "scout", "--session", "s1")

    assert [each["concept"] for each in terminal.documents("warm")] == [CONCEPT]
    assert CONCEPT in terminal.run("warm").stdout


def test_a_brief_speaks_of_a_concept_looks_back_and_is_switched_off(terminal: Terminal) -> None:
    """C-34"""
    terminal.run("judge", CONCEPT, "GROWL", "--confidence", "0.52", "--reason", "tests passed")

    told = terminal.run("brief", "review", "--concept", CONCEPT)
    assert f"- {CONCEPT} [judgments]: verdict: GROWL: tests passed (52%)" in told.stdout
    line = next(line for line in told.stdout.splitlines() if "GROWL" in line)
    receipt = terminal.documents("brief", "--concept", CONCEPT)[0]["receipt"]
    assert "#1" in terminal.run("why", line).stdout
    assert "retracted" not in terminal.run("why", str(receipt)).stdout
    terminal.run("retract", "1", "--reason", "judged too early")
    assert "      retracted: judged too early" in terminal.run("why", str(receipt)).stdout
    terminal.run("judge", CONCEPT, "GROWL", "--confidence", "0.52", "--reason", "tests passed")
    assert "GROWL" not in terminal.run("brief", "--concept", CONCEPT, "--at", "1d").stdout
    asked = terminal.run("brief", "--off")
    assert (asked.stdout, "not told, as --off asked" in asked.stderr) == ("", True)

    assert terminal.run("briefs", "off").stdout == "Briefs are off in this space.\n"
    off = terminal.run("brief", "--concept", CONCEPT)
    assert (off.stdout, "briefs are off here" in off.stderr) == ("", True)
    assert terminal.documents("briefs", "on") == [{"on": True}]


def test_a_brief_in_a_directory_without_a_space_leaves_no_receipt(terminal: Terminal) -> None:
    told = terminal.run("brief")

    assert (told.exit_code, told.stdout, "receipt" in told.stderr) == (0, "", False)
