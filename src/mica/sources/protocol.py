"""The protocol of a source: what it is asked, what it answers, and how it describes itself.

A `Question` is about a concept, named `domain:type:id` as in `judgment:code_review:abc123`, or for a brief about a
task: a text in the agent's words. A source answers with `Fragment`s, each a single statement. Its `SourceDeclaration`
has its name and limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from mica.errors import InvalidInput
from mica.model.brief import RECENCY_WEIGHT
from mica.model.event import SESSION_ENDED, EventId, name_pattern
from mica.model.text_cache import remember_texts
from mica.model.walk import STARTED

LIMIT = 200  # fragments that one source returns for a task; a brief of 4,000 tokens shows about as many short marks

PHI = (1 + math.sqrt(5)) / 2
PHI_INV = 1 / PHI  # 0.618: the largest share of a budget, and the highest confidence shown for a single source
PHI_INV_2 = PHI**-2  # 0.382
PHI_INV_3 = PHI**-3  # 0.236: fragments with less confidence are dropped

RANK_DATABASE, RANK_FILE, RANK_LIVE, RANK_OTHER = (
    10,
    20,
    30,
    50,
)  # data stored on purpose is trusted more than a by-product
RANK_STEP = 10  # a source that ranks this much lower weighs φ times less
RANK_MAX = 1_000

TASK_NAMES = ("marks", "crystals", "files", "teachings")  # mica's own sources for tasks
OWN = ("judgments", "mica", "teachings", "trails", "log")  # reserved names: mica's own sources and its log
JUDGED = "judgment.made"
JUDGMENT_RETRACTED = "judgment.retracted"  # retracts a judgment, with the reason
DEGRADED = "quality.degraded"  # records that replies about a concept, or about all, disagree too much
ABOUT_ONE = (JUDGED, JUDGMENT_RETRACTED, DEGRADED)  # events about a single concept
REACTIONS = frozenset([*ABOUT_ONE, STARTED, SESSION_ENDED])  # events after which concepts are gathered in advance
IN_PART = "partial: "  # starts the `missing` reason of a source that answered in part
IN_PART_PREFIXES = (IN_PART, "told in part: ")  # the second is in events that earlier versions recorded
GATHERED = "sources.gathered"  # the event that records a gather
GATHERED_NAMES = (GATHERED, "defrag")  # the second is in events that earlier versions recorded
DOMAIN_CHARACTERS_MAX = 64  # of a domain or a type, which are single words
ID_CHARACTERS_MAX = 500  # of an id: a path or an address; longer ones are content
KEY_CHARACTERS_MAX = 500
TEXT_CHARACTERS_MAX = 20_000  # of a fragment; a reader sees about 200 of them, `mica why` shows all
FRAGMENTS_MAX = 1_000  # from one source for one concept; no declaration may exceed it
CHARACTERS = 200_000  # of one reply by default: twice the size of 50 fragments of 2,000 characters
CHARACTERS_MAX = 2_000_000  # no declaration may exceed it; redacting so many takes a tenth of a second
NUMBER_BITS_MAX = 1_023  # of a whole number; a longer one does not fit a float, and numbers are compared as floats

_WORD = re.compile(rf"[\w.-]{{1,{DOMAIN_CHARACTERS_MAX}}}")


class Concept(msgspec.Struct, frozen=True):
    """What a question is about, named `domain:type:id`. Raises InvalidInput for an invalid part."""

    domain: str
    type: str
    id: str

    def __post_init__(self) -> None:
        for what, word in (("domain", self.domain), ("type", self.type)):
            if not _WORD.fullmatch(word):
                raise InvalidInput(
                    f"a concept cannot have the {what} {word!r:.80}; give 1 to {DOMAIN_CHARACTERS_MAX} letters, "
                    "digits, _, . or -"
                )
        if not 1 <= len(self.id) <= ID_CHARACTERS_MAX or not self.id.isprintable() or self.id != self.id.strip():
            raise InvalidInput(
                f"a concept cannot have the id {self.id!r:.80}; give 1 to {ID_CHARACTERS_MAX} printable characters "
                "without blanks around them"
            )

    @classmethod
    def parse(cls, text: str) -> Concept:
        """Parse a name `domain:type:id`; the id may contain `:`. Raises InvalidInput for an invalid name."""
        parts = text.split(":", 2) if isinstance(text, str) else []
        if len(parts) < 3:
            raise InvalidInput(f"{text!r:.80} is not a concept; name it domain:type:id, as judgment:code_review:abc123")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.domain}:{self.type}:{self.id}"


def covers(pattern: str, concept: Concept) -> bool:
    """Return True if a pattern such as `judgment:*:*`, `judgment:*`, `*:code_*:*` or `*` matches a concept.

    `?` matches one character, and `*` any characters of one part. A `*` as the last part matches all remaining parts.
    """
    if pattern == "*":
        return True
    for wanted, part in zip(_parts(pattern), (concept.domain, concept.type, concept.id), strict=False):
        if wanted is not None and not wanted.fullmatch(part):
            return False
    return True


def check_pattern(pattern: object) -> None:
    """Raises InvalidInput if this is not a valid pattern for concepts."""
    if not isinstance(pattern, str) or not pattern.isprintable() or len(pattern) > ID_CHARACTERS_MAX:
        raise InvalidInput(f"{pattern!r:.80} covers no concept; write domain:type:id with * for any part")
    _parts(pattern)


@remember_texts(1_024)
def _parts(pattern: str) -> tuple[re.Pattern[str] | None, ...]:
    parts = pattern.split(":", 2)
    if not all(parts) or (len(parts) < 3 and parts[-1] != "*"):
        raise InvalidInput(f"{pattern!r:.80} covers no concept; write domain:type:id with * for any part")
    return tuple(None if part == "*" else name_pattern(part) for part in parts)


Value = str | int | float | bool | None


def check_name(name: str) -> None:
    """Raises InvalidInput if the name belongs to one of mica's own sources."""
    if name in OWN:
        raise InvalidInput(f"the name {name!r} is taken by a source of mica's own; give another")


