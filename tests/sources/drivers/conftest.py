"""Sources as a user declares them, closed when a test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.sources.scripted_sources import declared

from mica.sources.registry import SourceRegistry


@pytest.fixture
async def declare(tmp_path: Path) -> AsyncIterator[Callable[..., SourceRegistry]]:
    """The sources of a settings file with this text."""
    made: list[SourceRegistry] = []

    def declaring(text: str = "", **variables: str) -> SourceRegistry:
        made.append(declared(text, folder=tmp_path, **variables))
        return made[-1]

    yield declaring
    for sources in made:
        await sources.close()
