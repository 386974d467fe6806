"""What a prompt names: paths, file names, folders, symbols, and lines near them. The whole prompt is looked at."""

from __future__ import annotations

import re

from mica.navigation.engine.lookup_file import Kept, packed
from mica.navigation.engine.plain import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator


PROMPT_CHARACTERS_MAX = 200_000  # a pasted log; what is named beyond that names nothing for the agent either
FOLDER_FILES_MAX = 60  # a folder with more files than this says little of each
GENERIC_STEMS = frozenset(
    "index utils util helpers helper types type main app test tests common config constants setup init base core"
    " readme license changelog package module model models view views api server client data new file files style"
    " styles page pages state report summary error errors result results all run build".split()
)

_TOKEN = re.compile(r"[\w@.~$+()\[\]/\\-]*[\w\])]/?")
_LINES = re.compile(r"[:#]\(?L?(\d{1,6})(?:\s?[-–:,]\s?L?(\d{1,6}))?")
_NEAR = re.compile(r"\b[Ll]ines?\s*~?(\d{1,6})(?:\s?(?:-|–|to|and)\s?~?(\d{1,6}))?")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
NEAR_CHARACTERS = 80  # after a path, in which «lines 189–207» speaks of it


class Names:
    """The files of a tree by what people call them: by name, by stem, by every folder above."""

    def __init__(self, paths: Iterable[str] = (), *, kept: Kept | None = None) -> None:
        """With `kept`, what `entries` wrote there; it is read only."""
        self._kept = kept
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

    def ending(self, written: str) -> list[str]:
        """The files whose path ends with this, or with its longest end that still has a folder in it."""
        parts = written.split("/")
        named = self._found("name", parts[-1].lower())
        for first in range(len(parts) - 1):
            end = "/".join(parts[first:]).lower()
            if found := [path for path in named if path.lower() == end or path.lower().endswith(f"/{end}")]:
                return found
        return []

    def called(self, name: str) -> list[str]:
        return self._found("name", name.lower())

    def with_stem(self, stem: str) -> list[str]:
        return self._found("stem", stem.lower())

    def within(self, folder: str) -> list[str]:
        """The files below a folder, which may be written without what leads to it."""
        folder = folder.lower().strip("/")
        if not folder:
            return []
        if found := self._found("folder", folder):
            return found
        return [path for key in self._folders() if key.endswith(f"/{folder}") for path in self._found("folder", key)]

    def entries(self) -> Iterator[tuple[str, str, bytes]]:
        """What a file keeps of it."""
        yield "names", "folders", packed(list(self._tables["folder"]))
        for name, table in self._tables.items():
            for key, paths in table.items():
                yield f"names.{name}", key, packed(paths)

    def _found(self, table: str, key: str) -> list[str]:
        if self._kept is None:
            return self._tables[table].get(key, [])
        return self._kept.get(f"names.{table}", key, [])

    def _folders(self) -> Iterable[str]:
        if self._kept is None:
            return self._tables["folder"]
        return self._kept.get("names", "folders", [])


def _keys(path: str) -> list[tuple[str, str]]:
    keys = [("name", path.rpartition("/")[2].lower()), ("stem", stem_of(path))]
    folder = path.rpartition("/")[0]
    while folder:
        keys.append(("folder", folder.lower()))
        folder = folder.rpartition("/")[0]
    return keys


class Mentions(Plain):
    """How strongly each file is named, from 0 to 1, by the way it is named."""

    paths: dict[str, float]
    names: dict[str, float]
    folders: dict[str, float]
    symbols: dict[str, float]
    lines: dict[str, tuple[tuple[int, int], ...]]  # of the files that are named with lines


def stem_of(path: str) -> str:
    """A file's name without its endings, lower case: `git-cloner.test.ts` is `git-cloner`."""
    name = path.rpartition("/")[2].lstrip(".")
    return name.partition(".")[0].lower()


def mentions(prompt: str, names: Names, definers: Callable[[str], Collection[str]] | None = None) -> Mentions:
    """What the prompt names of these files. `definers` tells which define a name."""
    prompt = prompt[:PROMPT_CHARACTERS_MAX]
    paths: dict[str, float] = {}
    called: dict[str, float] = {}
    folders: dict[str, float] = {}
    lines: dict[str, list[tuple[int, int]]] = {}
    for match in _TOKEN.finditer(prompt):
        token = _cleaned(match.group())
        if "." not in token and "/" not in token:
            continue
        found = _resolved(token, names)
        share = 1 / len(found) if found else 0.0
        if found and _has_ending(token):
            _raise(paths, found, share)
        elif found:
            _raise(called, found, share)
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
            _raise(called, stems, 1 / len(stems) if is_code(word) else 0.5 / len(stems))
        if definers is not None and is_code(word) and (files := definers(word)):
            _raise(defined, files, 1 / len(files))
    return Mentions(
        paths=paths,
        names=called,
        folders=folders,
        symbols=defined,
        lines={path: tuple(dict.fromkeys(found)) for path, found in lines.items()},
    )


def is_any_named(text: str, names: Names) -> bool:
    """Whether a text names one of these files as `mentions` has it in `paths`; it costs much less."""
    tokens = (_cleaned(match.group()) for match in _TOKEN.finditer(text[:PROMPT_CHARACTERS_MAX]))
    return any(_has_ending(token) and _resolved(token, names) for token in tokens)


def names_in(prompt: str) -> set[str]:
    """The words of a prompt that may be names in code."""
    return set(_WORD.findall(prompt))


def is_code(word: str) -> bool:
    """Whether a word looks like a name in code: an inner capital, an underscore or a digit after a letter."""
    return "_" in word.strip("_") or (any(later.isupper() for later in word[1:]) and not word.isupper())


def _cleaned(token: str) -> str:
    token = token.replace("\\", "/").lstrip("@").strip("()[]")
    for prefix in ("./", "a/", "b/"):
        token = token.removeprefix(prefix)
    return token.rstrip(".")


def _resolved(token: str, names: Names) -> list[str]:
    if token.endswith("/"):
        return []
    if "/" in token:
        return names.ending(token)
    return names.called(token)


def _has_ending(token: str) -> bool:
    return "/" in token or "." in token.lstrip(".")


def _lines_after(prompt: str, end: int) -> list[tuple[int, int]]:
    """Lines that are written right behind a path, or soon after it."""
    match = _LINES.match(prompt, end) or _NEAR.search(prompt[end : end + NEAR_CHARACTERS].partition("\n")[0])
    if match is None:
        return []
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    return [(first, last)] if 0 < first <= last else []


def _raise(scores: dict[str, float], paths: Collection[str], share: float) -> None:
    for path in paths:
        scores[path] = max(scores.get(path, 0.0), share)
