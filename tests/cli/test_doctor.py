"""mica doctor: says what is wrong and what to do."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cli.terminal import UNPRIVILEGED, StoreTerminal, Terminal

import mica


def test_doctor_verify_and_rebuild_report_the_state(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("mark", "one")
    document = terminal.json("doctor")
    assert isinstance(document, dict)
    assert document["healthy"] is True
    assert document["events"] == 1
    assert document["transcripts_waiting"] == 0  # they belong to another space
    assert terminal.json("upkeep", "verify") == {"events": 1, "problems": []}
    assert terminal.json("upkeep", "rebuild") == {"events": 1}


def test_doctor_does_not_advise_importing_an_unfinished_line(terminal: Terminal, transcripts: Path) -> None:
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_bytes(path.read_bytes() + b'{"type":"user","message":{"role":"us')
    assert terminal.run("import", "claude-code").exit_code == 0
    rows = terminal.json("upkeep", "spaces")
    assert isinstance(rows, list)

    documents = [terminal.json("doctor", "--space", row["name"]) for row in rows]

    assert documents
    assert [each["transcripts_waiting"] for each in documents if isinstance(each, dict)] == [0] * len(rows)


def test_doctor_counts_the_transcripts_of_its_own_space(terminal: Terminal, transcripts: Path) -> None:
    [first, *_] = sorted((transcripts / "-home-dev-shop").iterdir())
    hidden = first.rename(transcripts / "later")
    terminal.run("import", "claude-code")
    [row] = json.loads(terminal.run("upkeep", "spaces", "--json").stdout)
    assert row["directory"] == "/home/dev/shop"
    hidden.rename(first)
    document = terminal.json("doctor", "--space", row["name"])
    assert isinstance(document, dict)
    assert document["transcripts_waiting"] == 1
    assert "1 transcript with something new" in terminal.run("doctor", "--space", row["name"]).stdout


def test_doctor_names_what_cannot_be_written(terminal: Terminal) -> None:
    """A store that accepts no writes is not healthy, even if it is intact."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        store = Path(folder) / "space.db"
        command = [sys.executable, "-c", UNPRIVILEGED, "doctor", "--json", "--store", str(store)]
        variables = os.environ | terminal.variables | {"HOME": folder}
        result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

        document = json.loads(result.stdout[result.stdout.index("{") :])
        assert (result.returncode, document["healthy"]) == (1, False)
        assert document["problems"][0].startswith(f"{store} cannot be written, so nothing new is stored: check")


def test_doctor_stores_the_events_of_a_killed_process_before_it_counts(terminal: Terminal, tmp_path: Path) -> None:
    """keeps: TE-03. No process is writing, so nothing is left pending."""
    store = tmp_path / "killed.db"
    code = (
        "import asyncio, os, signal, mica\n"
        "async def main():\n"
        f"    memory = await mica.open({str(store)!r})\n"
        "    for number in range(6_000):\n"  # more than every read stores first
        "        memory.emit('tool.ran', {'number': number})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | terminal.variables, check=False)

    document = terminal.json("doctor", "--store", str(store))

    assert isinstance(document, dict)
    assert (document["events"], document["backlog"]["events"], document["healthy"]) == (6_000, 0, True)
    assert not [line for line in document["advice"] if "waiting to be stored" in line]


def test_doctor_says_where_a_space_would_be_created(terminal: Terminal, tmp_path: Path) -> None:
    document = terminal.json("doctor")
    assert isinstance(document, dict)
    assert (document["healthy"], document["exists"]) == (True, False)
    assert document["store"].endswith(".db")
    assert "(created with the first event)" in terminal.run("doctor").stdout

    (tmp_path / "file").touch()
    result = terminal.run("doctor", MICA_HOME=str(tmp_path / "file" / "home"))
    assert result.exit_code == 1
    assert "1 problem" in result.stdout
    assert f"{tmp_path / 'file'} cannot be written" in result.stdout


def test_doctor_names_failed_work_and_folders_that_cannot_be_opened(store_terminal: StoreTerminal) -> None:
    """keeps: U-04"""
    store_terminal.run("mark", "one thing")

    async def fail() -> None:
        async with mica.open(store_terminal.store, settings=mica.load_settings(store_terminal.variables)) as memory:
            memory.emit("job.failed", {"kind": "crystallize", "text": "no model answers"}, origin="tool", error=True)

    asyncio.run(fail())
    locked = Path(f"{store_terminal.store}-segments") / "a-dead-writer"
    (locked / "lock").mkdir(parents=True)

    result = store_terminal.run("doctor", "--json")
    document = json.loads(result.stdout)
    shown = " ".join(store_terminal.run("doctor").stdout.split())

    assert result.exit_code == 1
    assert [each["text"] for each in document["failed_work"]] == ["no model answers"]
    assert "crystallize failed" in shown
    assert not document["healthy"]
    assert "a-dead-writer cannot be opened (Is a directory)" in " ".join(document["problems"])


def test_doctor_names_events_that_were_refused(store_terminal: StoreTerminal) -> None:
    async def refused() -> None:
        settings = mica.load_settings(store_terminal.variables)
        async with mica.open(store_terminal.store, settings=settings) as memory:
            memory.emit("tool.ran", {"deep": {(1, 2): 3}})  # no JSON can hold it

    asyncio.run(refused())

    document = store_terminal.document("doctor")

    assert document["refused_events"] == 1
    [advice] = [line for line in document["advice"] if "could not be stored" in line]
    shows = "`mica events query --name event.refused` shows why"
    assert advice == f"1 event could not be stored as it was in the last week: {shows}"
