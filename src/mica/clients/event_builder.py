"""Sessions of coding agents as events: what was said and done, under the prompt that began it.

Every client's transcript and every hook tells through a `Teller`. An event's id follows from what the client calls the
thing (session, prompt, call, answer), so that a hook's record and the transcript of the same call are one event, and
reading a file twice, in pieces or in another order gives the same ids. The names:

| client | prompt | call | closing words |
| --- | --- | --- | --- |
| claude-code | prompt id | tool use id | the record's uuid |
| codex | turn id | turn id:tool use id, since a fork keeps both | turn id |
| gemini, copilot | `nth(text)` | `nth([arguments, failed])`: their hooks know no ids | the prompt's |
| opencode | message id | call id | message id of the prompt |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from mica.clients.records import Tally
from mica.clients.tool_effects import Draft, Files, digest, verbatim
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
    WriterId,
    descent_from,
    event_id,
    make_event,
    sequence_named,
    writer_named,
)

TEXT_CHARACTERS_MAX = 1_000_000  # more than a model's window holds; what is longer was not typed
NEVER = datetime.max.replace(tzinfo=UTC)
_UNIQUE = ("claude-code", "codex")  # clients whose prompts, calls and answers have names that no other session uses


class _Held(msgspec.Struct, frozen=True):
    """An event that is not certain before the next record."""

    key: str
    text: str
    fields: dict[str, object]
    at: datetime
    context: Context
    parent: Ref


class Asked(msgspec.Struct, frozen=True):
    """A tool call that waits for its result."""

    tool: str
    given: object


class Teller:
    """Makes events, and remembers what later ones refer to: ids and lengths of files; never their text.

    `place` says where the following stands; `at`, `number` and `tally` belong to the record that is told. Events gather
    in `made`, each once.
    """

    def __init__(self, client: str, *, session: str = "", root: str | None = None) -> None:
        self.client = client
        self.writer = writer_named(f"import:{client}")
        self.session = session
        self.at = NEVER
        self.context = EMPTY
        self.turn: Ref | None = None  # the prompt that everything hangs under until the next
        self.files = Files(root)
        self.started: set[str] = set()
        self.seen: set[int] = set()  # sequences of the events made
        self.answer: _Held | None = None
        self.closing: _Held | None = None
        self.made: list[Event] = []
        self.number = 0
        self.tally = Tally()
        self._met: Counter[str] = Counter()

    # -- Records

    def begin(self, number: int, tally: Tally) -> None:
        """The next record is told."""
        self.number, self.tally, self.made = number, tally, []

    def is_dated(self, at: datetime | None = None) -> bool:
        """Whether it is known when this was, by its own time or the one before; what has neither is counted."""
        self.at = at or self.at
        if self.at is NEVER:
            self.tally.complain(self.number, "no time, and none before it")
        return self.at is not NEVER

    # -- Names

    def key(self, kind: str, name: str) -> str:
        """What an event is called: `prompt`, `call`, `answer`, `closing` or `compacted`, and the client's own name."""
        return f"{kind}:{name}" if self.client in _UNIQUE else f"{kind}:{self.session}:{name}"

    def nth(self, value: object) -> str:
        """A name for what the client gives none: by its content, and how often that was met in this session."""
        name = digest(value)
        self._met[f"{self.session}:{name}"] += 1
        return f"{name}:{self._met[f'{self.session}:{name}']}"

    @property
    def parent(self) -> Ref:
        """What the next event hangs under: the prompt of this turn, else the session."""
        return self.turn or self.root(f"session:{self.session}")

    def root(self, key: str) -> Ref:
        """The place of an event that begins a chain, whether it was seen or not."""
        return _root(self.writer, key)

    # -- Sessions

    def place(self, session: str | None, *, agent: str | None = None, branch: str | None, cwd: str | None) -> None:
        """Where the following happens. The first folder is the root, unless one was given."""
        self.session = session or self.session
        self.context = _context(self.client, label(self.session), label(agent or self.client), label(branch))
        self.files.root = self.files.root or cwd

    def start(self, *, cwd: str | None, branch: str | None, version: str | None) -> None:
        """The session begins, if it has not already."""
        if self.session in self.started:
            return
        self.started.add(self.session)
        fields: dict[str, object] = {"cwd": cwd, "branch": branch, "version": version, "client": self.client}
        self.make(f"session:{self.session}", "session.started", fields, parent=None, origin="tool")

    def compact(self, name: str, *, trigger: str | None, before: int | None = None, after: int | None = None) -> None:
        fields: dict[str, object] = {"trigger": trigger, "before_tokens": before, "after_tokens": after}
        parent = self.root(f"session:{self.session}")
        self.make(self.key("compacted", name), "session.compacted", fields, parent=parent, origin="tool")

    def end(self, reason: str | None) -> None:
        """The session is over. A session that is taken up again ends once, the first time."""
        parent = self.root(f"session:{self.session}")
        self.make(f"ended:{self.session}", "session.ended", {"reason": reason}, parent=parent, origin="tool")

    # -- What people say

    def prompt(self, name: str, text: str) -> None:
        """A turn begins with what was typed."""
        self.turn = self.root(self.key("prompt", name))
        self.say(text, key=self.key("prompt", name), parent=None)

    def meanwhile(self, name: str, text: str) -> None:
        """What was typed while the agent worked belongs to the turn it was typed into."""
        self.say(text, key=self.key("prompt", name), parent=self.parent)

    def say(self, text: str, *, key: str, parent: Ref | None) -> None:
        fields: dict[str, object] = {"text": verbatim(text, limit=TEXT_CHARACTERS_MAX), "tags": ["prompt"]}
        self.make(key, MARK, fields, parent=parent, origin="user")

    def command(self, name: str, *, command: str, args: str) -> None:
        """A turn begins with a slash command, named without its slash."""
        self.turn = self.root(self.key("prompt", name))
        self.run_command(command, args, key=self.key("prompt", name), parent=None)

    def run_command(self, command: str, args: str, *, key: str, parent: Ref | None) -> None:
        given = verbatim(args, limit=TEXT_CHARACTERS_MAX)
        fields: dict[str, object] = {"name": command, "args": given}
        if given:
            fields["text"] = f"/{command} {given}"
        self.make(key, "command.run", fields, parent=parent, origin="user")

    def untyped(self, name: str) -> None:
        """A turn begins that nobody typed, such as one begun by a notification."""
        self.turn = self.make(self.key("prompt", name), "turn.started", {}, parent=None, origin="tool")

    # -- What the agent says and does

    def call(self, name: str, drafts: Iterable[Draft]) -> None:
        """What a tool call of this name touched."""
        turn = self.parent
        first = None
        for index, draft in enumerate(drafts):
            parent = first if draft.inner and first else turn
            key = f"{self.key('call', name)}:{index}"
            made = self.make(key, draft.name, draft.fields, parent=parent, origin=draft.origin, error=draft.error)
            first = first or made

    def hold_answer(self, name: str, fields: dict[str, object]) -> None:
        """An answer of the model, told when another begins or the turn ends: later records may know more of it."""
        key = self.key("answer", name)
        held = self._hold(key, fields)
        if self.answer is not None and self.answer.key == key:
            held = msgspec.structs.replace(held, at=self.answer.at, parent=self.answer.parent)
        else:
            self.release_answer()
        self.answer = held

    def hold_closing(self, name: str, text: str) -> None:
        """Words that end the turn, unless something follows them."""
        self.closing = self._hold(self.key("closing", name), {"tags": ["closing"]}, text=text)

    def closing_name(self, text: str) -> str:
        """A name for words that end the turn, where hooks and transcripts share none but the turn and the words."""
        return f"{self.parent.sequence:x}:{digest(text)}"

    def _hold(self, key: str, fields: dict[str, object], *, text: str = "") -> _Held:
        return _Held(key, text, fields, self.at, self.context, self.parent)

    def release(self) -> None:
        """The turn is over: what was held is certain."""
        self.release_answer()
        self.release_closing()

    def release_answer(self) -> None:
        held, self.answer = self.answer, None
        if held is not None:
            self._make_held(held, "model.answer", held.fields)

    def release_closing(self) -> None:
        held, self.closing = self.closing, None
        if held is not None:
            self._make_held(held, MARK, {"text": verbatim(held.text, limit=TEXT_CHARACTERS_MAX), **held.fields})

    @property
    def is_settled(self) -> bool:
        """Whether no event waits for a later record."""
        return self.answer is None and self.closing is None

    def settle(self) -> list[Event]:
        """The events that only the end of the file makes certain."""
        self.made = []
        self.release()
        return self.made

    # -- Making events

    def _make_held(self, held: _Held, name: str, fields: dict[str, object]) -> None:
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
        """Adds the event of this key, once for each teller, and gives its place."""
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
    """PostgreSQL refuses it, and nobody typed it."""
    return value.replace("\0", "�") if isinstance(value, str) and "\0" in value else value


@lru_cache(maxsize=1_024)
def _root(writer: WriterId, key: str) -> Ref:
    return Ref(writer, sequence_named(key))


@lru_cache(maxsize=1_024)
def _context(client: str, session: str, agent: str, branch: str) -> Context:
    labels = {"client": client, "branch": branch} if branch else {"client": client}
    return EMPTY.with_(session=session or None, agent=agent, labels=labels)


def label(value: str | None) -> str:
    return (value or "")[:LABEL_CHARACTERS_MAX].replace("\0", "�")


def utc(moment: datetime | None) -> datetime | None:
    """The moment in UTC. One without a zone is taken as UTC; one outside the calendar is none."""
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None


def moment(milliseconds: float | None) -> datetime | None:
    """The moment that so many milliseconds after 1970 are; None for one outside the calendar."""
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
