"""The reference implementation of `ReplyTable`, the cache of source replies, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from mica.model.mark import Reply
from mica.store.protocol import REPLIES_MAX
from mica.store.reference.state import ReferenceState


class ReferenceReplies:
    """Implements `ReplyTable` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def save(self, replies: Sequence[Reply], *, generation: int) -> bool:
        state = self._state
        state.check_open()
        if generation != state.generation:
            return False
        for reply in state.purge_filter.without_purged(replies):
            known = state.replies.get((reply.concept, reply.source))
            if known is None or known.at <= reply.at:
                state.replies[reply.concept, reply.source] = reply
        latest = sorted(state.replies.values(), key=lambda reply: reply.at, reverse=True)[:REPLIES_MAX]
        if latest:
            state.replies = {key: reply for key, reply in state.replies.items() if reply.at >= latest[-1].at}
        return True

    async def read(self, concept: str) -> list[Reply]:
        self._state.check_open()
        return [reply for key, reply in sorted(self._state.replies.items()) if key[0] == concept]

    async def concepts(self) -> list[str]:
        self._state.check_open()
        return sorted({concept for concept, _ in self._state.replies})
