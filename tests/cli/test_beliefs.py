"""mica beliefs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import StoreTerminal

import mica

RULE = "Always use uv run, never python directly"
DECISION = "We go with the unique index on orders.number"


def added(terminal: StoreTerminal, kind: str, text: str) -> dict[str, Any]:
    return terminal.document("beliefs", "add", kind, text)


def listed(terminal: StoreTerminal, *options: str) -> list[str]:
    """The texts of the listed beliefs."""
    return [each["text"] for each in terminal.listed("beliefs", *options)]


def test_beliefs_are_listed_by_kind_with_state_date_and_speaker(store_terminal: StoreTerminal) -> None:
    """keeps: C-40, C-42"""
    rule, decision = added(store_terminal, "rule", RULE), added(store_terminal, "decision", DECISION)
    store_terminal.run("mark", "The proxy times out after 30 s", "--tag", "gotcha", "--agent", "claude")

    shown = store_terminal.run("beliefs").stdout

    assert [line for line in shown.splitlines() if not line.startswith(" ")] == ["Rules", "Decisions", "Gotchas"]
    assert f"{rule['id']} held " in shown
    assert f"user    {DECISION}" in shown
    assert "claude  The proxy times out" in shown
    assert listed(store_terminal, "--kind", "decision") == [decision["text"]]
    assert listed(store_terminal, "--state", "forming") == []
    assert "No belief matches" in store_terminal.run("beliefs", "--state", "forming").stdout


def test_what_is_forming_is_listed_last(store_terminal: StoreTerminal) -> None:
    store_terminal.run("mark", "The queue of the importer holds 10 jobs", "--tag", "closing", "--agent", "claude")
    added(store_terminal, "fact", "The staging database is read-only")

    lines = [line for line in store_terminal.run("beliefs").stdout.splitlines() if not line.startswith("  b")]
    texts = listed(store_terminal, "--state", "forming")

    assert lines == ["Facts", "Forming (not in briefs until confirmed)"]
    assert texts == ["The queue of the importer holds 10 jobs"]


def test_a_corrected_belief_leaves_its_old_text_in_the_history_only(store_terminal: StoreTerminal) -> None:
    belief = added(store_terminal, "decision", DECISION)

    new = store_terminal.document("beliefs", "correct", belief["id"], "We go with a unique index on orders.cart_id")
    shown = store_terminal.run("beliefs", "show", new["id"]).stdout

    assert listed(store_terminal) == ["We go with a unique index on orders.cart_id"]
    assert listed(store_terminal, "--ended") == [DECISION]
    assert f"replaced by {new['id']}" in shown
    assert shown.index(DECISION) < shown.index("orders.cart_id")


def test_a_belief_ends_with_its_reason_and_can_be_confirmed_again(store_terminal: StoreTerminal) -> None:
    belief = added(store_terminal, "task", "Write the migration")

    store_terminal.run("beliefs", "end", belief["id"], "--as", "done", "--reason", "it is merged")
    ended = store_terminal.run("beliefs", "--ended").stdout
    again = store_terminal.run("beliefs", "end", belief["id"]).stdout
    confirmed = store_terminal.run("beliefs", "confirm", belief["id"]).stdout

    assert "done " in ended
    assert "it is merged" in ended
    assert "It had ended before" in again
    assert "Confirmed; it is held" in confirmed
    assert listed(store_terminal) == ["Write the migration"]


def test_beliefs_are_listed_as_of_a_past_time(store_terminal: StoreTerminal) -> None:
    added(store_terminal, "rule", RULE)

    assert listed(store_terminal, "--at", "1h") == []
    assert listed(store_terminal, "--at", "2999-01-01") == [RULE]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("end", "bxxxxxxxxxxxx"), "no belief bxxxxxxxxxxxx in this space; `mica beliefs` lists them"),
        (("show", "99"), "no event '99' in this space"),
        (("correct", "bxxxxxxxxxxxx", "new"), "no belief bxxxxxxxxxxxx"),
        (("add", "rule", " "), "a belief needs a text"),
    ],
)
def test_what_does_not_exist_is_named(store_terminal: StoreTerminal, arguments: tuple[str, ...], message: str) -> None:
    added(store_terminal, "rule", RULE)

    refused = store_terminal.run("beliefs", *arguments)

    assert refused.exit_code == 1
    assert message in refused.stderr


def test_an_ended_belief_is_not_corrected_and_the_message_names_its_successor(store_terminal: StoreTerminal) -> None:
    belief = added(store_terminal, "rule", RULE)
    new = store_terminal.document("beliefs", "correct", belief["id"], "Always use uv run")

    refused = store_terminal.run("beliefs", "correct", belief["id"], "Use pip")

    assert (refused.exit_code, f"has ended (replaced by {new['id']})" in refused.stderr) == (1, True)
    assert listed(store_terminal) == ["Always use uv run"]


def test_why_explains_a_belief_by_its_evidence_and_what_it_replaced(store_terminal: StoreTerminal) -> None:
    belief = added(store_terminal, "rule", RULE)
    new = store_terminal.document("beliefs", "correct", belief["id"], "Always use uv run")

    shown = store_terminal.run("why", new["id"]).stdout

    assert "(rule, held)" in shown
    assert f"{RULE} (rule, replaced by {new['id']}" in shown
    assert "#1" in shown


# -- Marks


def test_a_mark_replaces_and_ends_beliefs(store_terminal: StoreTerminal) -> None:
    rule = added(store_terminal, "rule", RULE)
    task = added(store_terminal, "task", "Write the migration")

    shown = store_terminal.run("mark", "Use pip now", "--replaces", rule["id"], "--ends", task["id"]).stdout

    assert f"replaces {rule['id']}" in shown
    assert f"ends {task['id']}" in shown
    assert listed(store_terminal) == ["Use pip now"]


def test_a_mark_of_an_agent_cannot_end_a_rule_of_a_user(store_terminal: StoreTerminal) -> None:
    """Nothing is recorded, and the message says who can."""
    rule = added(store_terminal, "rule", RULE)

    refused = store_terminal.run("mark", "Use pip now", "--replaces", rule["id"], "--agent", "claude")

    assert (refused.exit_code, "only a user can end or replace it" in refused.stderr) == (1, True)
    assert listed(store_terminal) == [RULE]
    assert not store_terminal.document("search", "pip")["hits"]


# -- The file


def editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    """Make the editor a Python program that changes `text`, the content of the file."""
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\n"
        f"{program}\nfile.write_text(text)\n"
    )
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def kept(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("mica-beliefs-*/beliefs.md"))


def test_an_edited_file_corrects_ends_and_adds(
    store_terminal: StoreTerminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And its copy is removed."""
    for text in ("Never use floats for money", RULE, "Ask before you deploy"):
        added(store_terminal, "rule", text)
    program = (
        "text = text.replace('floats', 'doubles')\n"
        "text = '\\n'.join(line for line in text.splitlines() if 'deploy' not in line)\n"
        "text = text.replace('## Facts\\n', '## Facts\\n\\n- The queue holds 10 jobs\\n')"
    )
    editor(monkeypatch, tmp_path, program)

    shown = store_terminal.run("beliefs", "edit").stdout

    assert "1 belief corrected, 1 belief ended, 1 belief added." in shown
    assert set(listed(store_terminal)) == {"Never use doubles for money", RULE, "The queue holds 10 jobs"}
    assert kept(tmp_path) == []


