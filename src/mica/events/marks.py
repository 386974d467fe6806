"""Checks of a mark before it is recorded: its time, its text, its parent, and its relation to the parent."""

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
AHEAD = timedelta(days=3_653)  # clocks of machines differ, and simulations have their own; none by ten years


def check_mark_time(at: object, *, now: datetime) -> None:
    """Raise InvalidInput unless something can have been observed at this time."""
    if not isinstance(at, datetime):
        raise InvalidInput(f"a mark of {at!r} has no time; give an aware datetime")
    if at.tzinfo is None:
        raise InvalidInput(f"a mark of {at.isoformat()} has no time zone; use an aware datetime")
    if at < OBSERVED_FIRST:
        raise InvalidInput(f"a mark of {at.isoformat()} is older than {OBSERVED_FIRST.year}; give when it was observed")
    if at > now + AHEAD:
        raise InvalidInput(f"a mark of {at.isoformat()} is still to come; give when it was observed")


def mark_data(
    text: str,
    tags: str | Sequence[str],
    why: str | None,
    principles: str | Sequence[str],
    *,
    check: Callable[..., None],
) -> dict[str, object]:
    """The data of a mark, with secrets redacted. Raises InvalidInput for an empty text; `check` sees all texts.

    `#milestone` in the text is a tag too. Other words after a `#` are not: they are mostly numbers, colours and code.
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
    """Raise InvalidInput for an unknown relation, and for one that lacks its parent."""
    if relation not in RELATIONS:
        raise InvalidInput(f"there is no relation {relation!r}; use one of {', '.join(RELATIONS)}")
    if relation != "causes" and not has_parent:
        raise InvalidInput(f"a mark that {relation} something needs a parent; give what it {relation}")


def check_parent(
    parent: Event | Ref,
    *,
    marked_at: datetime,
    times: Mapping[tuple[WriterId, int], datetime],
    space: str,
    spaces: Mapping[WriterId, str],
) -> None:
    """Raise unless a mark of this time may follow from this parent.

    `times` are those of marks made here, by writer and sequence; `spaces` are those of the writers in this process. A
    parent that is known to be of another space raises InvalidInput, because nothing leads from one space to another.
    """
    if not isinstance(parent, Event | Ref):
        raise InvalidEvent(f"parent {parent!r} of a mark is no event; give what emit, mark or event returned")
    writer = parent.writer if isinstance(parent, Ref) else split_id(parent.id)[0]
    if spaces.get(writer, space) != space:
        raise InvalidInput(
            f"{parent.id} belongs to another space, and nothing leads from one to another; "
            "leave out the parent, or mark it in its own space"
        )
    caused_at = parent.at if isinstance(parent, Event) else times.get((parent.writer, parent.sequence))
    if caused_at is not None and marked_at < caused_at:
        raise InvalidInput(f"a mark cannot come before what led to it: {parent.id} is of {caused_at.isoformat()}")
