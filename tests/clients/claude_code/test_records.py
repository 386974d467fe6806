"""Records of Claude Code, and the words that a person typed in them."""

from __future__ import annotations

import pytest

from mica.clients.claude_code.records import (
    Attachment,
    ClaudeBlock,
    ClaudeMessage,
    ClaudeRecord,
    Speaker,
    is_ignored,
    reason_of_refusal,
    typed,
    typed_in_hook,
    typed_while_working,
)
from mica.clients.prompts import Prompt, SlashCommand, TypedPrompt


def user(content: str | list[ClaudeBlock], *, kind: str | None = None) -> ClaudeRecord:
    origin = None if kind is None else Speaker(kind=kind)
    return ClaudeRecord(type="user", message=ClaudeMessage(content=content), origin=origin)


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        (user("Fix the login"), TypedPrompt("Fix the login")),
        (user("<system-reminder>x</system-reminder>Fix it", kind="human"), TypedPrompt("Fix it")),
        (user([ClaudeBlock(type="image")]), TypedPrompt("[image]")),
        (user("<user-memory-input>Use uv</user-memory-input>"), TypedPrompt("Use uv")),
        (
            user("<command-name>/nav:auth</command-name><command-args>focus</command-args>"),
            SlashCommand("nav:auth", "focus"),
        ),
        (user("Another agent speaks", kind="agent"), None),
        (user("[Request interrupted by user]"), None),
        (user("This session is being continued from a previous conversation that ran out of context"), None),
        (ClaudeRecord(type="user", is_meta=True, message=ClaudeMessage(content="Caveat")), None),
    ],
)
def test_a_prompt_has_only_the_words_of_the_person(record: ClaudeRecord, prompt: Prompt | None) -> None:
    """keeps: TC-11"""
    assert typed(record) == prompt


def test_a_prompt_typed_while_the_agent_works_is_an_attachment() -> None:
    queued = Attachment(type="queued_command", prompt="And test it", command_mode="prompt")

    assert typed_while_working(queued) == TypedPrompt("And test it")
    assert typed_while_working(Attachment(type="queued_command", prompt="!ls", command_mode="bash")) is None
    assert typed_while_working(Attachment(type="file", prompt="a.py", command_mode="prompt")) is None


def test_a_hook_has_a_slash_command_as_it_was_typed() -> None:
    assert typed_in_hook("/nav:auth focus") == SlashCommand("nav:auth", "focus")
    assert typed_in_hook("Fix it") == TypedPrompt("Fix it")
    assert typed_in_hook("Stop hook feedback: no") is None


def test_the_reason_of_a_refusal_is_what_the_person_typed() -> None:
    text = (
        "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"
        "use uv run\n\nNote: The user's next message may contain a correction"
    )

    assert reason_of_refusal(text) == "use uv run"
    assert reason_of_refusal("The user doesn't want to proceed with this tool use.") is None
    assert reason_of_refusal("the user said:\nsomething else") is None


@pytest.mark.parametrize(
    ("line", "ignored"),
    [
        (b'{"type":"summary","summary":"x"}\n', True),
        (b'{"parentUuid":null,"isSidechain":false,"attachment":{"type":"file"}}\n', True),
        (b'{"parentUuid":null,"isSidechain":false,"attachment":{"type":"queued_command"}}\n', False),
        (b'{"type":"user","message":{}}\n', False),
        (b'{"type":"summary","summary":"torn{"parentUuid":null,"type":"user"}\n', False),
    ],
)
def test_lines_without_events_are_recognized_by_their_first_bytes(line: bytes, ignored: bool) -> None:
    """Except where a prompt hides in them: queued, or written after a torn record."""
    assert is_ignored(line) == ignored
