"""A store over HTTP, as both sides speak it: each verb of the protocol is one POST with MessagePack in and out.

What may be sent follows from the annotations of `Store`, so that a verb that is added there can be called at once.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from mica.store import protocol
from mica.store.protocol import Store

MEDIA_TYPE = "application/msgpack"
PATH = "/api/store"
GENERATION = "x-mica-generation"  # the header that tells how often something was purged
PROBLEMS = "/problems/"  # before the name of an error, in the type of a problem document
HERE = ("on_progress",)  # parameters that are not sent: nothing is heard of what a server does


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """What one verb takes and gives."""

    name: str
    takes: Any  # a struct with a field for each parameter
    gives: Any
    signature: inspect.Signature


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a client must know of the store behind a server."""

    space: str
    location: str
    generation: int


@cache
def verbs() -> Mapping[str, Verb]:
    """Every verb of the protocol by its name."""
    found = {name: value for name, value in vars(Store).items() if inspect.iscoroutinefunction(value)}
    return {name: _verb(name, value) for name, value in found.items() if name != "close"}


def _verb(name: str, declared: Any) -> Verb:  # noqa: ANN401 - a function of any kind
    hints = typing.get_type_hints(declared, vars(protocol))
    signature = inspect.signature(declared)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    fields = [
        (each.name, hints[each.name]) if each.default is each.empty else (each.name, hints[each.name], each.default)
        for each in parameters
        if each.name not in HERE
    ]
    takes = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    return Verb(name=name, takes=takes, gives=hints["return"], signature=signature.replace(parameters=parameters))
