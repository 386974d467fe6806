"""Values without a library: hooks load what ranks files, and msgspec starts slower than they may take in all."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import costs half of what a bare interpreter does
if TYPE_CHECKING:
    from typing import dataclass_transform
else:

    def dataclass_transform(**_options):
        return lambda of: of


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Plain:
    """A few fields, given by name; those with a value in the class may be left out."""

    def __init__(self, **given: object) -> None:
        for name in type(self).__annotations__:
            object.__setattr__(self, name, given.pop(name) if name in given else getattr(type(self), name))
        if given:
            raise TypeError(f"{type(self).__name__} has no {', '.join(given)}")

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"{name} of {type(self).__name__} is never changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # some fields are dictionaries

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
