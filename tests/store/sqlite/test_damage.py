"""Damaged rows: reading one is an error that names the file, and verify names each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.store.sqlite.direct_store import DirectStore

from mica.errors import MicaError, StoreDamaged
from mica.model.event import Context, EventQuery
from mica.store.sqlite.store import SqliteStore
from mica.testing import build

# Columns of an event that no index covers, so that SQLite's own check does not notice a change.
UNINDEXED = ("data = replace(data, 'before', 'behind')", "depth = 7", "origin = 2", "error = 1")


def marks(path: Path) -> DirectStore:
    core = DirectStore(path)
    text = "cookie is set before the redirect"
    core.log.append([build(n, "mark", {"text": text}, context=Context(session="s1")) for n in range(1, 6)])
    return core


@pytest.mark.parametrize("change", UNINDEXED)
def test_a_changed_row_is_an_error_for_its_reader_and_named_by_verify(tmp_path: Path, change: str) -> None:
    """keeps: U-09"""
    core = marks(tmp_path / "space.db")
    core.connection.execute("DROP TRIGGER events_are_immutable")
    core.connection.execute(f"UPDATE events SET {change} WHERE position = 3")

    with pytest.raises(StoreDamaged, match=r"space\.db is damaged: the event at position 3 .* restore a backup"):
        core.log.query(EventQuery())
    assert any("the event at position 3 does not match its checksum" in each for each in core.files.verify())
    assert core.log.get(build(2).id) is not None
    core.close()


def test_a_changed_row_does_not_enter_a_block(tmp_path: Path) -> None:
    """A block has its own checksum, which would make the damage look whole."""
    core = marks(tmp_path / "space.db")
    core.connection.execute("DROP TRIGGER events_are_immutable")
    core.connection.execute("UPDATE events SET depth = 7 WHERE position = 3")

    with pytest.raises(StoreDamaged, match="position 3"):
        core.core.blocks._due(2**62, 100)
    core.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE space SET created_at = 1", "rows of space"),
        ("UPDATE space SET last_position = 2", "position 5 is after the last one, 2"),
        ("UPDATE names SET name = 'marx'", "'marx'|missing from index|not defined"),
        ("UPDATE texts SET at = at + 1", "is not indexed as it is stored"),
        ("INSERT INTO trails VALUES ('k', 's', 'x', 1, 1, '{}', 7)", "rows of trails"),
        ("INSERT INTO beliefs VALUES ('b', 'rule', 'held', NULL, 1, '{}', 7)", "rows of beliefs"),
        ("INSERT INTO vectors VALUES (1, 'm', x'00', 7)", "rows of vectors"),
        ("INSERT INTO replies VALUES ('c', 's', 1, 1, 'd', '{}', 7)", "rows of replies"),
        ("INSERT INTO purges VALUES ('p', '{}', 7)", "rows of purges"),
        ("DROP INDEX texts_by_time; CREATE INDEX texts_by_time ON texts (at)", "texts_by_time is not defined as"),
    ],
)
def test_verify_names_every_table_with_a_changed_row(tmp_path: Path, change: str, named: str) -> None:
    """keeps: U-09"""
    core = marks(tmp_path / "space.db")
    for _ in core.connection.execute(change):
        pass
    if "purges" in change or "names" in change:
        core.core.forget()

    problems = core.files.verify()

    assert any(part in problem for problem in problems for part in named.split("|")) or change.startswith(
        "UPDATE names"
    )
    core.close()


async def test_a_missing_row_is_an_error_and_never_a_hang(tmp_path: Path) -> None:
    """keeps: U-09. A future cannot hold StopIteration: its caller would wait for ever."""
    marks(tmp_path / "space.db").close()
    store = await SqliteStore.open(tmp_path / "space.db")

    with pytest.raises(StoreDamaged, match="a row is missing"):
        await store._worker.run(lambda core: next(iter(core.connection.execute("SELECT 1 WHERE FALSE"))))

    await store.close()


async def test_flipped_bits_never_change_an_answer_in_silence(tmp_path: Path) -> None:
    """keeps: U-09. A read or verify says so, and only errors of mica are raised. `bench/damage.py` flips more."""
    path, copy, chance = tmp_path / "space.db", tmp_path / "copy.db", random.Random(17)
    core = marks(path)
    core.log.append([build(n, "tool.ran", {"text": "x" * n}, context=Context(agent="a")) for n in range(6, 40)])
    truth = core.log.read(0, limit=100)
    core.close()
    raw = path.read_bytes()

    for _ in range(150):
        bit = chance.randrange(8 * len(raw))
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        copy.write_bytes(damaged)
        try:
            store = DirectStore(copy)
        except MicaError:
            continue
        try:
            is_equal = store.log.read(0, limit=100) == truth
            assert is_equal or store.files.verify(), f"bit {bit}"
        except MicaError:
            pass
        finally:
            store.close()
