"""A damaged write-ahead log is noticed: SQLite itself would drop its transactions without a message."""

from __future__ import annotations

import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.sqlite.direct_store import DirectStore

from mica.errors import StoreDamaged
from mica.store.sqlite.write_ahead_log import FRAME_HEADER_BYTES, HEADER_BYTES

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.store.sqlite.direct_store import DirectStore
from mica.testing import build
core = DirectStore(Path(sys.argv[1]))
for number in range(1, 6):
    core.log.append([build(number, "mark", {"text": f"mark {number}"})])
os.kill(os.getpid(), signal.SIGKILL)
"""
FRAME = FRAME_HEADER_BYTES + 4_096


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The write-ahead log of a killed process, with six transactions: the schema and five events."""
    path = tmp_path / "space.db"
    result = subprocess.run([sys.executable, "-c", KILLED, path], capture_output=True, text=True, check=False)
    assert result.returncode == -signal.SIGKILL, result.stderr
    return path.with_name("space.db-wal")


def ends(log: Path) -> list[int]:
    """The offsets of the frames that end a transaction."""
    raw = log.read_bytes()
    starts = range(HEADER_BYTES, len(raw), FRAME)
    return [start for start in starts if struct.unpack_from(">2I", raw, start)[1]]


def flip(file: Path, offset: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[offset] ^= 1
    file.write_bytes(raw)


def opened(log: Path) -> DirectStore:
    return DirectStore(log.with_name("space.db"))


def test_an_undamaged_log_is_taken_over(log: Path) -> None:
    core = opened(log)
    assert core.log.last_position() == 5
    assert core.files.verify() == []
    core.close()


@pytest.mark.parametrize("place", [100, 8, 20])  # in the page, and in the salt and the checksum of its header
def test_a_flipped_bit_in_an_earlier_transaction_is_an_error_that_changes_nothing(log: Path, place: int) -> None:
    """keeps: U-09. No power loss damages a transaction before the last."""
    flip(log, ends(log)[2] + place)
    before = log.read_bytes(), log.with_name("space.db").read_bytes()

    with pytest.raises(StoreDamaged, match=r"space\.db-wal is damaged: 4 transactions .* restore a backup"):
        opened(log)

    assert (log.read_bytes(), log.with_name("space.db").read_bytes()) == before


@pytest.mark.parametrize("offset", [0, 17])
def test_a_flipped_bit_in_the_header_is_an_error(log: Path, offset: int) -> None:
    """keeps: U-09"""
    flip(log, offset)

    with pytest.raises(StoreDamaged, match="transactions that were written"):
        opened(log)


@pytest.mark.parametrize("place", [100, 8, 12, 20])
def test_a_damaged_last_transaction_is_copied_aside_and_named(log: Path, place: int) -> None:
    """keeps: U-09, TE-07. A power loss may tear it, so the store opens without it."""
    flip(log, ends(log)[-1] + place)
    before = log.read_bytes()

    core = opened(log)
    again = opened(log)

    assert core.log.last_position() == 4
    [problem] = core.files.verify()
    copy = log.with_name("space.db-wal-damaged-1")
    assert str(copy) in problem
    assert copy.read_bytes() == before
    assert not log.with_name("space.db-wal-damaged-2").exists()
    again.close()
    core.close()


def test_a_transaction_that_was_cut_by_a_kill_is_no_damage(log: Path) -> None:
    """Its last frame, which ends it, was not written."""
    raw = log.read_bytes()
    log.write_bytes(raw[: ends(log)[-1] + 1_000])

    core = opened(log)

    assert core.log.last_position() == 4
    assert core.files.verify() == []
    core.close()


def test_frames_of_an_earlier_log_are_no_damage(log: Path, tmp_path: Path) -> None:
    """SQLite starts again at the beginning of the file, and leaves the later frames."""
    core = opened(log)
    core.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    core.work.all()
    core.connection.execute("UPDATE space SET generation = generation")
    shutil.copy(log, tmp_path / "copy.db-wal")
    shutil.copy(log.with_name("space.db"), tmp_path / "copy.db")
    core.close()

    copied = DirectStore(tmp_path / "copy.db")

    assert copied.log.last_position() == 5
    assert copied.files.verify() == []
    copied.close()
