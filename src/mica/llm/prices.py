"""What tokens cost, by a dated table. A model that is not in it is unpriced, never guessed (K-04)."""

from __future__ import annotations

import math
import re
from functools import cache
from importlib.resources import files

import msgspec

MILLION = 1_000_000

_SNAPSHOT = re.compile(r"-20\d{2}-?\d{2}-?\d{2}$")  # a dated snapshot costs what its model costs


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens.

    What is dearer above some length counts at its lower price; a cache that is free to fill costs what reading does.
    """

    read: float
    written: float
    cache_read: float
    cache_write: float

    def of_kept(self, tokens: int, *, requests: int) -> float:
        """Dollars for tokens that enter the window once and are read again by each of the later requests."""
        return tokens * (self.cache_write + self.cache_read * max(0, requests)) / MILLION

    def of_usage(self, *, read: int, written: int, cache_read: int = 0, cache_write: int = 0) -> float:
        """Dollars for what a provider counted."""
        costs = (read * self.read, written * self.written, cache_read * self.cache_read, cache_write * self.cache_write)
        return math.fsum(costs) / MILLION


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table, with its date and where it comes from."""

    at: str
    source: str
    models: dict[str, Price]

    def of(self, model: str | None) -> Price | None:
        name = (model or "").rpartition("/")[2].lower()
        return self.models.get(_SNAPSHOT.sub("", name))


@cache
def prices() -> Prices:
    """The table that comes with mica."""
    return msgspec.json.decode(files("mica.llm").joinpath("prices.json").read_bytes(), type=Prices)
