"""The description of a coding agent."""

from __future__ import annotations

import pytest

from mica.clients.client import Client
from mica.clients.installation import UserHome
from mica.clients.prompts import SlashCommand, TypedPrompt
from mica.clients.registry import CLIENTS


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
def test_a_client_with_a_reader_says_where_its_transcripts_are(client: Client, user: UserHome) -> None:
    assert (client.reader is None) == (client.transcripts is None)
    if client.transcripts is not None:
        assert client.transcripts(user).is_relative_to(user.path)


def test_a_hook_has_the_name_of_its_client_unless_it_has_another() -> None:
    assert CLIENTS["codex"].hook == "codex"
    assert CLIENTS["claude-code"].hook == "claude"


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
def test_every_client_recognizes_typed_words_and_memory(client: Client) -> None:
    """keeps: TC-11"""
    assert client.typed("Fix the login") == TypedPrompt("Fix the login")
    assert client.typed('<memory from="mica">auth is in src/auth.py</memory>') is None
    command = TypedPrompt("/nav:help") if client.name == "codex" else SlashCommand("nav:help", "")
    assert client.typed("/nav:help") == command


def test_an_event_inside_an_envelope_is_unwrapped() -> None:
    unwrap = CLIENTS["opencode"].unwrap
    assert unwrap is not None
    info = {"id": "s1", "directory": "/shop"}

    created = unwrap("event", {"input": {"type": "session.created", "properties": {"info": info}}})
    called = unwrap("tool.execute.after", {"input": {"tool": "read"}, "output": {"output": "x"}})

    assert created == ("session.created", {"info": info, "directory": "/shop", "session_id": "s1"})
    assert called == ("tool.execute.after", {"tool": "read", "output": {"output": "x"}})