def test_an_edit_that_deletes_everything_asks_for_yes_and_keeps_the_file(
    store_terminal: StoreTerminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    added(store_terminal, "rule", RULE)
    editor(monkeypatch, tmp_path, "text = ''")

    refused = store_terminal.run("beliefs", "edit")
    [file] = kept(tmp_path)
    before = listed(store_terminal)
    done = store_terminal.run("beliefs", "edit", "--yes", "--file", str(file))

    assert (refused.exit_code, "would end 1 of 1 belief" in refused.stderr) == (1, True)
    assert "--yes" in refused.stderr
    assert f"mica beliefs edit --file {file}" in refused.stderr
    assert before == [RULE]
    assert "1 belief ended." in done.stdout
    assert listed(store_terminal) == []


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("text = 'Use pip\\n' + text", "'Use pip' has no heading"),
        ("text = text.replace('## Rules', '## Ruels')", "has the heading 'Ruels'; use one of Rules"),
        ("sys.exit(3)", "exited with 3; nothing was changed"),
    ],
)
def test_a_file_with_broken_lines_changes_nothing_and_is_kept(
    store_terminal: StoreTerminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, message: str
) -> None:
    added(store_terminal, "rule", RULE)
    editor(monkeypatch, tmp_path, program)

    refused = store_terminal.run("beliefs", "edit")

    assert (refused.exit_code, message in refused.stderr) == (1, True), refused.stderr
    assert len(kept(tmp_path)) == 1
    assert listed(store_terminal) == [RULE]


def test_what_is_stated_while_the_file_is_edited_stays(
    store_terminal: StoreTerminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A session runs meanwhile: it adds a belief and ends another one, whose correction is then reported."""
    rule = added(store_terminal, "rule", RULE)
    added(store_terminal, "rule", "Ask before you deploy")
    editor(monkeypatch, tmp_path, "text = text.replace('never python', 'never plain python')")

    async def meanwhile() -> None:
        async with mica.open(tmp_path / "meanwhile.db") as memory:
            first = await memory.beliefs.add("rule", RULE)
            original = await memory.beliefs.edit_text()
            await memory.beliefs.add("fact", "The queue holds 10 jobs")
            await memory.beliefs.end(first)
            done = await memory.beliefs.apply_edit(original.replace("uv", "pip"), original=original)
            assert done.skipped == ((first.id, RULE.replace("uv", "pip")),)
            assert [each.text for each in await memory.beliefs.list()] == ["The queue holds 10 jobs"]

    asyncio.run(meanwhile())
    assert "1 belief corrected." in store_terminal.run("beliefs", "edit").stdout
    assert rule["text"] not in listed(store_terminal)


def test_an_unchanged_file_changes_nothing(
    store_terminal: StoreTerminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    added(store_terminal, "rule", RULE)
    editor(monkeypatch, tmp_path, "pass")

    assert store_terminal.run("beliefs", "edit").stdout == "Nothing was changed.\n"


def test_a_file_that_no_edit_kept_is_refused(
    store_terminal: StoreTerminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor(monkeypatch, tmp_path, "pass")
    (tmp_path / "beliefs.md").write_text("## Rules\n")

    refused = store_terminal.run("beliefs", "edit", "--file", str(tmp_path / "beliefs.md"))

    assert (refused.exit_code, "was not kept by `mica beliefs edit`" in refused.stderr) == (1, True)
