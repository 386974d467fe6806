"""Trees of crystals and of events in display order, and chains of events as Mermaid flowcharts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mica.model.crystal import Crystal
from mica.model.event import Event, EventId


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A crystal and the crystals that it summarizes, as a tree. Marks are not included."""

    crystal: Crystal
    below: tuple[Branch, ...] = ()


def forest(crystals: Sequence[Crystal]) -> list[Branch]:
    """Return crystals as a list of trees, the highest level first, and within a level the latest first.

    A crystal that no other crystal in `crystals` summarizes is the root of a tree.
    """
    known = {crystal.id: crystal for crystal in crystals}
    covered = {source for crystal in crystals if not crystal.is_tree for source in crystal.sources if source in known}
    return [_branch(crystal, known) for crystal in _latest_first(crystals) if crystal.id not in covered]


def _branch(crystal: Crystal, known: Mapping[EventId, Crystal]) -> Branch:
    below = [known[source] for source in crystal.sources if source in known]
    return Branch(crystal=crystal, below=tuple(_branch(each, known) for each in _latest_first(below)))


def _latest_first(crystals: Iterable[Crystal]) -> list[Crystal]:
    return sorted(crystals, key=lambda crystal: (crystal.number, crystal.end_at, crystal.id), reverse=True)


def in_tree_order(top: EventId | None, below: Iterable[Event]) -> list[Event]:
    """Return the events in `below` that descend from the event with the id `top`, depth first.

    If `top` is None, the events without a parent and their descendants are returned. Siblings keep their order.
    """
    children: dict[str | None, list[Event]] = {}
    for event in below:
        children.setdefault(event.parent_id, []).append(event)
    ordered: list[Event] = []
    waiting = list(reversed(children.get(top, [])))
    while waiting:
        event = waiting.pop()
        ordered.append(event)
        waiting += reversed(children.get(event.id, []))
    return ordered


# -- Mermaid --------------------------------------------------------------------------------------------------


EDGES_MAX = 500  # Mermaid's own limit (`maxEdges`), beyond which it shows nothing
TEXT_CHARACTERS_MAX = 45_000  # Mermaid's own limit is 50,000 (`maxTextSize`)
LABEL_CHARACTERS_MAX = 60
# Any other character may be Mermaid syntax: a quotation mark ends a label, `#` begins a character code, and a colon
# after `style` ends the line.
_UNSAFE = re.compile(r"[^A-Za-z0-9 ._/\-]")


def flowchart(chain: Sequence[Event]) -> str:
    """Return a chain of events as the text of a Mermaid flowchart from top to bottom. Failures are marked.

    If the chain exceeds Mermaid's limits, a last node says how many events are left out.
    """
    numbers = {event.id: f"n{number}" for number, event in enumerate(chain, start=1)}
    lines = ["flowchart TD", "    classDef failed stroke:#c00,stroke-width:2px"]
    size = sum(map(len, lines))
    for drawn, event in enumerate(chain):
        node = numbers[event.id]
        added = [f'    {node}["{node_label(event)}"]' + (":::failed" if event.error else "")]
        if event.parent_id in numbers:
            added.append(f"    {numbers[event.parent_id]} --> {node}")
        size += sum(map(len, added)) + len(added)
        if drawn >= EDGES_MAX or size > TEXT_CHARACTERS_MAX:
            lines.append(f'    rest["and {len(chain) - drawn} more"]')
            break
        lines += added
    return "\n".join(lines) + "\n"


def node_label(event: Event) -> str:
    """Return the label of an event in a flowchart: its position, its name, and who recorded it.

    The last part is the agent of the event, or else its user, or else its origin.
    """
    who = event.context.agent or event.context.user or event.origin
    text = f"{event.position or ''} {_cut(event.name)} {_cut(who)}".strip()
    return _UNSAFE.sub(lambda match: f"#{ord(match[0])};", re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text))


def _cut(text: str) -> str:
    return text if len(text) <= LABEL_CHARACTERS_MAX else text[: LABEL_CHARACTERS_MAX - 1] + "…"
