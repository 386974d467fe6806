"""The prompts: what a person can ask for by name. They are read from memory whenever they are listed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mica.errors import InvalidInput
from mica.inject.clients.plugin import HANDOFF
from mica.memory import Memory

NAME = "handoff"


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, as it is listed."""

    name: str
    title: str
    description: str

    def listed(self) -> dict[str, object]:
        return msgspec.structs.asdict(self)


async def prompts(memory: Memory) -> list[Prompt]:
    """Every prompt there is now."""
    told = "Record what this session meant, and print what the next agent needs to start"
    return [Prompt(name=NAME, title="Hand over", description=told)]


async def prompt(memory: Memory, name: str, arguments: Mapping[str, object]) -> tuple[str, str]:
    """A prompt's description and its text. Raises InvalidInput when there is none of this name."""
    for known in await prompts(memory):
        if known.name == name:
            return known.description, await _text(memory, known)
    raise InvalidInput(f"there is no prompt {name!r}")


async def _text(memory: Memory, asked: Prompt) -> str:
    made = await memory.handoff()
    return f"{HANDOFF}\n\nWhat is recorded so far:\n\n{made.text}" if made.text else HANDOFF
