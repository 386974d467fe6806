"""A dated table of token prices. A model that is not in it has no price; none is guessed (K-04)."""

from __future__ import annotations

import math
import re
from functools import cache
from importlib.resources import files

import msgspec

MILLION = 1_000_000

_SNAPSHOT = re.compile(r"-20\d{2}-?\d{2}-?\d{2}$")  # a dated snapshot costs what its model costs


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens.

    If long prompts cost more, the lower price is used; if filling the cache is free, the price of reading is used.
    """

    read: float
    written: float
    cache_read: float
    cache_write: float

    def of_kept(self, tokens: int, *, requests: int) -> float:
        """Dollars for tokens that enter the window once and are read from the cache by each later request."""
        return tokens * (self.cache_write + self.cache_read * max(0, requests)) / MILLION

    def of_usage(self, *, read: int, written: int, cache_read: int = 0, cache_write: int = 0) -> float:
        """Dollars for the token counts of a provider."""
        costs = (read * self.read, written * self.written, cache_read * self.cache_read, cache_write * self.cache_write)
        return math.fsum(costs) / MILLION


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A price table with its date and origin."""

    at: str
    source: str
    models: dict[str, Price]

    def of(self, model: str | None) -> Price | None:
        """The price of a model, a dated snapshot included; None if it is unknown."""
        name = (model or "").rpartition("/")[2].lower()
        return self.models.get(_SNAPSHOT.sub("", name))


@cache
def prices() -> Prices:
    """The table that is shipped with mica."""
    return msgspec.json.decode(files("mica.llm").joinpath("prices.json").read_bytes(), type=Prices)
