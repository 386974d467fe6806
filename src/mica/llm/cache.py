"""Answers to exactly the same question, kept for a while in this process."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import msgspec

from mica.llm.protocol import Answer, Request
from mica.llm.resilience import Timing

ENTRIES_MAX = 256
SIZE_BYTES_MAX = 8_000_000  # of all texts together
AGE_S_MAX = 3_600.0  # a model behind a name may change: an answer is not kept longer

_NOT_SEEN_BY_THE_MODEL = {"tier": "routine", "agent": None}


def key_of(request: Request, *, space: str, model: str) -> str:
    """Names a question in one space to one model. Who asks makes no difference, everything else does."""
    seen = msgspec.structs.replace(request, **_NOT_SEEN_BY_THE_MODEL)
    content = msgspec.json.encode([space, model, seen], order="deterministic")
    return hashlib.sha256(content).hexdigest()


class Cache:
    """The latest answers, bounded in number, size and age."""

    def __init__(self, timing: Timing, *, entries_max: int = ENTRIES_MAX, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._timing = timing
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._kept: OrderedDict[str, tuple[float, Answer]] = OrderedDict()
        self._size_bytes = 0

    def get(self, key: str) -> Answer | None:
        """The answer that was given before, marked as cached and free of charge."""
        if key not in self._kept:
            return None
        at, answer = self._kept[key]
        if self._timing.monotonic() - at > AGE_S_MAX:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return msgspec.structs.replace(
            answer, cached=True, input_tokens=0, output_tokens=0, dollars=0.0, attempts=0, passed_over=()
        )

    def put(self, key: str, answer: Answer) -> None:
        """Keep a whole answer; what was cut off is asked again."""
        if not answer.is_whole or not self._entries_max:
            return
        self._drop(key)
        self._kept[key] = (self._timing.monotonic(), answer)
        self._size_bytes += len(answer.text.encode())
        while len(self._kept) > self._entries_max or self._size_bytes > self._size_bytes_max:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget everything: what was purged must not come back as an answer."""
        self._kept.clear()
        self._size_bytes = 0

    def _drop(self, key: str) -> None:
        if kept := self._kept.pop(key, None):
            self._size_bytes -= len(kept[1].text.encode())
