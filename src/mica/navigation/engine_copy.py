"""Write a copy of the prompt engine for hooks: a small `mica` package with only the modules that answer a prompt.

A hook cannot import the whole package, because the import alone exceeds a hook's time limit.
"""

from __future__ import annotations

import py_compile
import shutil
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

import mica.events
from mica.navigation.engine.prompt import answer

ENGINE = "navigation/engine"
ENTRY = f"{answer.__module__}:{answer.__name__}"  # the function that hooks call
OLD_ENTRY = "inject/prompting.py"  # imported by older hook launchers, which were installed before ENTRY existed
FOLDERS = ("", "navigation", ENGINE, "inject")
FOLDER = "engine"
OLD_MAX = 3  # number of copies of other versions that are not deleted, because hooks may be using them


def write_engine(home: Path) -> Path:
    """Write the copy into the data folder `home` if it is missing, and return the folder that hooks import it from."""
    names = ["words.py", "tokens.py", *sorted(f"{ENGINE}/{path.name}" for path in (_PACKAGE / ENGINE).glob("*.py"))]
    sources = {name: (_PACKAGE / name).read_bytes() for name in names if not name.endswith("__init__.py")}
    sources[OLD_ENTRY] = f"from {answer.__module__} import {answer.__name__}\n".encode()
    digest = blake2b(digest_size=6)
    for name, source in sources.items():
        digest.update(name.encode() + b"\0" + source + b"\0")
    folder = home / FOLDER / digest.hexdigest()
    if not folder.is_dir():
        _write(folder, sources)
    return folder


def find_stemmer() -> Path | None:
    """The folder of the `Stemmer` library, the only library that the engine needs; None if it is not installed."""
    spec = find_spec("Stemmer")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


_PACKAGE = Path(mica.events.__file__).parent.parent


def _write(folder: Path, sources: dict[str, bytes]) -> None:
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
    except OSError:  # another process has written the same
        shutil.rmtree(new, ignore_errors=True)
    others = sorted((each for each in folder.parent.iterdir() if each != folder), key=lambda each: each.stat().st_mtime)
    for old in others[:-OLD_MAX]:
        shutil.rmtree(old, ignore_errors=True)
