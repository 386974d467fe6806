"""`Client`: everything mica knows about one coding agent."""

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
    """Everything mica knows about one coding agent. `mica.clients.registry` lists all clients."""

    name: str  # in commands, settings and events
    title: str  # for people
    install: Callable[[Machine], Installation]

    # Transcripts; a client without a reader keeps none that mica reads.
    reader: Reader | None = None
    transcripts: Callable[[UserHome], Path] | None = None  # where it keeps them unless a setting names another place
    sign: bytes = b""  # occurs in the first lines of each transcript; empty: these begin with anything
    is_database: bool = False  # its transcripts are sessions in a database, not files of lines

    # Hooks.
    drafts: Callable[[ClientCall, FileNames, ImportTally], list[EventDraft]]
    typed: Callable[[str], Prompt | None]
    hook_name: str = ""  # in hook commands and spools, where it differs from the name
    unwrap: Callable[[str, HookPayload], tuple[str, HookPayload]] | None = None  # finds the event inside an envelope
    has_unique_names: bool = False  # no two sessions share a name of a prompt, call or answer
    names_calls_in_turns: bool = False  # a name of a call is unique only within its turn
    names_closings_by_text: bool = False  # transcripts know closing words by a name that no hook has

    @property
    def hook(self) -> str:
        """The name that this client has in hook commands and in spooled lines."""
        return self.hook_name or self.name
