"""mica brief, handoff and briefs: what agents receive."""

from __future__ import annotations

import re

import pytest
from tests.cli.terminal import StoreTerminal, Terminal

CONCEPT = "judgment:code_review:abc123"


@pytest.fixture
def patient(terminal: Terminal) -> Terminal:
    """A shell that waits long enough for every source."""
    terminal.variables["MICA_BRIEF_DEADLINE_S"] = "30"
    return terminal


def test_a_brief_goes_to_stdout_and_its_cost_to_stderr(terminal: Terminal) -> None:
    """keeps: B-27"""
    terminal.run("mark", "The cookie is set before the redirect")
    result = terminal.run("brief", "cookie", "--budget", "300")
    assert result.stdout.startswith("<memory")
    assert result.stdout.endswith("</memory>\n")
    assert "of 300 tokens (estimated)" in result.stderr
    assert "receipt" in result.stderr
    document = terminal.json("brief", "cookie")
    assert isinstance(document, dict)
    assert set(document) >= {"text", "passages", "missing", "receipt", "tokens", "budget_tokens", "left_out"}


def test_a_budget_too_small_for_any_line_names_the_one_it_needs(terminal: Terminal) -> None:
    terminal.run("mark", "The cookie is set before the redirect")

    small = terminal.run("brief", "cookie", "--budget", "10")
    tokens = re.match(r"mica: no line fits 10 tokens; the shortest needs (\d+); receipt \S+\n$", small.stderr)
    assert tokens is not None, small.stderr
    enough = terminal.run("brief", "cookie", "--budget", tokens[1])
    one = terminal.run("brief", "cookie", "--budget", "1")

    assert (small.exit_code, small.stdout) == (0, "")
    assert "The cookie is set" in enough.stdout
    assert f"mica: {tokens[1]} of {tokens[1]} tokens (estimated), 1 passage; receipt" in enough.stderr
    assert one.stderr.startswith("mica: no line fits 1 token; the shortest needs ")


def test_a_handoff_goes_to_stdout_and_its_session_to_stderr(store_terminal: StoreTerminal) -> None:
    """keeps: B-28, B-65, B-69"""
    for number in range(6):
        store_terminal.run(
            "mark", f"The proxy of production dropped cookie number {number} of the login", "--session", "s1"
        )
    store_terminal.run("mark", "Look at the logout page", "--tag", "todo", "--session", "s1")

    document = store_terminal.document("handoff", "--budget", "600")
    result = store_terminal.run("handoff", "--session", "s1")
    none = store_terminal.run("handoff", "--session", "s2")

    assert set(document) >= {
        "session", "text", "lines", "new_crystals", "recent_crystals", "tokens_used", "crystallization_performed",
        "errors",
    }  # fmt: skip
    assert [crystal["period"] for crystal in document["new_crystals"]] == ["session:s1"]
    assert document["tokens_used"] <= 600
    assert "## Open\n- todo: Look at the logout page (#7)\n" in result.stdout
    assert result.stderr.startswith("mica: session s1: 0 new crystals, ")
    assert (none.exit_code, "there is no session 's2'" in none.stderr) == (1, True)


def test_a_handoff_of_an_empty_space_says_what_to_do(store_terminal: StoreTerminal) -> None:
    result = store_terminal.run("handoff")

    assert result.stdout == ""
    assert result.stderr == (
        "mica: nothing to hand over: nothing was recorded yet; `mica mark` records what you observe\n"
    )


def test_why_prints_the_text_of_an_event_once(store_terminal: StoreTerminal) -> None:
    store_terminal.run("mark", "The cookie is set before the redirect")

    shown = store_terminal.run("why", "#1").stdout

    assert shown.count("The cookie is set before the redirect") == 1
    assert "    #1 " in shown, "the event itself is its evidence"


def test_now_shows_a_diff_and_writes_on_request_only(store_terminal: StoreTerminal) -> None:
    """keeps: B-29, B-65, B-69"""
    store_terminal.crystal()
    page = store_terminal.folder / "NOW.md"
    page.write_text("# NOW\n\n## Plans\n")

    shown = store_terminal.run("briefs", "now")
    document = store_terminal.document("briefs", "now", "--section", "Session Status")
    assert page.read_text() == "# NOW\n\n## Plans\n"
    applied = store_terminal.run("briefs", "now", "--apply")

    assert "+## What Just Happened\n" in shown.stdout
    assert "nothing was written; --apply writes it" in shown.stderr
    assert set(document) >= {"section", "current_content", "proposed_content", "source_crystals", "confidence", "diff"}
    assert (document["confidence"], document["applied"]) == (0.72, False)
    assert applied.stdout == shown.stdout
    assert re.search(r"NOW\.md is written; backup: .*NOW\.md\.bak-\d{8}T\d{6}Z\n", applied.stderr)
    assert page.read_text().startswith("# NOW\n\n## Plans\n\n## What Just Happened\n\n- 20")
    assert "is up to date" in store_terminal.run("briefs", "now").stderr


def test_now_without_crystals_says_what_to_do(store_terminal: StoreTerminal) -> None:
    result = store_terminal.run("briefs", "now", "--apply", "--store", str(store_terminal.folder / "other.db"))
    assert "there is no store" in result.stderr
    store_terminal.run("mark", "one")
    result = store_terminal.run("briefs", "now", "--apply")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there are no crystals yet" in result.stderr
    assert not (store_terminal.folder / "NOW.md").exists()


def test_a_brief_takes_a_concept_and_a_past_time_and_can_be_switched_off(patient: Terminal) -> None:
    """keeps: C-34"""
    patient.run("sources", "judge", CONCEPT, "GROWL", "--confidence", "0.52", "--reason", "tests passed")

    shown = patient.run("brief", "review", "--concept", CONCEPT)
    assert f" {CONCEPT} [judgments]: verdict: GROWL: tests passed (52%)\n" in shown.stdout
    line = next(line for line in shown.stdout.splitlines() if "GROWL" in line)
    receipt = patient.documents("brief", "--concept", CONCEPT)[0]["receipt"]
    assert "#1" in patient.run("why", line).stdout
    assert "retracted" not in patient.run("why", str(receipt)).stdout
    patient.run("crystals", "retract", "1", "--reason", "judged too early")
    assert "      retracted: judged too early" in patient.run("why", str(receipt)).stdout
    patient.run("sources", "judge", CONCEPT, "GROWL", "--confidence", "0.52", "--reason", "tests passed")
    assert "GROWL" not in patient.run("brief", "--concept", CONCEPT, "--at", "1d").stdout
    asked = patient.run("brief", "--off")
    assert (asked.stdout, "not shown because of --off" in asked.stderr) == ("", True)

    assert patient.run("briefs", "off").stdout == "Briefs are off in this space.\n"
    off = patient.run("brief", "--concept", CONCEPT)
    assert (off.stdout, "briefs are off here" in off.stderr) == ("", True)
    assert patient.documents("briefs", "on") == [{"on": True}]


def test_a_brief_in_a_directory_without_a_space_leaves_no_receipt(patient: Terminal) -> None:
    shown = patient.run("brief")

    assert (shown.exit_code, shown.stdout, "receipt" in shown.stderr) == (0, "", False)
