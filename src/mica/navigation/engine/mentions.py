"""Find the paths, file names, folders, symbols and line numbers that a prompt mentions."""

from __future__ import annotations

import re

from mica.navigation.engine.frozen_value import FrozenValue
from mica.navigation.engine.lookup_file import LookupFile, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator


PROMPT_CHARACTERS_MAX = 200_000  # of a prompt that are searched; the rest is usually a pasted log
FOLDER_FILES_MAX = 60  # naming a larger folder says little about each of its files
GENERIC_STEMS = frozenset(
    "index utils util helpers helper types type main app test tests common config constants setup init base core"
    " readme license changelog package module model models view views api server client data new file files style"
    " styles page pages state report summary error errors result results all run build".split()
)

_TOKEN = re.compile(r"[\w@.~$+()\[\]/\\-]*[\w\])]/?")
_LINES = re.compile(r"[:#]\(?L?(\d{1,6})(?:\s?[-–:,]\s?L?(\d{1,6}))?")
_NEAR = re.compile(r"\b[Ll]ines?\s*~?(\d{1,6})(?:\s?(?:-|–|to|and)\s?~?(\d{1,6}))?")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
NEAR_CHARACTERS = 80  # after a path in which "lines 189-207" refers to it


class TreeNames:
    """Looks up the files of a working tree by file name, by stem (the name without extensions), or by folder."""

    def __init__(self, paths: Iterable[str] = (), *, saved: LookupFile | None = None) -> None:
        """Make an index of `paths`; or, with `saved`, use the index in this lookup file, and do not change it.

        To create such a file, write the entries that `entries` yields.
        """
        self._saved = saved
        self._tables: dict[str, dict[str, list[str]]] = {"name": {}, "stem": {}, "folder": {}}
        self._paths: set[str] = set()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        if path in self._paths:
            return
        self._paths.add(path)
        for table, key in _keys(path):
            self._tables[table].setdefault(key, []).append(path)

    def remove(self, path: str) -> None:
        if path not in self._paths:
            return
        self._paths.discard(path)
        for name, key in _keys(path):
            table = self._tables[name]
            table[key].remove(path)
            if not table[key]:
                del table[key]

    def with_ending(self, ending: str) -> list[str]:
        """Return the files whose path ends with `ending`.

        If there are none, leading folders are removed from `ending` one by one until there are some. The last folder is
        never removed.
        """
        parts = ending.split("/")
        named = self._lookup("name", parts[-1].lower())
        for first in range(len(parts) - 1):
            end = "/".join(parts[first:]).lower()
            if found := [path for path in named if path.lower() == end or path.lower().endswith(f"/{end}")]:
                return found
        return []

    def with_name(self, name: str) -> list[str]:
        return self._lookup("name", name.lower())

    def with_stem(self, stem: str) -> list[str]:
        return self._lookup("stem", stem.lower())

    def within(self, folder: str) -> list[str]:
        """Return the files in a folder and in the folders below it.

        `folder` is the path of the folder; if no folder has this path, the last part of its path is enough.
        """
        folder = folder.lower().strip("/")
        if not folder:
            return []
        if found := self._lookup("folder", folder):
            return found
        return [path for key in self._folders() if key.endswith(f"/{folder}") for path in self._lookup("folder", key)]

    def entries(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield the entries to save in a lookup file, as (table, key, value encoded by `pack`)."""
        yield "names", "folders", pack(list(self._tables["folder"]))
        for name, table in self._tables.items():
            for key, paths in table.items():
                yield f"names.{name}", key, pack(paths)

    def _lookup(self, table: str, key: str) -> list[str]:
        if self._saved is None:
            return self._tables[table].get(key, [])
        return self._saved.get(f"names.{table}", key, [])

    def _folders(self) -> Iterable[str]:
        if self._saved is None:
            return self._tables["folder"]
        return self._saved.get("names", "folders", [])


def _keys(path: str) -> list[tuple[str, str]]:
    keys = [("name", path.rpartition("/")[2].lower()), ("stem", stem_of(path))]
    folder = path.rpartition("/")[0]
    while folder:
        keys.append(("folder", folder.lower()))
        folder = folder.rpartition("/")[0]
    return keys


class FileMentions(FrozenValue):
    """The files that a prompt mentions, each with a strength from 0 to 1. Each kind of mention has its own field."""

    paths: dict[str, float]  # files named by a path or by a file name with an extension
    names: dict[str, float]  # files named by a file name without extension
    folders: dict[str, float]  # files in a folder that is named
    symbols: dict[str, float]  # files that define a symbol that is named
    lines: dict[str, tuple[tuple[int, int], ...]]  # for files that are named with line numbers


def stem_of(path: str) -> str:
    """Return a file's name without its extensions, in lower case: `git-cloner` for `src/git-cloner.test.ts`."""
    name = path.rpartition("/")[2].lstrip(".")
    return name.partition(".")[0].lower()


def find_mentions(
    prompt: str, names: TreeNames, definers: Callable[[str], Collection[str]] | None = None
) -> FileMentions:
    """Return the files that a prompt mentions.

    `names` has the files that can be mentioned, and `definers` returns the files that define a symbol. If a mention
    fits n files, each of them gets a strength of at most 1/n.
    """
    prompt = prompt[:PROMPT_CHARACTERS_MAX]
    paths: dict[str, float] = {}
    by_name: dict[str, float] = {}
    folders: dict[str, float] = {}
    lines: dict[str, list[tuple[int, int]]] = {}
    for match in _TOKEN.finditer(prompt):
        token = _clean(match.group())
        if "." not in token and "/" not in token:
            continue
        found = _resolve(token, names)
        share = 1 / len(found) if found else 0.0
        if found and _has_extension(token):
            _raise(paths, found, share)
        elif found:
            _raise(by_name, found, share)
        elif "/" in token and (inside := names.within(token)) and len(inside) <= FOLDER_FILES_MAX:
            _raise(folders, inside, 1 / len(inside))
        if len(found) == 1 and (named := _lines_after(prompt, match.end())):
            lines.setdefault(found[0], []).extend(named)
    seen: set[str] = set()
    defined: dict[str, float] = {}
    for word in _WORD.findall(prompt):
        if word in seen:
            continue
        seen.add(word)
        stems = names.with_stem(word) if len(word) > 2 and word.lower() not in GENERIC_STEMS else []
        if stems:
            _raise(by_name, stems, 1 / len(stems) if is_code(word) else 0.5 / len(stems))
        if definers is not None and is_code(word) and (files := definers(word)):
            _raise(defined, files, 1 / len(files))
    return FileMentions(
        paths=paths,
        names=by_name,
        folders=folders,
        symbols=defined,
        lines={path: tuple(dict.fromkeys(found)) for path, found in lines.items()},
    )


def is_any_named(text: str, names: TreeNames) -> bool:
    """True if a text mentions one of the files in `names` by its path or file name. Faster than `find_mentions`."""
    tokens = (_clean(match.group()) for match in _TOKEN.finditer(text[:PROMPT_CHARACTERS_MAX]))
    return any(_has_extension(token) and _resolve(token, names) for token in tokens)


def find_identifiers(prompt: str) -> set[str]:
    """Return all words of a prompt that could be identifiers in a program."""
    return set(_WORD.findall(prompt))


def is_code(word: str) -> bool:
    """True if a word looks like an identifier.

    Such a word has an inner underscore, or it has small letters and also a capital that is not its first letter.
    """
    return "_" in word.strip("_") or (any(later.isupper() for later in word[1:]) and not word.isupper())


def _clean(token: str) -> str:
    token = token.replace("\\", "/").lstrip("@").strip("()[]")
    for prefix in ("./", "a/", "b/"):
        token = token.removeprefix(prefix)
    return token.rstrip(".")


def _resolve(token: str, names: TreeNames) -> list[str]:
    if token.endswith("/"):
        return []
    if "/" in token:
        return names.with_ending(token)
    return names.with_name(token)


def _has_extension(token: str) -> bool:
    return "/" in token or "." in token.lstrip(".")


def _lines_after(prompt: str, end: int) -> list[tuple[int, int]]:
    """Return the line range that is written after a path; an empty list if there is none.

    It is either directly after the path (`:10-20`), or a little later in the same line ("lines 10-20"). `end` is the
    index in the prompt at which the path ends.
    """
    match = _LINES.match(prompt, end) or _NEAR.search(prompt[end : end + NEAR_CHARACTERS].partition("\n")[0])
    if match is None:
        return []
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    return [(first, last)] if 0 < first <= last else []


def _raise(scores: dict[str, float], paths: Collection[str], share: float) -> None:
    for path in paths:
        scores[path] = max(scores.get(path, 0.0), share)
