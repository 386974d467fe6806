"""mica hook, mica ingest, mica upkeep hooks: as people and installers call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PAYLOAD = {"session_id": "s1", "prompt_id": "p1", "hook_event_name": "UserPromptSubmit", "prompt": "Fix the login"}


class User:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "shop"
        (self.project / ".git").mkdir(parents=True)
        self.home.mkdir()

    def run(self, *words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(self.home), "MICA_SEMANTIC": "off", **variables}
        return subprocess.run(
            [sys.executable, "-m", "mica", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            cwd=self.project,
            check=False,
        )

    def document(self, *words: str, **variables: str) -> dict[str, object]:
        done = self.run(*words, "--json", **variables)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def hook(self, event: str, **payload: object) -> subprocess.CompletedProcess[str]:
        return self.run("hook", "claude", event, stdin=json.dumps({**PAYLOAD, "cwd": str(self.project), **payload}))


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_an_event_of_a_hook_is_shown_by_the_next_command(user: User) -> None:
    """keeps: A-01, A-39. `mica hook` works like `mica-hook`: nothing on standard error, exit 0."""
    done = user.hook("UserPromptSubmit")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    found = user.run("search", "login", "--json")

    assert [hit["mark"]["text"] for hit in json.loads(found.stdout)["hits"]] == ["Fix the login"]


def test_ingest_prints_counts_and_renders_answers(user: User) -> None:
    user.hook("UserPromptSubmit")
    user.hook("Daydream")

    done = user.document("ingest")

    assert (done["lines"], done["events"], done["repeated"]) == (2, 2, 0)
    assert done["tally"]["unknown"] == {"claude:Daydream": 1}  # type: ignore[index]
    assert user.document("ingest")["events"] == 0
    answered = user.hook("SessionStart")
    assert "Fix the login" in json.loads(answered.stdout)["hookSpecificOutput"]["additionalContext"]


def test_recording_is_switched_for_a_space_and_stored_events_stay(user: User) -> None:
    """keeps: A-32, A-47, TA-10. While it is off nothing is written; when it is on again, recording continues."""
    user.hook("UserPromptSubmit")
    assert user.document("upkeep", "hooks", "status")["observing"] is True
    assert user.document("upkeep", "hooks", "off")["observing"] is False
    user.hook("UserPromptSubmit", prompt="never seen", prompt_id="p2")
    assert user.document("ingest")["events"] == 2

    assert user.document("upkeep", "hooks", "on", "--no-prompts") | {"folder": ""} == {
        "observing": True,
        "prompts": False,
        "folder": "",
        "waiting_bytes": 0,
        "answers_at_start": True,
        "failures": [],
    }
    user.hook("UserPromptSubmit", prompt="never kept", prompt_id="p3")
    names = [event["name"] for event in json.loads(user.run("events", "tail", "--json").stdout)]
    assert names.count("mark") == 1
    assert names.count("turn.started") == 1


def test_settings_switch_all_spaces(user: User) -> None:
    """keeps: A-39. A setting for all spaces beside the switch for one."""
    assert user.document("upkeep", "hooks", "status", MICA_OBSERVE_ENABLED="false")["observing"] is False
    assert user.document("upkeep", "hooks", "status", MICA_OBSERVE_PROMPTS="false")["prompts"] is False


def test_failures_of_hooks_are_shown(user: User) -> None:
    """Hooks print nothing; `mica doctor` reports their failures."""
    assert user.run("hook", "claude", "Stop", stdin="no JSON").returncode == 0

    status = user.run("upkeep", "hooks", "status")
    assert "standard input is not a JSON object" in status.stdout
    assert user.document("doctor")["hook_failures"] == 1
    assert "hook failed lately" in user.run("doctor").stdout


def test_an_unknown_client_fails_silently(user: User) -> None:
    done = user.run("hook", "Stop", stdin='{"session_id": "s"}', CLAUDECODE="", COPILOT_CLI="")
    assert (done.returncode, done.stderr) == (0, "")


def test_walks_are_imported_from_a_file_or_standard_input(user: User) -> None:
    """keeps: A-20. A build workflow pipes its file accesses; a mistake is reported in one line."""
    walk = {"task": "Build the login page", "workflow": "build", "steps": [{"path": "a.py", "operation": "read"}]}
    (user.project / "walks.jsonl").write_text(json.dumps(walk) + "\n")

    assert user.document("trails", "import", "walks.jsonl") == {"stored": 2, "repeated": 0}
    again = user.run("trails", "import", "-", "--json", stdin=json.dumps(walk))
    assert user.run("trails", "import", "-", stdin="\n").stdout == "The file has no walk; nothing was stored.\n"
    wrong = user.run("trails", "import", "-", stdin='{"task": "x", "steps": [5]}\n')

    assert json.loads(again.stdout) == {"stored": 0, "repeated": 2}
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("mica: nothing was imported: line 1:")
