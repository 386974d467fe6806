"""What crystals are for, on the command line: teach, stream, hand over, propose."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result
from tests.crystals.test_teachings import RULES, crystal_of_session

import mica
from mica.cli import cli
from mica.model.crystal import Crystal


class Terminal:
    """A user's shell with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = str(folder / "space.db")
        self.variables = {"HOME": str(folder), "MICA_STORE": self.store, "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, env=self.variables, prog_name="mica")

    def piped(self, given: bytes, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, input=given, env=self.variables, prog_name="mica")

    def document(self, *arguments: str) -> dict[str, Any]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        found: list[dict[str, Any]] = json.loads(result.stdout)
        return found

    def crystal(self, session: str = "s1", *, confidence: float = 0.9) -> Crystal:
        """A crystal that passes the gate of teachings."""

        async def made() -> Crystal:
            settings = mica.load_settings(self.variables)
            async with mica.open(self.store, settings=settings) as memory:
                return await crystal_of_session(memory, session, confidence=confidence)

        return asyncio.run(made())


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(tmp_path)


def test_a_crystal_is_promoted_listed_and_withdrawn(terminal: Terminal) -> None:
    """B-30, B-65, TB-14"""
    crystal = terminal.crystal()

    promoted = terminal.listed("promote", f"#{crystal.position}", "--reason", "it cost us a day")
    listed = terminal.listed("teachings")

    assert promoted[0]["source"] == f"witness:crystal:{crystal.id}"
    assert listed == promoted
    assert (listed[0]["by"], listed[0]["reason"]) == ("user", "it cost us a day")
    assert f"principle: {RULES[0]}" in terminal.run("teachings").stdout
    ended = terminal.run("teachings", "--withdraw", promoted[0]["id"], "--reason", "fixed upstream")
    assert "withdrawn: fixed upstream" in ended.stdout
    assert terminal.listed("teachings") == []
    assert [each["id"] for each in terminal.listed("teachings", "--all")] == [promoted[0]["id"]]
    assert "Nothing is taught yet" in terminal.run("teachings").stdout


def test_candidates_are_shown_and_promoted_on_request_only(terminal: Terminal) -> None:
    """B-55, B-65, K-14"""
    terminal.crystal("s1")
    terminal.crystal("s2", confidence=0.8)

    assert [each["crystal"]["period"] for each in terminal.listed("promote", "--candidates")] == ["session:s1"]
    assert "1 candidate;" in terminal.run("promote", "--candidates").stdout
    assert terminal.listed("teachings") == []
    assert [each["period"] for each in terminal.listed("promote", "--auto")] == ["session:s1"]
    assert "Nothing was promoted: a crystal needs 5 marks" in terminal.run("promote", "--auto").stdout
    assert "No crystal would be promoted" in terminal.run("promote", "--candidates").stdout


@pytest.mark.parametrize("arguments", [(), ("1", "--auto"), ("--auto", "--candidates")])
def test_promote_wants_one_of_its_three_ways(terminal: Terminal, arguments: tuple[str, ...]) -> None:
    result = terminal.run("promote", *arguments)
    assert (result.exit_code, "give the ID of a crystal, --auto or --candidates" in result.stderr) == (2, True)


def test_a_stream_shows_crystals_of_other_processes_until_ctrl_c(terminal: Terminal) -> None:
    """B-31, B-65"""
    first = terminal.crystal("s1")
    command = [sys.executable, "-m", "mica", "stream", "--crystals", "--after", "0", "--json"]
    variables = {**os.environ, **terminal.variables}

    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as streaming:
        assert streaming.stdout is not None
        lines = [streaming.stdout.readline()]
        second = terminal.crystal("s2")
        lines.append(streaming.stdout.readline())
        streaming.send_signal(signal.SIGINT)
        rest, said = streaming.communicate(timeout=30)

    assert [json.loads(line)["id"] for line in lines] == [first.id, second.id]
    assert (rest, said, streaming.returncode) == ("", "", 0)


def test_a_stream_tells_time_level_and_insight(terminal: Terminal) -> None:
    """B-31"""
    crystal = terminal.crystal()

    only = terminal.run("stream", "--crystals", "--after", "0", "-n", "1").stdout
    both = terminal.run("stream", "--after", "0", "-n", "21").stdout.splitlines()

    assert re.fullmatch(rf"\[....-..-.. ..:..\] \[session\] The proxy drops cookies #{crystal.position}\n", only)
    assert [line.split("] ")[1] for line in both] == ["[mark"] * 20 + ["[session"]


def test_a_handoff_goes_to_stdout_and_which_session_it_is_to_stderr(terminal: Terminal) -> None:
    """B-28, B-65, B-69, K-16"""
    for number in range(6):
        terminal.run("mark", f"The proxy of production dropped cookie number {number} of the login", "--session", "s1")
    terminal.run("mark", "Look at the logout page", "--tag", "todo", "--session", "s1")

    document = terminal.document("handoff", "--budget", "600")
    result = terminal.run("handoff", "--session", "s1")
    none = terminal.run("handoff", "--session", "s2")

    assert set(document) >= {
        "session", "text", "lines", "new_crystals", "recent_crystals", "tokens_used", "crystallization_performed",
        "errors",
    }  # fmt: skip
    assert [crystal["period"] for crystal in document["new_crystals"]] == ["session:s1"]
    assert document["tokens_used"] <= 600
    assert "## Next\n- todo: Look at the logout page (#7)\n" in result.stdout
    assert result.stderr.startswith("mica: session s1: 0 new crystals, ")
    assert (none.exit_code, "there is no session 's2'" in none.stderr) == (1, True)


def test_a_handoff_of_nothing_says_what_to_do(terminal: Terminal) -> None:
    result = terminal.run("handoff")

    assert result.stdout == ""
    assert "nothing to hand over yet; `mica mark` records what you observe" in result.stderr


def test_now_shows_a_diff_and_writes_on_request_only(terminal: Terminal) -> None:
    """B-29, B-65, B-69"""
    terminal.crystal()
    page = terminal.folder / "NOW.md"
    page.write_text("# NOW\n\n## Plans\n")

    shown = terminal.run("now")
    document = terminal.document("now", "--section", "Session Status")
    assert page.read_text() == "# NOW\n\n## Plans\n"
    applied = terminal.run("now", "--apply")

    assert "+## What Just Happened\n" in shown.stdout
    assert "nothing is written; --apply does it" in shown.stderr
    assert set(document) >= {"section", "current_content", "proposed_content", "source_crystals", "confidence", "diff"}
    assert (document["confidence"], document["applied"]) == (0.72, False)
    assert applied.stdout == shown.stdout
    assert re.search(r"NOW\.md is written; as it was: .*NOW\.md\.bak-\d{8}T\d{6}Z\n", applied.stderr)
    assert page.read_text().startswith("# NOW\n\n## Plans\n\n## What Just Happened\n\n- 20")
    assert "says it already" in terminal.run("now").stderr


def test_now_without_crystals_says_what_to_do(terminal: Terminal) -> None:
    result = terminal.run("now", "--apply", "--store", str(terminal.folder / "other.db"))
    assert "there is no store" in result.stderr
    terminal.run("mark", "one")
    result = terminal.run("now", "--apply")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there are no crystals to tell of" in result.stderr
    assert not (terminal.folder / "NOW.md").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("crystallize", "--tree", "1", "--level", "day"), "leave out --level"),
        (("crystallize", "--tree", "1", "--session", "s1"), "leave out --session"),
        (("brief", "cookie", "--preset", "quick", "--budget", "100"), "give it or --budget, not both"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    terminal: Terminal, arguments: tuple[str, ...], told: str
) -> None:
    """B-65: wrong usage exits 2 and says what to leave out."""
    terminal.run("mark", "one thing")

    result = terminal.run(*arguments)

    assert result.exit_code == 2
    assert told in result.stderr


