"""What somebody should look at: trails that fail, save too little or cool, and those that are newly hot (A-36)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from mica.settings import TrailSettings
from mica.trails import Trail, freshness

Kind = Literal["failing", "saving_little", "cooling", "newly_hot"]

FAILING = 0.20  # of known outcomes, above which a trail fails too often
SAVING = 0.50  # of the baseline, below which an active trail saves too little
NEAR = 1.25  # times the limit below which it is archived


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to look at, in words."""

    kind: Kind
    trail: str
    key: str
    text: str


def alerts(trails: Iterable[Trail], *, now: datetime | None = None, gates: TrailSettings | None = None) -> list[Alert]:
    """Every alert that holds, in the order of the trails. Without a moment, only what does not depend on one."""
    return [alert for trail in trails for alert in _of(trail, now=now, gates=gates or TrailSettings())]


def _of(trail: Trail, *, now: datetime | None, gates: TrailSettings) -> Iterable[Alert]:
    known = trail.successes + trail.failures
    if trail.state == "archived":
        return
    if known and trail.failures / known > FAILING:
        yield _alert("failing", trail, f"{trail.failures} of {known} tasks on it failed")
    measured = trail.measured
    if trail.state == "crystallized" and measured is not None and measured.baseline_tokens > 0:
        share = measured.saving / measured.baseline_tokens
        if share < SAVING:
            yield _alert("saving_little", trail, f"it saves {share:.0%} of the tokens, by {measured.sample} tasks")
    if now is not None and trail.version:
        left = freshness(trail.last_at, now=now, gates=gates)
        if left < gates.cold * NEAR:
            yield _alert(
                "cooling", trail, f"unused, {left:.0%} of its worth is left; below {gates.cold:.0%} it is archived"
            )
    if trail.state == "hot" and trail.runs >= gates.runs and not trail.version:
        yield _alert("newly_hot", trail, f"walked {trail.runs} times to success; `mica trails crystallize` names it")


def _alert(kind: Kind, trail: Trail, text: str) -> Alert:
    return Alert(kind=kind, trail=trail.name, key=trail.key, text=f"{trail.name}: {text}")
