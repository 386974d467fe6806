"""MCP prompts: one for the handoff, and one for each crystallized trail. Every listing reads them from memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from mica.clients.plugin import HANDOFF
from mica.errors import InvalidInput
from mica.format.fence import neutralize
from mica.memory import Memory
from mica.model.trail import Trail
from mica.navigation.trails.commands import command_text

LEARNING_S = 2.0  # the longest wait for trails that are being learned, because the client waits for the list
DESCRIPTION_CHARACTERS_MAX = 200


class McpPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP prompt: its name and description for clients, and a function that makes its text."""

    name: str
    title: str
    description: str
    text: Callable[[], Awaitable[str]]

    def listing(self) -> dict[str, object]:
        return {"name": self.name, "title": self.title, "description": self.description}


async def prompts(memory: Memory) -> list[McpPrompt]:
    """Return all current prompts: one for the handoff, and one for each crystallized trail."""

    async def handoff() -> str:
        made = await memory.handoff()
        return f"{HANDOFF}\n\nRecorded so far:\n\n{made.text}" if made.text else HANDOFF

    description = "Record what this session meant, and write the text that the next agent needs to start"
    return [
        McpPrompt(name="handoff", title="Hand over", description=description, text=handoff),
        *map(_trail_prompt, await _trails(memory)),
    ]


async def prompt(memory: Memory, name: str) -> McpPrompt:
    """Return the prompt of this name. Raises InvalidInput if there is none."""
    for known in await prompts(memory):
        if known.name == name:
            return known
    raise InvalidInput(f"there is no prompt {name!r}")


async def _trails(memory: Memory) -> list[Trail]:
    """Return the crystallized trails, sorted by slug; [] if learning the trails takes longer than LEARNING_S."""
    trails = asyncio.ensure_future(memory.trails.list(limit=None))
    await asyncio.wait([trails], timeout=LEARNING_S)
    if not trails.done():
        trails.cancel()
        return []
    return sorted(
        (trail for trail in trails.result() if trail.version and trail.is_offered), key=lambda each: each.slug
    )


def _trail_prompt(trail: Trail) -> McpPrompt:
    async def text() -> str:
        return command_text(trail).partition("\n---\n\n")[2]

    return McpPrompt(
        name=f"nav_{trail.slug}",
        title=trail.name,
        description=neutralize(trail.description[:DESCRIPTION_CHARACTERS_MAX]),
        text=text,
    )
