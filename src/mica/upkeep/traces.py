"""Searches for purged text in segments, which are files of events that wait to be stored.

When this runs, the process has stored its own segments, so only damaged ones and those of other processes are left.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mica.events.leftovers import DAMAGED
from mica.events.segment import SUFFIX


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """The segments with purged text that were removed, and those that a person must check."""

    removed: tuple[str, ...] = ()  # damaged segments that held the texts
    unresolved: tuple[str, ...] = ()  # one sentence for each file that a person must check


def purge_traces(folder: Path | None, texts: Sequence[str]) -> Traces:
    """Search the segments in `folder` for the texts of a purged event, and remove damaged segments that contain them.

    A damaged segment can be removed because its readable events are in the store already. A segment of a running
    process is only reported. If `texts` is empty, every segment is reported and none is removed.
    """
    removed: list[str] = []
    unresolved: list[str] = []
    for path in sorted(folder.rglob(f"*{SUFFIX}*")) if folder is not None and folder.is_dir() else ():
        try:
            if texts and not _contains(path, texts):
                continue
            if not path.name.endswith(DAMAGED):
                unresolved.append(
                    f"{path} belongs to a running process, which removes its events there when it ends or emits again"
                )
            elif texts:
                path.unlink()
                removed.append(str(path))
            else:
                unresolved.append(f"{path} is damaged and may hold purged events; check it and remove it")
        except FileNotFoundError:
            continue  # folded meanwhile
        except OSError as error:
            unresolved.append(f"{path} cannot be searched: {error.strerror or error}; check it and remove it")
    return Traces(removed=tuple(removed), unresolved=tuple(unresolved))


def _contains(path: Path, texts: Sequence[str]) -> bool:
    """Return True if a file contains all of `texts`, each as it is or escaped as in JSON."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as area:
        return all(
            any(area.find(form) >= 0 for form in (text.encode("utf-8", "surrogatepass"), _as_json(text)))
            for text in texts
        )


def _as_json(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]
