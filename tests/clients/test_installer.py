"""Installing into coding agents: in homes that are thrown away, with files as real ones look."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

from mica.clients import installer as installing
from mica.clients.installable import CLIENTS
from mica.clients.installation import Client, Machine
from mica.clients.installer import Record, apply, install, read_record, uninstall
from mica.clients.plugin import hooks
from mica.errors import InvalidInput

CLAUDE = """{
  "permissions": {
    "allow": ["Bash(npm run lint)", "Read(~/.zshrc)"],
    "deny": []
  },
  "hooks": {
    "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]
  },
  "enabledPlugins": {
    "formatter@acme-tools": true
  },
  "model": "opus"
}
"""
CODEX = """# codex
model = "gpt-5.5"
approval_policy = "on-request"

[mcp_servers.docs]
command = "docs-mcp"  # mine
args = ["--stdio"]

[projects."/srv/shop"]
trust_level = "trusted"
"""
OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  // servers
  "mcp": {
    "docs": {"type": "local", "command": ["docs"], "enabled": true}, // mine
  },
}
"""
CURSOR = """{
  "version": 1,
  "hooks": {
    "stop": [
      {"command": "./audit.sh"}
    ]
  }
}
"""
COPILOT = '{"theme":"dark"}'
FILES = {
    ".claude/settings.json": CLAUDE,
    ".codex/config.toml": CODEX,
    ".copilot/settings.json": COPILOT,
    ".config/opencode/opencode.jsonc": OPENCODE,
    ".cursor/hooks.json": CURSOR,
    ".gemini/settings.json": "{}\n",
}


@pytest.fixture
def user_home(tmp_path: Path) -> Path:
    """A home in which every client was used."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path


@pytest.fixture
def machine(user_home: Path) -> Machine:
    return machine_of(user_home)


def machine_of(user_home: Path, **changes: object) -> Machine:
    hook = user_home / "venv" / "mica" / "hook.py"
    hook.parent.mkdir(parents=True, exist_ok=True)
    hook.touch()
    known: dict[str, object] = {
        "user_home": user_home,
        "data": user_home / ".local/share/mica",
        "environment": {},
        "python": "/usr/bin/python3",
        "hook": hook,
        "version": "0.1.0",
    }
    return Machine(**known | changes)  # type: ignore[arg-type]  # one table for all kinds


def everyone(machine: Machine) -> list[Client]:
    return [make(machine) for make in CLIENTS.values()]


def do(machine: Machine, *names: str, away: bool = False) -> installing.Plan:
    """Install into clients, or out of them: all, or those that are named."""
    chosen = [CLIENTS[name](machine) for name in names] or everyone(machine)
    plan = (uninstall if away else install)(chosen, read_record(machine.data), data=machine.data)
    apply(plan, data=machine.data)
    return plan


def contents(user_home: Path) -> dict[str, bytes]:
    """Every file and folder that is not mica's own."""
    kept = user_home / ".local"
    inside = [path for path in user_home.rglob("*") if path != kept and not path.is_relative_to(kept)]
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in inside}


def test_in_and_out_again_leaves_every_file_as_it_was(machine: Machine, user_home: Path) -> None:
    """A-30: nothing of the user's is lost, to the byte; folders that were made go, too."""
    before = contents(user_home)

    plan = do(machine)
    assert not plan.problems
    assert contents(user_home) != before
    do(machine, away=True)

    assert contents(user_home) == before
    assert read_record(machine.data) == Record()


def test_a_second_run_finds_nothing_to_do(machine: Machine) -> None:
    do(machine)

    assert do(machine).changes == ()


def test_what_the_user_added_since_stays_and_only_ours_goes(machine: Machine, user_home: Path) -> None:
    do(machine)
    settings, config = user_home / ".claude/settings.json", user_home / ".codex/config.toml"
    cursor, opencode = user_home / ".cursor/hooks.json", user_home / ".config/opencode/opencode.jsonc"
    settings.write_text(settings.read_text().replace('"nav@mica": true', '"nav@mica": true,\n    "third@acme": false'))
    config.write_text(config.read_text() + '\n[tui]\ntheme = "dark"\n')
    cursor.write_text(cursor.read_text().replace("./audit.sh", "./audit2.sh"))
    opencode.write_text(opencode.read_text().replace("// servers", "// all servers"))

    do(machine, away=True)

    plugin = '"formatter@acme-tools": true'
    assert settings.read_text() == CLAUDE.replace(plugin, f'{plugin},\n    "third@acme": false')
    assert config.read_text() == CODEX + '\n[tui]\ntheme = "dark"\n'
    assert cursor.read_text() == CURSOR.replace("./audit.sh", "./audit2.sh")
    assert opencode.read_text() == OPENCODE.replace("// servers", "// all servers")


