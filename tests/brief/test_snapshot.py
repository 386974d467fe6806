"""Briefs of the past, from the events recorded up to a time."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

from tests.sources.scripted_sources import ScriptedSource

from mica import Memory
from mica.testing import HandClock
from mica.testing.builders import START_AT

CONCEPT = "service:api:login"


def _transcript(folder: Path, prompt: str, *, at: datetime) -> Path:
    """Write a transcript of one prompt in the format of Claude Code."""
    line = {
        "type": "user",
        "uuid": "u1",
        "sessionId": "late",
        "cwd": str(folder),
        "timestamp": at.isoformat().replace("+00:00", "Z"),
        "message": {"role": "user", "content": prompt},
    }
    (path := folder / "late.jsonl").write_text(f"{json.dumps(line)}\n", encoding="utf-8")
    return path


async def test_a_brief_of_the_past_is_the_one_that_would_have_been_made_then(memory: Memory, clock: HandClock) -> None:
    """keeps: C-35. It uses the events recorded until then and the latest source replies of that time."""
    memory.mark("The login cookie is set before the redirect", tags=("gotcha",))
    app = ScriptedSource("app", {"port": 8080}, ttl_s=1)
    memory.sources.add(app)
    then = await memory.brief("login cookie", concept=CONCEPT)
    clock.move(hours=1)
    moment = clock()
    clock.move(hours=1)
    memory.mark("The login cookie is gone since the login was rewritten")
    app.facts = {"port": 9090}
    after = await memory.brief("login cookie", concept=CONCEPT)

    back = await memory.brief("login cookie", concept=CONCEPT, at=moment)
    before = await memory.brief("login cookie", concept=CONCEPT, at=moment - timedelta(days=2))

    assert back.text == then.text
    assert ("9090" in after.text, "rewritten" in after.text) == (True, True)
    assert before.passages == ()
    assert before.missing == {CONCEPT: "it was not gathered by then, and other systems cannot be asked about the past"}


async def test_a_brief_of_the_past_has_conflicts_and_gaps_too(memory: Memory, clock: HandClock) -> None:
    """keeps: C-35. They appear as they did then; parts that were not recorded are named."""

    async def down(concept: object) -> list[object]:
        raise RuntimeError("down")

    memory.sources.add(ScriptedSource("one", {"port": 8080}, rank=10))
    memory.sources.add(ScriptedSource("two", {"port": 9090}, rank=20))
    memory.sources.register("three", down)
    then = await memory.brief(concept=CONCEPT)
    clock.move(minutes=1)
    back = await memory.brief(concept=CONCEPT, at=clock())

    assert len(then.conflicts) == 1
    assert "missing: three" in then.text
    assert (back.text, back.conflicts, back.missing, back.coherence) == (
        then.text,
        then.conflicts,
        then.missing,
        then.coherence,
    )

    for number in range(4):
        memory.sources.add(ScriptedSource(f"other{number}", {"port": number}, rank=30))
    await memory.brief(concept=CONCEPT)
    clock.move(minutes=1)
    more = await memory.brief(concept=CONCEPT, at=clock())

    assert len(more.conflicts) == 3
    assert more.missing[CONCEPT] == "2 more conflicts were found then and not recorded"


async def test_events_recorded_late_are_unknown_before_their_recording(
    memory: Memory, clock: HandClock, tmp_path: Path
) -> None:
    """keeps: C-35. This holds for a mark with an earlier time and for an imported transcript."""
    memory.mark("The login cookie is set before the redirect", tags=("gotcha",))
    clock.move(hours=1)
    then, moment = await memory.brief("login cookie"), clock()
    clock.move(days=1)
    await memory.clients.import_transcripts(
        [_transcript(tmp_path, "The login cookie is lost in the proxy", at=START_AT)]
    )
    memory.mark("The login cookie was always wrong", at=moment - timedelta(minutes=30))
    now = await memory.brief("login cookie")

    back = await memory.brief("login cookie", at=moment)
    soon_after = await memory.brief("login cookie", at=moment + timedelta(hours=2))

    assert ("proxy" in now.text, "always wrong" in now.text) == (True, True)
    assert back.text == soon_after.text == then.text


async def test_a_wrong_clock_in_the_past_hides_nothing(memory: Memory, clock: HandClock) -> None:
    clock.move(days=400)
    await memory.brief("login cookie")
    clock.move(days=-400)
    memory.mark("The login cookie is set before the redirect", tags=("gotcha",))
    then = await memory.brief("login cookie")

    assert (await memory.brief("login cookie", at=clock())).text == then.text
