"""Check a mark before it is recorded: its time, its text, its parent, and its relation to the parent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from mica.errors import InvalidEvent, InvalidInput
from mica.model.event import MILESTONE, Event, Ref, WriterId, split_id
from mica.model.mark import RELATIONS, Relation
from mica.redact import redact

OBSERVED_FIRST = datetime(1970, 1, 1, tzinfo=UTC)  # an older time comes from a clock that was never set
_MILESTONE_IN_TEXT = re.compile(rf"(?<![\w#&/.-])#{MILESTONE}(?![\w-])", re.IGNORECASE)
AHEAD = timedelta(days=3_653)  # clocks differ and simulations run ahead, but not by ten years


def check_mark_time(at: object, *, now: datetime) -> None:
    """Raise InvalidInput unless `at` is an aware datetime between 1970 and ten years after `now`."""
    if not isinstance(at, datetime):
        raise InvalidInput(f"a mark cannot be dated {at!r}; use an aware datetime")
    if at.tzinfo is None:
        raise InvalidInput(f"a mark dated {at.isoformat()} has no time zone; use an aware datetime")
    if at < OBSERVED_FIRST:
        raise InvalidInput(f"a mark dated {at.isoformat()} is before {OBSERVED_FIRST.year}; use the observation time")
    if at > now + AHEAD:
        raise InvalidInput(f"a mark dated {at.isoformat()} is in the future; use the observation time")


def mark_data(
    text: str,
    tags: str | Sequence[str],
    why: str | None,
    principles: str | Sequence[str],
    *,
    check: Callable[..., None],
) -> dict[str, object]:
    """Build the data of a mark's event, with secrets redacted. Raises InvalidInput for an empty text.

    `check` is called with all texts and may raise. `#milestone` in the text also becomes a tag. Other words after `#`
    do not become tags, because most of them are numbers, colours or code.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"a mark needs a text, not {text!r}")
    tags = [tags] if isinstance(tags, str) else tags
    principles = [principles] if isinstance(principles, str) else principles
    check(text, why or "", *principles, *tags)
    listed = [tag.lstrip("#") for tag in tags]
    if "#" in text and MILESTONE not in listed and _MILESTONE_IN_TEXT.search(text):
        listed.append(MILESTONE)
    data: dict[str, object] = {"text": redact(text), "tags": listed}
    if why is not None:
        data["why"] = redact(why)
    if principles:
        data["principles"] = [redact(principle) for principle in principles]
    return data


def check_relation(relation: Relation, *, has_parent: bool) -> None:
    """Raise InvalidInput for an unknown relation, or a relation other than `causes` without a parent."""
    if relation not in RELATIONS:
        raise InvalidInput(f"there is no relation {relation!r}; use one of {', '.join(RELATIONS)}")
    if relation != "causes" and not has_parent:
        raise InvalidInput(f"a mark that {relation} something needs a parent; pass the event that it {relation}")


def check_parent(
    parent: Event | Ref,
    *,
    marked_at: datetime,
    times: Mapping[tuple[WriterId, int], datetime],
    space: str,
    spaces: Mapping[WriterId, str],
) -> None:
    """Raise an error if a mark made at `marked_at` cannot have this parent.

    `times` has the times of the marks made in this process, by writer and sequence number; `spaces` has the space of
    each writer in this process. Raises InvalidEvent if the parent is not an event, and InvalidInput if it is later than
    the mark or is known to belong to another space.
    """
    if not isinstance(parent, Event | Ref):
        raise InvalidEvent(f"parent {parent!r} of a mark is not an event; pass the result of emit, mark or event")
    writer = parent.writer if isinstance(parent, Ref) else split_id(parent.id)[0]
    if spaces.get(writer, space) != space:
        raise InvalidInput(
            f"{parent.id} belongs to another space, and events cannot have a parent in another space; "
            "leave out the parent, or mark it in its own space"
        )
    caused_at = parent.at if isinstance(parent, Event) else times.get((parent.writer, parent.sequence))
    if caused_at is not None and marked_at < caused_at:
        raise InvalidInput(f"a mark cannot be older than its parent: {parent.id} is dated {caused_at.isoformat()}")
