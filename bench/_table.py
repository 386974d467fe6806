"""Shared parts of the benchmarks: options, cost of a call, tables, and the JSON line at the end."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Cost(NamedTuple):
    """The time of a call; its CPU time includes all threads of the process."""

    wall_s: float
    cpu_s: float


_uncounted = [0.0, 0.0]


def argument_parser(about: str | None, *, quick: str) -> argparse.ArgumentParser:
    """Make the parser of a script, with `--quick` for a run under 40 s; `quick` describes what that reduces."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def measure(call: Callable[[], T]) -> tuple[T, Cost]:
    """Run a call, and return its result and its cost, without the time spent in `uncounted` blocks."""
    _uncounted[:] = 0.0, 0.0
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, Cost(time.perf_counter() - wall - _uncounted[0], time.process_time() - cpu - _uncounted[1])


@contextmanager
def uncounted() -> Iterator[None]:
    """Exclude the time of the block from the running `measure`."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    _uncounted[0] += time.perf_counter() - wall
    _uncounted[1] += time.process_time() - cpu


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * share // 1) - 1))]


def spread(values: Sequence[float], *, digits: int = 2) -> str:
    """Format the minimum and the median, which are more robust on a busy machine than a mean."""
    return f"{min(values):,.{digits}f} – {median(values):,.{digits}f}"


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    widths = [max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]
    print(f"\n{title}")
    for row in (columns, ["-" * width for width in widths], *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  " + "  ".join(cells).rstrip())


def machine() -> str:
    """Describe the machine and the versions of a measurement on one line."""
    return f"mica {version('mica')}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def finish(numbers: Mapping[str, float | int]) -> None:
    """Print the figures as one JSON line, the last line of the output."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in numbers.items()}
    print()
    print(json.dumps(rounded))
    sys.stdout.flush()


def check(holds: bool, promise: str) -> None:  # noqa: FBT001  # reads like an assert, and `python -O` keeps it
    """Exit with an error if a promise does not hold: a fast result with lost events is worth nothing."""
    if not holds:
        raise SystemExit(f"broken promise: {promise}")
