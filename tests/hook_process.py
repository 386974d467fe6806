"""`mica-hook` for tests that are not about its time limit: how soon it ends depends on what else the machine does."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from mica import hook

T = TypeVar("T")

PROGRAM = Path(hook.__file__)
PATIENT = (
    f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import hook; del sys.path[0]; "
    "hook.TIME_LIMIT_S = 300; hook.main()"
)
INSTALLED_HOOK = (sys.executable, "-I", "-S", str(PROGRAM))
PATIENT_HOOK = (sys.executable, "-I", "-S", "-c", PATIENT)  # the program itself, but for that limit


def in_time(ask: Callable[[], T], reasons: Callable[[], Sequence[str]]) -> T:
    """What is said by a hook that ends within its limit: it is asked again where the machine had no time for it."""

    def late() -> int:
        return sum("not finished within" in reason for reason in reasons())

    for _ in range(20):
        before, said = late(), ask()
        if late() == before:
            return said
    raise AssertionError(f"it never ended within its limit: {reasons()[-1]}")


def limit_cpu() -> None:
    """End a process that computes for longer than a hook may take at all, however long it waits for a processor."""
    limit_s = math.ceil(hook.TIME_LIMIT_S)
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
