"""Retention: off unless configured, bulk events only, archived first; cited events stay."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from tests.residue import residue

import mica
from mica.cli import cli
from mica.errors import InvalidInput, InvalidSettings
from mica.model.event import EventQuery
from mica.settings import RetentionSettings, Settings
from mica.testing import HandClock


@pytest.fixture(params=[":memory:", "space.db", "postgres"])
async def memory(
    request: pytest.FixtureRequest, tmp_path: Path, home: Settings, clock: HandClock
) -> AsyncIterator[mica.Memory]:
    """A memory whose retention is on, with an archive."""
    target = tmp_path / request.param if request.param == "space.db" else request.param
    if request.param == "postgres":
        target = request.getfixturevalue("server").address()
    retention = RetentionSettings(enabled=True, archive=tmp_path / "archive")
    settings = msgspec.structs.replace(home, retention=retention)
    async with mica.open(target, settings=settings, clock=clock) as opened:
        yield opened


async def remaining(memory: mica.Memory) -> list[object]:
    events = await memory.events.query(EventQuery(names=("poll", "mark", "file.read", "brief"), limit=None))
    return [event.data.get("n") or event.data.get("text") for event in events]


async def test_bulk_events_expire_by_class(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: E-24, K-45. Seven days, fourteen for deep ones, thirty for failures; the longest period applies."""
    deep = memory.emit("poll", {"n": "root"})
    for _ in range(11):
        deep = memory.emit("poll", {"n": "chain"}, parent=deep)
    memory.emit("poll", {"n": "failed"}, error=True)
    memory.emit("poll", {"n": "both"}, error=True, parent=deep)
    memory.mark("a mark")
    memory.emit("file.read", {"n": "step"})

    classes = []
    for days in (6.9, 0.2, 6.8, 0.3, 15.7, 0.3):
        clock.move(days=days)
        memory.emit("poll", {"n": "new"}, at=clock() + timedelta(days=100))
        classes.append((await memory.upkeep.retain()).classes)

    assert classes == [{}, {"default": 11}, {}, {"deep": 1}, {}, {"error": 2}]
    assert [name for name in await remaining(memory) if name != "new"] == ["a mark", "step"]
    assert await memory.upkeep.verify() == []


async def test_a_retained_event_retains_the_events_it_cites(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-45, TE-16.

    These are parents of marks and ids in receipts; the rest become tombstones that name their class.
    """
    parent, named, lost, pinned, let_go = (memory.emit("poll", {"n": n}) for n in ("parent", "named", "lost", "p", "q"))
    memory.mark("seen", parent=parent)
    memory.emit("brief", {"passages": [{"sources": [named.id]}]}, origin="recalled")
    memory.upkeep.pin(pinned, let_go.id)
    for nothing in ((), ("12",), (None,)):
        with pytest.raises(InvalidInput):
            memory.upkeep.pin(*nothing)
    memory.upkeep.unpin(let_go)
    clock.move(days=8)

    assert (await memory.upkeep.retain(dry_run=True)).classes == {"default": 2}
    done = await memory.upkeep.retain()

    assert done.classes == {"default": 2}
    assert set(await remaining(memory)) == {"parent", "named", "p", "seen", None}
    stone = await memory.events.get(lost)
    assert (stone.name, stone.data["reason"]) == ("event.purged", "retention: default")
    assert await memory.upkeep.verify() == []
    assert (await memory.upkeep.retain()).classes == {}


async def test_retention_reports_how_many_events_stay_and_why(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-45. A pattern may retain an application's own event names, and the report names it."""
    parent = memory.emit("poll", {"n": "parent"})
    memory.emit("poll", {"n": "lost"})
    memory.mark("seen", parent=parent)
    for name in ("tool.polled", "tool.asked", "step42"):
        memory.emit(name, {"n": 1})
    clock.move(days=8)
    memory.emit("tool.polled", {"n": "new"})

    done = await memory.upkeep.retain(dry_run=True)

    assert done.classes == {"default": 1}
    assert done.kept == {"mark": 1, "step*": 1, "tool.*": 2}
    assert done.cited == 1


def test_the_retained_event_names_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "purge.md").read_text(encoding="utf-8")
    assert " ".join(RetentionSettings().keep) in " ".join(page.split())


async def test_events_are_archived_before_they_expire(memory: mica.Memory, clock: HandClock, home: Settings) -> None:
    """keeps: E-24. The archive is complete, and a person's purge reaches it."""
    with memory.context(session="s1"):
        memory.emit("poll", {"n": "first"})
        memory.emit("poll", {"n": "second"})
    events = await memory.events.query()
    clock.move(days=8)

    done = await memory.upkeep.retain()

    assert done.archive is not None
    async with mica.open(":memory:", settings=home) as other:
        await other.events.import_log(Path(done.archive))
        assert await other.events.query() == events
    again = await memory.events.import_log(Path(done.archive))
    assert (again.events, again.repeated, again.purged) == (0, 0, 2)  # they do not come back, but are counted
    assert (await memory.purge(value="nowhere")).exports == ()
    purged = await memory.purge(value="second")
    assert (purged.events, purged.exports) == (0, (done.archive,))
    lines = [json.loads(line) for line in Path(done.archive).read_bytes().splitlines()]
    assert [line["name"] for line in lines] == ["poll", "event.purged"]


