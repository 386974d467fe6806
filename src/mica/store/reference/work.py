"""The reference implementation of `WorkQueue`, the queue of background work, in memory."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from mica.errors import ClaimLost
from mica.model.event import new_writer, utc_now
from mica.store.leases import Claim, Work, check_lease, check_moment, check_words
from mica.store.reference.state import ReferenceState, WorkRow


class ReferenceWork:
    """Implements `WorkQueue` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def plan(self, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
        self._state.check_open()
        check_words(kind=kind, about=about)
        check_moment("due_at", due_at)
        row = self._state.work.get((kind, about))
        if row is None:
            self._state.work[kind, about] = WorkRow(due_at)
        elif only_new:
            return
        elif row.claim is None:
            row.due_at = min(row.due_at, due_at)
        else:
            row.again_at = min(row.again_at or due_at, due_at)

    async def claim(self, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
        self._state.check_open()
        check_words(owner=owner)
        check_moment("due_by", due_by)
        check_lease(lease)
        now = utc_now()
        free = [
            (row.due_at, key)
            for key, row in self._state.work.items()
            if key[0] in kinds and row.due_at <= due_by and (row.claim is None or row.claim.held_until <= now)
        ]
        if not free:
            return None
        due_at, (kind, about) = min(free)
        claimed = Claim(id=new_writer(), kind=kind, about=about, due_at=due_at, owner=owner, held_until=now + lease)
        self._state.work[kind, about].claim = claimed
        return claimed

    async def renew(self, claim: Claim, *, lease: timedelta) -> Claim:
        check_lease(lease)
        row = self._held(claim)
        row.claim = msgspec.structs.replace(claim, held_until=utc_now() + lease)
        return row.claim

    async def finish(self, claim: Claim, *, again_at: datetime | None = None) -> None:
        if again_at is not None:
            check_moment("again_at", again_at)
        planned = [at for at in (again_at, self._held(claim).again_at) if at is not None]
        if planned:
            self._state.work[claim.kind, claim.about] = WorkRow(min(planned))
        else:
            del self._state.work[claim.kind, claim.about]

    async def all(self) -> list[Work]:
        self._state.check_open()
        return [
            Work(
                kind=kind,
                about=about,
                due_at=row.due_at,
                owner=None if row.claim is None else row.claim.owner,
                held_until=None if row.claim is None else row.claim.held_until,
            )
            for (kind, about), row in sorted(self._state.work.items(), key=lambda pair: (pair[1].due_at, pair[0]))
        ]

    def _held(self, claim: Claim) -> WorkRow:
        """Return the row that this claim holds. Raises ClaimLost when it holds none."""
        self._state.check_open()
        row = self._state.work.get((claim.kind, claim.about))
        if row is None or row.claim is None or row.claim.id != claim.id:
            raise ClaimLost(claim.kind, claim.about, claim.owner)
        return row