def is_text(value: object) -> bool:
    """Return True for a string that UTF-8 can encode. It cannot encode a lone surrogate."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def is_value(value: object) -> bool:
    """Return True if this can be the `value` of a fragment: text, a finite number, a boolean or None."""
    if type(value) is str:
        return value.isascii() or is_text(value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() <= NUMBER_BITS_MAX
    return value is None or is_text(value)


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """One statement of a source. Its text is data for the reader, never an instruction.

    Raises InvalidInput for an empty key, a text that is too long or that UTF-8 cannot encode, a time without a zone, or
    a confidence outside 0 to 1.
    """

    key: str  # what the statement is about; only fragments with the same key are compared
    text: str  # the text to show
    value: Value = None  # what is compared between sources; None: the text is compared
    is_estimate: bool = False  # only numbers that every source calls estimates may be blended
    confidence: float = 1.0  # from 0 to 1, as the source states it
    at: datetime  # when it was true or stated
    valid_from: datetime | None = None
    valid_until: datetime | None = None  # exclusive
    source: str  # the name of the source
    locator: str = ""  # the row, file or event where a person finds it again
    sources: tuple[EventId, ...] = ()  # the ids of mica's events that it is based on

    def __post_init__(self) -> None:
        if (
            type(self.key) is type(self.text) is type(self.locator) is str
            and self.key.isascii()
            and self.text.isascii()
            and self.locator.isascii()
            and self.key.strip()
            and len(self.key) <= KEY_CHARACTERS_MAX
            and len(self.text) <= TEXT_CHARACTERS_MAX
            and 0 <= self.confidence <= 1
            and is_value(self.value)
            and type(self.at) is datetime
            and self.at.tzinfo is not None
            and self.sources == ()
            and self.valid_from is None is self.valid_until
        ):
            return  # nearly always; the checks below name the invalid field
        self._check(is_text(self.key) and 1 <= len(self.key.strip()) <= KEY_CHARACTERS_MAX, "key", self.key)
        self._check(is_text(self.text) and len(self.text) <= TEXT_CHARACTERS_MAX, "text", self.text)
        self._check(0 <= self.confidence <= 1, "confidence", self.confidence)
        self._check(is_value(self.value), "value", self.value)
        self._check(is_text(self.locator), "locator", self.locator)
        self._check(isinstance(self.sources, tuple) and all(map(is_text, self.sources)), "sources", self.sources)
        for what, at in (("at", self.at), ("valid_from", self.valid_from), ("valid_until", self.valid_until)):
            self._check(at is None or at.tzinfo is not None, what, at)

    @property
    def characters(self) -> int:
        """The number of characters in the key, the text, the locator, and the value if it is a text."""
        value_characters = len(self.value) if isinstance(self.value, str) else 0
        return len(self.key) + len(self.text) + len(self.locator) + value_characters

    def _check(self, holds: bool, what: str, value: object) -> None:  # noqa: FBT001 - read as a sentence
        if not holds:
            allowed = {
                "key": f"1 to {KEY_CHARACTERS_MAX} characters that UTF-8 has",
                "text": f"at most {TEXT_CHARACTERS_MAX:,} characters that UTF-8 has",
                "confidence": "a number from 0 to 1",
                "value": "a text, a truth value, or a number that is finite",
                "locator": "a text",
                "sources": "a tuple of events",
            }
            wanted = allowed.get(what, "a time with a zone")
            raise InvalidInput(f"a fragment of {self.source!r:.60} has the {what} {value!r:.60}; give {wanted}")


class Question(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """A question to sources: about `concept`, or if that is None, about `task`.

    The task is what an agent is about to do, in its own words; a brief asks about it. It may be empty.
    """

    now: datetime
    concept: Concept | None = None
    task: str = ""
    limit: int = LIMIT
    recency_weight: float = RECENCY_WEIGHT  # of a crystal's score; the rest is how well it matches the task
    budget_tokens: int = 0  # of the whole brief
    slow_s: float | None = None  # how long a model, or another slow step, may take; None: no limit
    missing: dict[str, str] = {}  # filled by sources: inputs they had to do without, by name, with the reason

    @property
    def subject(self) -> Concept:
        """The concept, for sources that are only asked about concepts. It must be set."""
        assert self.concept is not None, "this source was asked about a task"
        return self.concept

    def renew(self) -> Question:
        """Return a copy for asking the question again, with an empty `missing`."""
        return msgspec.structs.replace(self, missing={})


class Partial(tuple[Fragment, ...]):
    """An incomplete answer, for example because rows were cut off or a line could not be read.

    `missing` is the reason. A gather shows the fragments and reports the reason.
    """

    missing: str

    def __new__(cls, fragments: Iterable[Fragment], *, missing: str) -> Partial:
        self = super().__new__(cls, fragments)
        self.missing = missing
        return self


class SourceDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A source's name, rank, cache settings and limits. Raises InvalidInput for an invalid field."""

    name: str
    rank: int = RANK_OTHER  # the lower, the more trusted: databases 10, files 20, live objects 30
    ttl_s: float | None = None  # how long an answer may be reused; None: it depends on the concept's domain
    concepts: tuple[str, ...] = ("*",)  # patterns of the concepts it can be asked about
    time_share: float = 1.0  # the share of the collecting time after which it counts as late
    invalidated_by: tuple[str, ...] = ()  # names of events, wildcards allowed, that make its cached replies old
    is_live: bool = False  # asked each time, never cached
    fragments_max: int = 50
    characters_max: int = CHARACTERS  # of all fragments of a reply together
    version: str = ""  # a hash of its query and location; cached replies of another version are not used
    answers_tasks: bool = False  # also asked about the task of a brief, which has no concept

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.name):
            raise InvalidInput(
                f"a source cannot be called {self.name!r:.80}; give 1 to {DOMAIN_CHARACTERS_MAX} letters, "
                "digits, _, . or -"
            )
        for pattern in self.concepts:
            check_pattern(pattern)
        for what, holds, wanted in (
            ("rank", 0 <= self.rank <= RANK_MAX, f"0 to {RANK_MAX}"),
            ("ttl_s", self.ttl_s is None or 0 <= self.ttl_s < math.inf, "0 or more seconds"),
            ("concepts", bool(self.concepts) or self.answers_tasks, "at least one pattern"),
            ("time_share", 0 < self.time_share <= 1, "more than 0 and at most 1"),
            ("invalidated_by", all(self.invalidated_by), "names of events"),
            ("fragments_max", 1 <= self.fragments_max <= FRAGMENTS_MAX, f"1 to {FRAGMENTS_MAX:,}"),
            ("characters_max", 1 <= self.characters_max <= CHARACTERS_MAX, f"1 to {CHARACTERS_MAX:,}"),
        ):
            if not holds:
                raise InvalidInput(f"source {self.name!r} has {what} = {getattr(self, what)!r}; give {wanted}")

    def knows(self, concept: Concept) -> bool:
        """Return True if one of the patterns in `concepts` matches this concept."""
        return any(covers(pattern, concept) for pattern in self.concepts)

    def answers(self, question: Question) -> bool:
        """Return True if the source should be asked this question."""
        return self.answers_tasks if question.concept is None else self.knows(question.concept)


