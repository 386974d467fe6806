"""The copy of the prompt engine that hooks import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mica.brief.hook_answers import ENTRY, find_stemmer, write_engine
from mica.hook import OLD_ENTRY


def test_the_current_entry_and_the_one_of_old_launchers_are_the_same_function(tmp_path: Path) -> None:
    """A launcher that an older mica installed imports OLD_ENTRY from the engine that `prompt.json` names."""
    (module, function), (old_module, old_function) = ENTRY.split(":"), OLD_ENTRY.split(":")
    program = (
        f"import sys; sys.path[:0] = [{str(write_engine(tmp_path))!r}, {str(find_stemmer())!r}];"
        f"from {module} import {function} as new; from {old_module} import {old_function} as old; print(new is old)"
    )

    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, check=True)

    assert done.stdout == b"True\n"