async def test_what_expires_leaves_the_text_that_hooks_will_show(
    tmp_path: Path, home: Settings, clock: HandClock
) -> None:
    """keeps: E-24. Expired text is removed wherever a purge removes it, so that no later session receives it."""
    settings = msgspec.structs.replace(home, retention=RetentionSettings(enabled=True, keep=()))
    async with mica.open(tmp_path / "space.db", settings=settings, clock=clock) as memory:
        with memory.context(session="s1"):
            memory.mark("The staging proxy drops cookies")
        await memory.clients.ingest()
        assert residue(tmp_path / "space.db-hooks", ["staging proxy"])
        clock.move(days=40)

        done = await memory.upkeep.retain()

        assert sum(done.classes.values()) >= 1
        assert residue(tmp_path / "space.db-hooks", ["staging proxy"]) == []


async def test_events_that_cannot_be_archived_stay(memory: mica.Memory, clock: HandClock, tmp_path: Path) -> None:
    """keeps: E-24"""
    memory.emit("poll", {"n": 1})
    clock.move(days=8)
    (tmp_path / "archive").write_text("in the way")

    with pytest.raises(InvalidInput, match=r"cannot create the archive .*archive: .*; nothing was purged"):
        await memory.upkeep.retain()

    assert await remaining(memory) == [1]


async def test_nothing_expires_while_retention_is_off(home: Settings, clock: HandClock) -> None:
    """keeps: K-45, K-53, E-03. It is off by default, and age alone removes nothing."""
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.emit("poll", {"n": 1})
        clock.move(days=1_000)
        await memory.upkeep.age()
        with pytest.raises(InvalidInput, match=r"retention is off.*enabled = true"):
            await memory.upkeep.retain()
        assert (await memory.upkeep.retain(dry_run=True)).classes == {"default": 1}
        assert await remaining(memory) == [1]


async def test_a_person_cannot_use_the_reason_reserved_for_retention(memory: mica.Memory) -> None:
    memory.emit("poll", {"n": 1})
    with pytest.raises(InvalidInput, match="reserved for retention"):
        await memory.purge(ids=[1], reason="retention: mine")


def test_retention_is_set_in_the_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[retention]\nenabled = true\nerror_days = 90\narchive = "~/old"\nkeep = ["mark"]\n')
    given = {"HOME": str(tmp_path), "MICA_CONFIG": str(file), "MICA_RETENTION_DEFAULT_DAYS": "0.5"}
    retention = mica.load_settings(given).retention
    assert (retention.enabled, retention.default_days, retention.error_days) == (True, 0.5, 90)
    assert retention.keep == ("mark",)
    with pytest.raises(InvalidSettings, match="MICA_RETENTION_DEEP_DAYS='0'"):
        mica.load_settings(given | {"MICA_RETENTION_DEEP_DAYS": "0"})


def test_the_commands_pin_and_retain(tmp_path: Path) -> None:
    """keeps: E-24"""
    file = tmp_path / "config.toml"
    variables = {"HOME": str(tmp_path), "MICA_CONFIG": str(file), "XDG_DATA_HOME": "", "MICA_STORE": ""}
    line = '{{"event_name": "poll", "_event_id": "{0}", "timestamp": 1600000000, "data": {{}}}}\n'
    (tmp_path / "old.jsonl").write_text(line.format("a") + line.format("b"))

    def run(*arguments: str) -> str:
        command = [*arguments, "--store", str(tmp_path / "space.db")]
        result = CliRunner().invoke(cli, command, env=variables, prog_name="mica")
        return result.output

    file.write_text("")
    run("events", "import-log", str(tmp_path / "old.jsonl"))
    assert "retention is off" in run("upkeep", "retain")
    tried = run("upkeep", "retain", "--dry-run")
    assert tried.startswith("2 events would be removed: default 2\n")
    assert "retention is off, so nothing is purged; `enabled = true` under [retention]" in tried
    assert not json.loads(run("upkeep", "retain", "--dry-run", "--json"))["enabled"]
    file.write_text("[retention]\nenabled = true\n")
    assert run("upkeep", "retain", "--dry-run") == "2 events would be removed: default 2\n"
    assert "pinned 1 event" in run("upkeep", "pin", "1")
    assert json.loads(run("upkeep", "retain", "--json"))["classes"] == {"default": 1}
    assert "unpinned 1 event" in run("upkeep", "unpin", "#1")
    assert "1 event purged: default 1" in run("upkeep", "retain")
    assert "0 events purged" in run("upkeep", "retain")
