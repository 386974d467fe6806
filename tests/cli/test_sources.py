"""mica sources: list, test, explain, gather, judge."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli.terminal import Terminal

from mica.cli import cli

CONCEPT = "judgment:code_review:abc123"


Run = Callable[..., Result]


PASSWORD = "hunter" + "2"


SETTINGS = """
[sources.shop]
driver = "sqlite"
path = "shop.db"
query = "SELECT 'verdict' AS key, verdict AS value, 0.52 AS confidence FROM judgments WHERE id = $1"
concepts = ["judgment:*"]
rank = 5

[sources.state]
driver = "json"
path = "state.json"
concepts = ["person:*"]
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command with these settings, in a temporary home."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE judgments (id TEXT, verdict TEXT)")
        connection.execute("INSERT INTO judgments VALUES ('abc123', 'GROWL')")
        connection.commit()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MICA_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("MICA_SEMANTIC", "off")

    def running(*words: str, settings: str = SETTINGS) -> Result:
        (tmp_path / "config.toml").write_text(settings)
        return CliRunner().invoke(cli, words, catch_exceptions=False)

    return running


def test_list_names_declared_sources_and_their_concepts(run: Run) -> None:
    """keeps: C-12. Every source is shown with its rank and concepts, including mica's own."""
    listed = json.loads(run("sources", "list", "--json").output)
    output = run("sources", "list").output

    by_name = {each["name"]: each for each in listed}
    assert {"judgments", "mica", "teachings", "trails", "shop", "state"} == set(by_name)
    assert (by_name["shop"]["driver"], by_name["shop"]["rank"], by_name["shop"]["concepts"]) == (
        "sqlite",
        5,
        ["judgment:*"],
    )
    assert by_name["shop"]["place"].endswith("shop.db")
    assert "person:*" in output


def test_test_shows_fragments(run: Run) -> None:
    found = run("sources", "test", "shop", "judgment:code_review:abc123")
    document = json.loads(run("sources", "test", "shop", "judgment:code_review:abc123", "--json").output)

    assert found.exit_code == 0
    assert "verdict: GROWL" in found.stdout
    assert "52%" in found.stdout
    assert "1 fragment from shop" in found.stderr
    assert [each["value"] for each in document["fragments"]] == ["GROWL"]
    assert document["error"] == ""


def test_test_says_why_there_is_no_answer_and_exits_1(run: Run) -> None:
    found = run("sources", "test", "state", "person:user:ann")
    document = run("sources", "test", "state", "person:user:ann", "--json")
    unknown = run("sources", "test", "nothing", "person:user:ann")
    odd = run("sources", "test", "shop", "person")
    uncovered = run("sources", "test", "shop", "person:user:ann")

    assert (found.exit_code, document.exit_code, unknown.exit_code, odd.exit_code) == (1, 1, 1, 1)
    assert "mica: source 'state': there is no file" in found.stderr
    assert "there is no file" in json.loads(document.stdout)["error"]
    assert "there is no source 'nothing' (known sources: shop, state)" in unknown.stderr
    assert "'person' is not a concept" in odd.stderr
    assert "`concepts` of shop does not cover person:user:ann" in uncovered.stderr


def test_explain_shows_the_question_and_its_parameters(run: Run) -> None:
    output = run("sources", "explain", "judgment:code_review:abc123").output
    [asked] = json.loads(run("sources", "explain", "judgment:code_review:abc123", "--json").output)

    assert "WHERE id = $1" in output
    assert "$1 = abc123" in output
    assert (asked["source"], asked["parameters"]) == ("shop", {"$1": "abc123"})
    assert "No declared source covers other:x:y" in run("sources", "explain", "other:x:y").output


def test_health_shows_which_sources_answer_and_their_history(run: Run) -> None:
    """keeps: C-20. The health view shows how often each source was asked and failed."""
    run("mark", "something")
    run("sources", "gather", "judgment:code_review:abc123", "--deadline", "30")
    run("sources", "gather", "person:user:ann", "--deadline", "30")

    found = run("sources", "health")
    shop, state = json.loads(run("sources", "health", "--json").stdout)

    assert found.exit_code == 1
    assert "answers shop" in found.stdout
    assert "missing state" in found.stdout
    assert shop["is_there"]
    assert (shop["past"]["asked"], shop["past"]["failed"], shop["breaker"]) == (1, 0, "closed")
    assert shop["past"]["answered_at"]
    assert (state["past"]["asked"], state["past"]["failed"]) == (1, 1)
    assert "there is no file" in state["past"]["failure"]


