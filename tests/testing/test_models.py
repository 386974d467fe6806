"""Models for tests: scripted answers, and recorded conversations that are replayed without a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from mica.errors import InvalidInput
from mica.llm.protocol import Capabilities, question
from mica.testing import ScriptedModel, recorded, scripted


async def test_a_recording_replays_its_answers(tmp_path: Path) -> None:
    """keeps: D-21"""
    model = ScriptedModel("one two", {"a": 1}, name="real:m", able=Capabilities(json=True, window_tokens=9_000))
    live = scripted(recorded(tmp_path / "talk.jsonl", model))
    said = [await live.ask(question("First")), await live.ask(question("Second", schema={"type": "object"}))]

    replay = recorded(tmp_path / "talk.jsonl")
    models = scripted(replay)

    assert (await models.ask(question("Second", schema={"type": "object"}))).text == said[1].text
    pieces = [piece async for piece in models.stream(question("First"))]
    assert pieces[-1].text == said[0].text  # type: ignore[union-attr]  # the last is the answer
    assert (replay.name, replay.capabilities) == (model.name, model.capabilities)


async def test_an_unrecorded_request_is_named(tmp_path: Path) -> None:
    await scripted(recorded(tmp_path / "talk.jsonl", ScriptedModel("yes"))).ask(question("First"))
    models = scripted(recorded(tmp_path / "talk.jsonl"))
    with pytest.raises(InvalidInput, match="no answer left to 'Another'"):
        await models.ask(question("Another"))


def test_a_missing_or_damaged_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no recording"):
        recorded(tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(InvalidInput, match="is not a recording"):
        recorded(tmp_path / "bad.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InvalidInput, match="is empty"):
        recorded(tmp_path / "empty.jsonl")


async def test_an_exhausted_script_raises() -> None:
    """keeps: D-21. A scripted model is deterministic, and no unexpected request goes unnoticed."""
    model = ScriptedModel("only one", lambda request: request.messages[0].text.upper())
    models = scripted(model)
    assert (await models.ask(question("a"))).text == "only one"
    assert (await models.ask(question("b"))).text == "B"
    with pytest.raises(InvalidInput, match="has ended"):
        await models.ask(question("c"))
    assert len(model.requests) == 3
