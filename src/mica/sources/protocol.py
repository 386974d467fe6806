"""The protocol of sources, with their questions, answers and declarations.

A `Question` is either about a concept, named `domain:type:id` as in `judgment:code_review:abc123`, or about a task,
which is a text in the agent's words. Briefs ask about tasks. A source answers with `Fragment`s, each a single
statement. A `SourceDeclaration` describes a source: its name, rank, cache settings and limits.
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
from mica.model.event import JUDGED, JUDGMENT_RETRACTED, SESSION_ENDED, EventId, name_pattern
from mica.model.text_cache import remember_texts
from mica.model.walk import STARTED

LIMIT = 200  # the most fragments of one source for a task; a brief of 4,000 tokens shows about as many short marks

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
RANK_STEP = 10  # if the rank of its source is higher by this number, the weight of a statement is divided by φ
RANK_MAX = 1_000

TASK_NAMES = ("marks", "crystals", "files", "teachings")  # mica's own sources for tasks
OWN = ("judgments", "mica", "teachings", "trails", "log")  # reserved names: mica's own sources and its log
DEGRADED = "quality.degraded"  # records that replies about a concept, or about all concepts, disagree too much
ABOUT_ONE = (JUDGED, JUDGMENT_RETRACTED, DEGRADED)  # events about a single concept
REACTIONS = frozenset([*ABOUT_ONE, STARTED, SESSION_ENDED])  # events after which concepts are gathered in advance
IN_PART = "partial: "  # the beginning of the reason in `missing` for a source that answered in part
IN_PART_PREFIXES = (IN_PART, "told in part: ")  # the second is in events that earlier versions recorded
GATHERED = "sources.gathered"  # the event that records a gather
GATHERED_NAMES = (GATHERED, "defrag")  # the second is in events that earlier versions recorded
DOMAIN_CHARACTERS_MAX = 64  # of a domain or a type, which are single words
ID_CHARACTERS_MAX = 500  # of an id, such as a path or an address; a longer text is content, not an id
KEY_CHARACTERS_MAX = 500
TEXT_CHARACTERS_MAX = 20_000  # of a fragment; a reader sees about 200 of them, `mica why` shows all
FRAGMENTS_MAX = 1_000  # from one source for one concept; no declaration may exceed it
CHARACTERS = 200_000  # of one reply by default: twice the size of 50 fragments of 2,000 characters
CHARACTERS_MAX = 2_000_000  # no declaration may exceed it; redacting so many takes a tenth of a second
NUMBER_BITS_MAX = 1_023  # of a whole number; a longer one does not fit a float, and numbers are compared as floats

_WORD = re.compile(rf"[\w.-]{{1,{DOMAIN_CHARACTERS_MAX}}}")


class Concept(msgspec.Struct, frozen=True):
    """The subject of a question, named `domain:type:id`. Raises InvalidInput for an invalid part."""

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
        """Return the concept that is named `domain:type:id`. Only the id may contain further colons.

        Raises InvalidInput for an invalid name.
        """
        parts = text.split(":", 2) if isinstance(text, str) else []
        if len(parts) < 3:
            raise InvalidInput(f"{text!r:.80} is not a concept; name it domain:type:id, as judgment:code_review:abc123")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.domain}:{self.type}:{self.id}"


def parse_concept(concept: Concept | str) -> Concept:
    """Return a concept as it is, and parse a text. Raises InvalidInput if the text is not the name of a concept."""
    return concept if isinstance(concept, Concept) else Concept.parse(concept)


def covers(pattern: str, concept: Concept) -> bool:
    """Return True if a pattern such as `judgment:*:*`, `judgment:*`, `*:code_*:*` or `*` matches a concept.

    `?` matches one character, and `*` matches any characters within one part (domain, type or id). If the last part of
    the pattern is `*` alone, it matches this part of the concept and all later ones. Raises InvalidInput for an invalid
    pattern.
    """
    if pattern == "*":
        return True
    for wanted, part in zip(_parts(pattern), (concept.domain, concept.type, concept.id), strict=False):
        if wanted is not None and not wanted.fullmatch(part):
            return False
    return True


def check_pattern(pattern: object) -> None:
    """Raise InvalidInput if `pattern` is not a valid pattern for concepts; see `covers`."""
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
    """Raise InvalidInput for a name that is reserved for one of mica's own sources."""
    if name in OWN:
        raise InvalidInput(f"the name {name!r} is reserved for a source of mica's own; give another")


