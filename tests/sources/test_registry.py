"""The registry of sources and their health."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.sources.gated_source import GatedSource

import mica
from mica import Memory
from mica.errors import InvalidInput
from mica.settings import Settings
from mica.sources.protocol import GATHERED
from mica.sources.registry import read_history
from mica.testing import HandClock
from mica.testing.builders import build


async def test_a_cut_answer_counts_as_an_answer(memory: Memory) -> None:
    """keeps: C-20. It is shown in part, and the source's health does not count it as a failure."""
    rows = [{"key": f"k{number}", "value": number} for number in range(60)]
    memory.sources.register("million", lambda concept: rows, is_live=True)

    answer = await memory.sources.gather("a:b:c", deadline_s=5)

    assert answer.missing["million"].startswith("partial: ")
    assert "missing: million (partial: " in answer.injection
    past = (await memory.sources.history())["million"]
    assert (past.asked, past.failed, past.is_failing) == (1, 0, False)


@pytest.mark.parametrize(("reason", "failed"), [("partial: a", 0), ("told in part: a", 0), ("it failed: a", 1)])
def test_a_partial_answer_is_no_failure_in_events_of_earlier_versions_either(reason: str, failed: int) -> None:
    gather = build(1, GATHERED, {"asked": ["app"], "cached": [], "missing": {"app": reason}})

    past = read_history([gather])["app"]

    assert (past.asked, past.failed) == (1, failed)


@pytest.mark.parametrize("asked", ["await memory.sources.gather('a:b:c')", "await memory.brief(concept='a:b:c')"])
def test_drivers_are_loaded_before_a_deadline_begins(asked: str, tmp_path: Path) -> None:
    """keeps: C-09. Otherwise the first gather of a process would miss its deadline and delay every other source."""
    code = f"""
import asyncio, msgspec, sys, mica

async def loaded(concept):
    print("loaded:", hasattr(sys.modules.get("httpx2"), "AsyncClient"))

async def main():
    table = {{"driver": "http", "url": "http://127.0.0.1:9/", "concepts": ["a:*"]}}
    settings = msgspec.structs.replace(mica.load_settings({{"HOME": {str(tmp_path)!r}}}), sources={{"api": table}})
    async with mica.open(":memory:", settings=settings) as memory:
        memory.sources.register("probe", loaded)
        assert "httpx2" not in sys.modules
        {asked}

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stdout == "loaded: True\n", done.stdout + done.stderr


CONCEPT = "judgment:code_review:abc123"


async def test_a_replaced_object_answers_in_place_of_the_old_one(home: Settings, clock: HandClock) -> None:
    """keeps: K-24. Cached replies of the old object are not used."""
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        for said in ("old", "new"):
            memory.sources.register("app", [{"key": "port", "text": said}], is_live=False, ttl_s=60)

            assert [each.text for each in (await memory.sources.gather(CONCEPT)).fragments] == [said]


async def test_two_sources_with_the_same_name_are_refused(memory: Memory) -> None:
    memory.sources.add(GatedSource("app"))

    with pytest.raises(InvalidInput, match="'app' already"):
        memory.sources.add(GatedSource("app"))
