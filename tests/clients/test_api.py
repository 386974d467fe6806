"""`memory.clients`: transcripts and hooks of coding agents, through the front door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mica
from mica.clients.spool import hooks_folder
from mica.model.event import EventQuery
from mica.settings import Settings

ROLLOUT = Path(__file__).parents[1] / "fixtures" / "codex" / "rollout.jsonl"


async def test_a_transcript_is_unread_until_it_is_imported(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        assert await memory.clients.unread([ROLLOUT, ROLLOUT.with_name("gone.jsonl")]) == [ROLLOUT]

        done = await memory.clients.import_transcripts([ROLLOUT])

        assert (done.files, done.failed) == (1, {})
        assert await memory.clients.unread([ROLLOUT]) == []
        assert len(await memory.events.query(EventQuery(limit=None))) == done.events + 1, "and the offset"


async def test_paths_are_relative_to_the_root_that_is_named(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        await memory.clients.import_transcripts([ROLLOUT], root={ROLLOUT: Path("/home/dev")})

        [first, *_] = await memory.events.query(EventQuery(names=("file.read",), limit=None))
        assert first.data["path"] == "shop/src/auth.py"


async def test_an_ingest_stores_and_renders_and_a_read_only_stores(tmp_path: Path, home: Settings) -> None:
    folder = hooks_folder(tmp_path / "space.db")
    line = {"v": 1, "at": 1_794_742_952_000_000, "client": "claude", "event": "UserPromptSubmit", "directory": "/p"}
    payload = {"session_id": "s1", "prompt_id": "p1", "prompt": "Always use uv run"}
    (folder / "spool").mkdir(parents=True)
    (folder / "spool" / "s1.jsonl").write_text(json.dumps(line | {"payload": payload}) + "\n")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert "mark" in {event.name for event in await memory.events.query()}
        assert not (folder / "session.json").exists()

        done = await memory.clients.ingest()

        assert (done.lines, done.is_busy) == (0, False)
        assert (folder / "session.json").exists()


async def test_a_store_in_memory_has_no_hooks(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        assert memory.clients.spools is None
        assert await memory.events.query() == []
        with pytest.raises(mica.InvalidInput, match="no hooks write"):
            await memory.clients.ingest()
