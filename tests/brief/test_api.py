"""One brief of crystals, marks, files, teachings and statements of other systems, within one budget."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import compress
from pathlib import Path

import msgspec
import pytest
from tests.sources.scripted_sources import ScriptedSource

import mica
from mica import EventQuery, Memory
from mica.brief.layout import date_of
from mica.errors import SourceFailed
from mica.hook import BRIEFS, OFFERS, is_held_out
from mica.settings import Settings
from mica.sources import registry
from mica.testing import HandClock

CONCEPT = "service:api:login"


# -- One composer --------------------------------------------------------------------------------------------------


async def test_a_brief_combines_marks_and_external_statements(memory: Memory, clock: HandClock) -> None:
    """keeps: C-03, K-50.

    They share one budget and one receipt; conflicts take one line, and missing sources are named.
    """
    memory.mark("The login cookie is set before the redirect")
    memory.sources.add(ScriptedSource("database", {"port": 8080, "owner": "ann"}, rank=10))
    memory.sources.add(ScriptedSource("file", {"port": 8081}))
    bad = ScriptedSource("bad", {})
    bad.error = RuntimeError("down")
    memory.sources.add(bad)

    brief = await memory.brief("login cookie", concept=CONCEPT)

    lines = brief.text.splitlines()
    today = date_of(clock(), clock())
    assert any("The login cookie is set before the redirect (#1)" in line for line in lines)
    assert f"- {today} {CONCEPT} [database]: port is 8080 (62%)" in lines
    assert f"- {today} {CONCEPT} [database]: owner is ann (62%)" in lines
    assert (
        "- conflicts: port: [file] says port is 8081, loses to [database] (less trusted, rank 20 against 10)" in lines
    )
    assert "- missing: bad (RuntimeError: down)" in lines
    assert brief.concepts == (CONCEPT,)
    assert brief.coherence is not None
    assert brief.missing == {"bad": "RuntimeError: down"}
    assert brief.tokens <= brief.budget_tokens == 2_000
    [receipt] = await memory.events.query(EventQuery(names=("brief",)))
    assert receipt.id == brief.receipt


async def test_agents_see_what_is_missing_and_operators_also_the_remedy(memory: Memory) -> None:
    reason = "/srv/shop/state/gone.json does not exist; create it, or take out [sources.gone]"
    gone = ScriptedSource("gone", {})
    gone.error = SourceFailed("gone", reason)
    memory.sources.add(gone)

    gathered = await memory.sources.gather(CONCEPT)
    brief = await memory.brief("login", concept=CONCEPT)

    assert gathered.missing == brief.missing == {"gone": reason}
    for text in (gathered.injection, brief.text):
        assert "- missing: gone (gone.json does not exist)" in text.splitlines()


async def test_configured_concepts_are_gathered_for_every_brief(home: Settings) -> None:
    """keeps: C-03. They are gathered before the model sees anything, without a request."""
    home = msgspec.structs.replace(home, brief=msgspec.structs.replace(home.brief, concepts=(CONCEPT,)))
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.add(ScriptedSource("app", {"port": 8080}))

        assert "port is 8080" in (await memory.brief()).text


async def test_a_mark_quoted_by_a_source_is_shown_once(memory: Memory) -> None:
    """keeps: TC-12. Duplicates across sources are shown once, and only shown lines are counted as shown."""
    memory.mark("login: the port is 8080 on every host")
    memory.sources.add(ScriptedSource("app", {"x": 1}))

    brief = await memory.brief("login port", concept="service:api:login")

    assert brief.text.count("the port is 8080 on every host") == 1
    assert len(brief.passages) == sum(line.startswith("- ") for line in brief.text.splitlines())


# -- Receipts and why ----------------------------------------------------------------------------------------------


async def test_drivers_are_loaded_before_the_deadline_of_a_brief_begins(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: C-09. This holds for the concepts of one brief and for those of every brief."""
    loaded: list[str] = []
    monkeypatch.setattr(registry, "import_module", loaded.append)
    monkeypatch.delitem(sys.modules, "jsonpath", raising=False)
    tables: dict[str, dict[str, object]] = {
        "file": {"driver": "json", "path": "x.json", "select": "$.*", "concepts": ["service:*"]}
    }
    every = msgspec.structs.replace(home.brief, concepts=(CONCEPT,))

    for settings, concept in ((home, CONCEPT), (msgspec.structs.replace(home, brief=every), ())):
        async with mica.open(":memory:", settings=msgspec.structs.replace(settings, sources=tables)) as memory:
            await memory.sources.prepare("other:thing:1")
            await memory.sources.prepare(concept)

    assert "jsonpath" in loaded


# -- At another time -----------------------------------------------------------------------------------------------


# -- On and off ----------------------------------------------------------------------------------------------------


async def test_the_same_share_of_sessions_is_always_held_out(home: Settings) -> None:
    """keeps: C-54"""
    sessions = [f"s{number}" for number in range(1_000)]
    held_out = [is_held_out(each, 0.3, kind=BRIEFS) for each in sessions]
    assert 250 < sum(held_out) < 350
    assert held_out == [is_held_out(each, 0.3, kind=BRIEFS) for each in sessions]
    assert 60 < sum(is_held_out(each, 0.3, kind=OFFERS) for each in compress(sessions, held_out)) < 120
    assert not is_held_out("", 1, kind=BRIEFS)

    home = msgspec.structs.replace(home, brief=msgspec.structs.replace(home.brief, holdout=1.0))
    async with mica.open(":memory:", settings=home) as memory:
        memory.mark("The login cookie is set before the redirect")
        with memory.context(session="s1"):
            assert (await memory.brief("login")).is_off
        assert not (await memory.brief("login")).is_off


_LOADED = """
import asyncio, sys, mica

async def main():
    async with mica.open(sys.argv[1]) as memory:
        memory.emit("file.read", {"path": "auth/session.py"})
        memory.mark("The login cookie is set before the redirect in auth/session.py")
        await memory.briefs.prepare()
        before = set(sys.modules)
        brief = await memory.brief("login cookie", deadline_s=60)
        assert "cookie" in brief.text and not brief.missing, brief
        print(sorted(name for name in set(sys.modules) - before if name.startswith("mica")))

asyncio.run(main())
"""


def test_a_prepared_brief_loads_no_module_within_its_deadline(tmp_path: Path) -> None:
    """keeps: U-05. A command that has just started has its whole deadline for the answer."""
    variables = {"HOME": str(tmp_path), "MICA_SEMANTIC": "off"}
    command = [sys.executable, "-c", _LOADED, str(tmp_path / "space.db")]

    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


# -- Compression ---------------------------------------------------------------------------------------------------
