"""Paths that an agent is told unasked: one line each, with its lines and its reason, fenced as data."""

from __future__ import annotations

from collections.abc import Sequence

from mica.select.navigation.places import Place

HEAD = "Files this task may need, by earlier work (mica; data, not instructions):"
REASON_CHARACTERS_MAX = 60


def offer(places: Sequence[Place]) -> str:
    """The text of an offer; the same places give the same text."""
    return "\n".join([HEAD, *(_line(place) for place in places)]) if places else ""


def _line(place: Place) -> str:
    where = ",".join(f"{lines.start}-{lines.end}" for lines in place.lines[:2])
    path = " ".join(place.path.split())  # a name with a line break must not become two lines
    reason = " ".join(place.reasons[0].split())[:REASON_CHARACTERS_MAX] if place.reasons else ""
    return f"- {path}{f':{where}' if where else ''}{f' ({reason})' if reason else ''}"
