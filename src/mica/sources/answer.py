"""The answer of one source. Its size is limited, and secrets are removed; an incomplete answer says what is missing."""

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
    """A source that did not answer, so that an earlier reply of it is used instead.

    `reason` says why the source did not answer, and `age_s` is the age of the earlier reply.
    """

    source: str
    reason: str
    age_s: float


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """The fragments that arrived in time, and the sources that gave no answer or an incomplete one."""

    fragments: tuple[Fragment, ...] = ()
    ranks: dict[str, int] = {}  # the rank of each source, by name
    asked: tuple[str, ...] = ()  # the sources that should answer the question, with or without an answer
    cached: tuple[str, ...] = ()  # the sources whose cached reply was used instead of a call
    missing: dict[str, str] = {}  # the sources without a complete answer, each with the reason
    degraded: tuple[Degraded, ...] = ()  # the sources that did not answer, and whose earlier reply is used instead

    def withhold_own(self, reason: str, *, name: str = "") -> Collected:
        """Return a copy without any fragment of a source that has fragments based on events of this log.

        `missing` of the copy has an entry with `reason` under `name`. If `name` is empty, it has such an entry under
        the name of each source whose fragments were removed.
        """
        own = {each.source for each in self.fragments if each.sources}
        return msgspec.structs.replace(
            self,
            fragments=tuple(each for each in self.fragments if each.source not in own),
            missing=self.missing | dict.fromkeys([name] if name else own, reason),
        )


class Answer(NamedTuple):
    """The fragments of one source. If some were left out, `missing` says why; otherwise `missing` is empty."""

    fragments: tuple[Fragment, ...]
    characters: int = 0  # of all fragments together
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
    """Return the reason of a failure with at most REASON_CHARACTERS_MAX characters, and without secrets.

    Secrets are removed because the error message of a driver may repeat one, such as a password.
    """
    text = reason[: 4 * REASON_CHARACTERS_MAX].encode("utf-8", "replace").decode()
    return redact(text)[:REASON_CHARACTERS_MAX]


# -- A manual test --------------------------------------------------------------------------------------------------


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a manual test of one source: the source was called directly, and no cached reply was used."""

    source: str
    concept: str
    fragments: tuple[Fragment, ...]
    missing: str  # what the answer lacks; empty if it is complete, or if there is none
    error: str  # why there is no answer; empty if there is one
    milliseconds: float


async def ask_once(source: Source, concept: Concept, *, now: datetime) -> ProbeResult:
    """Ask one source about a concept, without any cache, and return its answer or its error.

    A MicaError that the source raises, such as SourceFailed, is not raised here: `error` of the result describes it.
    As in a gather, the answer is cut to the limits of the source's declaration, and secrets are removed from it.
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
