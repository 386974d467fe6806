"""The rivals of `emit`: each records the same stream in its own way and returns the cost."""

from __future__ import annotations

import importlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from _events import SCOPE_EVENTS, Embedded, Scope, embedded, record
from _table import Cost, check, measure


class Rival(NamedTuple):
    """A way to record a stream; it returns the cost and the number of bytes written, if any."""

    name: str
    run: Callable[[Sequence[Scope], Path], tuple[Cost, int]]
    needs: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        return all(find_spec(module.partition(".")[0]) and find_spec(module) for module in self.needs)


def count_of(stretch: Sequence[Scope]) -> int:
    return len(stretch) * SCOPE_EVENTS


def contexts_of(stretch: Iterable[Scope]) -> Iterator[tuple[Scope, int, Embedded]]:
    """Yield each event's scope, its number in it, and the complete context that a naive log embeds."""
    last: dict[int, Embedded] = {}
    for scope in stretch:
        above = last.get(scope.chain)
        context: Embedded = {}
        for number in range(SCOPE_EVENTS):
            context = embedded(scope, above)
            yield scope, number, context
        last[scope.chain] = context


def run_nothing(stretch: Sequence[Scope], _path: Path) -> tuple[Cost, int]:
    def nothing(name: str, data: object, *, parent: object, context: object) -> None:
        pass

    def run() -> None:
        for scope in stretch:
            for name, data in scope.steps:
                nothing(name, data, parent=None, context=scope)

    return measure(run)[1], 0


def run_jsonl(stretch: Sequence[Scope], path: Path, *, encode: Callable[[Embedded], bytes]) -> tuple[Cost, int]:
    with path.open("wb") as file:

        def run() -> None:
            for scope, number, context in contexts_of(stretch):
                file.write(encode(record(scope.steps[number], context)) + b"\n")
                file.flush()

        _, cost = measure(run)
    return cost, lines_bytes(path, count_of(stretch))


def by_json(event: Embedded) -> bytes:
    return json.dumps(event).encode()


def run_orjson(stretch: Sequence[Scope], path: Path) -> tuple[Cost, int]:
    return run_jsonl(stretch, path, encode=importlib.import_module("orjson").dumps)


