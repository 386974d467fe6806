"""Field types that several HTTP operations share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec

from mica.format.documents import CONTEXT, Bundle, Fields, select_fields
from mica.model.event import ORIGINS, EventQuery

Words: TypeAlias = Annotated[str, msgspec.Meta(max_length=10_000)]  # a query or a task; longer text belongs in marks
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
Reference: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=60,
        pattern=r"^[#0-9a-z-]+$",
        description="The id of an event, or its position.",
        examples=["1"],
    ),
]
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
Reason: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
Budget: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Deadline: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=60)]
Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

_LABEL = {"type": "string"}
EventOut: TypeAlias = Annotated[
    dict[str, Any],
    msgspec.Meta(
        title="Event",
        description="An event with the requested fields; all of them unless `bundle` or `fields` selects some.",
        extra_json_schema={
            "properties": {
                "id": {"type": "string"},
                "name": {"type": "string"},
                "at": {"type": "string", "format": "date-time"},
                "context": {
                    "type": "object",
                    "properties": {name: _LABEL for name in CONTEXT if name != "labels"}
                    | {"labels": {"type": "object"}},
                },
                "root_id": {"type": "string"},
                "parent_id": {"type": ["string", "null"]},
                "depth": {"type": "integer"},
                "origin": {"enum": list(ORIGINS)},
                "error": {"type": "boolean"},
                "position": {"type": ["integer", "null"]},
                "correlation": {"type": "string"},
                "data": {"type": "object"},
            }
        },
    ),
]
CrystalOut: TypeAlias = Annotated[
    dict[str, Any], msgspec.Meta(title="Crystal", description="A crystal, with its whole insight as `text`.")
]


class FieldSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the fields of events in the answer."""

    bundle: Bundle | None = None
    fields: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=200)], ...] = ()

    @property
    def selected_fields(self) -> Fields:
        """The selected fields, by default all. Raises InvalidInput for an unknown bundle or field."""
        return select_fields(bundle=self.bundle, fields=self.fields)


class EventSelection(FieldSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects events: those that match every field that is set."""

    session: Name | None = None
    agent: Name | None = None
    user: Name | None = None
    names: tuple[Name, ...] = ()
    since: Moment | None = None
    until: Moment | None = None
    text: Words | None = None
    errors: bool | None = None

    def query(self, *, limit: int | None) -> EventQuery:
        return EventQuery(
            session=self.session,
            agent=self.agent,
            user=self.user,
            names=self.names,
            since=self.since,
            until=self.until,
            text=self.text,
            errors=self.errors,
            limit=limit,
        )
