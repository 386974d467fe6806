"""Builds the events of a coding agent's session: prompts, and under each its tool calls and answers.

Transcripts and hooks use the same `EventBuilder`. The id of an event is derived from its name, which the client gives
to a session, prompt, call or answer. So a hook and a transcript that report the same call make one event, and reading a
file twice, in pieces or in another order gives the same ids. `nth` makes a name if the client gives none. A summary
that an agent writes when it compacts its window is named by its turn, and counted in it. The other names:

| client | prompt | call | closing words |
| --- | --- | --- | --- |
| claude-code | prompt id | tool use id | the turn and a hash of the words, see `closing_name` |
| codex | turn id | turn id:tool use id, since a fork keeps both | turn id |
| gemini, copilot | `nth(text)` | `nth([arguments, failed])`, because their hooks have no ids | the prompt's |
| opencode | message id | call id | message id of the prompt |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from mica.clients.records import ImportTally
from mica.clients.summaries import summary_in
from mica.clients.tool_effects import EventDraft, FileNames, digest, verbatim
from mica.errors import InvalidInput
from mica.model.event import (
    EMPTY,
    LABEL_CHARACTERS_MAX,
    MARK,
    ROOT,
    Context,
    Event,
    Origin,
    Ref,
    descent_from,
    event_id,
    make_event,
    sequence_named,
    writer_named,
)

TEXT_CHARACTERS_MAX = 1_000_000  # more than a model's window; a longer text was not typed
ROOTS_MAX = 1_024  # references that a builder remembers, about 200 kB
NEVER = datetime.max.replace(tzinfo=UTC)


class _PendingEvent(msgspec.Struct, frozen=True):
    """An event that is held back, because a later record may still change or cancel it."""

    key: str
    text: str
    fields: dict[str, object]
    at: datetime
    context: Context
    parent: Ref


class PendingCall(msgspec.Struct, frozen=True):
    """A tool call whose result is not known yet."""

    tool: str
    arguments: object


class EventBuilder:
    """Makes the events of a session from its records.

    `place` sets the session and folder of the events that follow. `at`, `number` and `tally` belong to the current
    record, and `made` collects its events, each once. From earlier records the builder keeps only names of events, the
    number of lines of each file, and events that are held back.
    """

    def __init__(
        self, client: str, *, has_unique_names: bool = False, session: str = "", root: str | None = None
    ) -> None:
        self.client = client
        self.has_unique_names = has_unique_names  # no other session uses its names of prompts, calls and answers
        self.writer = writer_named(f"import:{client}")
        self.session = session
        self.at = NEVER
        self.context = EMPTY
        self.turn: Ref | None = None  # the current prompt, parent of the events that follow it
        self.files = FileNames(root)
        self.started: set[str] = set()
        self.seen: set[int] = set()  # sequences of the events made
        self.answer: _PendingEvent | None = None
        self.closing: _PendingEvent | None = None
        self.made: list[Event] = []
        self.number = 0
        self.tally = ImportTally()
        self._met: Counter[str] = Counter()
        self._roots: dict[str, Ref] = {}
        self._labels: tuple[str, str, str] | None = None

    # -- Records

    def begin(self, number: int, tally: ImportTally) -> None:
        """Start the next record: set its number and the tally that counts its problems, and empty `made`."""
        self.number, self.tally, self.made = number, tally, []

    def is_dated(self, at: datetime | None = None) -> bool:
        """Set the time of the current record to `at`, and return True if it has a time.

        A record without a time gets the time of the record before it. If no record before it has a time either, it is
        counted as broken, and the result is False.
        """
        self.at = at or self.at
        if self.at is NEVER:
            self.tally.complain(self.number, "no time, and none before it")
        return self.at is not NEVER

    # -- Names

    def key(self, kind: str, name: str) -> str:
        """Return the key from which the id of an event is derived, such as `call:<session>:<name>`.

        `kind` is `prompt`, `call`, `answer`, `closing`, `summary` or `compacted`.
        """
        return f"{kind}:{name}" if self.has_unique_names else f"{kind}:{self.session}:{name}"

    def nth(self, value: object) -> str:
        """Return a name for a value that has none: its hash, and how often the value has occurred in the session."""
        name = digest(value)
        self._met[f"{self.session}:{name}"] += 1
        return f"{name}:{self._met[f'{self.session}:{name}']}"

    @property
    def parent(self) -> Ref:
        """The parent of the next event: the prompt of the current turn. Before any turn, the start of the session."""
        return self.turn or self.root(f"session:{self.session}")

    def root(self, key: str) -> Ref:
        """Return a reference to the event with this key, which has no parent. The event need not exist yet."""
        reference = self._roots.get(key)
        if reference is None:
            if len(self._roots) >= ROOTS_MAX:
                self._roots.clear()
            reference = self._roots[key] = Ref(self.writer, sequence_named(key))
        return reference

    # -- Sessions

    def place(self, session: str | None, *, agent: str | None = None, branch: str | None, cwd: str | None) -> None:
        """Set the session, agent and branch of the events that follow.

        If `session` is None, the session stays the same; if `agent` is None, the agent is the client itself. The first
        `cwd` becomes the root that file paths are relative to, if the builder was created without a root.
        """
        self.session = session or self.session
        place = label(self.session), label(agent or self.client), label(branch)
        if place != self._labels:
            self._labels, self.context = place, _context(self.client, *place)
        self.files.root = self.files.root or cwd

    def start(self, *, cwd: str | None, branch: str | None, version: str | None) -> None:
        """Record the start of the session, if it is not recorded yet."""
        if self.session in self.started:
            return
        self.started.add(self.session)
        fields: dict[str, object] = {"cwd": cwd, "branch": branch, "version": version, "client": self.client}
        self.make(f"session:{self.session}", "session.started", fields, parent=None, origin="tool")

    def compact(self, name: str, *, trigger: str | None, before: int | None = None, after: int | None = None) -> None:
        """Record that the agent compacted its context window, with the tokens in it before and after."""
        fields: dict[str, object] = {"trigger": trigger, "before_tokens": before, "after_tokens": after}
        parent = self.root(f"session:{self.session}")
        self.make(self.key("compacted", name), "session.compacted", fields, parent=parent, origin="tool")

    def summary(self, turn: str, text: str, *, number: int | None = None) -> None:
        """Record what the agent wrote about its session when it compacted its window, as a mark of the agent.

        Hooks and transcripts have no common name for it, so it is named by its `turn`, and by its `number` in it: by
        default, one more than that of the one before.
        """
        agent = self._labels[1] if self._labels and self._labels[1] != self.client else ""
        name = f"{agent}:{turn}" if agent else turn
        if number is None:
            self._met[f"summary:{name}"] += 1
            number = self._met[f"summary:{name}"]
        if summary := summary_in(text):
            fields: dict[str, object] = {"text": verbatim(summary, limit=TEXT_CHARACTERS_MAX), "tags": ["summary"]}
            parent = self.root(f"session:{self.session}")
            self.make(self.key("summary", f"{name}:{number}"), MARK, fields, parent=parent, origin="agent")

    def end(self, reason: str | None) -> None:
        """Record the end of the session, once. If the session is resumed and ends again, the later end is ignored."""
        parent = self.root(f"session:{self.session}")
        self.make(f"ended:{self.session}", "session.ended", {"reason": reason}, parent=parent, origin="tool")

    # -- Prompts and commands

    def prompt(self, name: str, text: str) -> None:
        """Begin a turn with a prompt that a person typed."""
        self.turn = self.root(self.key("prompt", name))
        self.make_prompt(text, key=self.key("prompt", name), parent=None)

    def add_prompt(self, name: str, text: str) -> None:
        """Add a prompt to the current turn. The person typed it while the agent was working."""
        self.make_prompt(text, key=self.key("prompt", name), parent=self.parent)

    def make_prompt(self, text: str, *, key: str, parent: Ref | None) -> None:
        fields: dict[str, object] = {"text": verbatim(text, limit=TEXT_CHARACTERS_MAX), "tags": ["prompt"]}
        self.make(key, MARK, fields, parent=parent, origin="user")

    def command(self, name: str, *, command: str, args: str) -> None:
        """Begin a turn with a slash command; `command` has no slash."""
        self.turn = self.root(self.key("prompt", name))
        self.make_command(command, args, key=self.key("prompt", name), parent=None)

    def make_command(self, command: str, args: str, *, key: str, parent: Ref | None) -> None:
        arguments = verbatim(args, limit=TEXT_CHARACTERS_MAX)
        fields: dict[str, object] = {"name": command, "args": arguments}
        if arguments:
            fields["text"] = f"/{command} {arguments}"
        self.make(key, "command.run", fields, parent=parent, origin="user")

    def untyped(self, name: str) -> None:
        """Begin a turn without a typed prompt, such as one that a notification started."""
        self.turn = self.make(self.key("prompt", name), "turn.started", {}, parent=None, origin="tool")

    # -- Tool calls and answers

    def call(self, name: str, drafts: Iterable[EventDraft]) -> None:
        """Make the events of a tool call. Drafts marked `inner` become children of the call's first event."""
        turn = self.parent
        first = None
        for index, draft in enumerate(drafts):
            parent = first if draft.inner and first else turn
            key = f"{self.key('call', name)}:{index}"
            made = self.make(key, draft.name, draft.fields, parent=parent, origin=draft.origin, error=draft.error)
            first = first or made

    def hold_answer(self, name: str, fields: dict[str, object]) -> None:
        """Hold back the event of a model's answer until the next answer begins or the turn ends.

        Until then, another call with the same `name` replaces `fields`.
        """
        key = self.key("answer", name)
        held = self._hold(key, fields)
        if self.answer is not None and self.answer.key == key:
            held = msgspec.structs.replace(held, at=self.answer.at, parent=self.answer.parent)
        else:
            self.release_answer()
        self.answer = held

    def hold_closing(self, name: str, text: str) -> None:
        """Hold back the mark of the agent's latest words, which are replaced if the agent says more in this turn."""
        self.closing = self._hold(self.key("closing", name), {"tags": ["closing"]}, text=text)

    def closing_name(self, text: str) -> str:
        """Return a name for closing words: the turn and a hash of the text.

        It is used for clients whose hooks and transcripts have no common name for closing words.
        """
        return f"{self.parent.sequence:x}:{digest(text)}"

    def _hold(self, key: str, fields: dict[str, object], *, text: str = "") -> _PendingEvent:
        return _PendingEvent(key, text, fields, self.at, self.context, self.parent)

    def release(self) -> None:
        """Make the events that were held back until the end of the turn."""
        self.release_answer()
        self.release_closing()

    def release_answer(self) -> None:
        """Make the event of the answer that is held back, if any."""
        held, self.answer = self.answer, None
        if held is not None:
            self._make_held(held, "model.answer", held.fields)

    def release_closing(self) -> None:
        """Make the mark of the closing words that are held back, if any."""
        held, self.closing = self.closing, None
        if held is not None:
            self._make_held(held, MARK, {"text": verbatim(held.text, limit=TEXT_CHARACTERS_MAX), **held.fields})

    @property
    def is_settled(self) -> bool:
        """True if no event is held back."""
        return self.answer is None and self.closing is None

    def settle(self) -> list[Event]:
        """Make the events that are still held back at the end of the transcript, and return them."""
        self.made = []
        self.release()
        return self.made

    # -- Making events

    def _make_held(self, held: _PendingEvent, name: str, fields: dict[str, object]) -> None:
        self.make(held.key, name, fields, parent=held.parent, origin="agent", at=held.at, context=held.context)

    def make(
        self,
        key: str,
        name: str,
        fields: dict[str, object],
        *,
        parent: Ref | None,
        origin: Origin,
        error: bool = False,
        at: datetime | None = None,
        context: Context | None = None,
    ) -> Ref:
        """Make the event with this key and return a reference to it. An event with the same key is made only once.

        An event that is not valid is not made, but counted in the tally. Its reference is returned all the same.
        """
        sequence = sequence_named(key)
        identifier = event_id(self.writer, sequence)
        place = Ref(self.writer, sequence, descent_from(parent) if parent else ROOT)
        if sequence in self.seen:
            return place
        self.seen.add(sequence)
        try:
            event = make_event(
                identifier,
                name,
                {key: _without_nul(value) for key, value in fields.items()},
                at=at or self.at,
                context=context or self.context,
                parent=parent,
                origin=origin,
                error=error,
            )
        except InvalidInput as problem:
            self.tally.complain(self.number, str(problem))
        else:
            self.made.append(event)
        return place


def _without_nul(value: object) -> object:
    return value.replace("\0", "�") if isinstance(value, str) and "\0" in value else value


def _context(client: str, session: str, agent: str, branch: str) -> Context:
    labels = {"client": client, "branch": branch} if branch else {"client": client}
    return EMPTY.with_(session=session or None, agent=agent, labels=labels)


def label(value: str | None) -> str:
    """Return the value as a label of a context: cut to the allowed length, with NUL characters replaced."""
    return (value or "")[:LABEL_CHARACTERS_MAX].replace("\0", "�")


def utc(moment: datetime | None) -> datetime | None:
    """Convert a time to UTC; a time without a zone is taken as UTC. None if the result would be out of range."""
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None


def moment(milliseconds: float | None) -> datetime | None:
    """Convert milliseconds since 1970 to a time in UTC; None if the result would be out of range."""
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
