"""A base class for immutable values. It replaces msgspec, whose import alone takes longer than a hook may take."""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, but `typing` takes half as long to import as Python to start
if TYPE_CHECKING:
    from typing import dataclass_transform
else:

    def dataclass_transform(**_options):
        return lambda of: of


@dataclass_transform(kw_only_default=True, frozen_default=True)
class FrozenValue:
    """The base class of immutable values.

    Each annotated field of a subclass is a keyword argument of its constructor, optional if the field has a default.
    """

    def __init__(self, **fields: object) -> None:
        for name in type(self).__annotations__:
            object.__setattr__(self, name, fields.pop(name) if name in fields else getattr(type(self), name))
        if fields:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(fields)}")

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"{name} of {type(self).__name__} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # some fields are dictionaries

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
