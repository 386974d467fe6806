"""`/metrics` in the text format of Prometheus.

The names of trail metrics, such as `crystal_usage_total`, are fixed by a specification; all others begin with `mica_`.
The Prometheus library is imported at the first request for metrics: that takes 30 ms of CPU, and most servers never get
such a request.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from mica.memory import Memory
from mica.model.event import EventId, EventQuery, utc_now
from mica.model.trail import USED, Trail
from mica.settings import TrailSettings
from mica.web.access import Access
from mica.web.memory_pool import memory_of, pool_of, requested_space
from mica.web.pages.counts import last_purge
from mica.web.tail import Tails
from mica.web.views.trails import warnings

if TYPE_CHECKING:
    from prometheus_client import Metric

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
NAMES_MAX = 1_000  # trails with a sample of their own; the others are counted together
OTHERS = "others"
READ_ON_MAX = 20_000  # new events; beyond this many, a query for uses is faster than reading the log


class LoadDurations:
    """A histogram of the durations of loading trails, for each trail. Beyond NAMES_MAX, all other trails share one.

    The library's own `Histogram` is not used, for two reasons. It adds `_created` series unless a switch of the whole
    process turns them off, and it may write trail names to files (PROMETHEUS_MULTIPROC_DIR), where no purge finds them.
    """

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._sums: dict[str, float] = defaultdict(float)
        self._purge: EventId | None = None

    async def forget_purged(self, memory: Memory) -> None:
        """Drop all counts if something was purged since the last call: a purged trail's name must not remain."""
        purge = await last_purge(memory)
        if purge != self._purge:
            self._counts.clear()
            self._sums.clear()
        self._purge = purge

    def observe(self, name: str, seconds: float) -> None:
        if name not in self._counts and len(self._counts) >= NAMES_MAX:
            name = OTHERS
        self._counts[name][bisect_left(BUCKETS_S, seconds)] += 1
        self._sums[name] += seconds

    def metric(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        limits = [*map(str, BUCKETS_S), "+Inf"]
        family = HistogramMetricFamily(
            "crystal_load_duration_seconds", "Time to load a trail.", labels=["crystal_name"]
        )
        for name, counts in sorted(self._counts.items()):
            family.add_metric([name], list(zip(limits, accumulate(counts), strict=True)), self._sums[name])
        return family


class Uses:
    """Counts the uses of each trail by each agent. Each count reads only the events since the previous count."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, EventId | None, Counter[tuple[str, str]]]] = {}

    async def of(self, memory: Memory) -> Counter[tuple[str, str]]:
        """Return how often each trail was used, by trail key and agent. After a purge, all uses are counted again."""
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


class _Snapshot:
    """An object from which the Prometheus library collects metrics that were computed earlier."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def metrics(request: Request) -> Response:
    """Answer with the metrics of one space and of this server, in the text format of Prometheus."""
    from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest

    memory = await memory_of(request)
    loads: LoadDurations = request.app.state.loads[memory.space]
    await loads.forget_purged(memory)
    computed = [
        *await _space_metrics(memory, requested_space(request)),
        *await _trail_metrics(memory, request.app.state.uses, pool_of(request).settings.trails),
        loads.metric(),
        *_server_metrics(request),
        *ProcessCollector(registry=None).collect(),
    ]
    text = await asyncio.to_thread(generate_latest, _Snapshot(computed))  # 100 ms for a thousand trails
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _server_metrics(request: Request) -> list[Metric]:
    access: Access = request.app.state.access
    tails: Tails = request.app.state.tails
    requests = [((method, str(status)), count) for (method, status), count in sorted(access.response_counts.items())]
    return [
        _counter("mica_requests_total", "Answered requests.", ["method", "status"], requests),
        _gauge("mica_listeners", "Clients that follow events now.", [], [((), tails.listeners)]),
        _gauge("mica_spaces_open", "Spaces that this server has open.", [], [((), len(pool_of(request).opened))]),
    ]


async def _space_metrics(memory: Memory, space: str) -> list[Metric]:
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
    return [_gauge(name, text, ["space"], [((space,), value)]) for name, text, value in gauges]


async def _trail_metrics(memory: Memory, uses: Uses, gates: TrailSettings) -> list[Metric]:
    trails = await memory.trails.list(with_archived=True, limit=NAMES_MAX)
    names = {trail.key: trail.name for trail in trails}
    used: Counter[tuple[str, str]] = Counter()
    for (key, agent), count in (await uses.of(memory)).items():
        used[names.get(key, OTHERS), agent] += count
    return [
        _counter(
            "crystal_usage_total",
            "Times a trail was loaded or followed.",
            ["crystal_name", "agent_id"],
            sorted(used.items()),
        ),
        _gauge(
            "token_savings_total",
            "Measured tokens that a trail saved; negative if it wasted some.",
            ["crystal_name"],
            [((trail.name,), trail.measured.saving) for trail in trails if trail.measured is not None],
        ),
        _gauge(
            "pattern_success_rate",
            "The share of known outcomes of a trail that were successes.",
            ["pattern_hash"],
            [((trail.key,), trail.success) for trail in trails if trail.success is not None],
        ),
        _alerts(trails, gates),
    ]


def _alerts(trails: Sequence[Trail], gates: TrailSettings) -> Metric:
    alerts = warnings(trails, now=utc_now(), gates=gates)
    return _gauge(
        "mica_alert",
        "Warnings about trails; 1 while a warning applies.",
        ["alert", "crystal_name"],
        [((each.kind, each.trail), 1) for each in alerts],
    )


def _gauge(name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
