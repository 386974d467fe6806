"""Certainty and state of a belief, computed from its evidence only (K-60).

A statement that a person made is held from its first mark. What an agent states, or what mica infers, starts as forming
and is held when a second, independent source states it or a person confirms it. What an agent says about its own work
is held, because nothing better exists: an open task or question, a cause it found, a choice it made.

`mature` keeps the rule for repeated observations (C-41, C-42, K-25): there no single one counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import fmean, stdev

import msgspec

from mica.model.belief import Belief, BeliefKind, BeliefState, Place
from mica.model.event import decay

# How certain one statement makes a belief: by speaker and place, with the reason.
WEIGHTS: dict[tuple[str, Place], float] = {
    ("user", "prompt"): 0.8,  # said while working; people are sometimes imprecise, but they are the authority
    ("user", "note"): 0.95,  # written down in order to be remembered
    ("user", "teaching"): 0.97,  # read and approved as a whole
    ("user", "closing"): 0.8,  # does not occur with coding agents
    ("user", "commit"): 0.7,  # the person's own commit message
    ("user", "summary"): 0.7,
    ("user", "judgment"): 0.8,
    ("agent", "closing"): 0.6,  # an account of its own work, made when the work was done
    ("agent", "commit"): 0.65,  # the same, and the code exists
    ("agent", "note"): 0.6,  # an agent marks what it wants to remember
    ("agent", "summary"): 0.5,  # a summary repeats what was said elsewhere, with losses
    ("agent", "judgment"): 0.4,  # inferred; may be repeated
    ("agent", "teaching"): 0.7,  # promoted by rule, from many marks
    ("agent", "prompt"): 0.4,  # one agent prompts another; nobody approved it
}
WEIGHT_OTHER = 0.3
REPEATED = 0.3  # share of the weight that counts if the same source says the same again
CONFIRMED = 0.98  # a person looked at the belief itself
CONFLICT = 0.75  # factor for a belief that another one contradicts
CERTAINTY_MAX = 0.99
UNSURE = 0.4  # factor for a statement of which only its effect on others is known
SETTLED_OBSERVATIONS = 8  # K-25: so many statements of the same thing make it settled
EXPIRES_AFTER = timedelta(days=90)  # K-25: a forming belief that nothing supported for so long is dropped

# What an agent says about its own work in closing words and commits is held: nothing better exists.
OWN_WORK: dict[Place, frozenset[BeliefKind]] = {
    "closing": frozenset(["task", "question", "gotcha", "decision"]),
    "commit": frozenset(["task", "question", "gotcha", "decision", "fact"]),
}

# Half-lives in days, by which a belief loses relevance (C-44, K-52): rules do not age, open work does.
HALF_LIFE_DAYS: dict[BeliefKind, float] = {
    "rule": 180,
    "preference": 180,
    "decision": 90,
    "fact": 90,
    "gotcha": 90,
    "task": 30,
    "question": 30,
}


def weight(by: str, place: Place) -> float:
    """Return how certain one statement of this speaker in this place makes a belief."""
    return WEIGHTS.get((by, place), WEIGHT_OTHER)


def first_state(by: str, place: Place, kind: BeliefKind, *, is_tagged: bool = False) -> BeliefState:
    """Return the state of a belief that was stated once.

    `is_tagged` is True for a note whose author chose the kind: it was written to be remembered.
    """
    if place == "teaching":
        return "settled" if by == "user" else "held"
    is_held = by == "user" or (by == "agent" and (kind in OWN_WORK.get(place, ()) or (place == "note" and is_tagged)))
    return "held" if is_held else "forming"


def supported(belief: Belief, *, by: str, place: Place, is_independent: bool) -> tuple[float, BeliefState]:
    """Return certainty and state of a belief after another statement of the same thing.

    `is_independent` is True if the statement comes from another session or speaker than the first one.
    """
    share = weight(by, place) * (1.0 if is_independent else REPEATED)
    certainty = min(CERTAINTY_MAX, 1 - (1 - belief.certainty) * (1 - share))
    state = belief.state
    if state == "forming" and (is_independent or by == "user"):
        state = "held"
    if state == "held" and len(belief.evidence) + 1 >= SETTLED_OBSERVATIONS and is_independent:
        state = "settled"
    return round(certainty, 4), state


def relevance(belief: Belief, *, now: datetime) -> float:
    """Return the certainty of a belief, reduced by its age."""
    return belief.certainty * decay(now - belief.last_at, half_life_days=HALF_LIFE_DAYS[belief.kind])


def as_of(belief: Belief, now: datetime) -> Belief:
    """Return a belief with its state at a time: a forming one that nothing supported for long has expired."""
    if belief.state != "forming" or now - belief.last_at < EXPIRES_AFTER:
        return belief
    return msgspec.structs.replace(belief, state="ended", ending="expired", ended_at=belief.last_at + EXPIRES_AFTER)


# -- Repeated observations (C-41, C-42, K-25) -----------------------------------------------------------------

PHI_INVERSE = 2 / (1 + math.sqrt(5))
OBSERVATIONS_FULL = 21  # volume is full with so many observations of one source that do not differ
MATURE_OBSERVATIONS = 8
MATURE_SOURCES = 2
CANONICAL_OBSERVATIONS = 233
CANONICAL_SOURCES = 3


def observed_certainty(values: Sequence[float], *, sources: int, reliability: float = 1.0) -> float:
    """Return the certainty of a belief from repeated observations: concordance times volume (C-41).

    `values` are the confidences of the observations, `sources` is the number of their independent sources.
    """
    if not values:
        return 0.0
    spread = stdev(values, fmean(values)) if len(values) > 1 else 0.0
    concordance = 1 / (1 + (spread / PHI_INVERSE**3) ** 2)
    diversity = min(PHI_INVERSE * (sources - 1) / 5, PHI_INVERSE)
    volume = len(values) * reliability * (1 + PHI_INVERSE * concordance) * (1 + diversity) / OBSERVATIONS_FULL
    return concordance * min(1.0, volume)


def mature(values: Sequence[float], *, sources: int, idle: timedelta = timedelta(0)) -> BeliefState:
    """Return the state of a belief from repeated observations (C-42 with the gates of K-25).

    `idle` is the time since its last observation. Settled is what C-42 calls canonical, and ended is dissolved.
    """
    certainty = observed_certainty(values, sources=sources)
    if certainty < PHI_INVERSE**2 and len(values) >= OBSERVATIONS_FULL:  # decaying
        return "ended" if idle >= EXPIRES_AFTER else "forming"
    if certainty < PHI_INVERSE or len(values) < MATURE_OBSERVATIONS or sources < MATURE_SOURCES:
        return "forming"
    return "settled" if len(values) >= CANONICAL_OBSERVATIONS and sources >= CANONICAL_SOURCES else "held"
