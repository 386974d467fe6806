"""Shared parts of commands: stores, spaces, times and standard input."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import asyncpg
import pytest
from tests.cli.terminal import StoreTerminal, Terminal
from tests.hostile_text import HOSTILE, MARK

from mica.store.postgres.server import SCHEMA
from mica.testing.postgres import LocalPostgres


def test_reading_creates_no_store(terminal: Terminal, tmp_path: Path) -> None:
    for command in (["search", "x"], ["events", "tail"], ["brief", "x"], ["upkeep", "verify"], ["events", "overview"]):
        assert terminal.run(*command).exit_code == 0
        result = terminal.run(*command, "--store", str(tmp_path / "typo.db"))
        assert result.exit_code == 1
        assert "there is no store" in result.stderr
    assert not list(tmp_path.rglob("*.db"))


def test_a_file_that_is_not_a_store_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    for command in (["mark", "x"], ["events", "tail"], ["import", "claude-code"], ["up", "--once"]):
        assert "--store needs a file or an address" in terminal.run(*command, "--store", "").stderr
    for command in (["mark", "x"], ["events", "tail"]):
        refused = terminal.run(*command, "--store", str(tmp_path))
        assert (refused.exit_code, "Traceback" in refused.output) == (1, False)
        assert refused.stderr == f"mica: {tmp_path} is a directory; give a file, such as {tmp_path / 'space.db'}\n"


def test_a_mistyped_store_gives_the_same_error_as_option_and_setting(terminal: Terminal, tmp_path: Path) -> None:
    named = terminal.run("events", "tail", "--store", "nosuch.db")
    assert (named.exit_code, "there is no store nosuch.db" in named.stderr) == (1, True)
    assert terminal.run("events", "tail", MICA_STORE="nosuch.db").stderr == named.stderr
    assert not list(tmp_path.rglob("*.db"))


@pytest.mark.parametrize("command", [["events", "follow"], ["crystals", "stream"]])
def test_following_a_mistyped_name_creates_no_store(terminal: Terminal, tmp_path: Path, command: list[str]) -> None:
    refused = terminal.run(*command, "--store", str(tmp_path / "typo.db"), "-n", "1")

    assert (refused.exit_code, "there is no store" in refused.stderr) == (1, True)
    assert not list(tmp_path.rglob("typo.db*"))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["search", "x", "--since", "1h", "--until", "2h"], "is not before --until"),
        (["events", "query", "--since", "1h", "--until", "2h"], "is not before --until"),
        (["crystals", "list", "--since", "1h", "--until", "2h"], "is not before --until"),
        (["brief", "--at", "2999-01-01"], "is in the future"),
    ],
)
def test_impossible_times_are_refused(terminal: Terminal, command: list[str], message: str) -> None:
    refused = terminal.run(*command)

    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())


def test_reading_creates_no_space_on_a_server(terminal: Terminal, server: LocalPostgres) -> None:
    """A mistyped name must not become a space; a directory's own space is empty until the first write."""
    address = server.address(space="here")
    nosuch, unnamed = address.replace("space=here", "space=nosuch"), address.replace("space=here", "")
    assert terminal.run("mark", "one", "--store", address).exit_code == 0
    for command in (["events", "tail"], ["search", "x"], ["doctor"], ["events", "overview"]):
        refused = terminal.run(*command, "--store", nosuch)
        assert refused.exit_code == 1, refused.output
        assert "there is no store postgresql://" in refused.stderr
        assert terminal.run(*command, MICA_STORE=nosuch).stderr == refused.stderr
        assert terminal.run(*command, MICA_STORE=unnamed).exit_code == 0
    assert "one" in terminal.run("events", "tail", "--store", address).stdout
    assert asyncio.run(_space_names(server)) & {"here", "nosuch"} == {"here"}
    assert not [name for name in asyncio.run(_space_names(server)) if name.startswith("project-")]


