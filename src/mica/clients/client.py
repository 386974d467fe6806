"""`Client`: everything mica knows about one coding agent, except what `mica.hook` knows about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from mica.clients.installation import Installation, Machine, UserHome
from mica.clients.prompts import Prompt
from mica.clients.reader import Reader
from mica.clients.records import ImportTally
from mica.clients.tool_effects import ClientCall, EventDraft, FileNames

HookPayload: TypeAlias = dict[str, object]


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Everything mica knows about one coding agent. `mica.clients.registry` lists all clients.

    Only how hooks recognize the agent and how they write their answers for it is in `mica.hook`, which imports nothing.
    """

    name: str  # in commands, settings and events
    title: str  # for people
    install: Callable[[Machine], Installation]

    # Transcripts; without a reader, mica reads no transcripts of this client.
    reader: Reader | None = None
    transcripts: Callable[[UserHome], Path] | None = None  # where they are, unless a setting names another place
    sign: bytes = b""  # bytes that occur in the first lines of each transcript; empty if there are none
    is_database: bool = False  # its transcripts are sessions in a database, not files of lines

    # Hooks.
    drafts: Callable[[ClientCall, FileNames, ImportTally], list[EventDraft]]  # the events of a tool call
    typed: Callable[[str], Prompt | None]  # what a person typed in a prompt; None if a program wrote it
    hook_name: str = ""  # in hook commands and spools, where it differs from the name
    unwrap: Callable[[str, HookPayload], tuple[str, HookPayload]] | None = None  # finds the event inside an envelope
    has_unique_names: bool = False  # no two sessions share a name of a prompt, call or answer
    names_calls_in_turns: bool = False  # a name of a call is unique only within its turn
    names_closings_by_text: bool = False  # closing words are named by their text: hooks and transcripts share no name

    @property
    def hook(self) -> str:
        """The name that this client has in hook commands and in spooled lines."""
        return self.hook_name or self.name
