"""The prompts: what a person can ask for by name. They are read from memory whenever they are listed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from mica.clients.plugin import HANDOFF
from mica.errors import InvalidInput
from mica.memory import Memory
from mica.model.trail import Trail
from mica.navigation.trails.commands import command_text

LEARNING_S = 2.0  # that listing waits for trails to be learned; a client waits for the list
DESCRIPTION_CHARACTERS_MAX = 200


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, as it is listed, and how its text is made."""

    name: str
    title: str
    description: str
    text: Callable[[], Awaitable[str]]

    def listed(self) -> dict[str, object]:
        return {"name": self.name, "title": self.title, "description": self.description}


async def prompts(memory: Memory) -> list[Prompt]:
    """Every prompt there is now: the handoff, and the trails that are crystallized."""

    async def handoff() -> str:
        made = await memory.handoff()
        return f"{HANDOFF}\n\nWhat is recorded so far:\n\n{made.text}" if made.text else HANDOFF

    told = "Record what this session meant, and tell what the next agent needs to start"
    return [
        Prompt(name="handoff", title="Hand over", description=told, text=handoff),
        *map(_of_trail, await _trails(memory)),
    ]


async def prompt(memory: Memory, name: str) -> Prompt:
    """The prompt of this name. Raises InvalidInput when there is none."""
    for known in await prompts(memory):
        if known.name == name:
            return known
    raise InvalidInput(f"there is no prompt {name!r}")


async def _trails(memory: Memory) -> list[Trail]:
    """The trails that became commands; none yet while they are still being learned."""
    listing = asyncio.ensure_future(memory.trails.list(limit=None))
    await asyncio.wait([listing], timeout=LEARNING_S)
    if not listing.done():
        listing.cancel()
        return []
    return sorted(
        (trail for trail in listing.result() if trail.version and trail.is_offered), key=lambda each: each.slug
    )


def _of_trail(trail: Trail) -> Prompt:
    async def text() -> str:
        return command_text(trail).partition("\n---\n\n")[2]

    return Prompt(
        name=f"nav_{trail.slug}",
        title=trail.name,
        description=trail.description[:DESCRIPTION_CHARACTERS_MAX],
        text=text,
    )
