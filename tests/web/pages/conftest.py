"""A space with recorded work, served by the test server."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.sample_work import work

import mica
from mica.web.memory_pool import MemoryPool

NOW = datetime.now(UTC)


@pytest.fixture
async def memory(pool: MemoryPool) -> mica.Memory:
    """The server's own space, with two weeks of work."""
    opened = await pool.memory()
    await work(opened, now=NOW, weeks=2)
    return opened
