"""The index of a working tree's files. It is saved in the data folder and updated when files have changed."""

from __future__ import annotations

import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from mica.errors import StoreUnavailable
from mica.navigation.engine.file_blocks import find_definitions, read_text
from mica.navigation.engine.inverted_index import count_terms
from mica.navigation.engine.lookup_file import LookupFile, build_file, pack
from mica.navigation.engine.tree import FileTree, IndexedFile
from mica.navigation.repository import Listing, list_files
from mica.private_files import replace_private
from mica.words import terms

VERSION = 2  # of the saved entries
READING_S = 10.0  # time to read new and changed files; the remaining files are read the next time
Stamp = tuple[int, int]  # size and time of the last change


class TreeIndex:
    """The index of one working tree: its files with their words. The saved copy may be deleted at any time."""

    def __init__(self, root: Path, file: Path | None) -> None:
        """`root` is the folder of the working tree. `file` is for the saved copy; None if it is not to be saved."""
        self.tree = FileTree()
        self._root = root
        self.file = file
        self._stamps: dict[str, Stamp] = {}
        self._is_loaded = False

    def refresh(self, *, within_s: float = READING_S) -> dict[str, str]:
        """Update the index with the files that have changed. Files are read for at most `within_s` seconds.

        Returns messages about what is missing from the index, by topic.
        """
        if not self._is_loaded:
            self._load()
        listing = list_files(self._root)
        late = self._update(listing, until_s=time.monotonic() + within_s)
        missing = dict(listing.missing)
        if late:
            missing["index"] = f"{late:,} of {len(listing.files):,} files are not read yet; try again"
        return missing

    def _update(self, listing: Listing, *, until_s: float) -> int:
        """Index the files in `listing` that have changed, and save the index. Files are read until `until_s`.

        Returns the number of files that were not read in time.
        """
        there = {file.path: (file.size_bytes, file.changed_ns) for file in listing.files}
        deleted = [path for path in self._stamps if path not in there]
        for path in deleted:
            self.tree.remove(path)
            del self._stamps[path]
        changed = [path for path, stamp in there.items() if self._stamps.get(path) != stamp]
        late = 0
        for path in changed:
            size_bytes = there[path][0]
            if time.monotonic() < until_s:
                self.tree.put(path, index_text(read_text(str(self._root), path), size_bytes=size_bytes))
                self._stamps[path] = there[path]
            else:
                late += 1
                if path not in self.tree:
                    self.tree.put(path, IndexedFile(size_bytes=size_bytes))
                    self._stamps[path] = (-1, 0)
        if changed or deleted:
            self._save()
        return late

    def _load(self) -> None:
        """Load the saved index if it can be read and is of this working tree; otherwise start with an empty index."""
        self._is_loaded = True
        if self.file is None:
            return
        try:
            with self.file.open("rb") as opened:
                saved = LookupFile(opened.fileno())
            if saved.get("index", "of", (0, "")) == (VERSION, str(self._root)):
                self.tree, self._stamps = FileTree(saved), saved.get("index", "stamps", {})
        except (OSError, ValueError, TypeError, EOFError):
            self.tree, self._stamps = FileTree(), {}

    def _save(self) -> None:
        """Save the index for hooks and later processes. If it cannot be written, nothing happens."""
        if self.file is None:
            return
        own = [("index", "of", pack((VERSION, str(self._root)))), ("index", "stamps", pack(self._stamps))]
        replace_file(self.file, build_file([*own, *self.tree.entries()]))


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file atomically. If it cannot be written, for example on a full disk, nothing happens."""
    with suppress(OSError, StoreUnavailable):
        replace_private(file, content)


def index_file(home: Path, *, space: str, root: Path) -> Path:
    """Return the path of the file in the data folder `home` in which the index of the working tree `root` is saved."""
    name = blake2b(str(root).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return home / "navigation" / f"{space}-{name}.index"


def index_text(text: str | None, *, size_bytes: int) -> IndexedFile:
    """Return the index entry of a file with this text. If `text` is None, the entry has only the size."""
    if text is None:
        return IndexedFile(size_bytes=size_bytes)
    return IndexedFile(
        terms=count_terms(terms(text)),
        symbols=tuple(dict.fromkeys(name for name, _ in find_definitions(text))),
        size_bytes=size_bytes,
    )
