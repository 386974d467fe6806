"""MCP resources: crystals, trails and briefs that a client can read. The client is notified when they change.

Their text comes from memory, so it is put between tags that mark it as data, as in a brief.
"""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from mica.brief.receipts import BRIEF
from mica.brief.why import Why
from mica.errors import InvalidEvent, InvalidInput
from mica.format.fence import fence, neutralize
from mica.format.lines import one_line, plural
from mica.mcp.tools import describe_no_brief, patient_brief
from mica.memory import Memory
from mica.model.crystal import crystal_of
from mica.model.event import CRYSTAL, MARK, RETRACTED, Event
from mica.model.teaching import PROMOTED, WITHDRAWN
from mica.model.trail import CREATED, CRYSTALLIZED, EVOLVED, MEASURED, RENAMED, RESUMED, SUSPENDED, Trail
from mica.navigation.trails.commands import command_text
from mica.store.purges import PURGE

BRIEFING, CRYSTALS, TRAILS = "mica://brief", "mica://crystals", "mica://trails"
RECEIPTS = "mica://receipts"
LATEST = 50  # crystals in the list; older ones are found by search and read by number
DESCRIPTION_CHARACTERS_MAX = 200
TEXT_CHARACTERS_MAX = 2_000  # of one line; crystals are shorter


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of an MCP resource in the answer to `resources/list`."""

    uri: str
    name: str
    title: str
    description: str

    def listing(self) -> dict[str, object]:
        return {**msgspec.to_builtins(self), "mimeType": "text/markdown"}


class ResourceChange(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of changes that clients are notified of: resources, the list of resources, or the list of prompts."""

    prompts: bool = False  # the list of prompts changed
    resources: bool = False  # the list of resources changed
    uris: frozenset[str] = frozenset()  # the URIs of changed resources
    of_all: frozenset[str] = frozenset()  # prefixes of URIs that may have changed

    def __or__(self, other: ResourceChange) -> ResourceChange:
        return ResourceChange(
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
        description="What an agent needs to know now: decisions, gotchas, open ends. Reading it records a receipt.",
    ),
    Resource(
        uri=CRYSTALS, name="crystals", title="Crystals", description="What earlier sessions, days and weeks meant."
    ),
    Resource(
        uri=TRAILS, name="trails", title="Trails", description="Files that proved useful together, by kind of task."
    ),
)
TEMPLATES = tuple(
    {"uriTemplate": template, "name": name, "title": title, "description": description, "mimeType": "text/markdown"}
    for template, name, title, description in (
        (f"{BRIEFING}/{{task}}", "brief-of", "Brief of a task", "What an agent needs to know for a task."),
        (
            f"{CRYSTALS}/{{id}}",
            "crystal",
            "Crystal",
            "A crystal by its id or number, with the marks of each statement.",
        ),
        (
            f"{TRAILS}/{{slug}}",
            "trail",
            "Trail",
            "The current text of a trail's files. Reading it counts as a use.",
        ),
        (f"{RECEIPTS}/{{id}}", "receipt", "Receipt", "The lines of a brief and the sources of each."),
    )
)


async def resources(memory: Memory) -> list[dict[str, object]]:
    """Return the entries of `resources/list`: the three fixed resources, crystallized trails, the latest crystals."""
    trails = [
        Resource(
            uri=f"{TRAILS}/{trail.slug}",
            name=trail.name,
            title=trail.name,
            description=neutralize(one_line(trail.description, DESCRIPTION_CHARACTERS_MAX)),
        )
        for trail in await _crystallized(memory)
    ]
    crystals = [
        Resource(
            uri=f"{CRYSTALS}/{crystal.id}",
            name=neutralize(f"{crystal.level} {one_line(crystal.label or crystal.period, DESCRIPTION_CHARACTERS_MAX)}"),
            title=f"{crystal.level.capitalize()} of {crystal.end_at:%Y-%m-%d}",
            description=neutralize(one_line(crystal.text, DESCRIPTION_CHARACTERS_MAX)),
        )
        for crystal in reversed(await memory.crystals.list(limit=LATEST))
    ]
    return [each.listing() for each in (*FIXED, *trails, *crystals)]


async def read(memory: Memory, uri: str) -> str:
    """Return the text of a resource. Reading the brief records a receipt; reading a trail counts as a use.

    Raises InvalidInput for a URI that no resource has, UnknownEvent, InvalidEvent or UnknownTrail for an unknown name
    in it, and every error of memory.
    """
    kind, _, rest = uri.partition("://")[2].partition("/")
    name = unquote(rest)
    match uri.partition(":")[0], kind, name:
        case "mica", "brief", task:
            brief = await patient_brief(memory, task)
            return brief.text or await describe_no_brief(memory, brief)
        case "mica", "crystals", "":
            return await _crystal_list(memory)
        case "mica", "crystals", reference:
            return await _crystal(memory, reference)
        case "mica", "trails", "":
            return await _trail_list(memory)
        case "mica", "trails", slug:
            return await _trail(memory, slug)
        case "mica", "receipts", reference if reference:
            return await _receipt(memory, reference)
    known = ", ".join([each.uri for each in FIXED] + [str(each["uriTemplate"]) for each in TEMPLATES])
    raise InvalidInput(f"there is no resource {uri!r}; there are {known}")


