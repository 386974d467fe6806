"""Files of code with an anchor in them."""

from __future__ import annotations

from pathlib import Path

from mica.navigation.anchors.anchor import Anchor, anchor

CODE = (
    "import os\n\n\ndef first():\n    return os.name\n\n\ndef second(value):\n    total = value + 1\n    return total\n"
)


def write(root: Path, path: str, text: str) -> Anchor:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")
    return anchor(path, text, 8, 10)
