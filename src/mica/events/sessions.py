"""Which sessions are open, and where each of them stands: after a crash as after a clean stop."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from mica.model.event import SESSION_ENDED, Event

IDLE = timedelta(minutes=30)


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that goes on."""

    session: str
    agents: tuple[str, ...]  # who wrote in it lately
    last: Event

    @property
    def last_at(self) -> datetime:
        return self.last.at


def open_sessions(lately: Iterable[Event]) -> list[OpenSession]:
    """The sessions that have not ended, of the events since nobody could have been idle for too long; latest last."""
    found: dict[str, OpenSession] = {}
    for event in sorted(lately, key=lambda event: event.place):
        session = event.context.session
        if session is None:
            continue
        before = found.pop(session, None)
        if event.name == SESSION_ENDED:
            continue
        agents = {*(before.agents if before else ()), *filter(None, [event.context.agent])}
        found[session] = OpenSession(session=session, agents=tuple(sorted(agents)), last=event)
    return list(found.values())