def test_doctor_names_sources_that_do_not_answer_within_its_time(run: Run) -> None:
    """A server that accepts connections and never answers does not block it."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = SETTINGS + (
            f'[sources.hung]\ndriver = "postgres"\nquery = "SELECT 1"\ndsn = "postgresql://me:{PASSWORD}@{address}/x"\n'
            f'[sources.api]\ndriver = "http"\nurl = "http://{address}/"\n'
        )

        result = run("doctor", settings=settings)
        document = json.loads(run("doctor", "--json", settings=settings).stdout)
    text = result.output

    assert (result.exit_code, text.split()[:2], document["healthy"]) == (1, ["3", "problems"], False)
    assert "source state does not answer: there is no file" in text
    assert "source hung does not answer: no answer within 2 s" in text
    assert document["sources"] == {"declared": 4, "silent": ["state", "hung", "api"], "failing": []}
    assert PASSWORD not in text


def test_a_brief_in_a_shell_has_a_second_unless_another_deadline_is_given(run: Run) -> None:
    """A new process within the agents' 100 ms would show only a part."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        api = f'[sources.api]\ndriver = "http"\nurl = "http://127.0.0.1:{silent.getsockname()[1]}/"\n'
        run("mark", "something")

        default = run("brief", "--concept", "a:b:c", settings=api).output
        hurried = run("brief", "--concept", "a:b:c", "--deadline", "0.05", settings=api).output

    assert re.search(r"api \(no answer within \d{3} ms\)", default)
    assert re.search(r"api \(no answer within \d{1,2} ms\)", hurried)


def test_a_reachable_source_that_never_answers_is_failing(run: Run) -> None:
    settings = '[sources.slow]\ndriver = "python"\nentry = "time:sleep"\n'  # of a concept, which it cannot do
    run("mark", "something")
    for _ in range(3):
        run("sources", "gather", "person:user:ann", "--deadline", "30", settings=settings)

    found = run("sources", "health", settings=settings)
    [slow] = json.loads(run("sources", "health", "--json", settings=settings).stdout)
    doctor = run("doctor", settings=settings).output

    assert (found.exit_code, found.stdout.split()[:2]) == (1, ["failing", "slow"])
    assert (slow["state"], slow["is_there"], slow["past"]["failed_in_a_row"]) == ("failing", True, 3)
    assert "source slow is reachable, but its last 3 queries failed" in doctor


def test_a_repaired_source_counts_as_working_once_it_is_tested(run: Run, tmp_path: Path) -> None:
    """keeps: C-20. The list shows when each source was last tried."""
    (tmp_path / "state.json").write_text('{"mood": [}', encoding="utf-8")
    settings = f'[sources.state]\ndriver = "json"\npath = "{tmp_path}/state.json"\nselect = "$.*"\n'
    settings += 'fragment = {key = "mood", text = "{mood}"}\n'
    run("mark", "something")
    assert "–" in run("sources", "list", settings=settings).stdout
    for _ in range(3):
        run("sources", "gather", "person:user:ann", "--deadline", "30", settings=settings)
    assert "failed 3 in a row" in run("sources", "list", settings=settings).stdout
    (tmp_path / "state.json").write_text('{"ann": {"mood": "fine"}}', encoding="utf-8")
    assert run("sources", "health", settings=settings).stdout.startswith("failing")

    tested = run("sources", "test", "state", "person:user:ann", settings=settings)

    assert tested.exit_code == 0
    health = run("sources", "health", settings=settings)
    assert (health.exit_code, health.stdout.split()[0]) == (0, "answers")
    [listed] = [
        each
        for each in json.loads(run("sources", "list", "--json", settings=settings).stdout)
        if each["name"] == "state"
    ]
    assert listed["past"]["failed_in_a_row"] == 0
    assert listed["past"]["tried_at"] == listed["past"]["answered_at"]