def run_structlog(stretch: Sequence[Scope], path: Path) -> tuple[Cost, int]:
    structlog, orjson = importlib.import_module("structlog"), importlib.import_module("orjson")
    variables = structlog.contextvars
    with path.open("wb") as file:
        log = structlog.wrap_logger(
            structlog.BytesLogger(file),
            processors=[
                variables.merge_contextvars,
                structlog.processors.TimeStamper(fmt="iso"),
                structlog.processors.JSONRenderer(serializer=orjson.dumps),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            cache_logger_on_first_use=True,
        )

        def run() -> None:
            bound: Scope | None = None
            for scope, number, context in contexts_of(stretch):
                if scope is not bound:  # the context, once for eight events
                    bound = scope
                    variables.clear_contextvars()
                    variables.bind_contextvars(
                        session=scope.session,
                        agent=scope.agent,
                        user=scope.user,
                        correlation=scope.correlation,
                        client=scope.client,
                        orchestration=scope.orchestration,
                        environment="production",
                    )
                name, data = scope.steps[number]
                log.info(
                    name,
                    data=data,
                    id=context["_event_id"],
                    parent=context["_parent_event_id"],
                    root=context["_root_event_id"],
                    depth=context["_event_depth"],
                )

        _, cost = measure(run)
        variables.clear_contextvars()
    return cost, lines_bytes(path, count_of(stretch))


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = record.__dict__
        return json.dumps(
            {"event": record.msg, "timestamp": record.created, "data": fields["data"], "context": fields["context"]}
        )


def run_logging(stretch: Sequence[Scope], path: Path) -> tuple[Cost, int]:
    logger = logging.getLogger(str(path))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.FileHandler(path)
    handler.setFormatter(_AsJson())
    logger.addHandler(handler)

    def run() -> None:
        for scope, number, context in contexts_of(stretch):
            name, data = scope.steps[number]
            logger.info(name, extra={"data": data, "context": context})

    _, cost = measure(run)
    logger.removeHandler(handler)
    handler.close()
    return cost, lines_bytes(path, count_of(stretch))


def run_spans(stretch: Sequence[Scope], _path: Path) -> tuple[Cost, int]:
    api, sdk = importlib.import_module("opentelemetry.trace"), importlib.import_module("opentelemetry.sdk.trace")
    export = importlib.import_module("opentelemetry.sdk.trace.export")
    in_memory = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = in_memory.InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    # A queue that holds everything: the default drops spans when they come quickly.
    provider.add_span_processor(export.BatchSpanProcessor(exporter, max_queue_size=count_of(stretch) + 1_000))
    tracer = provider.get_tracer("bench")

    def run() -> None:
        last: dict[int, Any] = {}
        for scope in stretch:
            above = last.get(scope.chain)
            who = {
                "session": scope.session,
                "agent": scope.agent,
                "user": scope.user,
                "correlation": scope.correlation,
                "client": scope.client,
                "orchestration": scope.orchestration,
                "environment": "production",
            }
            span = None
            for name, data in scope.steps:
                flat = data if "state" not in data else data | {"state": str(data["state"])}  # spans hold plain values
                span = tracer.start_span(name, context=above, attributes=flat | who)
                span.end()
            last[scope.chain] = api.set_span_in_context(span)
        provider.force_flush()

    _, cost = measure(run)
    found = len(exporter.get_finished_spans())
    provider.shutdown()
    check(found == count_of(stretch), f"{count_of(stretch)} spans are exported, {found} were")
    return cost, 0


ROWS = """
PRAGMA journal_mode = wal;
PRAGMA synchronous = normal;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, name TEXT, at REAL, session TEXT, agent TEXT, user TEXT, correlation TEXT, client TEXT,
    orchestration TEXT, parent INTEGER, depth INTEGER, data TEXT
);
CREATE INDEX events_by_session ON events (session, at);
CREATE INDEX events_by_correlation ON events (correlation);
CREATE INDEX events_by_time ON events (at);
"""


def run_rows(stretch: Sequence[Scope], path: Path) -> tuple[Cost, int]:
    connection = sqlite3.connect(path)
    connection.executescript(ROWS)

    def run() -> None:
        last: dict[int, tuple[int, int]] = {}
        rows: list[tuple[object, ...]] = []
        identifier = 0
        for scope in stretch:
            parent, depth = last.get(scope.chain, (None, -1))
            for name, data in scope.steps:
                identifier += 1
                rows.append((
                    identifier, name, time.time(), scope.session, scope.agent, scope.user, scope.correlation,
                    scope.client, scope.orchestration, parent, depth + 1, json.dumps(data),
                ))  # fmt: skip
            last[scope.chain] = identifier, depth + 1
            if len(rows) >= 1_000:
                store(rows)
                rows = []
        store(rows)

    def store(rows: list[tuple[object, ...]]) -> None:
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.commit()

    _, cost = measure(run)
    found = connection.execute("SELECT count(*) FROM events").fetchone()[0]
    connection.close()
    check(found == count_of(stretch), f"{count_of(stretch)} rows are stored, {found} were")
    return cost, path.stat().st_size


def lines_bytes(path: Path, events: int) -> int:
    with path.open("rb") as file:
        found = sum(1 for _ in file)
    check(found == events, f"{events} lines are written, {found} were")
    return path.stat().st_size


NAIVE = "naive JSONL: json.dumps, flush"
RIVALS = (
    Rival("no-op call (control)", run_nothing),
    Rival(NAIVE, partial(run_jsonl, encode=by_json)),
    Rival("JSONL by orjson, flush", run_orjson, ("orjson",)),
    Rival("structlog, orjson, contextvars", run_structlog, ("structlog", "orjson")),
    Rival("logging, a JSON formatter", run_logging),
    Rival("OpenTelemetry SDK spans, batch", run_spans, ("opentelemetry.sdk",)),
    Rival("SQLite rows, 1,000 a commit", run_rows),
)
