"""What a hook says at a prompt: the answer of `navigate`, where the gate lets it speak.

Hooks load this file and what it imports from a folder of their own (`mica.navigation.engine_copy`), so none of them may import
anything but the standard library and the stemmer.
"""

from __future__ import annotations

from mica.navigation.engine.calibration import Weights
from mica.navigation.engine.file_text import text_of
from mica.navigation.engine.gate import CONSIDERED, listed, says_little, worth_saying
from mica.navigation.engine.lookup_file import Kept
from mica.navigation.engine.offers import told
from mica.navigation.engine.prediction import LIKELY_MAX, ask, explained, lines_in
from mica.navigation.engine.signals import Question
from mica.navigation.engine.task_history import Past
from mica.navigation.engine.tree import Tree
from mica.tokens import about

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mica.navigation.engine.file_blocks import Span
    from mica.navigation.engine.prediction import Asked, Found

    Walked = Sequence[Sequence[str]]  # the files of each prompt of a session, in order
    Spooled = Sequence[tuple[float, Sequence[str] | None]]  # when, and which files; None: a prompt


class Prompted:
    """A prompt, asked of a tree and a past that are kept in files."""

    def __init__(
        self, prompt: str, session: str, *, root: str, tree: int, past: int, spooled: Spooled = (), walked: Walked = ()
    ) -> None:
        """`tree` and `past` are files that are open for reading. Raises ValueError for one that was cut off.

        What the session did since they were written is `spooled`; or all of it is given, prompt by prompt, as `walked`.
        """
        self._known = known = Kept(past)
        self._prompt, self._root = prompt, root
        nothing: tuple[float, list[float], list[float]] = (0.0, [], [])
        self._worth: dict[str, float] = known.get("offers", "worth", {})
        start, slopes, off = known.get("offers", "weights", nothing)
        if not walked:
            walked = with_spooled(known.get("sessions", session, []), known.get("heard", session, 0.0), spooled)
        files, before = Tree(Kept(tree), read_only=True), Past(known)
        question = Question(text=prompt, session=tuple(tuple(each) for each in walked))
        self._asked: Asked = ask(files, before, question, Weights(start=start, slopes=slopes, off=off))
        self.places: list[Found] = explained(self._asked, before, limit=CONSIDERED)

    @property
    def likely(self) -> tuple[tuple[str, float], ...]:
        """The likeliest files with their probabilities, best first."""
        return self._asked.ranked[:LIKELY_MAX]

    def lines(self, path: str) -> tuple[Span, ...]:
        """Where in a file to begin; nowhere in one that cannot be read."""
        text = text_of(self._root, path)
        return () if text is None else lines_in(text, path, self._prompt, self._asked)[0]

    def last(self, path: str) -> tuple[str, float]:
        """The event that last read or changed a file, and when, in seconds since 1970; empty where none is known."""
        return self._known.get("last", path, ("", 0.0))

    def offer(self) -> tuple[str, list[str]]:
        """What is said, and which paths; nothing where it would cost more than it saves."""
        could = listed(self.places)
        if not self._pays(told((place.path, (), place.reasons) for place in could)):
            return "", []  # lines only add to what it costs, and files need not be read
        text = told((place.path, self.lines(place.path), place.reasons) for place in could)
        return (text, [place.path for place in could]) if self._pays(text) else ("", [])

    def _pays(self, text: str) -> bool:
        return bool(worth_saying(self._prompt, self.places, cost_tokens=about(text), worth=self._worth))


def with_spooled(walked: Walked, heard: float, spooled: Spooled) -> Walked:
    """The files of a session's prompts, those of what was done after the last that was heard of among them."""
    prompts = [list(each) for each in walked]
    is_next = not prompts
    for at, paths in spooled:
        if at <= heard:
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
    """What a hook says of a prompt, and which paths; often nothing."""
    if says_little(prompt):
        return "", []
    return Prompted(prompt, session, root=root, tree=tree, past=past, spooled=spooled).offer()