def test_without_sources_the_commands_say_how_to_declare_one(run: Run) -> None:
    assert "docs/sources.md" in run("sources", "list", settings="").output
    assert "docs/sources.md" in run("sources", "health", settings="").output
    assert run("sources", "health", settings="").exit_code == 0


def test_a_mistake_in_the_settings_is_one_line(run: Run) -> None:
    found = run("sources", "list", settings='[sources.shop]\ndriver = "sqlit"\n')

    assert found.exit_code == 1
    assert found.stderr.startswith(f"mica: {os.environ['MICA_CONFIG']}: [sources.shop]: driver = 'sqlit' is not known")
    assert len(found.stderr.splitlines()) == 1


@pytest.fixture
def patient(terminal: Terminal) -> Terminal:
    """A shell that waits long enough for every source."""
    terminal.variables["MICA_BRIEF_DEADLINE_S"] = "30"
    return terminal


def test_a_judgment_is_gathered_with_every_field(patient: Terminal) -> None:
    """keeps: C-08"""
    judged = patient.run("sources", "judge", CONCEPT, "GROWL", "--confidence", "0.52", "--reason", "tests passed")
    assert (judged.exit_code, judged.stdout) == (0, f"#1 {CONCEPT}: GROWL {judged.stdout.split('GROWL ')[1]}")

    result = patient.run("sources", "gather", CONCEPT)
    (document,) = patient.documents("sources", "gather", CONCEPT)

    assert "- [judgments] verdict: GROWL: tests passed (52%)" in result.stdout
    assert "1 fragment, agreement 75%; " in result.stderr
    assert "receipt 0" in result.stderr
    assert {
        "concept", "injection", "coherence", "fragments", "latency_ms", "tokens", "conflicts", "missing", "degraded",
    } <= document.keys()  # fmt: skip
    assert "judgments" in document["cached"], "the second question is answered from what the first one left"


def test_gathering_without_a_space_prints_nothing_and_creates_none(patient: Terminal, tmp_path: Path) -> None:
    result = patient.run("sources", "gather", CONCEPT)

    assert (result.exit_code, result.stdout) == (0, "")
    assert "receipt" not in result.stderr
    assert "mica: not recorded: there is no space here yet" in result.stderr
    assert "mica: not recorded" in patient.run("sources", "test", "judgments", CONCEPT).stderr
    assert not list(tmp_path.rglob("*.db"))

    patient.run("mark", "There is one now")
    assert "not recorded" not in patient.run("sources", "gather", CONCEPT).stderr


def test_a_late_source_is_named_with_the_option_for_more_time(
    patient: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: C-09"""
    settings = tmp_path / "settings.toml"
    settings.write_text('[sources.slow]\ndriver = "python"\nentry = "slow_state:wait"\nconcepts = ["judgment:*"]\n')
    patient.variables["MICA_CONFIG"] = str(settings)
    (tmp_path / "slow_state.py").write_text(
        "import asyncio\nasync def wait(concept):\n    await asyncio.Event().wait()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    for command in (["sources", "gather", CONCEPT], ["brief", "--concept", CONCEPT]):
        result = patient.run(*command, "--deadline", "0.2")
        assert "missing: slow (no answer within" in result.output
        assert "mica: --deadline SECONDS gives them more time" in result.stderr
    assert "--deadline" not in patient.run("sources", "gather", "other:kind:x").stderr


def test_an_invalid_concept_is_refused_in_one_line(patient: Terminal) -> None:
    result = patient.run("sources", "gather", "abc123")

    assert result.exit_code == 1
    assert result.stderr == "mica: 'abc123' is not a concept; name it domain:type:id, as judgment:code_review:abc123\n"
    assert patient.run("sources", "judge", CONCEPT, "WAG", "--confidence", "2").exit_code == 2


def test_warming_gathers_the_concepts_judged_last(patient: Terminal) -> None:
    """keeps: C-14"""
    assert "There are no judgments yet" in patient.run("sources", "warm").stdout
    patient.run("sources", "judge", CONCEPT, "GROWL", "--confidence", "0.52", "--agent", "scout", "--session", "s1")

    assert [each["concept"] for each in patient.documents("sources", "warm")] == [CONCEPT]
    assert CONCEPT in patient.run("sources", "warm").stdout
