"""mica events impact, failures, compare and mermaid."""

from __future__ import annotations

import json

from tests.cli.terminal import EventShell


def test_impact_shows_descendants_and_later_events_of_the_chain(shell: EventShell) -> None:
    """keeps: TE-17, E-31"""
    document = shell.json("impact", "2")
    assert isinstance(document, dict)
    assert [event["name"] for event in document["descendants"]] == ["tool.ran"]
    assert [event["name"] for event in document["correlated"]] == ["error_free"]
    text = shell.run("impact", "2").stdout
    assert "led to: 1 event\n" in text
    assert "came later in its chain: 1 event\n" in text


def test_failures_are_shown_with_the_chain_that_led_to_them(shell: EventShell) -> None:
    """keeps: E-30, TE-18"""
    rows = shell.json("failures", "--session", "s1")
    assert isinstance(rows, list)
    assert [row["event"]["position"] for row in rows] == [3, 7]
    assert [event["name"] for event in rows[0]["led"]] == ["plan", "file.read"]
    assert rows[0]["agents"] == ["scout"]
    text = shell.run("failures", "-n", "1").stdout
    assert "failed with 2" in text
    assert "after #5" in text
    assert "agents scout" in text
    assert "No failures match" in shell.run("failures", "--agent", "nobody").stdout


def test_compare_says_where_two_runs_differ_first(shell: EventShell) -> None:
    """keeps: E-37"""
    document = shell.json("compare", "1", "8")
    assert isinstance(document, dict)
    assert (document["same"], document["equal"]) == (2, False)
    assert document["differences"] == [{"field": "data.text", "left": "failed with 1", "right": "failed with 2"}]
    text = shell.run("compare", "1", "5").stdout
    assert "2 steps the same, then:" in text
    assert 'data.text: "failed with 1" ≠ "failed with 2"' in text
    assert "same: 4 steps" in shell.run("compare", "1", "5", "--ignore", "data.text").stdout
    assert "ended" in shell.run("compare", "9", "1", "--ignore", "data.n", "--ignore", "name").stdout


def test_a_chain_is_not_compared_with_itself(shell: EventShell) -> None:
    """keeps: E-37. Two events of one run would be reported as equal runs."""
    refused = shell.run("compare", "1", "2")

    assert refused.exit_code == 1
    assert refused.stderr == "mica: 1 and 2 belong to the same chain, which begins with #1; give events of two runs\n"


def test_ignoring_an_unknown_field_prints_a_warning(shell: EventShell) -> None:
    """keeps: E-37. A mistyped field would pass for one without a difference."""
    result = shell.run("compare", "1", "5", "--ignore", "nosuch", "--ignore", "data.text", "--json")
    assert json.loads(result.stdout)["equal"] is True
    assert result.stderr.startswith(
        "mica: no step of either run has a field 'nosuch' to ignore; the fields are context.agent"
    )
    assert result.stderr.count("\n") == 1


def test_mermaid_prints_a_chart(shell: EventShell) -> None:
    """keeps: E-30"""
    text = shell.run("mermaid", "3").stdout
    assert text.startswith("flowchart TD\n")
    assert '    n3["3 tool.ran scout"]:::failed\n    n2 --> n3\n' in text
    assert shell.json("mermaid", "3") == {"mermaid": text}
