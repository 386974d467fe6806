"""The machine that mica is installed on, and the commands that clients run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.clients.machines import (
    all_installations,
    commands_of,
    machine_of,
)


def test_the_folder_of_each_client_follows_its_variable(tmp_path: Path) -> None:
    variables = {
        "CLAUDE_CONFIG_DIR": "c",
        "CODEX_HOME": "x",
        "COPILOT_HOME": "p",
        "GEMINI_CLI_HOME": "g",
        "OPENCODE_CONFIG_DIR": "o",
    }
    machine = machine_of(tmp_path, environment={name: str(tmp_path / value) for name, value in variables.items()})

    folders = {client.name: client.folder.relative_to(tmp_path).as_posix() for client in all_installations(machine)}

    assert folders == {
        "claude-code": "c",
        "codex": "x",
        "copilot": "p",
        "gemini": "g/.gemini",
        "opencode": "o",
        "cursor": ".cursor",
    }


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_every_hook_exits_0_when_mica_was_removed(shell: str, tmp_path: Path) -> None:
    """keeps: A-39. Its path contains a blank and a quote, as home folders may."""
    home = tmp_path / "Ann's home"
    home.mkdir()
    machine = machine_of(home, python=str(home / "gone/python"))
    documents = [
        json.loads(file.content)
        for client in all_installations(machine)
        for file in client.files
        if file.path.suffix == ".json"
    ]
    documents += [msgspec.to_builtins(entry.value) for client in all_installations(machine) for entry in client.entries]
    commands = sorted(set(commands_of(documents)))
    assert len(commands) >= 15

    for command in commands:
        done = subprocess.run([shell, "-c", command], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), command


def test_hooks_and_server_get_a_data_folder_that_a_variable_names(user_home: Path) -> None:
    """A program started by an agent does not have the variables of the installing shell."""
    plain, moved = machine_of(user_home), machine_of(user_home, environment={"MICA_HOME": "elsewhere"})
    assert "MICA_HOME" not in plain.hook_command("Stop")
    assert "env" not in plain.server
    assert f"MICA_HOME={moved.data} " in moved.hook_command("Stop")
    assert moved.server["env"] == {"MICA_HOME": str(moved.data)}
