"""Installing into OpenCode."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.machines import (
    OPENCODE,
    change,
    machine_of,
)

from mica.clients.installation import Machine
from mica.clients.registry import CLIENTS


def test_an_entry_is_updated_in_place(machine: Machine, user_home: Path) -> None:
    change(machine, "opencode")
    settings = user_home / ".config/opencode/opencode.jsonc"
    settings.write_text(settings.read_text().replace("// mine", "// mine, too"))

    change(machine_of(user_home, python="/opt/python"), "opencode")
    assert '"/opt/python"' in settings.read_text()
    change(machine, "opencode", remove=True)

    assert settings.read_text() == OPENCODE.replace("// mine", "// mine, too")


def test_the_plugin_knows_where_mica_is(machine: Machine, user_home: Path) -> None:
    change(machine, "opencode")

    code = (user_home / ".config/opencode/plugins/mica.js").read_text()
    assert f"const launcher = {json.dumps(str(machine.launcher))};" in code
    assert f"const hook = {json.dumps(str(machine.hook))};" in code


def test_the_settings_file_is_the_one_with_comments_or_the_one_a_variable_names(user_home: Path) -> None:
    def settings_of(machine: Machine) -> Path:
        return CLIENTS["opencode"].install(machine).entries[0].path

    own = str(user_home / "mine.json")
    assert settings_of(machine_of(user_home)).name == "opencode.jsonc"
    assert settings_of(machine_of(user_home / "new")).name == "opencode.json"
    assert str(settings_of(machine_of(user_home, environment={"OPENCODE_CONFIG": own}))) == own
