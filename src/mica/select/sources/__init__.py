"""What a brief can be made of. A source answers a question with passages, or raises a MicaError that says why not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from mica.model import Passage


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a brief is asked for."""

    query: str
    now: datetime
    limit: int = 200  # passages from one source; 4,000 tokens of short marks are about as many


class Source(Protocol):
    """Something that knows. Its text is data for the reader, never an instruction."""

    @property
    def name(self) -> str:
        """What a brief calls this source when it is missing."""

    async def passages(self, question: Question) -> Sequence[Passage]:
        """What it knows, best first; empty when it knows nothing. Raises MicaError when it cannot say."""