def test_an_entry_that_was_changed_by_hand_stays_and_is_named(machine: Machine, user_home: Path) -> None:
    do(machine)
    settings = user_home / ".claude/settings.json"
    settings.write_text(settings.read_text().replace('"nav@mica": true', '"nav@mica": false'))
    skill = machine.plugin / "nav/skills/help/SKILL.md"
    skill.write_text("My own words")

    again = do(machine)
    away = do(machine, away=True)

    for plan in (again, away):
        assert any("nav@mica" in sentence and str(settings) in sentence for sentence in plan.kept)
        assert any(str(skill) in sentence for sentence in plan.kept)
    assert json.loads(settings.read_text())["enabledPlugins"] == {"formatter@acme-tools": True, "nav@mica": False}
    assert skill.read_text() == "My own words"


def test_a_newer_mica_brings_everything_up_to_date(machine: Machine, user_home: Path) -> None:
    before = contents(user_home)
    do(machine)
    newer = machine_of(user_home, version="0.2.0", python="/usr/bin/python3.14")

    plan = do(newer)

    assert plan.kept == ()
    written = [path for path in user_home.rglob("*") if path.is_file() and "backups" not in path.parts]
    old = [path for path in written if "/usr/bin/python3 " in path.read_text("utf-8", "replace")]
    assert old == [], "every command names the new interpreter"
    assert not (user_home / ".codex/plugins/cache/mica/nav/0.1.0").exists()
    do(newer, away=True)
    assert contents(user_home) == before


def test_one_client_goes_and_the_others_keep_what_they_share(machine: Machine, user_home: Path) -> None:
    do(machine, "claude-code", "copilot")

    do(machine, "claude-code", away=True)

    assert (user_home / ".claude/settings.json").read_text() == CLAUDE
    assert (machine.plugin / "nav/hooks/hooks.json").exists()
    do(machine, "copilot", away=True)
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
def test_a_file_that_cannot_be_understood_is_left_alone_and_the_other_clients_go_on(
    name: str, client: str, content: bytes, machine: Machine, user_home: Path
) -> None:
    (user_home / name).write_bytes(content)

    plan = do(machine)

    assert list(plan.problems) == [client]
    assert str(user_home / name) in plan.problems[client]
    assert (user_home / name).read_bytes() == content
    assert set(read_record(machine.data).clients) == set(CLIENTS) - {client}


def test_a_file_that_changed_after_it_was_shown_is_not_written(machine: Machine, user_home: Path) -> None:
    plan = install(everyone(machine), Record(), data=machine.data)
    (user_home / ".claude/settings.json").write_text("{}")

    with pytest.raises(InvalidInput, match="changed since"):
        apply(plan, data=machine.data)

    assert not machine.plugin.exists()
    assert (user_home / ".codex/config.toml").read_text() == CODEX


def test_links_and_rights_are_kept(machine: Machine, user_home: Path) -> None:
    settings, dotfiles = user_home / ".claude/settings.json", user_home / "dotfiles.json"
    settings.rename(dotfiles)
    dotfiles.chmod(0o600)
    settings.symlink_to(dotfiles)

    do(machine, "claude-code")

    assert settings.is_symlink()
    assert dotfiles.stat().st_mode & 0o777 == 0o600
    assert "nav@mica" in dotfiles.read_text()
    do(machine, "claude-code", away=True)
    assert settings.is_symlink()
    assert dotfiles.read_text() == CLAUDE


def test_the_file_as_it_was_is_backed_up(machine: Machine) -> None:
    do(machine, "claude-code")

    backups = [path.read_text() for path in (machine.data / installing.BACKUPS).iterdir()]
    assert CLAUDE in backups


def test_each_client_is_found_where_its_variable_says(tmp_path: Path) -> None:
    variables = {
        "CLAUDE_CONFIG_DIR": "c",
        "CODEX_HOME": "x",
        "COPILOT_HOME": "p",
        "GEMINI_CLI_HOME": "g",
        "OPENCODE_CONFIG_DIR": "o",
    }
    machine = machine_of(tmp_path, environment={name: str(tmp_path / value) for name, value in variables.items()})

    folders = {client.name: client.folder.relative_to(tmp_path).as_posix() for client in everyone(machine)}

    assert folders == {
        "claude-code": "c",
        "codex": "x",
        "copilot": "p",
        "gemini": "g/.gemini",
        "opencode": "o",
        "cursor": ".cursor",
    }


