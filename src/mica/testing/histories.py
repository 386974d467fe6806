"""Random event histories for property tests. This module needs hypothesis."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import strategies as st

from mica.model.event import Context, Event, writer_named
from mica.testing.builders import WRITER, build

History: TypeAlias = list[Event]

_WORDS = st.sampled_from("cookie session redirect login auth the running réseau 数据 x SessionCookie 42".split())
_NAMES = st.sampled_from(["mark", "file.read", "file.edit", "shell.run", "error_free", "brief"])
_CONTEXTS = st.builds(
    Context,
    session=st.sampled_from([None, "s1", "s2"]),
    agent=st.sampled_from([None, "scout", "smith"]),
    user=st.sampled_from([None, "ann"]),
    correlation=st.sampled_from([None, "req-1"]),
    labels=st.sampled_from([(), (("branch", "main"),)]),
)


@st.composite
def histories(draw: st.DrawFn, max_size: int = 25) -> History:
    """Generate events by two writers, in an order that a store accepts: parents first. Times may go backwards."""
    events: History = []
    for sequence in range(1, draw(st.integers(0, max_size)) + 1):
        parent = draw(st.sampled_from([None, *events[-4:]]))
        name = draw(_NAMES)
        text = " ".join(draw(st.lists(_WORDS, max_size=6)))
        data: dict[str, object] = {"path": "a.py"} if name.startswith("file") else {"text": text}
        events.append(
            build(
                sequence,
                name,
                data,
                parent=parent,
                context=draw(_CONTEXTS),
                after_s=draw(st.integers(-5, 20)),
                writer=draw(st.sampled_from([WRITER, writer_named("other")])),
                origin="recalled" if name == "brief" else draw(st.sampled_from(["user", "agent"])),
                error=draw(st.booleans()),
            )
        )
    return events
