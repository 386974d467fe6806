"""Why: everything that is shown leads back to what it rests on."""

from __future__ import annotations

import pytest

import mica
from mica.brief.why import handles
from mica.model.event import EventId, EventQuery


async def test_every_passage_of_a_brief_names_what_it_rests_on(memory: mica.Memory) -> None:
    """U-11: a receipt is enough to ask by."""
    with memory.context(session="s1", agent="scout"):
        seen = memory.mark("The session cookie is set before the redirect", tags=("gotcha",))
        memory.emit("file.read", {"path": "auth/session.py", "start_line": 40, "end_line": 92})
    brief = await memory.brief("session cookie", budget_tokens=500)
    assert brief.receipt is not None

    [why] = await memory.why(brief.receipt)

    assert (why.name, why.text) == ("brief", "session cookie")
    assert len(why.because) == len(brief.passages)
    marks = [line for line in why.because if line.source == "marks"]
    assert [event.id for line in marks for event in line.evidence] == [seen.id]
    assert (marks[0].evidence[0].session, marks[0].evidence[0].agent) == ("s1", "scout")
    assert [line.tokens for line in why.because] == [passage.tokens for passage in brief.passages]


async def test_a_line_of_a_brief_leads_to_its_marks(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        cause = memory.mark("The cookie is set before the redirect")
        memory.mark("Moved the cookie after the redirect", parent=cause)
    brief = await memory.brief("moved the cookie", budget_tokens=500)
    line = next(line for line in brief.text.splitlines() if "Moved" in line)

    [why] = await memory.why(line)

    assert [each.text for each in why.because] == [
        "Moved the cookie after the redirect",
        "The cookie is set before the redirect",
    ]


async def test_statements_of_a_crystal_name_their_marks(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        ids = [memory.mark(f"Step {number} of the login sets the session cookie again").id for number in range(5)]
        crystal = await memory.commit_crystal([("The login sets its cookie five times", ids[1:3])])

    [why] = await memory.why(crystal.id)

    assert [(line.text, [event.id for event in line.evidence]) for line in why.because] == [
        ("The login sets its cookie five times", ids[1:3])
    ]


async def test_what_was_purged_is_named_and_not_shown(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        secret = memory.mark("The password of the shop is hunter2")
    brief = await memory.brief("password of the shop", budget_tokens=500)
    assert brief.receipt is not None
    await memory.purge(ids=[secret.id])

    [why] = await memory.why(brief.receipt)

    assert "purged" in [line.text for line in why.because]
    assert "hunter2" not in repr(why)


async def test_an_event_of_another_that_is_called_brief_leads_to_what_led_to_it(memory: mica.Memory) -> None:
    cause = memory.emit("task.began", {"text": "why was this written"})
    memory.emit("brief", {"anything": [1]}, parent=cause)
    [event] = await memory.events(EventQuery(names=("brief",)))

    [why] = await memory.why(event)

    assert [line.text for line in why.because] == ["brief", "why was this written"]


async def test_what_is_not_there_is_an_error(memory: mica.Memory) -> None:
    with pytest.raises(mica.UnknownEvent, match="#999"):
        await memory.why("… and so on (#999)")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("#12", ["#12"]),
        ("12", ["12"]),
        ("- mark: see issue (#3) first (#12 #14)", ["#12", "#14"]),
        ("- gotcha: told (#12, #14)  ", ["#12", "#14"]),
        ("  01m7gsn9dz-00  ", ["01m7gsn9dz-00"]),
    ],
)
def test_a_reference_is_an_id_a_number_or_a_line_that_ends_in_numbers(text: str, named: list[str]) -> None:
    assert handles(text) == named


async def test_a_session_is_committed_without_naming_its_marks(memory: mica.Memory) -> None:
    """B-33: what an agent says of its own session covers all marks of it; a second time it supersedes the first."""
    with memory.context(session="s1", agent="scout"):
        ids = [memory.mark(f"Step {number} of the login sets the session cookie again").id for number in range(5)]
        first = await memory.commit_crystal([("The cookie is set five times", ids[:1])])
        ids.append(memory.mark("The last step of the login sets no cookie at all").id)
        second = await memory.commit_crystal([("The cookie is set five times, then no more", [ids[0], ids[5]])])

    assert (first.period, set(first.sources)) == ("session:s1", set(ids[:5]))
    assert (second.supersedes, set(second.sources)) == ((first.id,), set(ids))
    assert await memory.crystals() == [second]
    with pytest.raises(mica.InvalidInput, match="which period"):
        await memory.commit_crystal([("Whose?", [EventId(ids[0])])])


async def test_every_line_of_a_brief_leads_somewhere(memory: mica.Memory) -> None:
    """U-11: marks, statements, the conflicts in one line, gaps, and that something was compressed."""

    def away(concept: object) -> None:
        raise RuntimeError("the tracker is down")

    with memory.context(session="s1"):
        memory.mark("The login sets the cookie. " + "It does so before the redirect, every time. " * 40)
    memory.register("readback", lambda concept: [{"key": "port", "value": 8081, "text": "the port is 8081"}], rank=20)
    memory.register("patterns", lambda concept: [{"key": "port", "value": 8080, "text": "the port is 8080"}], rank=10)
    memory.register("older", lambda concept: [{"key": "port", "value": 80, "text": "the port is 80"}], rank=30)
    memory.register("tracker", away)
    brief = await memory.brief("login cookie", concept="app:config:web", budget_tokens=300, compress=True)
    lines = [line for line in brief.text.splitlines() if line.startswith("- ")]

    told = {line.split(":")[0]: await memory.why(line) for line in lines}

    assert {"- conflicts", "- missing", "- compressed", "- app"} <= told.keys()
    [conflicts] = told["- conflicts"]
    assert [each.origins[0][0] for each in conflicts.because] == ["readback", "older"]
    assert conflicts.id == brief.receipt
    [missing] = told["- missing"]
    assert "the tracker is down" in missing.missing["tracker"]
    assert [each.id for each in told["- compressed"]] == [brief.receipt]
