"""`mica install` and `mica uninstall`, as they are typed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = '{\n  "model": "opus"\n}\n'
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def user_home(tmp_path: Path) -> Path:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text(SETTINGS)
    return tmp_path


def run(user_home: Path, *words: str) -> Done:
    kept = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "LANG")}
    environment = {**kept, "HOME": str(user_home), "PATH": "/nowhere"}
    command = [sys.executable, "-P", "-m", "mica", *words]
    return subprocess.run(
        command, env=environment, cwd=user_home, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def test_install_shows_a_diff_and_writes_nothing_without_consent(user_home: Path) -> None:
    """A dry run exits 0; a run that cannot ask for consent does not."""
    shown, refused = run(user_home, "install", "--dry-run"), run(user_home, "install")

    for done in (shown, refused):
        assert '+    "nav@mica": true' in done.stdout
        assert "nothing was written" in done.stderr
    assert (shown.returncode, refused.returncode) == (0, 1)
    assert (user_home / ".claude/settings.json").read_text() == SETTINGS
    assert [path.name for path in user_home.iterdir()] == [".claude"]


def test_install_finds_clients_and_uninstall_removes_everything(user_home: Path) -> None:
    done = run(user_home, "install", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Claude Code" in done.stderr
    assert "Codex" not in done.stderr
    assert "nothing to do" in run(user_home, "install", "--yes").stderr

    assert run(user_home, "uninstall", "--yes").returncode == 0

    assert (user_home / ".claude/settings.json").read_text() == SETTINGS
    assert sorted(path.name for path in user_home.iterdir()) == [".claude", ".local"]
    assert list((user_home / ".local/share/mica").iterdir()) == [], "no backup is left of what was restored"
    assert "nothing to do" in run(user_home, "uninstall").stderr


def test_installing_codex_says_how_to_trust_the_hooks(user_home: Path) -> None:
    done = run(user_home, "install", "codex", "--yes")

    assert "/hooks" in done.stderr
    assert (user_home / ".codex/config.toml").exists()


def test_cursor_is_marked_as_unverified(user_home: Path) -> None:
    assert "unverified" in run(user_home, "install", "cursor", "--dry-run").stderr


def test_the_json_document_lists_every_change(user_home: Path) -> None:
    document = json.loads(run(user_home, "install", "--yes", "--json").stdout)

    assert document["written"] is True
    assert document["clients"] == ["claude-code"]
    assert str(user_home / ".claude/settings.json") in [change["path"] for change in document["changes"]]


def test_a_broken_settings_file_ends_an_install_with_an_error(user_home: Path) -> None:
    (user_home / ".claude/settings.json").write_text("{")

    done = run(user_home, "install", "--yes")

    assert done.returncode == 1
    assert "settings.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_install_without_any_client_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "install")

    assert done.returncode == 1
    assert "claude-code" in done.stderr


def test_an_installed_hook_runs_and_exits_0_when_mica_is_gone(user_home: Path) -> None:
    """keeps: A-39. The test runs the plugin's own command, from a session to its event and after mica was removed."""
    run(user_home, "install", "--yes")
    plugin = user_home / ".local/share/mica/plugin/nav"
    hooks = json.loads((plugin / "hooks/hooks.json").read_text())["hooks"]
    command = hooks["SessionStart"][0]["hooks"][0]["command"]
    payload = {"session_id": "s1", "cwd": str(user_home), "hook_event_name": "SessionStart", "source": "startup"}
    environment = {"HOME": str(user_home), "CLAUDECODE": "1", "PATH": "/usr/bin:/bin"}

    def fired() -> Done:
        return subprocess.run(
            ["sh", "-c", command],
            input=json.dumps(payload),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    done = fired()
    assert (done.returncode, done.stderr) == (0, "")
    assert list((user_home / ".local/share/mica/spaces").rglob("*.jsonl")), "it was spooled"
    shutil.rmtree(user_home / ".local/share/mica/bin")
    done = fired()
    assert (done.returncode, done.stderr) == (0, "")


def listed(done: Done) -> set[str]:
    """The files that an install or uninstall says it writes or removes, backups included."""
    lines = (*done.stderr.splitlines(), *done.stdout.splitlines())
    found = {line.partition(" ")[2] for line in lines if line.startswith(("write ", "remove ", "+++ "))}
    found |= {line.partition(" as ")[2] for line in lines if line.startswith("back up ")}
    return {path.partition("\t")[0] for path in found}


def files(user_home: Path) -> set[str]:
    return {str(path) for path in user_home.rglob("*") if path.is_file()}


@pytest.mark.parametrize("client", ["claude-code", "codex", "copilot", "gemini"])
def test_every_file_is_shown_before_it_is_written(user_home: Path, client: str) -> None:
    shown = run(user_home, "install", client, "--dry-run")
    before = files(user_home)

    done = run(user_home, "install", client, "--yes")

    written = files(user_home) - before
    changed = {str(user_home / ".claude/settings.json")} if client == "claude-code" else set()
    assert listed(shown) == written | changed
    count = len(listed(shown)) - len(list(user_home.rglob("backups/*")))
    assert f"mica: {count} files would change; nothing was written" in shown.stderr
    assert f"mica: {count} files changed" in done.stderr
    assert "bin/mica-hook " in shown.stdout, "it shows what the hooks run"
    assert '"mica.mcp"' in shown.stdout, "it shows what the MCP server runs"


def test_a_backup_is_mentioned_only_if_there_is_one(user_home: Path) -> None:
    assert "backups of your files are in" in run(user_home, "install", "claude-code", "--yes").stderr
    assert "backups of your files" not in run(user_home, "install", "codex", "--yes").stderr
    removed = run(user_home, "uninstall", "codex", "--yes")
    assert "backups of your files" not in removed.stderr
    assert len(list(user_home.rglob("backups/*"))) == 1


def test_a_file_that_was_edited_meanwhile_keeps_its_backup(user_home: Path) -> None:
    run(user_home, "install", "--yes")
    settings = user_home / ".claude/settings.json"
    edited = settings.read_text().replace('"opus"', '"haiku"')
    settings.write_text(edited)

    removed = run(user_home, "uninstall", "--yes")

    assert json.loads(settings.read_text()) == {"model": "haiku"}
    assert "backups of your files are in" in removed.stderr
    kept = {path.read_text() for path in user_home.rglob("backups/*")}
    assert kept == {SETTINGS, edited}


def test_two_clients_with_the_same_settings_share_a_backup_until_both_are_removed(user_home: Path) -> None:
    (user_home / ".copilot").mkdir()
    (user_home / ".copilot/settings.json").write_text(SETTINGS)
    run(user_home, "install", "--yes")

    run(user_home, "uninstall", "claude-code", "--yes")
    assert len(list(user_home.rglob("backups/*"))) == 1
    run(user_home, "uninstall", "copilot", "--yes")

    assert (user_home / ".copilot/settings.json").read_text() == SETTINGS
    assert list(user_home.rglob("backups*")) == []


def test_an_outdated_hook_program_is_shown_and_updated(user_home: Path) -> None:
    run(user_home, "install", "--yes")
    program = user_home / ".local/share/mica/bin/mica_hook.py"
    program.write_text("old")

    refused = run(user_home, "install")
    assert (refused.returncode, program.read_text()) == (1, "old")
    assert f"write {program}" in refused.stderr
    assert run(user_home, "install", "--yes").returncode == 0
    assert program.read_text() != "old"


def test_the_first_session_after_an_install_receives_a_brief(user_home: Path) -> None:
    """keeps: A-18. Nothing has ingested yet, and no session has run."""
    project = user_home / "shop"
    (project / ".git").mkdir(parents=True)
    known = "The session cookie is set before the redirect"
    kept = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "LANG")}
    environment = {**kept, "HOME": str(user_home), "PATH": "/nowhere", "MICA_SEMANTIC": "off"}
    command = [sys.executable, "-P", "-m", "mica"]
    subprocess.run([*command, "mark", known, "--tag", "gotcha"], env=environment, cwd=project, check=True)

    done = run(user_home, "install", "claude-code", "--yes")

    assert "prepared the brief that the next session of 1 project starts with" in done.stderr
    payload = json.dumps({"session_id": "s1", "cwd": str(project), "hook_event_name": "SessionStart"})
    launcher = user_home / ".local/share/mica/bin/mica-hook"
    started = subprocess.run(
        [str(launcher), "claude", "SessionStart"],
        input=payload.encode(),
        env=environment,
        cwd=project,
        capture_output=True,
        check=True,
    )
    assert known in json.loads(started.stdout)["hookSpecificOutput"]["additionalContext"]
    assert "prepared" not in run(user_home, "install", "claude-code", "--yes").stderr, "it is prepared once"
