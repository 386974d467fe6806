"""A seeded stream of events in the shape of an agent daemon's log, and the record that a naive log writes for each.

Live sessions take turns. Each has a few agents and one chain of events at a time; eight events in a row share a
context (a scope), and a scope descends from the last event of the scope before it in its chain. The naive record embeds
the whole context in every event, built as KSI builds it: a copy of the parent's, a new id, a depth and a time.
"""

from __future__ import annotations

import pickle
import random
import sysconfig
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, overload

import mica
from _table import uncounted

SEED = 20261115
SCOPE_EVENTS = 8
CHAIN_SCOPES = 2, 6  # about 30 events
SESSION_SCOPES = 50, 110  # then another session replaces it
AGENTS = 2, 6
LASTING_SHARE = 0.02  # of all scopes belong to one session that never ends, such as a daemon's own
TEXT_BYTES = 74  # of free text on average; with the other fields about 146 bytes of JSON
LASTING = "sess_daemon"
FRESH_SCOPES = 32  # created at once

Data = dict[str, object]
Embedded = dict[str, object]


class Step(NamedTuple):
    name: str
    data: Data


class Scope(NamedTuple):
    """Eight events that share a context."""

    chain: int  # the number of their chain
    session: str
    agent: str
    user: str
    correlation: str
    client: str
    orchestration: str
    steps: tuple[Step, ...]

    @property
    def context(self) -> mica.Context:
        labels = {"client": self.client, "environment": "production", "orchestration": self.orchestration}
        return mica.Context(
            session=self.session,
            agent=self.agent,
            user=self.user,
            correlation=self.correlation,
            labels=tuple(labels.items()),
        )


class _Session:
    def __init__(self, chance: random.Random, name: str | None = None) -> None:
        self.name = name or f"sess_{chance.getrandbits(64):016x}"
        self.user = f"user-{chance.randint(1, 400)}"
        self.client = f"cli-{chance.getrandbits(32):08x}"
        self.agents = [f"agent-{chance.choice(ROLES)}-{number}" for number in range(chance.randint(*AGENTS))]
        self.scopes_left = chance.randint(*SESSION_SCOPES)
        self.chain_left = 0
        self.chain = 0
        self.correlation = self.orchestration = ""


ROLES = "planner coder reviewer tester researcher writer".split()
MODELS = "small medium large".split()
TOOLS = "Read Bash Edit Grep Write Fetch".split()


def stream(events: int, *, seed: int = SEED, live: int = 200, field: str = "note") -> list[Scope]:
    """Generate about this many events, in whole scopes. `field` names the free-text field; only `text` is indexed."""
    return list(scopes(events // SCOPE_EVENTS, seed=seed, live=live, field=field))


class Fresh(Sequence[Scope]):
    """A stream whose events are created just before they are recorded; creating them is not measured.

    Otherwise fetching old objects from memory would be a third of the measured time.
    """

    def __init__(self, stretch: Sequence[Scope]) -> None:
        self._stretch = stretch

    def __len__(self) -> int:
        return len(self._stretch)

    @overload
    def __getitem__(self, index: int) -> Scope: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Scope]: ...
    def __getitem__(self, index: int | slice) -> Scope | Sequence[Scope]:
        return self._stretch[index]

    def __iter__(self) -> Iterator[Scope]:
        for start in range(0, len(self), FRESH_SCOPES):
            with uncounted():
                part: Sequence[Scope] = pickle.loads(pickle.dumps(self[start : start + FRESH_SCOPES]))
            yield from part


def scopes(count: int, *, seed: int = SEED, live: int = 200, field: str = "note") -> Iterator[Scope]:
    chance = random.Random(seed)
    lasting = _Session(chance, LASTING)
    sessions = [_Session(chance) for _ in range(live)]
    chains = 0
    for _ in range(count):
        place = chance.randrange(live)
        session = lasting if chance.random() < LASTING_SHARE else sessions[place]
        if session.chain_left == 0:
            chains += 1
            session.chain, session.chain_left = chains, chance.randint(*CHAIN_SCOPES)
            session.correlation = f"corr_{chance.getrandbits(128):032x}"
            session.orchestration = f"orch_{chance.getrandbits(32):08x}"
        session.chain_left -= 1
        session.scopes_left -= 1
        yield Scope(
            chain=session.chain,
            session=session.name,
            agent=chance.choice(session.agents),
            user=session.user,
            correlation=session.correlation,
            client=session.client,
            orchestration=session.orchestration,
            steps=tuple(_step(chance, session, field) for _ in range(SCOPE_EVENTS)),
        )
        if session is not lasting and session.scopes_left <= 0:
            sessions[place] = _Session(chance)


def _step(chance: random.Random, session: _Session, field: str) -> Step:
    text = _text(chance)
    match chance.randrange(6):
        case 0:
            call = f"call_{chance.getrandbits(64):016x}"
            return Step("tool.call", {"tool": chance.choice(TOOLS), "call": call, "priority": 3, field: text})
        case 1:
            call = f"call_{chance.getrandbits(64):016x}"
            return Step("tool.result", {"call": call, "ms": chance.randint(1, 4_000), "ok": True, field: text})
        case 2:
            cost = round(chance.random() / 20, 6)
            tokens = chance.randint(200, 90_000)
            model = f"model-{chance.choice(MODELS)}"
            return Step("completion.result", {"model": model, "tokens": tokens, "cost": cost, field: text})
        case 3:
            return Step(
                "completion.async", {"model": "model-large", "request": f"{chance.getrandbits(64):016x}", field: text}
            )
        case 4:
            return Step("message.sent", {"to": chance.choice(session.agents), "urgent": False, field: text})
        case _:
            state = {"status": "working", "queue": chance.randint(0, 40)}
            return Step("agent.status", {"agent": chance.choice(session.agents), "state": state, field: text})


def _text(chance: random.Random) -> str:
    whole = library()
    start = chance.randrange(len(whole) - 400)
    return whole[start : start + chance.randint(TEXT_BYTES // 3, TEXT_BYTES * 5 // 3)]


@cache
def library() -> str:
    """Return about 4 MB of natural text: the standard library's modules, the same for one version of Python."""
    folder = Path(sysconfig.get_path("stdlib"))
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.py")))


# -- The naive record -----------------------------------------------------------------------------------------


def embedded(scope: Scope, above: Embedded | None) -> Embedded:
    """Build the complete context that a naive log embeds in an event whose parent has the context `above`."""
    now = time.time()
    identifier = f"evt_{uuid.uuid4().hex}"
    if above is None:
        return {
            "_event_id": identifier,
            "_event_timestamp": now,
            "_parent_event_id": None,
            "_root_event_id": identifier,
            "_event_depth": 0,
            "_correlation_id": scope.correlation,
            "_session_id": scope.session,
            "_agent_id": scope.agent,
            "_user_id": scope.user,
            "_client_id": scope.client,
            "_orchestration_id": scope.orchestration,
            "_environment": "production",
        }
    context = above.copy()
    context["_event_id"] = identifier
    context["_event_timestamp"] = now
    context["_parent_event_id"] = above["_event_id"]
    context["_event_depth"] = int(above["_event_depth"]) + 1  # type: ignore[call-overload]  # a number, as written above
    context["_agent_id"] = scope.agent
    return context


def record(step: Step, context: Embedded) -> Embedded:
    """Build an event as a naive log writes it."""
    return {"event": step.name, "timestamp": context["_event_timestamp"], "data": step.data, "_ksi_context": context}
