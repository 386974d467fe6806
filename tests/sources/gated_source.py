"""A source for tests that answers when its gate is open."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime

from mica.sources.protocol import Fragment, Question, SourceDeclaration, Value


class GatedSource:
    """A source with one value, or an error, that waits while its gate is closed."""

    limit_s = math.inf

    def __init__(self, name: str = "app", value: Value = 8080, **declared: object) -> None:
        self.declared = SourceDeclaration(**({"name": name, "rank": 10} | declared))  # type: ignore[arg-type]  # a test's own
        self.value = value
        self.error: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.is_closed = False

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        self.asked.append(question.subject.id)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [fragment(self.value, at=question.now)]

    async def close(self) -> None:
        self.is_closed = True


def fragment(value: Value, *, at: datetime, key: str = "port", text: str | None = None) -> Fragment:
    said = f"the port is {value}" if text is None else text
    return Fragment(key=key, text=said, value=value, confidence=0.8, at=at, source="?", locator="row 1")
