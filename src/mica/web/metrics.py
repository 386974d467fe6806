"""`/metrics` in the text format of Prometheus. Metrics of trails have the names of A-35, our own begin with `mica_`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from mica.memory import Memory
from mica.model.event import EventId, EventQuery, utc_now
from mica.model.trail import USED, Trail
from mica.settings import TrailSettings
from mica.web.access import Access
from mica.web.memory_pool import memory_of, pool_of, requested_space
from mica.web.tail import Tails
from mica.web.views.cache import last_purge
from mica.web.views.trails import warnings

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
NAMES_MAX = 1_000  # trails with a sample of their own; the others are counted together
OTHERS = "others"
READ_ON_MAX = 20_000  # new events; beyond this many, a query for uses is faster than reading the log

Labels = Mapping[str, str]


class Durations:
    """Histograms of durations, one for each name."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._sums: dict[str, float] = defaultdict(float)

    def observe(self, name: str, seconds: float) -> None:
        if name not in self._counts and len(self._counts) >= NAMES_MAX:
            name = OTHERS
        bucket = next((place for place, limit in enumerate(BUCKETS_S) if seconds <= limit), len(BUCKETS_S))
        self._counts[name][bucket] += 1
        self._sums[name] += seconds

    def lines(self, metric: str, label: str) -> list[str]:
        lines = []
        for name, counts in sorted(self._counts.items()):
            total = 0
            for limit, count in zip([*map(str, BUCKETS_S), "+Inf"], counts, strict=True):
                total += count
                lines.append(sample(f"{metric}_bucket", total, {label: name, "le": limit}))
            lines.append(sample(f"{metric}_sum", self._sums[name], {label: name}))
            lines.append(sample(f"{metric}_count", total, {label: name}))
        return lines


class Uses:
    """The number of uses of each trail by each agent. A count continues where the last one ended."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, EventId | None, Counter[tuple[str, str]]]] = {}

    async def of(self, memory: Memory) -> Counter[tuple[str, str]]:
        """The uses of all trails of a space, by key and agent. After a purge they are counted from the beginning."""
        last, purge = await memory.events.position(), await last_purge(memory)
        after, purge_before, counted = self._counted.get(memory.space, (0, purge, Counter()))
        query = EventQuery(names=(USED,), limit=None)
        if purge == purge_before and last - after < READ_ON_MAX:
            uses = [event async for event in memory.events.log(query, after=after)]
        else:
            counted, uses = Counter(), list(await memory.events.query(query))
        uses = [event for event in uses if (event.position or 0) <= last]  # later ones belong to the next count
        counted = counted + Counter((str(event.data.get("key")), event.context.agent or "") for event in uses)
        self._counted[memory.space] = (last, purge, counted)
        return counted


async def metrics(request: Request) -> Response:
    """The metrics of one space and of this server, in the text format of Prometheus."""
    memory = await memory_of(request)
    space = requested_space(request)
    access: Access = request.app.state.access
    tails: Tails = request.app.state.tails
    loads: Durations = request.app.state.loads[memory.space]
    lines = [
        *await _space(memory, {"space": space}),
        *await _trails(memory, request.app.state.uses, pool_of(request).settings.trails),
        *_family("crystal_load_duration_seconds", "histogram", "Time to load a trail.", ()),
        *loads.lines("crystal_load_duration_seconds", "crystal_name"),
        *_family(
            "mica_requests_total",
            "counter",
            "Answered requests.",
            [
                sample("mica_requests_total", count, {"method": method, "status": str(status)})
                for (method, status), count in sorted(access.response_counts.items())
            ],
        ),
        *_family(
            "mica_listeners",
            "gauge",
            "Clients that follow events now.",
            [sample("mica_listeners", tails.listeners)],
        ),
        *_family(
            "mica_spaces_open",
            "gauge",
            "Spaces that this server has open.",
            [sample("mica_spaces_open", len(pool_of(request).opened))],
        ),
        *_family(
            "process_resident_memory_bytes",
            "gauge",
            "Memory of this server.",
            [sample("process_resident_memory_bytes", _resident_bytes())],
        ),
    ]
    return Response("\n".join(lines) + "\n", media_type=MEDIA_TYPE)


async def _space(memory: Memory, labels: Labels) -> list[str]:
    sizes = await memory.upkeep.sizes()
    events, size_bytes = await memory.upkeep.backlog()
    gauges = [
        ("mica_events", "Events of the log.", sizes.events),
        ("mica_marks", "Marks in the search index.", sizes.marks),
        ("mica_contexts", "Contexts, each stored once.", sizes.contexts),
        ("mica_aged_events", "Events stored in compressed blocks.", sizes.aged),
        ("mica_store_bytes", "Size of the store's files.", sizes.size_bytes),
        ("mica_backlog_events", "Events on disk that are not in the store yet.", events),
        ("mica_backlog_bytes", "Size of the events that are not in the store yet.", size_bytes),
    ]
    return [
        line for name, text, value in gauges for line in _family(name, "gauge", text, [sample(name, value, labels)])
    ]


async def _trails(memory: Memory, uses: Uses, gates: TrailSettings) -> list[str]:
    trails = await memory.trails.list(with_archived=True, limit=NAMES_MAX)
    names = {trail.key: trail.name for trail in trails}
    used: Counter[tuple[str, str]] = Counter()
    for (key, agent), count in (await uses.of(memory)).items():
        used[names.get(key, OTHERS), agent] += count
    return [
        *_family(
            "crystal_usage_total",
            "counter",
            "Times a trail was loaded or followed.",
            [
                sample("crystal_usage_total", count, {"crystal_name": name, "agent_id": agent})
                for (name, agent), count in sorted(used.items())
            ],
        ),
        *_family(
            "token_savings_total",
            "gauge",
            "Measured tokens that a trail saved; negative if it wasted some.",
            [
                sample("token_savings_total", trail.measured.saving, {"crystal_name": trail.name})
                for trail in trails
                if trail.measured is not None
            ],
        ),
        *_family(
            "pattern_success_rate",
            "gauge",
            "The share of known outcomes of a trail that were successes.",
            [
                sample("pattern_success_rate", trail.success, {"pattern_hash": trail.key})
                for trail in trails
                if trail.success is not None
            ],
        ),
        *_alerts(trails, gates),
    ]


def _alerts(trails: Sequence[Trail], gates: TrailSettings) -> list[str]:
    alerts = warnings(trails, now=utc_now(), gates=gates)
    return _family(
        "mica_alert",
        "gauge",
        "Warnings about trails; 1 while a warning applies.",
        [sample("mica_alert", 1, {"alert": each.kind, "crystal_name": each.trail}) for each in alerts],
    )


def _family(name: str, kind: str, text: str, samples: Iterable[str]) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]


def sample(name: str, value: float, labels: Labels | None = None) -> str:
    """One sample as a line."""
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in (labels or {}).items())
    return f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _resident_bytes() -> int:
    """The resident memory of this process; 0 where /proc does not exist."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * 4_096
