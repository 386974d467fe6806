"""Computes which lines of a file a shell command showed.

A read is a `ShellStep` for a range of lines of a file; a stream is a sequence of reads, as they pass through a
pipeline. The lines follow from options such as `head -n`, from scripts of sed, awk and perl, and from the printed
output.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec

Operation = Literal["read", "search", "list", "edit", "create"]

RANGES_MAX = 64  # of one sed script or bat call; more is not navigation, and the cost is quadratic


class ShellStep(msgspec.Struct, frozen=True, kw_only=True):
    """One access of a shell command to a file or folder. Lines are numbered from 1, and ranges include both ends."""

    operation: Operation
    path: str  # relative to the directory the command started in
    start_line: int | None = None  # None: unknown, or given by from_end
    end_line: int | None = None  # None after a start_line: to the end of the file
    from_end: int | None = None  # the last N lines of a file whose length is unknown
    revision: str | None = None  # the commit a file was read at; None: the working copy
    pattern: str | None = None  # the pattern of a search


# -- Streams of lines ------------------------------------------------------------------------------------

_Range = tuple[int, int | None]  # None: to the end
_Lines = Sequence[_Range] | None  # None: unknown
Take = Callable[[Sequence[ShellStep], str], list[ShellStep]]
ALL: list[_Range] = [(1, None)]


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _lesser(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def length_of(read: ShellStep) -> int | None:
    """Return the number of lines that a read covers; None if unknown."""
    if read.start_line is None or read.end_line is None:
        return read.from_end
    return max(read.end_line - read.start_line + 1, 0)


def blur(reads: Iterable[ShellStep]) -> list[ShellStep]:
    """Return the same reads without their line numbers, because it is unknown which lines were shown."""
    return [msgspec.structs.replace(read, start_line=None, end_line=None, from_end=None) for read in reads]


def narrow(read: ShellStep, first: int, last: int | None) -> ShellStep:
    """Return the read limited to its lines `first` to `last`, where 1 is the first line of the read."""
    if read.from_end is not None and (last is None or last >= read.from_end):
        return msgspec.structs.replace(read, from_end=read.from_end - first + 1)
    if read.start_line is None:
        return blur([read])[0]
    end = _lesser(read.end_line, None if last is None else read.start_line + last - 1)
    return msgspec.structs.replace(read, start_line=read.start_line + first - 1, end_line=end)


def select(stream: Sequence[ShellStep], first: int, last: int | None) -> list[ShellStep]:
    """Return the reads for the lines `first` to `last` of a stream, where 1 is the first line of the stream.

    A read of unknown length is assumed to have all lines up to `last`.
    """
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
    """Return the reads for several line ranges of a stream. `lines` is None if the ranges are unknown."""
    if lines is None:
        return blur(stream)
    return [read for first, last in lines for read in select(stream, first, last)]


def top(stream: Sequence[ShellStep], count: str) -> list[ShellStep]:
    """Return what `head -n COUNT` shows of a stream. The count `-3` means all but the last three lines."""
    number, lengths = _number(count.removeprefix("-")), [length_of(read) for read in stream]
    if number is not None and count.startswith("-"):
        number = None if None in lengths else sum(length or 0 for length in lengths) - number
    return blur(stream) if number is None else select(stream, 1, number)


def bottom(stream: Sequence[ShellStep], count: str) -> list[ShellStep]:
    """Return what `tail -n COUNT` shows of a stream. The count `+3` means all lines from the third one on."""
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


def merge_ranges(ranges: Iterable[_Range]) -> list[_Range]:
    """Sort line ranges and merge those that overlap or are adjacent."""
    merged: list[_Range] = []
    for first, last in sorted(ranges, key=lambda bounds: bounds[0]):
        low, high = merged[-1] if merged else (0, -1)
        if high is None or first <= high + 1:
            merged[-1] = (low, None if high is None or last is None else max(high, last))
        else:
            merged.append((first, last))
    return merged


# -- Scripts that select lines -------------------------------------------------------------------------

_SED_COMMAND = re.compile(r"(?:([0-9]{1,9}|\$)(?:,(\+?[0-9]{1,9}|\$))?)?(!?)([pdq=])")
_COMPARISON = re.compile(r"F?NR(==|>=|<=|>|<)([0-9]{1,9})")
_FLIP_FLOP = re.compile(r"([0-9]{1,9})\.\.\.?([0-9]{1,9})")


def sed_lines(script: str, *, quiet: bool) -> _Lines:
    """Return the line ranges that a sed script prints; None if it uses commands that are not understood here."""
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
    return merge_ranges(_within(shown, 1, quit_at))


def awk_lines(program: str) -> _Lines:
    """Return the line ranges that an awk program prints; None if they depend on more than line numbers."""
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
    """Return the lines of a range condition in awk or perl. If `last` is below `first`, the range has no end."""
    return [(first, last if last >= first else None)]


def perl_lines(script: str) -> _Lines:
    """Return the line ranges that a `perl -ne` script prints; None if they depend on more than line numbers."""
    statement = "".join(script.split()).rstrip(";")
    condition = statement.removeprefix("printif").strip("()")
    if not statement.startswith("printif"):
        return None
    if numbers := _FLIP_FLOP.fullmatch(condition):
        return _from_to(int(numbers[1]), int(numbers[2]))
    return awk_lines(condition.replace("$.", "NR"))


def option_lines(text: str, separator: str) -> _Lines:
    """Parse a range option such as `bat -r 10:40` or `git blame -L 10,40`; None if it has no line numbers.

    `text` is the value of the option, such as `10:40`, and `separator` the sign between its numbers.
    """
    low, middle, high = text.partition(separator)
    first, last = _number(low or "1"), _number(high.removeprefix("+"))
    if first is None or (high and last is None):
        return None
    if not middle:
        return [(first, None if separator == "," else first)]
    if last is not None and high.startswith("+"):
        last += first - (separator == ",")  # git counts the lines, bat adds them
    return [(first, last)]


# -- The printed output ----------------------------------------------------------------------------------

HIT_LINES_MAX = 10_000  # lines of output examined for hits; clients cut output that is much shorter
NAME_CHARS_MAX = 1_024  # a longer name in the output is not a path

_HIT = re.compile(r"([^:]+):([0-9]{1,9}):")
_NUMBERED = re.compile(r"([0-9]{1,9})[:-]")
_OF_HEADING = re.compile(r"[0-9]{1,9}(?::|-(?![^:]*:[0-9]{1,9}:))")  # not a hit in a file named 1-a.md
_CONTEXT = re.compile(r"-([0-9]{1,9})-")


class ShellSearch(NamedTuple):
    """A search command such as `grep` or `rg`. What it found is only known from its output."""

    places: list[ShellStep]  # the files and folders searched; empty if globs or xargs chose them
    pattern: str | None
    directory: str | None  # the directory it ran in; printed names are relative to it
    lines: list[ShellStep]  # the searched lines, to which numbers in output without file names (`N:text`) refer
    names_only: bool


def join_path(directory: str, name: str) -> str:
    """Join a directory and a name to a normalized path."""
    path = posixpath.normpath(posixpath.join(directory, name))
    return path[1:] if path.startswith("//") else path  # normpath keeps two slashes


def printed_lines(output: str, *, complaints: tuple[str, ...]) -> list[str]:
    """Return the lines of an output, except error messages such as `cat: F: No such file or directory`."""
    lines = output.removesuffix("\n").split("\n") if output else []
    return [line for line in lines if not line.startswith(complaints)]


def clip_reads(reads: Sequence[ShellStep], *, printed: int, alone: bool) -> list[list[ShellStep]]:
    """Limit each read to the number of lines that the command printed.

    Returns one list for each read: the limited read, or an empty list if nothing of it was printed. If all reads are of
    one file and `alone` is True (no other command printed), the reads share the printed lines in order. Otherwise each
    file may be shorter than its range, so each read is only known to be no longer than the whole output.
    """
    shared = alone and len({read.path for read in reads}) == 1
    clipped: list[list[ShellStep]] = []
    for read in reads:
        clipped_read = read
        if read.from_end is not None:
            clipped_read = msgspec.structs.replace(read, from_end=min(read.from_end, printed))
        elif read.end_line is not None or (shared and read.start_line is not None):
            clipped_read = narrow(read, 1, printed)
        clipped.append([clipped_read] if printed > 0 and length_of(clipped_read) != 0 else [])
        printed -= (length_of(clipped_read) or 0) if shared else 0
    return clipped


def find_hits(search: ShellSearch, lines: Sequence[str], *, alone: bool) -> list[ShellStep]:
    """Return the hits of a search: for each file, its lines with a hit, adjacent lines merged.

    `lines` is the output. If no hit is recognized in it, the searched files and folders are returned; if it is empty,
    nothing is. `alone` is True if no other command printed into the output.
    """
    made: list[ShellStep] = []
    revision = search.places[0].revision if len(search.places) == 1 else None
    for path, numbers in _numbers_by_path(search, lines[:HIT_LINES_MAX], alone=alone).items():
        hit = ShellStep(operation="search", path=path, revision=revision, pattern=search.pattern)
        found = merge_ranges((number, number) for number in numbers)
        made += [msgspec.structs.replace(hit, start_line=low, end_line=high) for low, high in found] or [hit]
    return made or (search.places if lines else [])


def _numbers_by_path(search: ShellSearch, lines: Sequence[str], *, alone: bool) -> dict[str, set[int]]:
    """Return the printed line numbers of each file; an empty set if only the name of the file was printed."""
    found: dict[str, set[int]] = {}
    inside = partial(_inside, {place.path for place in search.places}, search.directory, alone=alone)
    if search.names_only:
        return {path: set() for line in lines if (path := inside(line))}
    names: dict[str, str] = {}  # path by printed name
    unclear: list[str] = []
    heading: str | None = None
    for previous, line, following in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        hit, numbered = _HIT.match(line), _NUMBERED.match(line)
        if numbered and heading:
            found.setdefault(heading, set()).add(int(numbered[1]))
        elif hit and (path := inside(hit[1])):
            names[hit[1]] = path
            found.setdefault(path, set()).add(int(hit[2]))
        elif numbered and alone and len(search.lines) == 1:
            for read in select(search.lines, int(numbered[1]), int(numbered[1])):
                found.setdefault(read.path, set()).update([read.start_line] if read.start_line else [])
        elif not previous and _OF_HEADING.match(following) and (path := inside(line)):
            heading = path  # as rg prints on a terminal: the name, the lines, an empty line
        elif line:
            unclear.append(line)
        else:
            heading = None
    for line in unclear:
        contexts = _CONTEXT.finditer(line, 0, NAME_CHARS_MAX)
        context = next((context for context in contexts if line[: context.start()] in names), None)
        name, colon, _text = line.partition(":")
        if context:
            found[names[line[: context.start()]]].add(int(context[1]))
        elif colon and ("/" in name or "." in name) and (path := inside(name)):
            found.setdefault(path, set())
    return found


def _inside(places: Collection[str], directory: str | None, name: str, *, alone: bool) -> str | None:
    """Return the path of a printed file name; None if a search of `places` cannot have printed this name."""
    if not name or len(name) > NAME_CHARS_MAX:
        return None
    path = above = join_path(directory or "", name)
    while above not in places and above != posixpath.dirname(above):
        above = posixpath.dirname(above)
    if above in places:
        return path
    if places and ("." not in places or path.startswith("/")):
        return None
    # Any name is possible here; output of other programs is recognized by its form.
    plausible = " " not in name and not path.startswith("..") and (alone or "/" in name or "." in name)
    return path if plausible else None