def commands_of(value: object) -> list[str]:
    """Every hook command in a document, however deep."""
    if isinstance(value, dict):
        own = [value["command"]] if isinstance(value.get("command"), str) and "mica-hook" in value["command"] else []
        return own + [each for inner in value.values() for each in commands_of(inner)]
    return [each for inner in value for each in commands_of(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_every_hook_exits_0_when_mica_is_gone(shell: str, tmp_path: Path) -> None:
    """A-39: with a blank and a quote in its path, as homes have them."""
    home = tmp_path / "Ann's home"
    home.mkdir()
    machine = machine_of(home, python=str(home / "gone/python"))
    documents = [
        json.loads(file.content) for client in everyone(machine) for file in client.files if file.path.suffix == ".json"
    ]
    documents += [msgspec.to_builtins(entry.value) for client in everyone(machine) for entry in client.entries]
    commands = sorted(set(commands_of(documents)))
    assert len(commands) >= 15

    for command in commands:
        done = subprocess.run([shell, "-c", command], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), command


def test_hooks_are_plain_commands(machine: Machine) -> None:
    """Codex ignores `args`, and no client delivers everything in order where a hook is `async`."""
    for client in everyone(machine):
        for file in client.files:
            if file.path.name == "hooks.json":
                assert '"async"' not in file.content
                assert '"args"' not in file.content


def test_entries_are_as_the_clients_write_them_themselves(machine: Machine, user_home: Path) -> None:
    """What `claude plugin install`, `codex plugin add` and `copilot plugin install` left in their settings."""
    do(machine)

    declared = {"source": {"source": "directory", "path": str(machine.plugin)}}
    for name in (".claude/settings.json", ".copilot/settings.json"):
        said = json.loads((user_home / name).read_text())
        assert said["extraKnownMarketplaces"] == {"mica": declared}
        assert said["enabledPlugins"]["nav@mica"] is True
    config = tomllib.loads((user_home / ".codex/config.toml").read_text())
    assert config["marketplaces"] == {"mica": {"source_type": "local", "source": str(machine.plugin)}}
    assert config["plugins"] == {"nav@mica": {"enabled": True}}


def test_what_claude_code_remembers_of_us_goes_too(machine: Machine, user_home: Path) -> None:
    do(machine, "claude-code")
    plugins = user_home / ".claude/plugins"
    plugins.mkdir()
    (plugins / "known_marketplaces.json").write_text('{\n  "mica": {"source": {}},\n  "acme": {}\n}')
    (plugins / "installed_plugins.json").write_text('{"version": 2, "plugins": {"nav@mica": [{"scope": "user"}]}}')

    do(machine, "claude-code", away=True)

    assert json.loads((plugins / "known_marketplaces.json").read_text()) == {"acme": {}}
    assert json.loads((plugins / "installed_plugins.json").read_text()) == {"version": 2, "plugins": {}}


def test_the_user_had_it_already_and_keeps_it(machine: Machine, user_home: Path) -> None:
    settings = user_home / ".claude/settings.json"
    declared = {"source": {"source": "directory", "path": str(machine.plugin)}}
    own = json.dumps({"enabledPlugins": {"nav@mica": True}, "extraKnownMarketplaces": {"mica": declared}})
    settings.write_text(own)

    do(machine, "claude-code")
    do(machine, "claude-code", away=True)

    assert settings.read_text() == own


def test_a_record_that_cannot_be_read_is_named(machine: Machine) -> None:
    machine.data.mkdir(parents=True)
    (machine.data / installing.RECORD).write_text("{")

    with pytest.raises(InvalidInput, match=r"installed\.json"):
        read_record(machine.data)


def test_without_its_backup_a_file_loses_only_our_entries(machine: Machine, user_home: Path) -> None:
    do(machine, "claude-code")
    for backup in (machine.data / installing.BACKUPS).iterdir():
        backup.unlink()

    do(machine, "claude-code", away=True)

    assert (user_home / ".claude/settings.json").read_text() == CLAUDE


def test_an_entry_is_brought_up_to_date_where_it_stands(machine: Machine, user_home: Path) -> None:
    do(machine, "opencode")
    settings = user_home / ".config/opencode/opencode.jsonc"
    settings.write_text(settings.read_text().replace("// mine", "// mine, too"))

    do(machine_of(user_home, python="/opt/python"), "opencode")
    assert '"/opt/python"' in settings.read_text()
    do(machine, "opencode", away=True)

    assert settings.read_text() == OPENCODE.replace("// mine", "// mine, too")


def test_reads_are_gated_only_where_that_was_asked_for(user_home: Path) -> None:
    """A-39: without the setting no hook runs before a read."""
    assert "PreToolUse" not in hooks(machine_of(user_home))
    gates = hooks(machine_of(user_home, read_gate=True))["PreToolUse"]
    assert isinstance(gates, list)
    assert [gate["matcher"] for gate in gates] == ["Read"]


def test_a_data_folder_of_ones_own_is_carried_into_hooks_and_server(user_home: Path) -> None:
    """A-39: what an agent starts has not the variables of the shell that installed it."""
    plain, moved = machine_of(user_home), machine_of(user_home, environment={"MICA_HOME": "elsewhere"})
    assert "MICA_HOME" not in plain.hook_command("Stop")
    assert "env" not in plain.server
    assert f"MICA_HOME={moved.data} " in moved.hook_command("Stop")
    assert moved.server["env"] == {"MICA_HOME": str(moved.data)}
