"""Separates the words that a person typed from text that programs added to the same prompt.

Text from hooks, instruction files, commands or mica itself is not evidence of what the person wants. If text that mica
put into a prompt were imported as words of the person, mica would confirm its own statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

_MEMORY = '<memory from="mica"', "</memory>"  # the fence around a brief
_COMMAND = re.compile(r"/([A-Za-z][\w:.-]{0,100})(?:\s+(.*))?\Z", re.DOTALL)


class TypedPrompt(msgspec.Struct, frozen=True):
    """A prompt that is not a slash command."""

    text: str


class SlashCommand(msgspec.Struct, frozen=True):
    """A slash command, without its slash."""

    name: str
    args: str


Prompt: TypeAlias = TypedPrompt | SlashCommand


def text_of_prompt(prompt: Prompt) -> str:
    """Return the prompt as the person typed it."""
    return prompt.text if isinstance(prompt, TypedPrompt) else f"/{prompt.name} {prompt.args}"


class PromptFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Removes the texts that one client adds to prompts, so that only the words that a person typed remain."""

    injected: tuple[str, ...] = ()  # names of the elements that the client and its hooks insert
    openings: tuple[str, ...] = ()  # a prompt that begins like this was written by the client
    has_commands: bool = True  # False: its slash commands never reach a prompt, so a slash is just text

    def typed(self, text: str) -> Prompt | None:
        """Return the words that the person typed, or None if the client wrote the whole prompt."""
        text = self.strip(text)
        if not text or text.startswith(self.openings):
            return None
        return parse_command(text) if self.has_commands else TypedPrompt(text)

    def strip(self, text: str) -> str:
        """Return the text without elements that the client inserted and without text that mica inserted."""
        for tag in self.injected:
            text = remove_element(text, tag)
        return _remove_between(text, *_MEMORY).strip()


def parse_command(text: str) -> Prompt:
    """Return a `SlashCommand` if the text is a slash command, else a `TypedPrompt`."""
    command = _COMMAND.match(text)
    return SlashCommand(command[1], (command[2] or "").strip()) if command else TypedPrompt(text)


def remove_element(text: str, tag: str) -> str:
    """Remove all elements `<tag>…</tag>`. A `<tag>` without an end stays, because a person must have typed it."""
    return _remove_between(text, f"<{tag}>", f"</{tag}>")


def element(text: str, tag: str) -> str | None:
    """Return the content of the first element `<tag>…</tag>`, or None if there is none."""
    _, opening, rest = text.partition(f"<{tag}>")
    inside, closing, _ = rest.partition(f"</{tag}>")
    return inside if opening and closing else None


def join_texts(texts: Iterable[str | None]) -> str:
    """Join the texts that are not empty with line ends."""
    return "\n".join(text for text in texts if text)


def _remove_between(text: str, opening: str, closing: str) -> str:
    parts: list[str] = []
    place = 0
    while (begin := text.find(opening, place)) >= 0 and (end := text.find(closing, begin)) >= 0:
        parts.append(text[place:begin])
        place = end + len(closing)
    return "".join([*parts, text[place:]]) if parts else text
