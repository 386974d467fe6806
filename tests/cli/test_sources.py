"""`mica sources`: what is declared, what would be asked, what is said, and what does not answer."""

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

from mica.cli import cli

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
    """Run a command with settings of its own, in a home that is thrown away."""
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


def test_list_names_what_is_declared_and_what_each_covers(run: Run) -> None:
    """C-12: every source with its rank and concepts, mica's own among them."""
    listed = json.loads(run("sources", "list", "--json").output)
    said = run("sources", "list").output

    by_name = {each["name"]: each for each in listed}
    assert {"judgments", "mica", "teachings", "trails", "shop", "state"} == set(by_name)
    assert (by_name["shop"]["driver"], by_name["shop"]["rank"], by_name["shop"]["concepts"]) == (
        "sqlite",
        5,
        ["judgment:*"],
    )
    assert by_name["shop"]["place"].endswith("shop.db")
    assert "person:*" in said


def test_test_shows_fragments(run: Run) -> None:
    found = run("sources", "test", "shop", "judgment:code_review:abc123")
    document = json.loads(run("sources", "test", "shop", "judgment:code_review:abc123", "--json").output)

    assert found.exit_code == 0
    assert "verdict: GROWL" in found.stdout
    assert "52%" in found.stdout
    assert "1 fragment from shop" in found.stderr
    assert [each["value"] for each in document["fragments"]] == ["GROWL"]
    assert document["error"] == ""


def test_test_tells_why_there_is_no_answer_and_fails(run: Run) -> None:
    found = run("sources", "test", "state", "person:user:ann")
    document = run("sources", "test", "state", "person:user:ann", "--json")
    unknown = run("sources", "test", "nothing", "person:user:ann")
    odd = run("sources", "test", "shop", "person")
    uncovered = run("sources", "test", "shop", "person:user:ann")

    assert (found.exit_code, document.exit_code, unknown.exit_code, odd.exit_code) == (1, 1, 1, 1)
    assert "mica: source 'state': there is no file" in found.stderr
    assert "there is no file" in json.loads(document.stdout)["error"]
    assert "there is no source 'nothing'; there are shop, state" in unknown.stderr
    assert "'person' is not a concept" in odd.stderr
    assert "`concepts` of shop does not cover person:user:ann" in uncovered.stderr


def test_explain_shows_the_question_and_its_parameters(run: Run) -> None:
    said = run("sources", "explain", "judgment:code_review:abc123").output
    [asked] = json.loads(run("sources", "explain", "judgment:code_review:abc123", "--json").output)

    assert "WHERE id = $1" in said
    assert "$1 = abc123" in said
    assert (asked["source"], asked["parameters"]) == ("shop", {"$1": "abc123"})
    assert "No declared source covers other:x:y" in run("sources", "explain", "other:x:y").output


def test_health_names_what_answers_and_how_its_questions_went(run: Run) -> None:
    """C-20: the health view shows how often each source was asked and failed."""
    run("mark", "something")
    run("defrag", "judgment:code_review:abc123", "--deadline", "30")
    run("defrag", "person:user:ann", "--deadline", "30")

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
    """A server that takes connections and says nothing holds nobody up."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = SETTINGS + (
            f'[sources.hung]\ndriver = "postgres"\nquery = "SELECT 1"\ndsn = "postgresql://me:{PASSWORD}@{address}/x"\n'
            f'[sources.api]\ndriver = "http"\nurl = "http://{address}/"\n'
        )

        told = run("doctor", settings=settings)
        document = json.loads(run("doctor", "--json", settings=settings).stdout)
    said = told.output

    assert (told.exit_code, said.split()[:2], document["healthy"]) == (1, ["3", "problems"], False)
    assert "source state does not answer: there is no file" in said
    assert "source hung does not answer: no answer within 2 s" in said
    assert document["sources"] == {"declared": 4, "silent": ["state", "hung", "api"], "failing": []}
    assert PASSWORD not in said


def test_a_brief_in_a_shell_has_a_second_unless_another_deadline_is_given(run: Run) -> None:
    """A process that has just begun and a person who waits: 100 ms, as agents have, would tell a part."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        api = f'[sources.api]\ndriver = "http"\nurl = "http://127.0.0.1:{silent.getsockname()[1]}/"\n'
        run("mark", "something")

        told = run("brief", "--concept", "a:b:c", settings=api).output
        given = run("brief", "--concept", "a:b:c", "--deadline", "0.05", settings=api).output

    assert re.search(r"api \(no answer within \d{3} ms\)", told)
    assert re.search(r"api \(no answer within \d{1,2} ms\)", given)


def test_a_source_that_is_there_and_never_answers_is_not_called_well(run: Run) -> None:
    settings = '[sources.slow]\ndriver = "python"\nentry = "time:sleep"\n'  # of a concept, which it cannot do
    run("mark", "something")
    for _ in range(3):
        run("defrag", "person:user:ann", "--deadline", "30", settings=settings)

    found = run("sources", "health", settings=settings)
    [slow] = json.loads(run("sources", "health", "--json", settings=settings).stdout)
    doctor = run("doctor", settings=settings).output

    assert (found.exit_code, found.stdout.split()[:2]) == (1, ["failing", "slow"])
    assert (slow["state"], slow["is_there"], slow["past"]["failed_in_a_row"]) == ("failing", True, 3)
    assert "source slow is there, but its last 3 questions failed" in doctor


def test_a_source_that_was_repaired_is_well_again_once_it_is_tested(run: Run, tmp_path: Path) -> None:
    """C-20: and the list says when each was tried last."""
    (tmp_path / "state.json").write_text('{"mood": [}', encoding="utf-8")
    settings = f'[sources.state]\ndriver = "json"\npath = "{tmp_path}/state.json"\nselect = "$.*"\n'
    settings += 'fragment = {key = "mood", text = "{mood}"}\n'
    run("mark", "something")
    assert "–" in run("sources", "list", settings=settings).stdout
    for _ in range(3):
        run("defrag", "person:user:ann", "--deadline", "30", settings=settings)
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
