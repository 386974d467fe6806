"""What one trail saved or wasted: tasks that it fits, told after it was named; never by a formula (TA-05, TA-06).

Where enough of them loaded it and enough did not, the two arms are compared: what each took before its first edit. Else
those that did without are walked again: the searches that naming its files would have spared, less what telling of it
costs, also where it was of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from statistics import fmean

from mica.model.event import Event, EventId
from mica.model.trail import CREATED, CRYSTALLIZED, USED, Measured, Trail
from mica.model.walk import Walk
from mica.navigation.replay import saved, spent
from mica.navigation.trails.learner import learned
from mica.navigation.trails.matcher import choose
from mica.settings import TrailSettings
from mica.tokens import about

SAMPLE_MIN = 8  # tasks of an arm; fewer tell nothing
ARMS, REPLAY = "two arms", "replay"


def measured(
    trail: Trail,
    walks: Sequence[Walk],
    told: Sequence[Event],
    *,
    gates: TrailSettings,
    render: Callable[[Trail], str],
) -> Measured | None:
    """What a task that a trail fits took without it and with it, on average; None while too few are known.

    The trail is judged as it was known when it was named first, by tasks that came later, and by no others.
    """
    keys = {trail.key, *trail.merged}
    named_at = min((event.at for event in told if _names(event, keys)), default=None)
    if named_at is None:
        return None
    later = [walk for walk in walks if walk.at > named_at and walk.prompt and walk.steps]
    if len(later) < SAMPLE_MIN:
        return None
    then = _then(trail, walks, told, keys=keys, at=named_at, gates=gates)
    if then is None:
        return None
    loads = _loads(told, keys)
    fitting = [walk for walk in later if choose(walk.prompt, [then], gates=gates)]
    without = [walk for walk in fitting if walk.id not in loads]
    within = [walk for walk in later if walk.id in loads]
    if min(len(without), len(within)) >= SAMPLE_MIN:
        return Measured(
            method=ARMS,
            sample=len(without) + len(within),
            baseline_tokens=round(fmean(spent(walk).tokens for walk in without)),
            tokens=round(fmean(spent(walk).tokens + loads[walk.id] for walk in within)),
        )
    if len(without) < SAMPLE_MIN:
        return None
    cost_tokens = about(render(then))
    return Measured(
        method=REPLAY,
        sample=len(without),
        baseline_tokens=round(fmean(spent(walk).tokens for walk in without)),
        tokens=round(fmean(spent(walk).tokens - saved(walk, then.paths)[0] + cost_tokens for walk in without)),
    )


def _names(event: Event, keys: set[str]) -> bool:
    return event.name in (CREATED, CRYSTALLIZED) and event.data.get("key") in keys


def _then(
    trail: Trail,
    walks: Sequence[Walk],
    told: Sequence[Event],
    *,
    keys: set[str],
    at: datetime,
    gates: TrailSettings,
) -> Trail | None:
    """The trail as it was known at a moment: its words are those of the prompts until then."""
    known = learned(
        [walk for walk in walks if walk.ended_at <= at], [event for event in told if event.at <= at], gates=gates
    )
    return next((each for each in known if keys.intersection((each.key, *each.merged))), None)


def _loads(told: Sequence[Event], keys: set[str]) -> dict[EventId, int]:
    """The walks in which a trail was used, and the tokens that loading it showed."""
    found: dict[EventId, int] = {}
    for event in told:
        if event.name == USED and event.data.get("key") in keys and event.root_id != event.id:
            tokens = event.data.get("tokens")
            found[event.root_id] = found.get(event.root_id, 0) + (tokens if isinstance(tokens, int) else 0)
    return found
