"""Edits JSON settings files of other programs. Comments, order, indents and line ends are preserved. No I/O.

Comments and trailing commas are accepted, as editors and agents write them. Adding a value and removing it again
restores the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import msgspec

from mica.errors import InvalidInput

NESTING_MAX = 200  # settings are five levels deep; a deeper file is something else
MISSING = msgspec.UNSET  # in place of a value that does not exist

_BLANK = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)


class JsonNode(msgspec.Struct):
    """A parsed value with its start and end in the text. For an object or array, `slots` are its members."""

    start: int
    end: int
    value: object = None
    slots: list[Slot] = []
    is_container: bool = False


class Slot(msgspec.Struct):
    """A member of an object, starting at its key, or an item of an array."""

    start: int
    node: JsonNode
    key: str | None = None

    @property
    def end(self) -> int:
        return self.node.end


def value_at(text: str, keys: Sequence[str]) -> object:
    """Return the value under nested keys, or MISSING. Raises InvalidInput if the text is not JSON."""
    node: JsonNode | None = parse(text)
    for key in keys:
        node = _member(node, key)
        if node is None:
            return MISSING
    return node.value if node is not None else MISSING


def depth_of(text: str, keys: Sequence[str]) -> int:
    """Return how many of these nested keys exist, counted from the outermost."""
    node: JsonNode | None = parse(text)
    for count, key in enumerate(keys):
        node = _member(node, key)
        if node is None:
            return count
    return len(keys)


def with_value(text: str, keys: Sequence[str], value: object) -> str:
    """Return `text` with `value` set under nested keys. Keys that do not exist are added at the end of their object.

    Raises InvalidInput if the text is not JSON, or if a value on the way to the last key is not an object.
    """
    text = text if text.strip("\ufeff \t\r\n") else "{}\n"
    known = depth_of(text, keys)
    node = _walk(text, keys[:known])
    unit = _unit(text)
    if known == len(keys):
        written = _encode(value, indent=_indent_at(text, node.start), unit=unit, text=text)
        return text[: node.start] + written + text[node.end :]
    for key in reversed(keys[known + 1 :]):
        value = {key: value}
    return _put(text, node, value, key=keys[known], unit=unit)


def with_item(text: str, keys: Sequence[str], value: object) -> str:
    """Return `text` with `value` appended to the array under nested keys. The array is created if necessary.

    Raises InvalidInput if the text is not JSON, or if the value under the keys is not an array.
    """
    if value_at(text, keys) is MISSING if text.strip() else True:
        return with_value(text, keys, [value])
    return _put(text, _walk(text, keys), value, key=None, unit=_unit(text))


def without_value(text: str, keys: Sequence[str], *, known: int = 0) -> str:
    """Return `text` without the value under nested keys, and without parent objects that become empty.

    The first `known` keys existed before mica wrote the value: their objects stay, even if they become empty.
    """
    for count in range(len(keys), 0, -1):
        parent = _walk(text, keys[: count - 1])
        index = next(number for number, slot in enumerate(parent.slots) if slot.key == keys[count - 1])
        if count < len(keys) and (count <= known or parent.slots[index].node.slots):
            break
        text = _cut(text, parent, index)
    return text


def without_item(text: str, keys: Sequence[str], value: object, *, known: int = 0) -> str:
    """Return `text` without the item `value` of the array under nested keys, and without an array that becomes empty.

    The first `known` keys existed before mica wrote the item: what is under them stays, even if it becomes empty.
    """
    array = _walk(text, keys)
    text = _cut(text, array, next(number for number, slot in enumerate(array.slots) if slot.node.value == value))
    if _walk(text, keys).slots or known >= len(keys):
        return text
    return without_value(text, keys, known=known)


# -- Writing ----------------------------------------------------------------------------------------------------


def _put(text: str, container: JsonNode, value: object, *, key: str | None, unit: str) -> str:
    if not container.is_container or (key is None) != (text[container.start] == "["):
        raise InvalidInput("a value of another kind is in the place of the entry")
    name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    end = _newline(text)
    closing = container.end - 1
    base = _indent_at(text, container.start)
    if not container.slots:
        written = name + _encode(value, indent=base + unit, unit=unit, text=text)
        content = len(text[:closing].rstrip())
        after = end + base if not text[content:closing] or "\n" not in text[content:closing] else text[content:closing]
        return text[:content] + end + base + unit + written + after + text[closing:]
    first, last = container.slots[0], container.slots[-1]
    comma = _comma(text, last.end)
    if "\n" not in text[container.start : first.start]:
        written = name + _encode(value, indent=base, unit=None, text=text)
        place = last.end if comma is None else comma
        return text[:place] + (f", {written}" if comma is None else f" {written},") + text[place:]
    indent = _indent_at(text, first.start)
    written = end + indent + name + _encode(value, indent=indent, unit=unit, text=text)
    content = len(text[:closing].rstrip())  # after a comment that belongs to the last slot
    if comma is not None:
        return text[:content] + written + "," + text[content:]
    return text[: last.end] + "," + text[last.end : content] + written + text[content:]


def _cut(text: str, container: JsonNode, index: int) -> str:
    slot = container.slots[index]
    begin = len(text[: slot.start].rstrip())
    comma = _comma(text, slot.end)
    if comma is not None:
        text = text[:begin] + text[comma:]
    else:
        text = text[:begin] + text[slot.end :]
        if index > 0:
            before = container.slots[index - 1].end
            last_comma = _comma(text, before) or before
            text = text[: last_comma - 1] + text[last_comma:]
    if len(container.slots) == 1:
        return re.sub(r"[ \t\r\n]+\Z", "", text[:begin]) + text[begin:].lstrip() if text[begin - 1] in "{[" else text
    return text


def _encode(value: object, *, indent: str, unit: str | None, text: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return (_newline(text) + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _indent_at(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _comma(text: str, place: int) -> int | None:
    after = _skip(text, place)
    return after + 1 if text[after : after + 1] == "," else None


# -- Reading ----------------------------------------------------------------------------------------------------


def parse(text: str) -> JsonNode:
    """Parse the whole text as one value. If it is not JSON, raises InvalidInput with the line number."""
    node = _value(text, _skip(text, 0), 0)
    rest = _skip(text, node.end)
    if rest != len(text):
        raise _invalid(text, rest)
    return node


def _walk(text: str, keys: Sequence[str]) -> JsonNode:
    node = parse(text)
    for key in keys:
        inner = _member(node, key)
        if inner is None:
            raise InvalidInput(f"there is no {key!r}")
        node = inner
    return node


def _member(node: JsonNode | None, key: str) -> JsonNode | None:
    found = [slot.node for slot in node.slots if slot.key == key] if node is not None else []
    return found[-1] if found else None


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _value(text: str, place: int, depth: int) -> JsonNode:
    if depth > NESTING_MAX:
        raise _invalid(text, place)
    opening = text[place : place + 1]
    if opening in ("{", "["):
        slots = list(_slots(text, place, depth, is_object=opening == "{"))
        last = slots[-1].end if slots else place + 1
        closing = _skip(text, _comma(text, last) or last if slots else last)
        found = [(slot.key, slot.node.value) for slot in slots]
        value = dict(found) if opening == "{" else [each for _, each in found]
        return JsonNode(place, closing + 1, value, slots, is_container=True)
    scalar = _STRING.match(text, place) or _SCALAR.match(text, place)
    if scalar is None:
        raise _invalid(text, place)
    try:
        return JsonNode(place, scalar.end(), json.loads(scalar[0]))
    except ValueError:
        raise _invalid(text, place) from None


def _slots(text: str, place: int, depth: int, *, is_object: bool) -> Iterator[Slot]:
    closing = "}" if is_object else "]"
    at = _skip(text, place + 1)
    while text[at : at + 1] != closing:
        start, key = at, None
        if is_object:
            found = _STRING.match(text, at)
            if found is None:
                raise _invalid(text, at)
            try:
                key = json.loads(found[0])
            except ValueError:
                raise _invalid(text, at) from None
            colon = _skip(text, found.end())
            if text[colon : colon + 1] != ":":
                raise _invalid(text, colon)
            at = _skip(text, colon + 1)
        node = _value(text, at, depth + 1)
        yield Slot(start, node, key)
        at = _skip(text, node.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _invalid(text, at)


def _invalid(text: str, place: int) -> InvalidInput:
    line = text.count("\n", 0, place) + 1
    return InvalidInput(f"line {line} is not JSON")
