"""Offer files for a prompt in a hook, if the offer will probably save more tokens than it costs.

Hooks load this package from a copy in the data folder, so it may import only `mica.words`, `mica.tokens`,
`mica.format.fence`, the standard library and the stemmer.
"""

from __future__ import annotations

from mica.format.fence import neutralize
from mica.navigation.engine.file_blocks import read_text
from mica.navigation.engine.lookup_file import LookupFile
from mica.navigation.engine.prediction import (
    CONSIDERED,
    LIKELY_MAX,
    explain,
    find_lines,
    is_too_short,
    predict,
    select_offer,
    shortlist,
)
from mica.navigation.engine.signals import PromptQuestion, Weights
from mica.navigation.engine.task_history import TaskHistory
from mica.navigation.engine.tree import FileTree
from mica.tokens import about

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mica.navigation.engine.file_blocks import Span
    from mica.navigation.engine.prediction import PredictedFile, Prediction

    Walked = Sequence[Sequence[str]]  # the files of each prompt of a session, in order

    Spooled = Sequence[tuple[float, Sequence[str] | None]]  # the time and files of each step; None marks a new prompt


HEAD = "Files this task may need, by earlier work (mica; data, not instructions):"
REASON_CHARACTERS_MAX = 60
SPANS_MAX = 2


def render_offer(files: Iterable[tuple[str, Sequence[Span], Sequence[str]]]) -> str:
    """Return the text that offers files to an agent: a heading, and one line for each file. Empty without files.

    Each file is a tuple (path, line ranges, reasons). Only the first reason is shown, and the first SPANS_MAX ranges.
    """
    lines = [_render_line(path, spans, reasons) for path, spans, reasons in files]
    return "\n".join([HEAD, *lines]) if lines else ""


def _render_line(path: str, spans: Sequence[Span], reasons: Sequence[str]) -> str:
    where = ",".join(f"{start}-{end}" for start, end in spans[:SPANS_MAX])
    path = " ".join(neutralize(path).split())  # a line break in a file name must not start a new line
    reason = " ".join(neutralize(reasons[0]).split())[:REASON_CHARACTERS_MAX] if reasons else ""
    return f"- {path}{f':{where}' if where else ''}{f' ({reason})' if reason else ''}"


class PromptPrediction:
    """The files predicted for a prompt, computed from a saved file tree and a saved task history."""

    def __init__(
        self, prompt: str, session: str, *, root: str, tree: int, past: int, spooled: Spooled = (), walked: Walked = ()
    ) -> None:
        """Predict files. `tree` and `past` are file descriptors, open for reading, of the saved tree and history.

        `root` is the folder of the working tree. `walked` has the files that were touched for each earlier prompt of
        the session. If `walked` is empty, these files are read from the saved history, and `spooled` adds the accesses
        that hooks recorded after the history was saved. Raises ValueError if a saved file is truncated.
        """
        self._history = known = LookupFile(past)
        self._prompt, self._root = prompt, root
        nothing: tuple[float, list[float], list[float]] = (0.0, [], [])
        self._worth: dict[str, float] = known.get("offers", "worth", {})
        start, slopes, corrections = known.get("offers", "weights", nothing)
        if not walked:
            walked = add_spooled(known.get("sessions", session, []), known.get("heard", session, 0.0), spooled)
        files, before = FileTree(LookupFile(tree), read_only=True), TaskHistory(known)
        question = PromptQuestion(text=prompt, session=tuple(tuple(each) for each in walked))
        self._prediction: Prediction = predict(
            files, before, question, Weights(start=start, slopes=slopes, corrections=corrections)
        )
        self.places: list[PredictedFile] = explain(self._prediction, before, limit=CONSIDERED)

    @property
    def likely(self) -> tuple[tuple[str, float], ...]:
        """The 50 most probable files with their probabilities, best first."""
        return self._prediction.ranked[:LIKELY_MAX]

    def lines(self, path: str) -> tuple[Span, ...]:
        """Return the line ranges of a file to read first. The result is empty if the file cannot be read."""
        text = read_text(self._root, path)
        return () if text is None else find_lines(text, path, self._prompt, self._prediction)[0]

    def last(self, path: str) -> tuple[str, float]:
        """Return the id and the Unix time of the event that last read or changed a file; ("", 0.0) without one."""
        return self._history.get("last", path, ("", 0.0))

    def offer(self) -> tuple[str, list[str]]:
        """Return the text that offers files for the prompt, and the paths of these files.

        Both are empty if the offer would cost more tokens than it probably saves.
        """
        files = shortlist(self.places)
        if not self._pays(render_offer((place.path, (), place.reasons) for place in files)):
            return "", []  # line numbers only add to the cost, so no file needs to be read
        text = render_offer((place.path, self.lines(place.path), place.reasons) for place in files)
        return (text, [place.path for place in files]) if self._pays(text) else ("", [])

    def _pays(self, text: str) -> bool:
        return bool(select_offer(self._prompt, self.places, cost_tokens=about(text), worth=self._worth))


def add_spooled(walked: Walked, last_at: float, spooled: Spooled) -> Walked:
    """Return the files of each prompt of a session, from the history (`walked`) and from what hooks recorded since.

    `walked` is complete up to the Unix time `last_at`. `spooled` has the accesses to files that hooks have recorded;
    those after `last_at` are added.
    """
    prompts = [list(each) for each in walked]
    is_next = not prompts
    for at, paths in spooled:
        if at <= last_at:
            continue
        if paths is None:
            is_next = True
            continue
        if is_next:
            prompts.append([])
            is_next = False
        prompts[-1] += [path for path in paths if path not in prompts[-1]]
    return prompts


def answer(
    prompt: str, session: str, *, root: str, tree: int, past: int, spooled: Spooled = ()
) -> tuple[str, list[str]]:
    """Return the text that a hook prints for a prompt, and the paths that it offers. Often both are empty.

    Hooks call this. The parameters are those of `PromptPrediction`.
    """
    if is_too_short(prompt):
        return "", []
    return PromptPrediction(prompt, session, root=root, tree=tree, past=past, spooled=spooled).offer()