def test_expand_shows_what_was_left_out_at_every_level(terminal: Terminal) -> None:
    """B-29, B-21: also where whole crystals were dropped."""

    async def made() -> Crystal:
        settings = mica.load_settings(terminal.variables)
        async with mica.open(terminal.store, settings=settings) as memory:
            sessions = []
            for name in ("s1", "s2"):
                with memory.context(session=name):
                    marks = [
                        memory.mark(f"The proxy dropped cookie {number} of the {name} page") for number in range(4)
                    ]
                one = await memory.commit_crystal(
                    [(f"The {name} proxy drops", [marks[0].id])],
                    sources=[mark.id for mark in marks],
                    period=f"session:{name}",
                )
                sessions.append(one)
            return await memory.commit_crystal(
                [("It drops", sessions[0].insight[0].sources)],
                level="day",
                period="day:2026-11-03",
                sources=[each.id for each in sessions],
                dropped={sessions[1].id: "the same again"},
            )

    day = asyncio.run(made())

    shown = terminal.run("expand", day.id)
    document = terminal.document("expand", day.id)

    assert "left out: the same again" in shown.stdout
    assert [each["left_out"] for each in document["sources"]] == [None, "the same again"]


def test_doctor_tells_of_work_that_failed_and_of_folders_it_cannot_open(terminal: Terminal) -> None:
    """U-04: nothing waits unseen."""
    terminal.run("mark", "one thing")

    async def fail() -> None:
        async with mica.open(terminal.store, settings=mica.load_settings(terminal.variables)) as memory:
            memory.emit("job.failed", {"kind": "crystallize", "text": "no model answers"}, origin="tool", error=True)

    asyncio.run(fail())
    locked = Path(f"{terminal.store}-segments") / "a-dead-writer"
    (locked / "lock").mkdir(parents=True)

    told = terminal.run("doctor", "--json")
    document = json.loads(told.stdout)
    shown = " ".join(terminal.run("doctor").stdout.split())

    assert told.exit_code == 1
    assert [each["text"] for each in document["failed_work"]] == ["no model answers"]
    assert "crystallize failed" in shown
    assert not document["healthy"]
    assert "a-dead-writer cannot be opened (Is a directory)" in " ".join(document["problems"])


