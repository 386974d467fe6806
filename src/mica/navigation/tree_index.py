"""The index of a working tree: in the user's data folder, never in the repository; made current by what changed."""

from __future__ import annotations

import os
import time
from hashlib import blake2b
from pathlib import Path

from mica.navigation.engine.fields import counted
from mica.navigation.engine.file_blocks import definitions
from mica.navigation.engine.file_text import text_of
from mica.navigation.engine.lookup_file import Kept, file_of, packed
from mica.navigation.engine.tree import Document, Tree
from mica.navigation.worktree import Listing, files_of
from mica.words import terms

VERSION = 2  # of what is kept of a file
READING_S = 10.0  # for files that are new or have changed; what is left is read the next time
Stamp = tuple[int, int]  # size, and when it was changed


class Index:
    """The files of one working tree with their words. What is on disk is a copy that may be deleted at any time."""

    def __init__(self, root: Path, file: Path | None) -> None:
        self.tree = Tree()
        self._root = root
        self.file = file
        self._stamps: dict[str, Stamp] = {}
        self._is_loaded = False

    def refresh(self, *, within_s: float = READING_S) -> dict[str, str]:
        """Make it current; returns what is missing from it, by name with the reason."""
        if not self._is_loaded:
            self._load()
        listing = files_of(self._root)
        late = self._update(listing, until_s=time.monotonic() + within_s)
        missing = dict(listing.missing)
        if late:
            missing["index"] = f"{late:,} of {len(listing.files):,} files are not read yet; ask again"
        return missing

    def _update(self, listing: Listing, *, until_s: float) -> int:
        """Take in what changed; returns how many files there was no time for."""
        there = {file.path: (file.size_bytes, file.changed_ns) for file in listing.files}
        gone = [path for path in self._stamps if path not in there]
        for path in gone:
            self.tree.remove(path)
            del self._stamps[path]
        changed = [path for path, stamp in there.items() if self._stamps.get(path) != stamp]
        late = 0
        for path in changed:
            size_bytes = there[path][0]
            if time.monotonic() < until_s:
                self.tree.put(path, document(text_of(str(self._root), path), size_bytes=size_bytes))
                self._stamps[path] = there[path]
            else:
                late += 1
                if path not in self.tree:
                    self.tree.put(path, Document(size_bytes=size_bytes))
                    self._stamps[path] = (-1, 0)
        if changed or gone:
            self._save()
        return late

    def _load(self) -> None:
        """What was kept, if it can be read and is of this root; else nothing, and all is read again."""
        self._is_loaded = True
        if self.file is None:
            return
        try:
            with self.file.open("rb") as opened:
                kept = Kept(opened.fileno())
            if kept.get("index", "of", (0, "")) == (VERSION, str(self._root)):
                self.tree, self._stamps = Tree(kept), kept.get("index", "stamps", {})
        except (OSError, ValueError, TypeError, EOFError):
            self.tree, self._stamps = Tree(), {}

    def _save(self) -> None:
        """Keep it for hooks and for the next process. Where that cannot be written, it is made again."""
        if self.file is None:
            return
        own = [("index", "of", packed((VERSION, str(self._root)))), ("index", "stamps", packed(self._stamps))]
        write(self.file, file_of([*own, *self.tree.entries()]))


def write(file: Path, content: bytes) -> None:
    """Replace a file as a whole; others see the old one or the new one. A folder that is full or closed is let be."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.write_bytes(content)
        draft.chmod(0o600)
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)


def index_file(home: Path, *, space: str, root: Path) -> Path:
    """Where the index of a working tree is kept."""
    name = blake2b(str(root).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return home / "navigation" / f"{space}-{name}.index"


def document(text: str | None, *, size_bytes: int) -> Document:
    """What an index keeps of a text; of what is no text, its size."""
    if text is None:
        return Document(size_bytes=size_bytes)
    return Document(
        terms=counted(terms(text)),
        symbols=tuple(dict.fromkeys(name for name, _ in definitions(text))),
        size_bytes=size_bytes,
    )
