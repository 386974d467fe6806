"""The HTTP protocol of a remote store: each method of a role is one POST with MessagePack in and out.

Client and server derive the requests from the type annotations in `mica.store.protocol`, so a new method of a role
needs no code here.
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
GENERATION = "x-mica-generation"  # the header with the store's generation, which grows with every purge
PROBLEMS = "/problems/"  # prefix of the error name in the type of a problem document
LOCAL = ("on_progress",)  # parameters that are not sent: a server reports no progress


class RoleMethod(msgspec.Struct, frozen=True, kw_only=True):
    """A method of a role as a remote call: the types of its request and of its response."""

    role: str
    name: str
    request: Any  # a struct with a field for each parameter
    answer: Any
    signature: inspect.Signature

    @property
    def path(self) -> str:
        return f"{PATH}/{self.role}/{self.name}"


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a space, which the server sends when a client opens it."""

    space: str
    location: str
    generation: int


@cache
def roles() -> Mapping[str, Mapping[str, RoleMethod]]:
    """Return the async methods of all roles as remote calls, by name of the role and of the method."""
    return {
        role: {
            name: _method(role, name, value)
            for name, value in vars(declared).items()
            if inspect.iscoroutinefunction(value)
        }
        for role, declared in typing.get_type_hints(Store, vars(protocol)).items()
    }


def _method(role: str, name: str, declared: Any) -> RoleMethod:  # noqa: ANN401 - any kind of function
    hints = typing.get_type_hints(declared, vars(protocol))
    signature = inspect.signature(declared)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    fields = [
        (each.name, hints[each.name]) if each.default is each.empty else (each.name, hints[each.name], each.default)
        for each in parameters
        if each.name not in LOCAL
    ]
    return RoleMethod(
        role=role,
        name=name,
        request=msgspec.defstruct(f"{role}_{name}", fields, kw_only=True, forbid_unknown_fields=True),
        answer=hints["return"],
        signature=signature.replace(parameters=parameters),
    )