def test_lines_are_marked_all_or_none(terminal: Terminal) -> None:
    """What cannot be marked is named with its line, and running it again doubles nothing."""
    terminal.run("mark", "the login page is slow")
    terminal.run("purge", "--value", "login", "--yes")
    for given, said in (
        (b"one\n\xff\xfe\nthree\n", "standard input is not UTF-8: line 2 has the byte 0xff"),
        (b"one\n\nthe Login flow\nfour\n", "line 3 cannot be marked, so no line was: "),
    ):
        for options in ((), ("--json",)):
            refused = terminal.piped(given, "mark", "--lines", *options)

            assert (refused.exit_code, refused.stdout) == (1, "")
            assert refused.stderr.startswith(f"mica: {said}")
    assert "standard input is not UTF-8: line 1 has the byte 0xff" in terminal.piped(b"\xff", "mark").stderr
    refused = terminal.piped(b"one\ntwo\n", "mark", "--lines", "--tag", "we ird")
    assert refused.stderr.startswith("mica: line 1 cannot be marked, so no line was: ")
    assert terminal.listed("events", "query", "--name", "mark") == []

    assert terminal.piped(b"one\r\n\ntwo\n", "mark", "--lines").exit_code == 0
    assert [each["data"]["text"] for each in terminal.listed("events", "query", "--name", "mark")] == ["one", "two"]


def test_times_are_shown_by_the_zone_that_is_set(terminal: Terminal) -> None:
    """B-65: the day that a query names, and when a mark was made, by the same clocks."""
    terminal.variables["MICA_TIME_ZONE"] = "Asia/Kathmandu"  # no machine of ours is there
    number = terminal.document("mark", "the cookie is gone")["position"]
    found = terminal.run("search", "cookie today")
    event = terminal.document("events", "show", str(number))

    assert re.fullmatch(r"mica: understood today: \S+ 00:00 to \S+ 00:00 \(Asia/Kathmandu\)\n", found.stderr), (
        found.stderr
    )
    made_at = datetime.fromisoformat(event["at"]).astimezone(ZoneInfo("Asia/Kathmandu"))
    assert f"#{number} {made_at:%Y-%m-%d %H:%M} the cookie is gone" in found.stdout
