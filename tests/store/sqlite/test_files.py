"""Verify, rebuild and sizes of an SQLite file."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.store.sqlite.direct_store import DirectStore

from mica.format.documents import event_document
from mica.model.event import Context, Event
from mica.store import codec as encoding
from mica.store.protocol import no_progress
from mica.store.sqlite.file import Row
from mica.testing import build


@pytest.mark.parametrize(
    ("removed", "message"), [(2, "positions 2 to 2"), (3, "positions 3 to 3"), (1, "positions 1 to 1")]
)
def test_verify_finds_events_removed_by_force(tmp_path: Path, removed: int, message: str) -> None:
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1), build(2), build(3)])
    core.connection.execute("DROP TRIGGER events_are_kept")
    core.connection.execute("DELETE FROM events WHERE position = ?", (removed,))
    assert [problem for problem in core.files.verify() if message in problem]
    core.close()


def test_verify_sees_one_moment_while_others_write(tmp_path: Path) -> None:
    """A store that grows during the check is not reported as broken."""
    path = tmp_path / "space.db"
    reader, writer = DirectStore(path), DirectStore(path)
    writer.log.append([build(n, "mark", {"text": f"mark {n}"}) for n in range(50)])
    whole_log = reader.core.whole_log

    def grown(count: Callable[[int], None] = no_progress) -> Iterator[Event]:
        yield from whole_log(count)
        start = writer.files.sizes().events
        writer.log.append([build(start + n, "mark", {"text": "more"}) for n in range(20)])

    reader.core.whole_log = grown  # type: ignore[method-assign]  # as if another process wrote now
    assert reader.files.verify() == []
    reader.close()
    writer.close()


def test_verify_and_rebuild_report_progress(tmp_path: Path) -> None:
    """A long log reports progress several times, and the full count at the end."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(n, "mark", {"text": f"mark {n}"}) for n in range(2 * encoding.READ_ROWS + 1)])
    rebuilt: list[int] = []
    verified: list[int] = []
    assert core.files.rebuild(on_progress=rebuilt.append) == 2 * encoding.READ_ROWS + 1
    assert rebuilt == [encoding.READ_ROWS, 2 * encoding.READ_ROWS, 2 * encoding.READ_ROWS + 1]
    assert core.files.verify(on_progress=verified.append) == []
    assert verified == sorted(verified)
    assert (len(verified) > len(rebuilt), verified[-1]) == (True, 2 * encoding.READ_ROWS + 1)
    core.close()


def test_all_files_together_are_smaller_than_events_with_embedded_contexts(tmp_path: Path) -> None:
    """keeps: TE-06, E-02, E-10. Counted over every file, indexes included, against one JSON line for each event."""
    core = DirectStore(tmp_path / "space.db")
    contexts = [
        Context(session=f"session-{n}", agent=f"agent-{n % 5}", user="ann", task="find out why the login loses it")
        for n in range(100)
    ]
    events = [
        build(n, "tool.ran", {"tool": "search", "query": f"what is {n}", "ok": True}, context=contexts[n // 50])
        for n in range(5_000)
    ]
    core.log.append(events)
    sizes = core.files.sizes()
    core.close()
    embedded = sum(len(msgspec.json.encode(event_document(event))) + 1 for event in events)

    on_disk = sum(file.stat().st_size for file in tmp_path.iterdir())

    assert sizes.contexts == 100
    assert on_disk < embedded


def test_verify_reports_stale_indexes_and_rebuild_repairs_them(tmp_path: Path) -> None:
    """keeps: U-07, TE-14. Every row of the index matches its event."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1, "mark", {"text": "one two"})])
    core.connection.execute("UPDATE texts SET length = 9")
    assert core.files.verify() == [
        f"event {build(1).id} is not indexed as it is stored; `mica upkeep rebuild` repairs it"
    ]
    core.files.rebuild()
    assert core.files.verify() == []
    core.close()


def test_verify_compares_every_posting_with_the_log(tmp_path: Path) -> None:
    """keeps: TE-14"""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1, "mark", {"text": "one two two"}), build(2, "mark", {"text": "three"})])
    for damage in ("DELETE FROM unfiled WHERE position = 1", "UPDATE unfiled SET terms = '[77]' WHERE position = 2"):
        core.connection.execute(damage)
        assert len(core.files.verify()) == 1
        core.files.rebuild()
        assert core.files.verify() == []
    core.connection.execute("INSERT INTO unfiled (position, terms) SELECT 77, json_array(id) FROM terms LIMIT 1")
    assert "position 77" in core.files.verify()[0]
    core.close()


def test_verify_reports_index_rows_without_an_event(tmp_path: Path) -> None:
    """keeps: TE-14"""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1, "mark", {"text": "one two"})])
    core.connection.pragma("foreign_keys", "off")
    core.connection.execute("INSERT INTO texts (position, at, length, is_mark) VALUES (99, 0, 2, 1)")

    assert core.files.verify() != []

    core.files.rebuild()
    assert core.files.verify() == []
    core.close()


def test_verify_reports_a_context_whose_content_changed(tmp_path: Path) -> None:
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1, context=Context(agent="a"))])
    core.connection.execute("UPDATE contexts SET agent = 'b'")
    assert core.files.verify() == ["context 1 does not match its digest"]
    core.close()


REBUILDING = """
import sys
from pathlib import Path
from tests.store.sqlite.direct_store import DirectStore
DirectStore(Path(sys.argv[1])).files.rebuild(on_progress=lambda count: (print(count, flush=True), sys.stdin.readline()))
"""


def test_a_killed_rebuild_changes_nothing(tmp_path: Path) -> None:
    """keeps: TE-07. All events are found as before, and the next rebuild starts from the beginning."""
    path = tmp_path / "space.db"
    core = DirectStore(path)
    events = [build(number, "mark", {"text": f"cookie {number}"}) for number in range(2 * encoding.READ_ROWS)]
    core.log.append(events)
    process = subprocess.Popen(
        [sys.executable, "-c", REBUILDING, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert int(process.stdout.readline()) == encoding.READ_ROWS  # it is running, and waits to continue

    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()

    assert core.files.verify() == []
    assert core.texts.postings(["cooki"], limit=1).marks == len(events)
    assert core.files.rebuild() == len(events)
    assert core.files.verify() == []
    core.close()


def test_verifying_reads_the_log_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the parents, once for everything else, because `mica doctor` waits for it."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(n, "mark", {"text": f"word{n}"}) for n in range(1, 30)])
    read: list[int] = []
    rows_after = core.core.rows_after

    def counted(after: int, *, limit: int) -> list[Row]:
        rows = rows_after(after, limit=limit)
        read.extend(row[0] for row in rows)
        return rows

    monkeypatch.setattr(core.core, "rows_after", counted)

    assert core.files.verify() == []
    assert sorted(read) == sorted([*range(1, 30)] * 2)
    core.close()
