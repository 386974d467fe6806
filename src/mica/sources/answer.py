"""The answer of one source: limited in size, with secrets removed. If it is incomplete, it says why."""

from __future__ import annotations

import time
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import msgspec

from mica.errors import MicaError, SourceFailed
from mica.redact import redact
from mica.sources.protocol import Concept, Fragment, Partial, Question, Source, SourceDeclaration

REASON_CHARACTERS_MAX = 500  # of the reason for a failure; it is recorded with every gather


class Degraded(msgspec.Struct, frozen=True, kw_only=True):
    """A source that did not answer, so that an earlier reply is shown instead. `age_s` is the age of that reply."""

    source: str
    reason: str
    age_s: float


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """The fragments that arrived in time, and the sources that gave no answer or an incomplete one."""

    fragments: tuple[Fragment, ...] = ()
    ranks: dict[str, int] = {}
    asked: tuple[str, ...] = ()  # every source that the question was for
    cached: tuple[str, ...] = ()  # sources whose cached reply was used
    missing: dict[str, str] = {}  # sources without a complete answer, each with the reason
    degraded: tuple[Degraded, ...] = ()

    def withhold_own(self, reason: str, *, name: str = "") -> Collected:
        """Return a copy without the fragments of each source that quotes events of this log.

        `missing` of the copy lists `name` with `reason`. If `name` is empty, it lists each of these sources instead.
        """
        own = {each.source for each in self.fragments if each.sources}
        return msgspec.structs.replace(
            self,
            fragments=tuple(each for each in self.fragments if each.source not in own),
            missing=self.missing | dict.fromkeys([name] if name else own, reason),
        )


class Answer(NamedTuple):
    """The fragments of one source. If some were left out, `missing` says why; otherwise it is empty."""

    fragments: tuple[Fragment, ...]
    characters: int = 0
    missing: str = ""


def limit(declared: SourceDeclaration, answered: object) -> Answer:
    fragments: list[Fragment] = []
    cut, characters = "", 0
    for each in islice(answered, declared.fragments_max + 1):  # type: ignore[call-overload]  # not iterable: the error is reported
        if not isinstance(each, Fragment):
            raise SourceFailed(declared.name, f"it gave a {type(each).__name__}, not a fragment")
        size = each.characters
        if len(fragments) == declared.fragments_max:
            cut = f"more than {declared.fragments_max} fragments; the first are used"
        elif characters + size > declared.characters_max:
            cut = f"more than {declared.characters_max:,} characters; the first {len(fragments)} fragments are used"
        if cut:
            break
        characters += size
        fragments.append(each if each.source == declared.name else msgspec.structs.replace(each, source=declared.name))
    return Answer(tuple(fragments), characters, cut)


def redact_answer(answer: Answer) -> Answer:
    """Return an answer with its secrets removed, so that it may be cached and shown to an agent."""
    texts = "\n".join([f"{each.key}\n{each.text}\n{each.locator}\n{each.value}" for each in answer.fragments])
    if redact(texts) == texts:  # nearly always, and one call for all of them
        return answer
    fragments = [
        msgspec.structs.replace(each, **{name: redact(text) for name, text in _texts(each).items()})
        for each in answer.fragments
    ]
    return answer._replace(fragments=tuple(fragments), characters=sum(each.characters for each in fragments))


def _texts(fragment: Fragment) -> dict[str, str]:
    value = {"value": fragment.value} if isinstance(fragment.value, str) else {}
    return {"key": fragment.key, "text": fragment.text, "locator": fragment.locator, **value}


def describe(error: BaseException) -> str:
    if isinstance(error, SourceFailed):
        return clean(error.reason)
    return clean(str(error) if isinstance(error, MicaError) else f"{type(error).__name__}: {error}")


def clean(reason: str) -> str:
    """Return the reason of a failure, shortened, in valid UTF-8, and with secrets removed.

    The error of a driver may repeat a secret, such as a password.
    """
    text = reason[: 4 * REASON_CHARACTERS_MAX].encode("utf-8", "replace").decode()
    return redact(text)[:REASON_CHARACTERS_MAX]


# -- A manual test --------------------------------------------------------------------------------------------------


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one source to a manual test, without cache and without other sources."""

    source: str
    concept: str
    fragments: tuple[Fragment, ...]
    missing: str  # what the answer lacks; empty when it is complete
    error: str  # why there is no answer; empty when there is one
    milliseconds: float


async def ask_once(source: Source, concept: Concept, *, now: datetime) -> ProbeResult:
    """Ask one source about a concept, without any cache. If the source fails, `error` of the result says why.

    Nothing is raised for a failure. As in a gather, the answer is cut to the limits of the source's declaration, and
    secrets are removed from it.
    """
    begun = time.perf_counter()
    answer, missing, failure = Answer(()), "", ""
    try:
        fragments = await source.fragments(Question(concept=concept, now=now))
        answer = redact_answer(limit(source.declared, fragments))
        missing = clean(fragments.missing) if isinstance(fragments, Partial) else ""
    except MicaError as error:
        failure = clean(str(error))
    return ProbeResult(
        source=source.declared.name,
        concept=str(concept),
        fragments=answer.fragments,
        missing=missing or answer.missing,
        error=failure,
        milliseconds=(time.perf_counter() - begun) * 1_000,
    )