def is_text(value: object) -> bool:
    """Return True if `value` is a string that UTF-8 can encode, that is, one without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def is_value(value: object) -> bool:
    """Return True if `value` can be the `value` of a fragment: text, a boolean, None, or a finite number.

    A whole number may have at most NUMBER_BITS_MAX bits, and UTF-8 must be able to encode a text.
    """
    if type(value) is str:
        return value.isascii() or is_text(value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() <= NUMBER_BITS_MAX
    return value is None or is_text(value)


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """One statement of a source. Its text is data for the reader, never an instruction.

    Raises InvalidInput for an invalid field, such as an empty key, a text that is too long or that UTF-8 cannot encode,
    a time without a zone, or a confidence outside 0 to 1.
    """

    key: str  # what the statement is about; only fragments with the same key are compared
    text: str  # the text to show
    value: Value = None  # what is compared between sources; None: the text is compared
    is_estimate: bool = False  # numbers are averaged only if every source marks its number as an estimate
    confidence: float = 1.0  # from 0 to 1, as the source states it
    at: datetime  # when the statement was true, or when it was made
    valid_from: datetime | None = None
    valid_until: datetime | None = None  # exclusive
    source: str  # the name of the source
    locator: str = ""  # the row, file or event where a person finds the statement in the source
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

    def _check(self, holds: bool, what: str, value: object) -> None:  # noqa: FBT001 - each call states a condition
        if not holds:
            allowed = {
                "key": f"1 to {KEY_CHARACTERS_MAX} characters that UTF-8 can encode",
                "text": f"at most {TEXT_CHARACTERS_MAX:,} characters that UTF-8 can encode",
                "confidence": "a number from 0 to 1",
                "value": "a text, a boolean, or a finite number",
                "locator": "a text",
                "sources": "a tuple of event ids",
            }
            wanted = allowed.get(what, "a time with a zone")
            raise InvalidInput(f"a fragment of {self.source!r:.60} has the {what} {value!r:.60}; give {wanted}")


class Question(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """A question to sources: about `concept`, or about `task` if `concept` is None.

    The task is what an agent is about to do, in the agent's words. It may be empty.
    """

    now: datetime
    concept: Concept | None = None
    task: str = ""
    session: str | None = None  # the session that asks; it knows what it said itself
    limit: int = LIMIT  # the most fragments that a source should return for a task
    recency_weight: float = RECENCY_WEIGHT  # share of recency in a crystal's score; the rest is its match to the task
    budget_tokens: int = 0  # of the whole brief
    slow_s: float | None = None  # how long a model, or another slow step, may take; None means no limit
    missing: dict[str, str] = {}  # sources add inputs that they had to do without, each with the reason

    @property
    def subject(self) -> Concept:
        """The concept of this question, for sources that are never asked about tasks."""
        assert self.concept is not None, "this source was asked about a task"
        return self.concept

    def renew(self) -> Question:
        """Return a copy for asking the question again, with an empty `missing`."""
        return msgspec.structs.replace(self, missing={})


class Partial(tuple[Fragment, ...]):
    """The fragments of an incomplete answer, for example because rows were cut off or a line could not be read.

    `missing` says why the answer is incomplete. The fragments are used all the same.
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
    ttl_s: float | None = None  # how long an answer may be reused; if None, this depends on the concept's domain
    concepts: tuple[str, ...] = ("*",)  # patterns of the concepts it can be asked about
    time_share: float = 1.0  # the source is late after this share of the time for collecting answers
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
        """Return True if one of the patterns in `concepts` of this declaration matches the concept."""
        return any(covers(pattern, concept) for pattern in self.concepts)

    def answers(self, question: Question) -> bool:
        """Return True if the source should be asked this question."""
        return self.answers_tasks if question.concept is None else self.knows(question.concept)


def weight(rank: int, confidence: float) -> float:
    """Return the weight of a statement: its confidence, divided by φ once for every ten points of its source's rank."""
    return float(confidence * PHI ** (-rank / RANK_STEP))


class Source(Protocol):
    """The interface of every source: a declaration, a method that answers questions, and `close`.

    A source may read mica's log, a database, a file, a server, or an object of the running program. The texts in its
    answers are data for the reader, never instructions.
    """

    @property
    def declared(self) -> SourceDeclaration:
        """The source's name, rank, cache settings and limits."""

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        """Return the statements of the source about a question, most relevant first. The result may be empty.

        If the answer is incomplete, the result is a `Partial`. Raises SourceFailed, with a remedy in the message, if
        the source cannot answer. The call is cancelled at the deadline. An implementation must not block the event
        loop; blocking work belongs in a thread.
        """

    async def close(self) -> None:
        """Release all resources. Closing twice is allowed."""


@runtime_checkable
class QuickSource(Protocol):
    """A source that can give a preliminary answer while it still computes the full one."""

    def quick(self, question: Question) -> Sequence[Fragment]:
        """Return a preliminary answer at once. It is shown if the full answer does not arrive in time."""


@runtime_checkable
class VersionedSource(Protocol):
    """A source that can tell, without reading all of its data, whether its answer may have changed."""

    async def version_of(self, concept: Concept) -> str:
        """Return a text that changes whenever the source's statements about a concept may have changed."""


@runtime_checkable
class LimitedSource(Protocol):
    """A source that ends its own calls after a time limit."""

    @property
    def limit_s(self) -> float:
        """The time limit of one call, in seconds."""


@runtime_checkable
class SparseSource(Protocol):
    """A source over mica's log that knows whether it has any statements. A source without any is not asked."""

    @property
    def made_by(self) -> tuple[str, ...]:
        """The names, possibly with wildcards, of events that may give an empty source its first statement."""

    are_any: bool | None  # whether it has any statements; None if that is unknown
