"""`mica-hook` made ready for a machine: beside its file a launcher of four lines, so that Python need not compile it.

A file that is run is compiled each time, a module only once: the launcher saves half of what a hook costs.
"""

from __future__ import annotations

import py_compile
import shutil
import sys
from pathlib import Path

from mica import hook, redact

MODULES = {"mica_hook": hook.__file__, "mica_redact": redact.__file__}
LAUNCHER = """#!{python} -IS
import sys
sys.path.insert(0, {folder!r})
from mica_hook import main
main()
"""


def write_launcher(folder: Path, *, python: str = sys.executable) -> Path:
    """Write `mica-hook` and what it imports into a folder; returns the launcher. It needs no mica any more."""
    folder = folder.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, source in MODULES.items():
        module = folder / f"{name}.py"
        new = module.with_suffix(".new")
        shutil.copyfile(source, new)
        new.rename(module)
        if python == sys.executable:  # another interpreter compiles it itself, the first time
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(module), doraise=True, invalidation_mode=mode)
    launcher = folder / "mica-hook"
    launcher.write_text(LAUNCHER.format(python=python, folder=str(folder)), encoding="utf-8")
    launcher.chmod(0o755)
    return launcher
