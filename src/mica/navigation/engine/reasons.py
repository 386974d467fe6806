"""Why a file is offered, in words."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica.navigation.engine.signals import Signals
    from mica.navigation.engine.task_history import Past
    from mica.navigation.places import Tier

QUOTED_CHARACTERS = 60
STRONG = 0.25  # of a signal's best score, from which on it is a reason
REASONS_MAX = 3
SURE = 0.5  # of a name: one file has it, and it is written as code writes it


def reasons_for(path: str, found: Signals, past: Past, *, among: list[str]) -> tuple[str, ...]:
    """What speaks for this file, the strongest kind first. `among` are the files offered with it."""
    told: list[str] = []
    if path in found.mentions.paths or found.mentions.names.get(path, 0.0) > SURE:
        told.append("named in the prompt")
    elif path in found.mentions.names:
        told.append("has a word of the prompt for a name")
    elif path in found.mentions.folders:
        told.append("in a folder that the prompt names")
    if path in found.mentions.symbols:
        told.append("defines a name of the prompt")
    if path in found.scores["session"]:
        told.append("this session")
    if strong(found, "prompts", path):
        told.append(f"similar task: {_quoted(found.similar.best[path])}")
    if strong(found, "subjects", path):
        told.append(f"changed for {_quoted(found.subjects.best[path])}")
    if strong(found, "content", path) or strong(found, "path_words", path):
        told.append("words of the prompt")
    if strong(found, "walk", path) and (other := past.companion(path, among)):
        told.append(f"goes together with {other}")
    if not told:
        told.append("used lately" if path in found.scores["recent"] else "often changed, nothing else speaks for it")
    return tuple(told[:REASONS_MAX])


def tier_of(path: str, found: Signals) -> Tier:
    """How it was found (K-05)."""
    if path in found.mentions.paths:
        return "named"
    walked = ("session", "prompts", "subjects", "walk")
    return "walked" if any(path in found.scores[signal] for signal in walked) else "words"


def strong(found: Signals, signal: str, path: str) -> bool:
    scores = found.scores[signal]
    return path in scores and scores[path] >= STRONG * found.tops[signal]


def _quoted(text: str) -> str:
    text = " ".join(text.split())
    return f"«{text if len(text) <= QUOTED_CHARACTERS else text[: QUOTED_CHARACTERS - 1] + '…'}»"
