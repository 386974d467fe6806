"""mica up as a process: it serves until a signal, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from tests.web.server import port_held

from mica.cli import cli
from mica.web.process import listen, only_server
from mica.web.tokens import TokenFile


@contextmanager
def up(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`mica up` as a separate process, and the link that it prints."""
    environment = {**os.environ, "HOME": str(home), "MICA_SEMANTIC": "off"}
    command = [sys.executable, "-m", "mica", "up", "--port", "0", *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = next((line for line in process.stdout if line.startswith("Open http://")), None)
            assert line is not None, process.communicate()
            yield process, line.split()[1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_serves_until_a_signal_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """keeps: U-06, D-12.

    One command serves and one signal ends it. The old transport is off unless configured.
    """
    (tmp_path / "home").mkdir()
    data = tmp_path / "home" / ".local" / "share" / "mica"
    variables = {"HOME": str(tmp_path / "home"), "MICA_SEMANTIC": "off"}
    with up(tmp_path / "home") as (process, link):
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(link) as page:
            assert page.status == 200
        base = link.partition("/enter")[0]
        with opener.open(f"{base}/api/server/spaces") as answer:
            assert json.load(answer)["default"] == "sample"
        with pytest.raises(urllib.error.HTTPError) as old:
            opener.open(f"{base}/mcp/sse")
        with old.value as error:
            assert error.code == 404

        document = json.loads(CliRunner().invoke(cli, ["server", "open", "--json"], env=variables).stdout)
        assert (document["address"], document["pid"]) == (base, process.pid)
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(document["link"]) as page:
            assert page.status == 200

        second = CliRunner().invoke(cli, ["up", "--port", "0"], env=variables)
        assert (second.exit_code, "served already" in second.stderr) == (1, True)
        children = psutil.Process(process.pid).children(recursive=True)
        with opener.open(f"{base}/api/events/follow") as stream:  # as a tab of the dashboard does
            assert stream.readline().startswith(b"retry:")
            process.send_signal(number)
            out, err = process.communicate(timeout=120)

    assert process.returncode == 0, out + err
    assert err.splitlines()[-1] == "mica: stopped"
    assert "Traceback" not in err
    assert "Cancel" not in err
    assert "is closed" not in err
    assert link.partition("key=")[2] not in err
    assert not any(child.is_running() for child in children)
    assert list((data / "servers").iterdir()) == []
    assert [file.name for file in (data / "spaces").iterdir() if not file.name.endswith(".db")] == []
    assert [token.name for token in TokenFile(data).all() if token.name != "browser"] == []
    assert CliRunner().invoke(cli, ["server", "open"], env=variables).exit_code == 1


# `python -m mica` with a pause during loading, which is otherwise too short for a signal to hit reliably.
LOADING = """if True:
    import pathlib, runpy, signal, sys

    class Wait:
        def find_spec(self, name, path, target=None):
            if name == "mica.cli.trails":
                pathlib.Path.home().joinpath("loading").touch()
                signal.pause()

    sys.meta_path.insert(0, Wait())
    runpy.run_module("mica", run_name="__main__", alter_sys=True)
"""


def _is_begun(process: subprocess.Popen[str], _: Path) -> bool:
    """True once the command runs and has loaded modules that only a server needs."""
    return "markupsafe" in Path(f"/proc/{process.pid}/maps").read_text(encoding="ascii", errors="replace")


def _has(pattern: str) -> Callable[[subprocess.Popen[str], Path], bool]:
    return lambda _, data: any(data.glob(pattern))


MICA = ("-m", "mica")


@pytest.mark.parametrize(
    ("program", "moment", "number"),
    [
        (("-c", LOADING), lambda _, data: (data.parents[2] / "loading").exists(), signal.SIGINT),
        (MICA, _is_begun, signal.SIGINT),
        (MICA, _has("spaces/*.serving"), signal.SIGINT),
        (MICA, _has("servers/*"), signal.SIGTERM),
        (MICA, _has("spaces/*.db"), signal.SIGINT),
        (MICA, _has("spaces/*.db-wal"), signal.SIGTERM),
    ],
    ids=["loading", "begun", "locked", "noted", "opened", "importing"],
)
def test_a_signal_at_any_moment_ends_the_server_and_leaves_nothing(
    tmp_path: Path,
    program: tuple[str, str],
    moment: Callable[[subprocess.Popen[str], Path], bool],
    number: signal.Signals,
) -> None:
    """During loading, starting, importing or serving it leaves no traceback, process or lock, and all data stays
    readable.
    """
    data = tmp_path / ".local" / "share" / "mica"
    variables = {"HOME": str(tmp_path), "MICA_SEMANTIC": "off"}
    command = [sys.executable, *program, "up", "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 60
        while not (is_moment := moment(process, data)) and process.poll() is None and time.monotonic() < until:
            pass
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()

    assert is_moment, out + err
    assert process.returncode in (0, 130, -signal.SIGINT), out + err
    assert "Traceback" not in err
    assert not any(child.is_running() for child in children)
    assert [file.name for file in (*data.glob("servers/*"), *data.glob("spaces/*.serving"))] == []
    assert [token.name for token in TokenFile(data).all()] == []
    with (
        closing(listen("127.0.0.1", 0, home=data)),
        only_server(data / "spaces" / "sample.db", address="http://127.0.0.1:1"),
    ):
        looked = CliRunner().invoke(cli, ["up", "--once", "--json"], env=variables)
    assert looked.exit_code == 0, looked.output


def test_the_token_of_a_killed_server_is_revoked_by_the_next_server(tmp_path: Path) -> None:
    """Otherwise that token would stay valid forever."""
    with port_held() as port:
        with up(tmp_path, "--no-import", "--port", str(port)) as (_, link):
            address = link.partition("/enter")[0]
        with up(tmp_path, "--no-import", "--port", str(port)) as (process, again):
            assert again.partition("/enter")[0] == address
            names = [token.name for token in TokenFile(tmp_path / ".local" / "share" / "mica").all()]
            process.terminate()
            process.communicate(timeout=120)

    assert names == [f"server at {address}"]