async def _space_names(server: LocalPostgres) -> set[str]:
    connection = await asyncpg.connect(server.dsn())
    try:
        return {row["name"] for row in await connection.fetch(f"SELECT name FROM {SCHEMA}.spaces")}
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "command",
    [
        *(["events", "query", option, "a\udcffb"] for option in ("--session", "--agent", "--user", "--text")),
        *(["purge", option, "a\udcffb", "--yes"] for option in ("--session", "--user", "--value")),
        ["purge", "1", "--yes", "--reason", "a\udcffb"],
        ["upkeep", "copy", "a\udcffb.db"],
    ],
)
def test_input_that_is_not_utf_8_is_refused_in_one_line(terminal: Terminal, command: list[str]) -> None:
    """A shell passes such bytes unchanged; no search or purge runs with broken characters."""
    terminal.run("mark", "one")

    result = terminal.run(*command)

    assert result.exit_code == 1
    assert "the byte 0xff at character 2, which is not UTF-8" in result.stderr
    assert terminal.json("events", "query", "--name", "log.*") == []


def test_times_are_shown_in_the_configured_zone(store_terminal: StoreTerminal) -> None:
    """Days named in a query and times of marks use the same zone."""
    store_terminal.variables["MICA_TIME_ZONE"] = "Asia/Kathmandu"  # no machine of ours is there
    number = store_terminal.document("mark", "the cookie is gone")["position"]
    found = store_terminal.run("search", "cookie today")
    event = store_terminal.document("events", "show", str(number))

    assert re.fullmatch(r"mica: understood today: \S+ 00:00 to \S+ 00:00 \(Asia/Kathmandu\)\n", found.stderr), (
        found.stderr
    )
    made_at = datetime.fromisoformat(event["at"]).astimezone(ZoneInfo("Asia/Kathmandu"))
    assert f"#{number} {made_at:%Y-%m-%d %H:%M} the cookie is gone" in found.stdout


def test_a_space_is_named_by_a_unique_prefix(terminal: Terminal, tmp_path: Path) -> None:
    spaces = terminal.home / ".local" / "share" / "mica" / "spaces"
    spaces.mkdir(parents=True)
    for name in ("shop-11111111", "shop-22222222", "mail-33333333"):
        terminal.run("mark", f"seen in {name}", "--store", str(spaces / f"{name}.db"))
    names = [row["name"] for row in terminal.documents("upkeep", "spaces")]
    assert sorted(names) == ["mail-33333333", "shop-11111111", "shop-22222222"]

    assert "seen in mail-33333333" in terminal.run("search", "seen", "--space", "mail").stdout
    assert "seen in shop-2" in terminal.run("search", "seen", "--space", "shop-2").stdout
    refused = terminal.run("search", "seen", "--space", "shop")
    assert refused.exit_code == 1
    assert "2 spaces begin with 'shop': shop-11111111, shop-22222222; give more of the name" in refused.stderr


def test_an_ambiguous_name_is_refused_with_the_directories_of_its_spaces(terminal: Terminal, tmp_path: Path) -> None:
    for parent in ("home", "work"):
        (tmp_path / parent / "proj").mkdir(parents=True)
        terminal.run("mark", "one", "--space", str(tmp_path / parent / "proj"))

    refused = terminal.run("search", "one", "--space", "proj")

    assert refused.exit_code == 1
    for parent in ("home", "work"):
        assert f" ({tmp_path / parent / 'proj'})" in refused.stderr


def test_the_full_name_of_a_space_is_not_treated_as_a_prefix(terminal: Terminal) -> None:
    folder = terminal.home / ".local" / "share" / "mica" / "spaces"
    folder.mkdir(parents=True)
    for name in ("shop", "shop-2"):
        terminal.run("mark", f"seen in {name}", "--store", str(folder / f"{name}.db"))

    assert "seen in shop\n" in terminal.run("search", "seen", "--space", "shop").stdout


@pytest.mark.parametrize(
    "command",
    ["search cookie", "brief cookie", "handoff", "why #1", "events query", "events tail", "events show 1", "up --once"],
)
def test_what_is_printed_never_controls_a_terminal(terminal: Terminal, command: str) -> None:
    """keeps: U-10. Neither as text nor as JSON, whose value stays the same."""
    control = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
    terminal.run("mark", HOSTILE, "--tag", "gotcha", "--session", "s1", "--why", HOSTILE)

    text = terminal.run(*command.split()).output
    document = terminal.run(*command.split(), "--json").stdout

    assert control.findall(text) == []
    assert control.findall(document) == []
    if command in ("search cookie", "events query"):
        assert "\\u009b" in document
    if command != "handoff":
        assert MARK[:20] in document + text
