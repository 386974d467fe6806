"""The resources: crystals, trails and briefs that a client can name, read, and be told of when they change.

Whatever they say was recalled, so it stands within a fence, as in a brief.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

import msgspec

from mica.brief.layout import CLOSING, OPENING, defused
from mica.brief.receipts import BRIEF
from mica.brief.why import Why
from mica.errors import InvalidEvent, InvalidInput
from mica.format.lines import counted, one_line
from mica.memory import Memory
from mica.model.crystal import crystal_of
from mica.model.event import CRYSTAL, MARK, RETRACTED, Event
from mica.model.teaching import PROMOTED, WITHDRAWN
from mica.model.trail import CREATED, CRYSTALLIZED, EVOLVED, MEASURED, RENAMED, RESUMED, SUSPENDED, Trail
from mica.navigation.trails.commands import command_text
from mica.store.purges import PURGE

BRIEFING, CRYSTALS, TRAILS = "mica://brief", "mica://crystals", "mica://trails"
RECEIPTS = "mica://receipts"
LATEST = 50  # crystals in a list; older ones are found by searching, and read by their number
DESCRIPTION_CHARACTERS_MAX = 200
TEXT_CHARACTERS_MAX = 2_000  # of one line; crystals are shorter
NOTHING = "Nothing is known yet: what agents do here is observed, and marks are kept."


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can be read, as it is listed."""

    uri: str
    name: str
    title: str
    description: str

    def listed(self) -> dict[str, object]:
        return {**msgspec.to_builtins(self), "mimeType": "text/markdown"}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What an event changed of that which clients can see."""

    prompts: bool = False  # their list
    resources: bool = False  # their list
    uris: frozenset[str] = frozenset()  # of resources that say something else now
    of_all: frozenset[str] = frozenset()  # the beginnings of such URIs, where an event does not tell which

    def __or__(self, other: Change) -> Change:
        return Change(
            prompts=self.prompts or other.prompts,
            resources=self.resources or other.resources,
            uris=self.uris | other.uris,
            of_all=self.of_all | other.of_all,
        )

    def touches(self, uri: str) -> bool:
        return uri in self.uris or any(uri.startswith(f"{each}/") or uri == each for each in self.of_all)


FIXED = (
    Resource(
        uri=BRIEFING,
        name="brief",
        title="Brief",
        description="What an agent should know now: decisions, gotchas, open ends. Reading it leaves a receipt.",
    ),
    Resource(
        uri=CRYSTALS, name="crystals", title="Crystals", description="What earlier sessions, days and weeks meant."
    ),
    Resource(
        uri=TRAILS, name="trails", title="Trails", description="Files that proved useful together, by kind of task."
    ),
)
TEMPLATES = tuple(
    {"uriTemplate": template, "name": name, "title": title, "description": told, "mimeType": "text/markdown"}
    for template, name, title, told in (
        (f"{BRIEFING}/{{task}}", "brief-of", "Brief of a task", "What an agent should know for a task."),
        (
            f"{CRYSTALS}/{{id}}",
            "crystal",
            "Crystal",
            "A crystal by its id or number: what it says, and the marks beneath.",
        ),
        (f"{TRAILS}/{{slug}}", "trail", "Trail", "What a trail's files say now. Reading it is recorded as a use."),
        (f"{RECEIPTS}/{{id}}", "receipt", "Receipt", "What a brief showed, line by line, and what each rests on."),
    )
)


async def resources(memory: Memory) -> list[dict[str, object]]:
    """Every resource that a client is shown: the fixed ones, the crystallized trails, and the latest crystals."""
    trails = [
        Resource(
            uri=f"{TRAILS}/{trail.slug}",
            name=trail.name,
            title=trail.name,
            description=one_line(trail.description, DESCRIPTION_CHARACTERS_MAX),
        )
        for trail in await _crystallized(memory)
    ]
    crystals = [
        Resource(
            uri=f"{CRYSTALS}/{crystal.id}",
            name=f"{crystal.level} {one_line(crystal.label or crystal.period, DESCRIPTION_CHARACTERS_MAX)}",
            title=f"{crystal.level.capitalize()} of {crystal.end_at:%Y-%m-%d}",
            description=one_line(crystal.text, DESCRIPTION_CHARACTERS_MAX),
        )
        for crystal in reversed(await memory.crystals(limit=LATEST))
    ]
    return [each.listed() for each in (*FIXED, *trails, *crystals)]


async def read(memory: Memory, uri: str) -> str:
    """The text of a resource.

    Raises InvalidInput when no resource has such a URI, UnknownEvent, InvalidEvent or UnknownTrail when there is none
    of this name, and what memory raises.
    """
    kind, _, rest = uri.partition("://")[2].partition("/")
    name = unquote(rest)
    match uri.partition(":")[0], kind, name:
        case "mica", "brief", task:
            return (await memory.brief(task)).text or NOTHING
        case "mica", "crystals", "":
            return await _listed_crystals(memory)
        case "mica", "crystals", reference:
            return await _crystal(memory, reference)
        case "mica", "trails", "":
            return await _listed_trails(memory)
        case "mica", "trails", slug:
            return await _trail(memory, slug)
        case "mica", "receipts", reference if reference:
            return await _receipt(memory, reference)
    known = ", ".join([each.uri for each in FIXED] + [str(each["uriTemplate"]) for each in TEMPLATES])
    raise InvalidInput(f"there is no resource {uri!r}; there are {known}")


async def canonical(memory: Memory, uri: str) -> str:
    """The URI by which changes are told of: a crystal's by its id, also where its number was given.

    Raises as `read` does for a crystal that is not there.
    """
    before, _, name = uri.partition(f"{CRYSTALS}/")
    if before or not name:
        return uri
    return f"{CRYSTALS}/{(await memory.crystal(_reference(unquote(name)))).id}"


_OF_TRAILS = (CREATED, CRYSTALLIZED, SUSPENDED, RESUMED, RENAMED, MEASURED, EVOLVED)
_CHANGES = {
    MARK: Change(uris=frozenset([BRIEFING])),
    PROMOTED: Change(uris=frozenset([BRIEFING])),
    WITHDRAWN: Change(uris=frozenset([BRIEFING])),
    CRYSTAL: Change(resources=True, uris=frozenset([BRIEFING, CRYSTALS])),
    RETRACTED: Change(resources=True, uris=frozenset([BRIEFING, CRYSTALS])),
    PURGE: Change(prompts=True, resources=True, of_all=frozenset([BRIEFING, CRYSTALS, TRAILS])),
    **dict.fromkeys(_OF_TRAILS, Change(prompts=True, resources=True, of_all=frozenset([TRAILS]))),
}
CHANGING = tuple(_CHANGES)  # the events that change anything


def change_of(event: Event) -> Change:
    """What an event changed. A use of a trail and a receipt change nothing: reading must not lead to reading."""
    change = _CHANGES.get(event.name, Change())
    gone: tuple[object, ...] = ()
    if event.name == CRYSTAL:
        gone = crystal_of(event).supersedes
    elif event.name == RETRACTED:
        gone = (event.data.get("mark"),)
    return change | Change(uris=frozenset(f"{CRYSTALS}/{each}" for each in gone))


# -- Texts ----------------------------------------------------------------------------------------------------


def _fenced(lines: Iterable[str]) -> str:
    return "\n".join([OPENING, *map(defused, lines), CLOSING])


async def _crystallized(memory: Memory) -> list[Trail]:
    return sorted(
        (trail for trail in await memory.trails.list(limit=None) if trail.version and trail.suspended is None),
        key=lambda each: each.slug,
    )


async def _listed_crystals(memory: Memory) -> str:
    lines = [
        f"- #{crystal.position} {crystal.level} {one_line(crystal.label or crystal.period, 80)} "
        f"({crystal.end_at:%Y-%m-%d}): {one_line(crystal.text, TEXT_CHARACTERS_MAX)}"
        for crystal in await memory.crystals(limit=LATEST)
    ]
    return _fenced(lines) if lines else "There is no crystal yet."


async def _crystal(memory: Memory, reference: str) -> str:
    crystal = await memory.crystal(_reference(reference))
    head = f"{crystal.level} {one_line(crystal.label or crystal.period, 200)}, #{crystal.position}"
    during = f"{crystal.start_at:%Y-%m-%d %H:%M} to {crystal.end_at:%Y-%m-%d %H:%M}"
    beneath = f"{counted(crystal.marks, 'mark')} beneath, {len(crystal.dropped)} of its sources not taken up"
    [found] = await memory.why(crystal.id)
    return _fenced([f"{head}: {during}, {beneath}, made by {crystal.method}", *_because(found)])


async def _receipt(memory: Memory, reference: str) -> str:
    [found] = await memory.why(_reference(reference))
    if found.name != BRIEF:
        raise InvalidEvent(f"event {found.id} is no brief, it is a {found.name}")
    asked = f"A brief about {one_line(found.text, 200)!r}" if found.text else "A brief"
    missing = [f"- missing: {name} ({reason})" for name, reason in sorted(found.missing.items())]
    return _fenced([f"{asked}, {found.at:%Y-%m-%d %H:%M}", *_because(found), *missing])


def _because(found: Why) -> list[str]:
    return [
        f"- {one_line(line.text, TEXT_CHARACTERS_MAX)} ({' '.join(each.number for each in line.evidence)})"
        + "".join(
            f" {each.number} is retracted: {one_line(each.retracted, TEXT_CHARACTERS_MAX)}"
            for each in line.evidence
            if each.retracted is not None
        )
        for line in found.because
    ]


async def _listed_trails(memory: Memory) -> str:
    lines = [
        f"- {trail.name} ({trail.state}, {counted(trail.runs, 'run')}"
        + (f", {trail.success:.0%} success" if trail.success is not None else "")
        + f"): {one_line(trail.description, DESCRIPTION_CHARACTERS_MAX)} [{', '.join(trail.paths)}]"
        for trail in await memory.trails.list()
    ]
    return _fenced(lines) if lines else "There is no trail yet: they are learned from what agents open."


async def _trail(memory: Memory, slug: str) -> str:
    root = await memory.directory()
    trail = await memory.trails.show(slug)
    if root is None:  # the files are on another machine: what is known of them is where they are
        await memory.trails.track(trail)
        return command_text(trail).partition("\n---\n\n")[2]
    loaded = await memory.trails.load(slug, root=root)
    return loaded.text or "None of its files is here any more."


def _reference(text: str) -> str:
    """A number as people write it; in a URI it would have to be escaped."""
    return f"#{text}" if text.isdecimal() else text
