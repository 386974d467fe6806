"""The quality report: figures from receipts and outcomes, with the share of tasks that did worse."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

import mica
from mica import Memory
from mica.brief.quality import TASKS_MIN, quality
from mica.model.event import Context, Event
from mica.model.walk import Step
from mica.settings import Settings
from mica.sources.protocol import GATHERED
from mica.testing import HandClock
from mica.testing.builders import START_AT, build

UNTIL = START_AT + timedelta(days=7)


def task(number: int, *, is_on: bool, succeeded: bool | None, kind: str = "fix") -> list[Event]:
    """Build a session with or without a brief, with one task and its outcome."""
    context = Context(session=f"s{number}", task=kind)
    prompt = build(number * 10, "mark", {"text": "do it", "tags": ["prompt"]}, context=context)
    brief = build(number * 10 + 1, "brief", {"is_off": True} if not is_on else {}, context=context, origin="recalled")
    outcome: dict[str, object] = {"outcome": "success" if succeeded else "failure"}
    ended = build(number * 10 + 2, "task.outcome", outcome, parent=prompt, context=context, origin="user")
    return [prompt, brief, *([] if succeeded is None else [ended])]


def test_tasks_with_briefs_are_compared_with_tasks_without() -> None:
    """keeps: C-50, C-52, TC-16, M-18, C-24.

    The report gives the difference with its interval and the share that became worse.
    """
    tasks = [task(n, is_on=True, succeeded=n % 10 < 9) for n in range(100)]
    tasks += [task(100 + n, is_on=False, succeeded=n % 10 < 3) for n in range(100)]
    tasks += [task(300 + n, is_on=True, succeeded=False, kind="rare") for n in range(10)]
    tasks += [task(400 + n, is_on=False, succeeded=True, kind="rare") for n in range(3)]

    helped = quality([event for events in tasks for event in events], since=START_AT, until=UNTIL).helped

    assert (helped.on.tasks, helped.off.tasks, helped.kinds) == (110, 103, 2)
    assert helped.difference == pytest.approx(90 / 110 - 33 / 103)
    low, high = helped.low or 0, helped.high or 0
    assert 0 < low < 90 / 110 - 33 / 103 < high
    assert helped.worse == pytest.approx(10 / 110)
    assert helped.verdict.startswith("Briefs helped: +49.8% success")
    assert helped.verdict.endswith("; worse for 9% of the tasks.")


def test_the_interval_is_drawn_by_session_because_sessions_are_held_out() -> None:
    """keeps: C-50. Ten similar tasks of one session are one observation, not ten."""
    alone = [task(n, is_on=n < 80, succeeded=n % 10 < 7) for n in range(160)]
    together = [
        [
            msgspec.structs.replace(event, context=Context(session=f"t{n // 10 % 8}{n < 80}", task="fix"))
            for event in each
        ]
        for n, each in enumerate(task(n, is_on=n < 80, succeeded=n // 10 % 8 < 5) for n in range(160))
    ]

    one, other = (
        quality([event for events in tasks for event in events], since=START_AT, until=UNTIL).helped
        for tasks in (alone, together)
    )

    assert (other.on.sessions, other.off.sessions) == (8, 8)
    assert (other.high or 0) - (other.low or 0) > 2 * ((one.high or 0) - (one.low or 0)) > 0


def test_many_tasks_of_few_sessions_prove_nothing() -> None:
    """keeps: TC-16. One long session that went well is no proof."""
    tasks = [
        [msgspec.structs.replace(event, context=Context(session=f"t{n < 50}")) for event in each]
        for n, each in enumerate(task(n, is_on=n < 50, succeeded=n < 50) for n in range(100))
    ]

    helped = quality([event for events in tasks for event in events], since=START_AT, until=UNTIL).helped

    assert (helped.on.judged, helped.off.judged, helped.difference) == (50, 50, None)
    assert "from 8 sessions" in helped.verdict


def test_hook_answers_and_hook_holdouts_count_like_briefs() -> None:
    """keeps: C-50. A session held out by a hook is compared with one that got a brief from it."""
    tasks = [task(n, is_on=True, succeeded=n < 40) for n in range(80)]
    hooked = [
        [event for event in each if event.name != "brief"]
        + [build(n * 10 + 3, "session.briefed", {"held_out": n >= 40}, context=each[0].context, origin="recalled")]
        for n, each in enumerate(tasks)
    ]

    helped = quality([event for events in hooked for event in events], since=START_AT, until=UNTIL).helped

    assert (helped.on.succeeded, helped.off.succeeded, helped.difference) == (40, 0, 1.0)


def test_too_few_tasks_prove_nothing_and_mixed_sessions_are_left_out() -> None:
    """keeps: C-35. Answers to different inputs are never averaged; unknown outcomes do not count."""
    tasks = [task(n, is_on=True, succeeded=True) for n in range(TASKS_MIN)]
    tasks += [task(100 + n, is_on=False, succeeded=None) for n in range(TASKS_MIN)]
    mixed = task(500, is_on=True, succeeded=True)
    mixed.append(build(5005, "brief", {"is_off": True}, context=mixed[0].context, origin="recalled"))

    helped = quality([event for events in [*tasks, mixed] for event in events], since=START_AT, until=UNTIL).helped

    assert (helped.on.judged, helped.off.judged, helped.mixed, helped.difference) == (TASKS_MIN, 0, 1, None)
    assert "too few to say" in helped.verdict


async def test_receipts_show_the_duration_of_the_loop_and_the_contributors(memory: Memory, clock: HandClock) -> None:
    """keeps: C-49, C-51, C-53, C-54. Each hop has a time, and each week a sum."""
    with memory.context(session="s1"):
        marks = [memory.mark(f"The proxy dropped cookie {number} of the login page") for number in range(20)]
    clock.move(hours=3)
    crystal = await memory.crystals.commit(
        [("A header of another host confuses the proxy", [marks[0].id, marks[1].id])],
        sources=[mark.id for mark in marks],
        period="session:s1",
        topics=("cookie", "proxy"),
    )
    clock.move(hours=2)
    brief = await memory.brief(budget_tokens=200)
    memory.sources.register("silent", lambda concept: [])
    memory.sources.judge("judgment:x:1", "OK", confidence=0.9)
    await memory.sources.gather("judgment:x:1")
    read = Step(path="auth.py", operation="read", at=clock(), event=marks[0].id)
    key = await memory.trails.log("Fix the login", [read, msgspec.structs.replace(read, path="session.py")])
    await memory.trails.crystallize(str(key))

    found = await memory.briefs.quality(weeks=2)

    assert crystal.id in {source for passage in brief.passages for source in passage.sources}
    assert (found.closing.crystals_used, found.closing.to_crystal_h, found.closing.to_use_h) == (1, 3.0, 2.0)
    assert "silent" in found.yielded.never
    assert found.yielded.share is not None
    assert 0 < found.yielded.share < 1
    assert sum(week.crystals for week in found.weeks) == 1
    assert [week.trails for week in found.weeks] == [0, 1]
    assert [week.briefs for week in found.weeks] == [0, 1]


async def test_gathering_costs_are_summed_with_what_was_not_shown(home: Settings) -> None:
    """keeps: C-20, TC-15, U-01. Tokens, milliseconds and dollars are shown, and so are junk, duplicates and loops."""
    async with mica.open(":memory:", settings=home) as memory:
        echo = '<memory from="mica" note="x"> the port is 1 </memory>'
        rows = [{"key": "port", "value": 1}, {"key": "port", "value": "1"}, {"key": "a", "text": echo}]
        memory.sources.register("app", lambda concept: rows)
        memory.sources.register("bad", lambda concept: 1 // 0)
        answers = [await memory.sources.gather("a:b:c") for _ in range(3)]

        cost = (await memory.briefs.quality()).cost

    assert (cost.gathers, cost.tokens, cost.dollars) == (3, sum(answer.tokens for answer in answers), 0.0)
    assert cost.milliseconds == pytest.approx(sum(answer.latency_ms for answer in answers), abs=0.01)
    assert cost.answered is not None
    assert cost.answered < 1
    assert (cost.counts["duplicates"], cost.counts["loops"]) == (3, 3)


def test_the_cost_of_gathers_matches_their_receipts() -> None:
    """keeps: C-20, K-23.

    The report has agreement where known, shares of the questions, and the slowest beside the median.
    """
    records: list[dict[str, object]] = [
        {"asked": ["a", "b"], "cached": ["a"], "missing": {"b": "down", "c": "?"}, "latency_ms": 10.0, "tokens": 5},
        {"asked": ["a", "b"], "missing": {}, "latency_ms": 30.0, "tokens": 7, "coherence": 0.5, "conflicts": 2},
        {"asked": [], "latency_ms": 90.0, "coherence": 1.0, "conflicts": 1, "counts": {"junk": 3}},
    ]
    events = [build(number, GATHERED, data) for number, data in enumerate(records, 1)]

    cost = quality(events, since=START_AT, until=UNTIL).cost

    assert (cost.gathers, cost.tokens, cost.milliseconds) == (3, 12, 130.0)
    assert (cost.p50_ms, cost.p99_ms, cost.coherence) == (30.0, 90.0, 0.75)
    assert (cost.answered, cost.cached, cost.conflicts, cost.counts) == (0.75, 0.25, 3, {"junk": 3})
    nothing = quality([], since=START_AT, until=UNTIL).cost
    assert (nothing.gathers, nothing.p50_ms, nothing.coherence, nothing.answered) == (0, None, None, None)
