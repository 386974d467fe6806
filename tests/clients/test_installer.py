"""Planning, installing and uninstalling, in temporary home folders with realistic files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.clients.machines import (
    CLAUDE,
    CODEX,
    COPILOT,
    CURSOR,
    OPENCODE,
    all_installations,
    change,
    contents,
    machine_of,
)

from mica.clients import installer
from mica.clients.installation import Machine
from mica.clients.installer import InstallRecord, apply, install, read_record
from mica.clients.registry import CLIENTS
from mica.errors import InvalidInput


def test_uninstalling_restores_every_file_to_the_byte(machine: Machine, user_home: Path) -> None:
    """Nothing of the user's is lost, and created folders are removed."""
    before = contents(user_home)

    plan = change(machine)
    assert not plan.problems
    assert contents(user_home) != before
    change(machine, remove=True)

    assert contents(user_home) == before
    assert read_record(machine.data) == InstallRecord()


def test_a_second_install_changes_nothing(machine: Machine) -> None:
    change(machine)

    assert change(machine).changes == ()


def test_uninstalling_keeps_what_the_user_added_since(machine: Machine, user_home: Path) -> None:
    change(machine)
    settings, config = user_home / ".claude/settings.json", user_home / ".codex/config.toml"
    cursor, opencode = user_home / ".cursor/hooks.json", user_home / ".config/opencode/opencode.jsonc"
    settings.write_text(settings.read_text().replace('"nav@mica": true', '"nav@mica": true,\n    "third@acme": false'))
    config.write_text(config.read_text() + '\n[tui]\ntheme = "dark"\n')
    cursor.write_text(cursor.read_text().replace("./audit.sh", "./audit2.sh"))
    opencode.write_text(opencode.read_text().replace("// servers", "// all servers"))

    change(machine, remove=True)

    plugin = '"formatter@acme-tools": true'
    assert settings.read_text() == CLAUDE.replace(plugin, f'{plugin},\n    "third@acme": false')
    assert config.read_text() == CODEX + '\n[tui]\ntheme = "dark"\n'
    assert cursor.read_text() == CURSOR.replace("./audit.sh", "./audit2.sh")
    assert opencode.read_text() == OPENCODE.replace("// servers", "// all servers")


def test_parts_edited_by_hand_stay_and_are_reported(machine: Machine, user_home: Path) -> None:
    change(machine)
    settings = user_home / ".claude/settings.json"
    settings.write_text(settings.read_text().replace('"nav@mica": true', '"nav@mica": false'))
    skill = machine.plugin / "nav/skills/help/SKILL.md"
    skill.write_text("My own words")

    again = change(machine)
    removed = change(machine, remove=True)

    for plan in (again, removed):
        assert any("nav@mica" in sentence and str(settings) in sentence for sentence in plan.kept)
        assert any(str(skill) in sentence for sentence in plan.kept)
    assert json.loads(settings.read_text())["enabledPlugins"] == {"formatter@acme-tools": True, "nav@mica": False}
    assert skill.read_text() == "My own words"


def test_a_newer_mica_updates_everything(machine: Machine, user_home: Path) -> None:
    before = contents(user_home)
    change(machine)
    newer = machine_of(user_home, version="0.2.0", python="/usr/bin/python3.14")

    plan = change(newer)

    assert plan.kept == ()
    written = [path for path in user_home.rglob("*") if path.is_file() and "backups" not in path.parts]
    old = [path for path in written if "/usr/bin/python3 " in path.read_text("utf-8", "replace")]
    assert old == [], "every command names the new interpreter"
    assert not (user_home / ".codex/plugins/cache/mica/nav/0.1.0").exists()
    change(newer, remove=True)
    assert contents(user_home) == before


def test_removing_one_client_keeps_what_others_share(machine: Machine, user_home: Path) -> None:
    change(machine, "claude-code", "copilot")

    change(machine, "claude-code", remove=True)

    assert (user_home / ".claude/settings.json").read_text() == CLAUDE
    assert (machine.plugin / "nav/hooks/hooks.json").exists()
    change(machine, "copilot", remove=True)
    assert not machine.plugin.exists()
    assert (user_home / ".copilot/settings.json").read_text() == COPILOT


@pytest.mark.parametrize(
    ("name", "client", "content"),
    [
        (".claude/settings.json", "claude-code", b'{"model": "opus",,}'),
        (".claude/settings.json", "claude-code", b"\xff\xfe{}"),
        (".claude/settings.json", "claude-code", b'{"enabledPlugins": ["a"]}'),
        (".codex/config.toml", "codex", b"model = gpt\n"),
        (".codex/config.toml", "codex", b'plugins = "none"\n'),
        (".cursor/hooks.json", "cursor", b'{"version": 1, "hooks": {"stop": {}}}'),
    ],
)
def test_a_damaged_settings_file_is_left_alone_and_other_clients_are_installed(
    name: str, client: str, content: bytes, machine: Machine, user_home: Path
) -> None:
    (user_home / name).write_bytes(content)

    plan = change(machine)

    assert list(plan.problems) == [client]
    assert str(user_home / name) in plan.problems[client]
    assert (user_home / name).read_bytes() == content
    assert set(read_record(machine.data).clients) == set(CLIENTS) - {client}


def test_nothing_is_written_if_a_file_changed_after_planning(machine: Machine, user_home: Path) -> None:
    plan = install(all_installations(machine), InstallRecord(), data=machine.data)
    (user_home / ".claude/settings.json").write_text("{}")

    with pytest.raises(InvalidInput, match="changed since"):
        apply(plan, data=machine.data)

    assert not machine.plugin.exists()
    assert (user_home / ".codex/config.toml").read_text() == CODEX


def test_links_and_permissions_are_preserved(machine: Machine, user_home: Path) -> None:
    settings, dotfiles = user_home / ".claude/settings.json", user_home / "dotfiles.json"
    settings.rename(dotfiles)
    dotfiles.chmod(0o600)
    settings.symlink_to(dotfiles)

    change(machine, "claude-code")

    assert settings.is_symlink()
    assert dotfiles.stat().st_mode & 0o777 == 0o600
    assert "nav@mica" in dotfiles.read_text()
    change(machine, "claude-code", remove=True)
    assert settings.is_symlink()
    assert dotfiles.read_text() == CLAUDE


def test_the_original_of_a_file_is_backed_up(machine: Machine) -> None:
    change(machine, "claude-code")

    backups = [path.read_text() for path in (machine.data / installer.BACKUPS).iterdir()]
    assert CLAUDE in backups


def test_an_unreadable_record_is_reported(machine: Machine) -> None:
    machine.data.mkdir(parents=True)
    (machine.data / installer.RECORD).write_text("{")

    with pytest.raises(InvalidInput, match=r"installed\.json"):
        read_record(machine.data)


def test_without_a_backup_only_the_entries_of_mica_are_removed(machine: Machine, user_home: Path) -> None:
    change(machine, "claude-code")
    for backup in (machine.data / installer.BACKUPS).iterdir():
        backup.unlink()

    change(machine, "claude-code", remove=True)

    assert (user_home / ".claude/settings.json").read_text() == CLAUDE
