"""What was printed, believed: it bounds what a command can have shown, and names what a search found."""

import posixpath
import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from mica.clients.shell.shown_lines import ShellStep, length_of, narrow, runs, select

HIT_LINES_MAX = 10_000  # lines of output examined for hits; clients cut their output well before
NAME_CHARS_MAX = 1_024  # a longer name in the output is not a path

_HIT = re.compile(r"([^:]+):([0-9]{1,9}):")
_NUMBERED = re.compile(r"([0-9]{1,9})[:-]")
_OF_HEADING = re.compile(r"[0-9]{1,9}(?::|-(?![^:]*:[0-9]{1,9}:))")  # not a hit in a file named 1-a.md
_CONTEXT = re.compile(r"-([0-9]{1,9})-")


class Search(NamedTuple):
    """A search whose hits only the output can name."""

    places: list[ShellStep]  # where it looked; empty when globs or xargs chose the files
    pattern: str | None
    directory: str | None  # where it ran; printed names are relative to it
    lines: list[ShellStep]  # what `N:text` counts, where not each line names its file
    names_only: bool


def joined(directory: str, name: str) -> str:
    """The path that a name means in a directory."""
    path = posixpath.normpath(posixpath.join(directory, name))
    return path[1:] if path.startswith("//") else path  # normpath keeps two slashes


def printed(output: str, *, complaints: tuple[str, ...]) -> list[str]:
    """The lines printed, without those that begin so: `cat: F: No such file or directory` shows nothing of F."""
    lines = output.removesuffix("\n").split("\n") if output else []
    return [line for line in lines if not line.startswith(complaints)]


def clip(reads: Sequence[ShellStep], *, printed: int, alone: bool) -> list[list[ShellStep]]:
    """Each read cut down to what can have been printed, or nothing in its place.

    Several ranges of one file share the lines printed, in order. Reads of several files do not: each may have
    been shorter than asked for, so it is only known to be no longer than the whole output.
    """
    shared = alone and len({read.path for read in reads}) == 1
    clipped: list[list[ShellStep]] = []
    for read in reads:
        kept = read
        if read.from_end is not None:
            kept = msgspec.structs.replace(read, from_end=min(read.from_end, printed))
        elif read.end_line is not None or (shared and read.start_line is not None):
            kept = narrow(read, 1, printed)
        clipped.append([kept] if printed > 0 and length_of(kept) != 0 else [])
        printed -= (length_of(kept) or 0) if shared else 0
    return clipped


def hits(search: Search, lines: Sequence[str], *, alone: bool) -> list[ShellStep]:
    """What a search found, by file, adjacent lines joined; where it looked, if the output does not say."""
    made: list[ShellStep] = []
    revision = search.places[0].revision if len(search.places) == 1 else None
    for path, numbers in _found(search, lines[:HIT_LINES_MAX], alone=alone).items():
        hit = ShellStep(operation="search", path=path, revision=revision, pattern=search.pattern)
        found = runs((number, number) for number in numbers)
        made += [msgspec.structs.replace(hit, start_line=low, end_line=high) for low, high in found] or [hit]
    return made or (search.places if lines else [])


def _found(search: Search, lines: Sequence[str], *, alone: bool) -> dict[str, set[int]]:
    """The numbers of the lines shown of each file; none where the output gives only names."""
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
    """The path of a printed name, if it can be one that a search of these places printed."""
    if not name or len(name) > NAME_CHARS_MAX:
        return None
    path = above = joined(directory or "", name)
    while above not in places and above != posixpath.dirname(above):
        above = posixpath.dirname(above)
    if above in places:
        return path
    if places and ("." not in places or path.startswith("/")):
        return None
    # Every name is possible here; what other programs print is told apart by its looks.
    plausible = " " not in name and not path.startswith("..") and (alone or "/" in name or "." in name)
    return path if plausible else None