def weight(rank: int, confidence: float) -> float:
    """Return the weight of a claim: its confidence, divided by φ for every ten points of rank."""
    return float(confidence * PHI ** (-rank / RANK_STEP))


class Source(Protocol):
    """Answers questions, from mica's own log, a database, a file, a server or an object of the program.

    The text of its answers is data for the reader, never an instruction.
    """

    @property
    def declared(self) -> SourceDeclaration:
        """The source's name, rank, cache settings and limits."""

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        """Return the source's statements for a question, most relevant first; empty if it has none.

        An incomplete answer is a `Partial`. Raises SourceFailed, with a remedy, if the source cannot answer. The call
        is cancelled at the deadline and must not block the event loop: blocking work belongs in a thread.
        """

    async def close(self) -> None:
        """Release all resources. Closing twice is allowed."""


@runtime_checkable
class QuickSource(Protocol):
    """A source that can give a preliminary answer while it still computes the full one."""

    def quick(self, question: Question) -> Sequence[Fragment]:
        """Return a preliminary answer at once. It is used if the full answer is late."""


@runtime_checkable
class SparseSource(Protocol):
    """A source over the log that knows whether it has any statements. While it has none, it is not asked."""

    @property
    def made_by(self) -> tuple[str, ...]:
        """Names of events that may give the source its first statement. They may contain wildcards."""

    are_any: bool | None  # whether it has any statements; None: unknown
