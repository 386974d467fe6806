"""`mica-hook` for tests that are not about its time limit, so that they pass on a busy machine."""

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
    """The answer of a hook that ends within its limit. It is run again if the machine was too busy."""

    def late() -> int:
        return sum("not finished within" in reason for reason in reasons())

    for _ in range(20):
        before, answer = late(), ask()
        if late() == before:
            return answer
    raise AssertionError(f"it never ended within its limit: {reasons()[-1]}")


def limit_cpu() -> None:
    """End a process that uses more CPU time than a hook may take. Time spent waiting does not count."""
    limit_s = math.ceil(hook.TIME_LIMIT_S)
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
