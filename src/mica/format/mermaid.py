"""A chain as a Mermaid flowchart: what led to what, safe for any name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mica.model.event import Event

EDGES_MAX = 500  # Mermaid's own limit (`maxEdges`); a larger chart is refused by it as a whole
TEXT_CHARACTERS_MAX = 45_000  # Mermaid's own limit is 50,000 (`maxTextSize`)
LABEL_CHARACTERS_MAX = 60
# Outside of these Mermaid may see syntax: a quotation mark ends a label, `#` begins a code, a colon after the word
# `style` makes it cut the line.
_UNSAFE = re.compile(r"[^A-Za-z0-9 ._/\-]")


def flowchart(chain: Sequence[Event]) -> str:
    """The chain from top to bottom, failures marked; what is too much for Mermaid is counted in a last node."""
    numbers = {event.id: f"n{number}" for number, event in enumerate(chain, start=1)}
    lines = ["flowchart TD", "    classDef failed stroke:#c00,stroke-width:2px"]
    size = sum(map(len, lines))
    for drawn, event in enumerate(chain):
        node = numbers[event.id]
        added = [f'    {node}["{label(event)}"]' + (":::failed" if event.error else "")]
        if event.parent_id in numbers:
            added.append(f"    {numbers[event.parent_id]} --> {node}")
        size += sum(map(len, added)) + len(added)
        if drawn >= EDGES_MAX or size > TEXT_CHARACTERS_MAX:
            lines.append(f'    rest["and {len(chain) - drawn} more"]')
            break
        lines += added
    return "\n".join(lines) + "\n"


def label(event: Event) -> str:
    """What a node says: position, name and who it was."""
    who = event.context.agent or event.context.user or event.origin
    text = f"{event.position or ''} {_cut(event.name)} {_cut(who)}".strip()
    return _UNSAFE.sub(lambda found: f"#{ord(found[0])};", re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text))


def _cut(text: str) -> str:
    return text if len(text) <= LABEL_CHARACTERS_MAX else text[: LABEL_CHARACTERS_MAX - 1] + "…"
