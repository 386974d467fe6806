"""A dated table of token prices. A model that is not in the table has no price; mica does not guess one."""

from __future__ import annotations

import math
import re
from functools import cache
from importlib.resources import files

import msgspec

MILLION = 1_000_000

_SNAPSHOT = re.compile(r"-20\d{2}-?\d{2}-?\d{2}$")  # a dated snapshot costs what its model costs


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a model in US dollars per million tokens.

    If long prompts cost more, `read` and `written` are the prices for short ones. If writing to the provider's cache
    costs nothing extra, `cache_write` equals `read`.
    """

    read: float  # for input
    written: float  # for output
    cache_read: float  # for input that the provider reads from its cache
    cache_write: float  # for input that the provider adds to its cache

    def of_cached_tokens(self, tokens: int, *, requests: int) -> float:
        """Return the dollars for input tokens that a provider adds to its cache once and then reads from it.

        `requests` is the number of later requests, each of which reads the tokens from the cache.
        """
        return tokens * (self.cache_write + self.cache_read * max(0, requests)) / MILLION

    def of_usage(self, *, read: int, written: int, cache_read: int = 0, cache_write: int = 0) -> float:
        """Return the dollars for a call with these token counts."""
        costs = (read * self.read, written * self.written, cache_read * self.cache_read, cache_write * self.cache_write)
        return math.fsum(costs) / MILLION


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of prices by model, with its date and its origin."""

    at: str  # the date of the table
    source: str  # where the prices come from
    models: dict[str, Price]

    def of(self, model: str | None) -> Price | None:
        """Return the price of a model; None if the model is not in the table.

        A provider before `/` and a date at the end of the model's name are ignored.
        """
        name = (model or "").rpartition("/")[2].lower()
        return self.models.get(_SNAPSHOT.sub("", name))


@cache
def prices() -> Prices:
    """Return the price table that is shipped with mica."""
    return msgspec.json.decode(files("mica.llm").joinpath("prices.json").read_bytes(), type=Prices)
