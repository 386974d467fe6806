"""What ranks files, written out for hooks: a `mica` that holds nothing but the modules which a prompt's answer needs.

A hook cannot import the real one: what stands around these modules takes longer to start than it may take in all.
"""

from __future__ import annotations

import py_compile
import shutil
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

import mica.events

MODULES = (
    "words.py",
    "tokens.py",
    "navigation/engine/file_text.py",
    *(
        f"select/navigation/{name}.py"
        for name in "plain kept fields mentions past tree signals features calibrate gate reasons ranges asking".split()
    ),
    "navigation/engine/offers.py",
    "navigation/engine/prompt.py",
)
FOLDERS = ("", "observe", "select", "select/navigation", "inject")
FOLDER = "engine"
OLD_MAX = 3  # engines of other versions that stay: hooks may be reading by them


def engine(home: Path) -> Path:
    """The folder that hooks import the engine from, in the data folder; written unless it is there."""
    sources = {name: (_PACKAGE / name).read_bytes() for name in MODULES}
    told = blake2b(digest_size=6)
    for name, source in sources.items():
        told.update(name.encode() + b"\0" + source + b"\0")
    folder = home / FOLDER / told.hexdigest()
    if not folder.is_dir():
        _write(folder, sources)
    return folder


def stemmer() -> Path | None:
    """Where the stemmer is imported from, the one library that the engine needs."""
    found = find_spec("Stemmer")
    return None if found is None or found.origin is None else Path(found.origin).parent


_PACKAGE = Path(mica.events.__file__).parent.parent


def _write(folder: Path, sources: dict[str, bytes]) -> None:
    """Write it beside, compiled, and put it into its place; who was quicker has written the same."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = folder.with_name(f".{folder.name}.{id(sources):x}")
    shutil.rmtree(new, ignore_errors=True)
    for name in FOLDERS:
        (new / "mica" / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        sources[f"{name}/__init__.py".lstrip("/")] = b""
    for name, source in sources.items():
        path = new / "mica" / name
        path.write_bytes(source)
        py_compile.compile(
            str(path),
            cfile=None,
            dfile=str(folder / "mica" / name),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    try:
        new.rename(folder)
    except OSError:  # somebody was quicker
        shutil.rmtree(new, ignore_errors=True)
    others = sorted((each for each in folder.parent.iterdir() if each != folder), key=lambda each: each.stat().st_mtime)
    for old in others[:-OLD_MAX]:
        shutil.rmtree(old, ignore_errors=True)
