"""A full disk is an error, not the end of the process: on real file systems in images, where they can be mounted.

Mounting needs root and the `mkfs` of each file system. Elsewhere these tests are reported as not run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mica.disk import has_reserved_space

IMAGES = {"ext4": "40M", "xfs": "300M", "btrfs": "120M"}  # the smallest that each of them allows, or little more

FILLED = """
import os, sys
from pathlib import Path
from mica.errors import StoreFull, StoreUnavailable
from tests.events.journals import drained, leftover_events, open_journal

disk = Path(sys.argv[1])
filler = disk / "filler"


def fill():
    with filler.open("ab", 0) as file:
        for piece in (2**20, 2**12, 1):
            try:
                while file.write(b"z" * piece):
                    pass
            except OSError:
                pass
        try:
            os.fsync(file.fileno())
        except OSError:
            pass


def emit(journal, numbers):
    taken, refused = [], 0
    for number in numbers:
        try:
            journal.emit("step", {"n": number, "text": "x" * 200})
            taken.append(number)
        except StoreFull as error:
            assert "free some space" in str(error)
            refused += 1
        if refused == 20:
            break
    return taken


folder = disk / "segments"
journal = open_journal(folder)
taken = emit(journal, range(1_000))
assert taken == list(range(1_000)), taken
journal.sync()
fill()
taken += emit(journal, range(1_000, 40_000))
try:
    journal.sync()
except StoreUnavailable:
    pass
batch = journal.batch(500)
journal.stored(batch)  # the count of stored events is in a page that was synced, too
journal.close()
fill()
events = leftover_events(folder)
numbers = {event.id: event.data["n"] for event in [*batch.events, *events]}  # some come twice
assert list(numbers.values()) == taken, (len(numbers), len(taken))
filler.unlink()
os.sync()

journal = open_journal(folder)
assert emit(journal, range(100)) == list(range(100))
journal.sync()
assert len(drained(journal)) == 100
journal.close()
print("all", len(taken) >= 1_000)
"""


@pytest.fixture(params=sorted(IMAGES))
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The mount point of an empty file system."""
    kind = str(request.param)
    mkfs = shutil.which(f"mkfs.{kind}", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if mkfs is None or os.geteuid():
        pytest.skip(f"not run: an image of {kind} needs root and mkfs.{kind}")
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        os.truncate(file.fileno(), int(IMAGES[kind][:-1]) * 2**20)
    subprocess.run([mkfs, "-q", image], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"not run: an image of {kind} cannot be mounted here ({mounted.stderr.strip()})")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_never_kills_the_process_and_loses_no_acknowledged_event(small_disk: Path) -> None:
    """keeps: K-41, U-04. On btrfs even a byte that is written again needs new space."""
    result = subprocess.run(
        [sys.executable, "-c", FILLED, small_disk],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.returncode, result.stdout) == (0, "all True\n"), result.stderr


def test_only_file_systems_that_write_in_place_are_written_through_a_mapping(small_disk: Path) -> None:
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    with (small_disk / "file").open("wb") as file:
        assert has_reserved_space(file.fileno()) == (kinds[str(small_disk)] != "btrfs")
