"""Benchmarks: what they print is true, or they end with an error."""

from __future__ import annotations

import asyncio
import importlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import mica
from mica.testing import build

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "bench"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("log")


Measure = Callable[[ModuleType, Path], object]
MEASURES: dict[str, Measure] = {
    "rate": lambda log, path: asyncio.run(log.run_mica(log.stream(64), path.parent, 0)),
    "bytes": lambda log, path: asyncio.run(log.fill(path, log.stream(64))),
    "growth": lambda log, path: asyncio.run(log.grow(path, 64)),
}


@pytest.mark.parametrize("measure", MEASURES)
def test_a_count_that_is_wrong_ends_the_run(log: ModuleType, tmp_path: Path, measure: str) -> None:
    """TE-15, M-11, M-13: what went in is durable and comes out of a query; else there is no number."""
    MEASURES[measure](log, tmp_path / "right" / "space.db")

    async def spoil(path: Path) -> None:
        async with log.opened(path) as memory:
            memory.emit("one.too.many")

    path = tmp_path / "wrong" / "space.db"
    asyncio.run(spoil(path))
    with pytest.raises(SystemExit, match=r"broken promise: \d+ events were emitted, \d+ are stored"):
        MEASURES[measure](log, path)


def killed(log: ModuleType) -> list[mica.Event]:
    """Four events of a writer, as the benchmark finds them when nothing is lost."""
    events: list[mica.Event] = []
    for number in range(1, 5):
        name, data = log.written(1, number)
        parent = events[-1] if events else None
        events.append(build(number, name, data, context=log.context_of(1, number), parent=parent))
    return events


def test_what_a_kill_took_or_doubled_is_counted(log: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """TE-07, TE-15, E-15: contents are compared, and a run that lost something fails."""
    whole = killed(log)
    assert log.compared(whole, {1: 4}) == (0, 0, 4)
    assert log.compared(whole, {1: 6}) == (2, 0, 4)
    assert log.compared([*whole, whole[-1]], {1: 4}) == (0, 1, 4)
    with pytest.raises(SystemExit, match="event 1 of writer 1 is as it was emitted"):
        log.compared([msgspec.structs.replace(whole[0], name="other"), *whole[1:]], {1: 4})

    numbers = dict.fromkeys(log.BARS, 1.0)
    with pytest.raises(SystemExit, match="no acknowledged event is lost"):
        log.report(numbers, 1)
    log.report(numbers | {"lost_acked": 0, "doubled": 0}, 1)
    assert '"lost_acked": 0' in capsys.readouterr().out.splitlines()[-1]


def test_size_counts_every_file(log: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M-12, E-15: against embedded contexts; what an empty space takes is subtracted and told."""
    (tmp_path / "files" / "deep").mkdir(parents=True)
    for name in ("space.db", "space.db-wal", "deep/0.segment"):
        (tmp_path / "files" / name).write_bytes(b"x" * 100)
    assert log.files_bytes(tmp_path / "files") == 300

    plan = log.QUICK._replace(bytes_events=4_096, text_events=256)
    numbers = log.compare_bytes(plan, tmp_path)

    assert 0 < numbers["bytes_vs_embedded"] < 1
    assert "an empty space's" in capsys.readouterr().out


def test_every_benchmark_is_described_and_shipped(log: ModuleType) -> None:
    """U-13, E-16, E-42: whoever has the package can measure; each number that is printed is explained."""
    scripts = {path.name for path in BENCH.glob("[!_]*.py")}
    page = (BENCH / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert scripts == {name for name in scripts if f"| `{name}` |" in page}
    assert [name for name in log.BARS if f"`{name}`" not in page] == []
    assert "/bench" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
