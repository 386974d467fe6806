"""Which lines of a file a step shows: ranges that filters narrow, and the lines that a script prints."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

Operation = Literal["read", "search", "list", "edit", "create"]

RANGES_MAX = 64  # of one sed script or bat call; more is no reading, and costs the square


class ShellStep(msgspec.Struct, frozen=True, kw_only=True):
    """One file or directory that a command touched. Lines are counted from 1 and inclusive."""

    operation: Operation
    path: str  # as typed, seen from where the command started
    start_line: int | None = None  # None: which lines is not known, or from_end says
    end_line: int | None = None  # None after a start_line: to the end of the file
    from_end: int | None = None  # the last so many lines, where the length of the file is not known
    revision: str | None = None  # the commit a file was read at; None: the working copy
    pattern: str | None = None  # what was searched for


# -- Streams of lines ------------------------------------------------------------------------------------

_Range = tuple[int, int | None]  # None: to the end
_Lines = Sequence[_Range] | None  # None: cannot be told
Take = Callable[[Sequence[ShellStep], str], list[ShellStep]]
ALL: list[_Range] = [(1, None)]


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _lesser(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def length_of(read: ShellStep) -> int | None:
    if read.start_line is None or read.end_line is None:
        return read.from_end
    return max(read.end_line - read.start_line + 1, 0)


def blur(reads: Iterable[ShellStep]) -> list[ShellStep]:
    """The same files; which of their lines is not known."""
    return [msgspec.structs.replace(read, start_line=None, end_line=None, from_end=None) for read in reads]


def narrow(read: ShellStep, first: int, last: int | None) -> ShellStep:
    """Lines first to last of a read, counted from its own first line."""
    if read.from_end is not None and (last is None or last >= read.from_end):
        return msgspec.structs.replace(read, from_end=read.from_end - first + 1)
    if read.start_line is None:
        return blur([read])[0]
    end = _lesser(read.end_line, None if last is None else read.start_line + last - 1)
    return msgspec.structs.replace(read, start_line=read.start_line + first - 1, end_line=end)


def select(stream: Sequence[ShellStep], first: int, last: int | None) -> list[ShellStep]:
    """Lines first to last of a stream. A file of unknown length is taken to be long enough."""
    selected: list[ShellStep] = []
    passed = 0
    for index, read in enumerate(stream):
        if last is not None and last <= passed:
            break
        length = length_of(read)
        if length is None or first <= passed + length:
            selected.append(narrow(read, max(first - passed, 1), None if last is None else last - passed))
        if length is None:
            return selected if last is not None else [*selected, *stream[index + 1 :]]
        passed += length
    return selected


def select_all(stream: Sequence[ShellStep], lines: _Lines) -> list[ShellStep]:
    if lines is None:
        return blur(stream)
    return [read for first, last in lines for read in select(stream, first, last)]


def top(stream: Sequence[ShellStep], count: str) -> list[ShellStep]:
    """`head -n 3`, and `head -n -3`: all but the last three."""
    number, lengths = _number(count.removeprefix("-")), [length_of(read) for read in stream]
    if number is not None and count.startswith("-"):
        number = None if None in lengths else sum(length or 0 for length in lengths) - number
    return blur(stream) if number is None else select(stream, 1, number)


def bottom(stream: Sequence[ShellStep], count: str) -> list[ShellStep]:
    """`tail -n 3`, and `tail -n +3`: from the third on."""
    number, lengths = _number(count.lstrip("+-")), [length_of(read) for read in stream]
    if number is None:
        return blur(stream)
    if count.startswith("+"):
        return select(stream, number, None)
    if None not in lengths:
        return select(stream, max(sum(length or 0 for length in lengths) - number, 0) + 1, None)
    if lengths[-1] is None and stream[-1].start_line is not None:
        return [msgspec.structs.replace(stream[-1], start_line=None, from_end=number)] if number else []
    return blur(stream)


def _within(ranges: Iterable[_Range], first: int, last: int | None) -> list[_Range]:
    cut = [(max(low, first), _lesser(high, last)) for low, high in ranges]
    return [(low, high) for low, high in cut if high is None or low <= high]


def runs(ranges: Iterable[_Range]) -> list[_Range]:
    """The same lines in order, touching ranges joined."""
    runs: list[_Range] = []
    for first, last in sorted(ranges, key=lambda bounds: bounds[0]):
        low, high = runs[-1] if runs else (0, -1)
        if high is None or first <= high + 1:
            runs[-1] = (low, None if high is None or last is None else max(high, last))
        else:
            runs.append((first, last))
    return runs


# -- Which lines a script prints -------------------------------------------------------------------------

_SED_COMMAND = re.compile(r"(?:([0-9]{1,9}|\$)(?:,(\+?[0-9]{1,9}|\$))?)?(!?)([pdq=])")
_COMPARISON = re.compile(r"F?NR(==|>=|<=|>|<)([0-9]{1,9})")
_FLIP_FLOP = re.compile(r"([0-9]{1,9})\.\.\.?([0-9]{1,9})")


def sed_lines(script: str, *, quiet: bool) -> _Lines:
    shown = [] if quiet else ALL
    quit_at: int | None = None
    parts = [part for part in re.split(r"[;\n]", script.replace(" ", "")) if part]
    if len(parts) > RANGES_MAX:
        return None
    for part in parts:
        command = _SED_COMMAND.fullmatch(part)
        if command is None:
            return None
        address, second, negated, letter = command.groups("")
        if letter == "=":
            continue
        if address in ("$", "0") or (negated and letter != "d"):
            return None
        first = int(address or 1)
        last = None if second == "$" or not address else max(first, int(second or first))
        if second.startswith("+"):
            last = first + int(second)
        if letter == "q":
            quit_at = _lesser(first, quit_at)
        elif letter == "p":
            shown = [*shown, (first, last)] if quiet else shown
        elif negated:
            shown = _within(shown, first, last)
        else:
            shown = _within(shown, 1, first - 1) + ([] if last is None else _within(shown, last + 1, None))
    return runs(_within(shown, 1, quit_at))


def awk_lines(program: str) -> _Lines:
    condition, brace, block = "".join(program.split()).partition("{")
    if brace and not (block.startswith("print") and block.find("}") == len(block) - 1):
        return None
    if brace and not condition:
        return ALL
    match [_COMPARISON.fullmatch(side) for side in condition.split(",")]:
        case [re.Match() as start, re.Match() as end] if start[1] == end[1] == "==":
            return _from_to(int(start[2]), int(end[2]))
    shown = ALL
    for term in condition.split("&&"):
        comparison = _COMPARISON.fullmatch(term)
        if comparison is None:
            return None
        sign, number = comparison[1], int(comparison[2])
        first = {"==": number, ">=": number, ">": number + 1}.get(sign, 1)
        shown = _within(shown, first, {"==": number, "<=": number, "<": number - 1}.get(sign))
    return shown


def _from_to(first: int, last: int) -> list[_Range]:
    """From line to line, in awk and perl: an end that has passed is never reached."""
    return [(first, last if last >= first else None)]


def perl_lines(script: str) -> _Lines:
    statement = "".join(script.split()).rstrip(";")
    condition = statement.removeprefix("printif").strip("()")
    if not statement.startswith("printif"):
        return None
    if numbers := _FLIP_FLOP.fullmatch(condition):
        return _from_to(int(numbers[1]), int(numbers[2]))
    return awk_lines(condition.replace("$.", "NR"))


def option_lines(text: str, separator: str) -> _Lines:
    """`bat -r 10:40` and `git blame -L 10,40`."""
    low, middle, high = text.partition(separator)
    first, last = _number(low or "1"), _number(high.removeprefix("+"))
    if first is None or (high and last is None):
        return None
    if not middle:
        return [(first, None if separator == "," else first)]
    if last is not None and high.startswith("+"):
        last += first - (separator == ",")  # git counts the lines, bat adds them
    return [(first, last)]
