"""The SQLite implementation of `StoreFiles`: sizes, verification, rebuilding, and compression of old events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from operator import itemgetter

import apsw

from mica.model.event import Event, EventQuery, microseconds
from mica.store.checks import LineageCheck, missing_positions
from mica.store.codec import READ_ROWS
from mica.store.crystal_rows import REFERRING, DerivedCrystals, referenced_ids
from mica.store.protocol import Sizes, no_progress
from mica.store.sqlite import beliefs, crystals, replies, texts, trails
from mica.store.sqlite.blocks import STEP_EVENTS
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.damage import damaged_rows
from mica.store.sqlite.file import Key, translated
from mica.store.sqlite.log import query_events
from mica.store.sqlite.worker import SqliteRole, threaded
from mica.store.sqlite.write_ahead_log import describe_copies

VERIFY_PASSES = 2  # over the whole log
VACUUM_PAGES = 2_000  # free pages released after a step, in about 10 ms: more than it frees, so that a backlog shrinks

_ABOVE = itemgetter(0, 8, 9)


def _sizes(core: SqliteCore) -> Sizes:
    with core.reading():
        rows, marks, contexts, payloads = core.one(
            """SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM texts WHERE is_mark),
            (SELECT count(*) FROM contexts), (SELECT count(*) FROM payloads)"""
        )
        blocks, aged, inside = core.blocks.counts()
    files = [core.path, *(core.path.with_name(core.path.name + end) for end in ("-wal", "-shm"))]
    size = sum(file.stat().st_size for file in files if file.exists())
    return Sizes(
        events=rows + aged,
        marks=marks,
        contexts=contexts,
        payloads=payloads + inside,
        size_bytes=size,
        aged=aged,
        blocks=blocks,
    )


def _verify(core: SqliteCore, *, on_progress: Callable[[int], None] = no_progress) -> list[str]:
    read = 0

    def count(events: int) -> None:
        nonlocal read
        read += events
        on_progress(read // VERIFY_PASSES)

    with core.reading():
        return _problems(core, count)


def _problems(core: SqliteCore, count: Callable[[int], None]) -> list[str]:
    problems = describe_copies(core.path)
    problems += [f"SQLite: {row[0]}" for row in core.rows("PRAGMA integrity_check") if row[0] != "ok"]
    dangling = core.rows("PRAGMA foreign_key_check")
    problems += [f"SQLite: a row of {row[0]} refers to a missing row of {row[2]}" for row in dangling]
    if problems:
        return problems  # the rows of a damaged file cannot be checked
    problems += damaged_rows(core) + core.blocks.problems()
    if problems:
        return problems
    parents: set[Key] = set()
    missing = _missing(core, parents, count)
    lineage = LineageCheck({core.words.id(*parent) for parent in parents})
    expected = DerivedCrystals(referenced_ids(query_events(core, EventQuery(names=REFERRING, limit=None))))

    def read() -> Iterator[Event]:
        for event in core.whole_log(count):
            lineage.add([event])
            expected.add_stored([event])
            yield event

    stale = texts.stale(core.connection, read())
    return problems + lineage.broken() + missing + stale + crystals.broken(core.connection, expected)


def _missing(core: SqliteCore, parents: set[Key], count: Callable[[int], None]) -> list[str]:
    """Return one sentence for each gap in the log.

    Also add to `parents` the key of the parent of each event that has one.
    """
    gaps = []
    before = 0
    while rows := core.rows_after(before, limit=READ_ROWS):
        for position, writer, sequence in map(_ABOVE, rows):
            if writer is not None:
                parents.add((writer, sequence))
            if position != before + 1:
                gaps.append((before + 1, position - 1))
            before = position
        count(len(rows))
    if before < core.last_position():
        gaps.append((before + 1, core.last_position()))
    beyond = (
        [f"position {before} is after the last one, {core.last_position()}"] if before > core.last_position() else []
    )
    return missing_positions(gaps) + beyond


def _rebuild(core: SqliteCore, *, on_progress: Callable[[int], None] = no_progress) -> int:
    count = 0
    with core.writing():
        texts.clear(core.connection)
        crystals.clear(core.connection)
        trails.clear(core.connection)
        beliefs.clear(core.connection)
        replies.clear(core.connection)
        if core.blocks.is_used:
            core.blocks.remap()
        core.forget()
        last = 0
        while batch := core.read(last, limit=READ_ROWS):
            texts.index(core.connection, core.words, ((event.position or 0, event) for event in batch))
            crystals.index_stored(core.connection, core.get, ((event.position or 0, event) for event in batch))
            last = batch[-1].position or 0
            count += len(batch)
            on_progress(count)
    return count


def age(core: SqliteCore, before: datetime, *, limit: int = STEP_EVENTS, at_least: int = 1) -> int:
    with core.writing():
        moved = core.blocks.age(microseconds(before), limit=limit, at_least=at_least)
    if moved:
        with (
            translated(core.path),
            suppress(apsw.BusyError),
        ):  # free pages are reused or released later
            core.connection.pragma("incremental_vacuum", VACUUM_PAGES)
            core.connection.pragma("wal_checkpoint", "truncate")
    return moved


class SqliteFiles(SqliteRole):
    """Implements `StoreFiles` in a SQLite file."""

    sizes = threaded(_sizes)
    verify = threaded(_verify)
    rebuild = threaded(_rebuild)

    async def age(self, before: datetime, *, limit: int = STEP_EVENTS, at_least: int = 1) -> int:
        return await self._worker.run_in_background(lambda core: age(core, before, limit=limit, at_least=at_least))