async def canonical(memory: Memory, uri: str) -> str:
    """Return a resource URI as change notifications contain it: a crystal is named by its id, not by its number.

    Raises UnknownEvent or InvalidEvent if the URI is that of an unknown crystal.
    """
    before, _, name = uri.partition(f"{CRYSTALS}/")
    if before or not name:
        return uri
    return f"{CRYSTALS}/{(await memory.crystals.get(_reference(unquote(name)))).id}"


_OF_TRAILS = (CREATED, CRYSTALLIZED, SUSPENDED, RESUMED, RENAMED, MEASURED, EVOLVED)
_CHANGES = {
    MARK: ResourceChange(uris=frozenset([BRIEFING])),
    PROMOTED: ResourceChange(uris=frozenset([BRIEFING])),
    WITHDRAWN: ResourceChange(uris=frozenset([BRIEFING])),
    CRYSTAL: ResourceChange(resources=True, uris=frozenset([BRIEFING, CRYSTALS])),
    RETRACTED: ResourceChange(resources=True, uris=frozenset([BRIEFING, CRYSTALS])),
    PURGE: ResourceChange(prompts=True, resources=True, of_all=frozenset([BRIEFING, CRYSTALS, TRAILS])),
    **dict.fromkeys(_OF_TRAILS, ResourceChange(prompts=True, resources=True, of_all=frozenset([TRAILS]))),
}
CHANGING = tuple(_CHANGES)  # names of the events that change a resource


def change_of(event: Event) -> ResourceChange:
    """Return the changes that an event makes for MCP clients.

    Events that record a receipt or the use of a trail change nothing, because reading a resource causes such events.
    """
    change = _CHANGES.get(event.name, ResourceChange())
    removed: tuple[object, ...] = ()
    if event.name == CRYSTAL:
        removed = crystal_of(event).supersedes
    elif event.name == RETRACTED:
        removed = (event.data.get("mark"),)
    return change | ResourceChange(uris=frozenset(f"{CRYSTALS}/{each}" for each in removed))


# -- Texts ----------------------------------------------------------------------------------------------------


async def _crystallized(memory: Memory) -> list[Trail]:
    return sorted(
        (trail for trail in await memory.trails.list(limit=None) if trail.version and trail.suspended is None),
        key=lambda each: each.slug,
    )


async def _crystal_list(memory: Memory) -> str:
    lines = [
        f"- #{crystal.position} {crystal.level} {one_line(crystal.label or crystal.period, 80)} "
        f"({crystal.end_at:%Y-%m-%d}): {one_line(crystal.text, TEXT_CHARACTERS_MAX)}"
        for crystal in await memory.crystals.list(limit=LATEST)
    ]
    return fence(lines) if lines else "There are no crystals yet."


async def _crystal(memory: Memory, reference: str) -> str:
    crystal = await memory.crystals.get(_reference(reference))
    head = f"{crystal.level} {one_line(crystal.label or crystal.period, 200)}, #{crystal.position}"
    during = f"{crystal.start_at:%Y-%m-%d %H:%M} to {crystal.end_at:%Y-%m-%d %H:%M}"
    counts = f"{plural(crystal.marks, 'mark')}, {len(crystal.dropped)} of its sources not cited"
    [why] = await memory.why(crystal.id)
    return fence([f"{head}: {during}, {counts}, made by {crystal.method}", *_reason_lines(why)])


async def _receipt(memory: Memory, reference: str) -> str:
    [why] = await memory.why(_reference(reference))
    if why.name != BRIEF:
        raise InvalidEvent(f"event {why.id} is not a brief but a {why.name}")
    title = f"A brief about {one_line(why.text, 200)!r}" if why.text else "A brief"
    missing = [f"- missing: {name} ({reason})" for name, reason in sorted(why.missing.items())]
    return fence([f"{title}, {why.at:%Y-%m-%d %H:%M}", *_reason_lines(why), *missing])


def _reason_lines(why: Why) -> list[str]:
    return [
        f"- {one_line(line.text, TEXT_CHARACTERS_MAX)} ({' '.join(each.number for each in line.evidence)})"
        + "".join(
            f" {each.number} is retracted: {one_line(each.retracted, TEXT_CHARACTERS_MAX)}"
            for each in line.evidence
            if each.retracted is not None
        )
        for line in why.because
    ]


async def _trail_list(memory: Memory) -> str:
    lines = [
        f"- {trail.name} ({trail.state}, {plural(trail.runs, 'run')}"
        + (f", {trail.success:.0%} success" if trail.success is not None else "")
        + f"): {one_line(trail.description, DESCRIPTION_CHARACTERS_MAX)} [{', '.join(trail.paths)}]"
        for trail in await memory.trails.list()
    ]
    return fence(lines) if lines else "There are no trails yet; they are learned from the files that agents open."


async def _trail(memory: Memory, slug: str) -> str:
    root = await memory.events.directory()
    trail = await memory.trails.show(slug)
    if root is None:  # the files are on another machine: only their places are known
        await memory.trails.track(trail)
        return command_text(trail).partition("\n---\n\n")[2]
    loaded = await memory.trails.load(slug, root=root)
    return loaded.text or "None of its files exist any more."


def _reference(text: str) -> str:
    """Return the event reference in a URI as memory expects it: a number gets the # that a URI cannot contain."""
    return f"#{text}" if text.isdecimal() else text
