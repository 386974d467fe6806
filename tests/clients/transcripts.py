"""Recorded transcripts, and functions that write small ones and read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

from hypothesis import strategies as st

from mica.clients.codex import transcript as codex
from mica.clients.copilot import transcript as copilot
from mica.clients.gemini import transcript as gemini
from mica.clients.reader import Reader
from mica.clients.records import ImportTally
from mica.model.event import Event

FIXTURES = Path(__file__).parents[1] / "fixtures"


ROLLOUT = FIXTURES / "codex" / "rollout.jsonl"


GEMINI = FIXTURES / "gemini" / "session.jsonl"


COPILOT = FIXTURES / "copilot" / "events.jsonl"


FILES: list[tuple[Reader, Path]] = [(codex, ROLLOUT), (gemini, GEMINI), (copilot, COPILOT)]


OPENCODE_SESSION = "ses_e20fcff63ffeYSlgXduvIiEfNe"


SECRET = "ghp_" + "a1B2" * 9


Json = dict[str, object]


def events_of(
    reader: Reader,
    path: Path,
    *,
    start: int = 0,
    closed: bool = True,
    root: str | None = None,
    tally: ImportTally | None = None,
) -> list[Event]:
    pairs = reader.read(path, start=start, closed=closed, root=root, tally=tally or ImportTally())
    return [event for _, events in pairs for event in events]


def named(events: Iterable[Event], *names: str) -> list[Event]:
    return [event for event in events if event.name in names]


def marks(events: Iterable[Event], tag: str) -> list[str]:
    return [str(event.data["text"]) for event in named(events, "mark") if event.data["tags"] == [tag]]


def navigation(events: Iterable[Event]) -> list[tuple[object, ...]]:
    keys = ("path", "start_line", "end_line", "total_lines")
    found = [event for event in events if event.name.startswith("file.")]
    return [(event.name.removeprefix("file."), *(event.data[key] for key in keys)) for event in found]


def summed(events: Iterable[Event]) -> tuple[int, ...]:
    keys = ("input_tokens", "cache_read_tokens", "output_tokens", "reasoning_tokens")
    answers = named(events, "model.answer")
    sums = (sum(value for one in answers if isinstance(value := one.data.get(key), int)) for key in keys)
    return (len(answers), *sums)


def write(path: Path, *entries: Json) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def session_of(database: Path) -> Path:
    return database / OPENCODE_SESSION


def rollout(path: Path, *records: tuple[str, Json], cwd: str = "/home/dev/shop", **meta: object) -> Path:
    first: Json = {"session_id": "s1", "id": "s1", "cwd": cwd, "cli_version": "0.166.0"} | meta
    all_records = [("session_meta", first), ("turn_context", {"turn_id": "t1", "cwd": cwd, "model": "m"}), *records]
    return write(
        path,
        *[{"timestamp": "2026-11-15T11:00:00Z", "type": kind, "payload": payload} for kind, payload in all_records],
    )


def asks(call: str, name: str, **arguments: object) -> tuple[str, Json]:
    return "response_item", {
        "type": "function_call",
        "name": name,
        "arguments": json.dumps(arguments),
        "call_id": call,
    }


def returns(call: str, output: object) -> tuple[str, Json]:
    return "response_item", {"type": "function_call_output", "call_id": call, "output": output}


def says(text: str, role: str = "user") -> tuple[str, Json]:
    return "response_item", {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def chat(path: Path, *messages: Json, project: str = "/home/dev/shop") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    header: Json = {"sessionId": "s1", "projectHash": sha256(project.encode()).hexdigest()}
    header |= {"startTime": "2026-11-15T11:00:00Z", "kind": "main"}
    return write(path, header, *[{"timestamp": "2026-11-15T11:00:00Z"} | message for message in messages])


_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.sampled_from(["\0", "\ud800", "-1", "C:\\x", "/home/dev/shop/src/auth.py", "*** Begin Patch\n*** Add File: \0"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def spoil(value: object, draw: Callable[[st.SearchStrategy[object]], object]) -> object:
    """The same record with some keys removed, and some values of another kind."""
    if isinstance(value, dict):
        kept = {}
        for key, child in value.items():
            chance = draw(st.integers(0, 30))
            if chance == 0:
                continue
            kept[key] = draw(_ODD) if chance == 1 else spoil(child, draw)
        return kept
    return [spoil(child, draw) for child in value] if isinstance(value, list) else value
