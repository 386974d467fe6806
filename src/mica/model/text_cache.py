"""Cache the results of pure functions of texts, and empty all of these caches at once.

A purge must leave no copy of a text in the process, so every cache that is keyed by texts is registered here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

from mica.redact import forget_keys
from mica.words import forget_terms

P = ParamSpec("P")
R = TypeVar("R")

_clear: list[Callable[[], None]] = [forget_terms, forget_keys, re.purge]  # `re` caches patterns built from texts


def remember_texts(size_max: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that caches at most `size_max` results of a pure function until `forget_texts` is called."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = lru_cache(maxsize=size_max)(function)
        _clear.append(cached.cache_clear)
        return cast(Callable[P, R], cached)

    return decorate


def clear_on_forget(clear: Callable[[], None]) -> None:
    """Register a function that empties a cache, so that `forget_texts` calls it.

    Caches made by `remember_texts` are registered already.
    """
    _clear.append(clear)


def forget_texts() -> None:
    """Empty every cache of this process whose keys may contain texts."""
    for clear in _clear:
        clear()
