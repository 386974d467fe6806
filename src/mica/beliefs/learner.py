"""Learns beliefs from what was stated, in the order of the log. Pure: the same statements give the same beliefs.

Times decide, not positions: a session that is imported late may be older than what is known. So a statement may end
earlier beliefs, and later beliefs may end it. The work for a statement is bounded: at most CANDIDATES_MAX beliefs that
share a key with it are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from heapq import nlargest, nsmallest
from operator import itemgetter

import msgspec

from mica.beliefs.certainty import (
    CERTAINTY_MAX,
    CONFIRMED,
    CONFLICT,
    UNSURE,
    first_state,
    mature,
    supported,
    weight,
)
from mica.beliefs.endings import USER_ONLY, LaterStatement, contradicts, ending_of
from mica.beliefs.subjects import KEYS_MAX, NAME, SAME, Subject, subject_of
from mica.beliefs.testimony import Assertion, Testimony
from mica.model.belief import EVIDENCE_MAX, STATES, Belief, BeliefId, BeliefKind, Ending
from mica.model.event import EventId

CANDIDATES_PER_KEY = 16  # the newest beliefs with a key; a table returns more, because some of them may end meanwhile
CANDIDATES_MAX = 24  # beliefs that one statement is compared with
KEYS_FEW = 3  # a belief with more keys is not compared if it shares only one common word
KEYS_INHERITED_MAX = 2 * KEYS_MAX  # with the keys of what it replaced, so that it is found by these too
ALIKE = 0.8  # share of common words from which two statements say the same
ALIKE_STEMS_MIN = 4
REPLACES_MAX = 20
CONFLICTS_MAX = 10
UNSURE_MAX = 0.39  # certainty of a belief whose kind is only a guess; the lowest other one is higher
SHORT_ANSWER_WORDS = 8  # an answer up to this length is not clear without its question

_RELATED_KINDS: tuple[frozenset[BeliefKind], ...] = (
    frozenset(["rule", "preference", "decision"]),
    frozenset(["fact", "gotcha", "decision"]),
    frozenset(["task"]),
    frozenset(["question"]),
)


class KnownBeliefs:
    """The beliefs that learning may change or compare with, by id, key and evidence; and those that it has changed."""

    def __init__(self, beliefs: Iterable[Belief] = ()) -> None:
        self._beliefs: dict[BeliefId, Belief] = {}
        self._by_key: dict[str, dict[BeliefId, float]] = {}  # live ones, with the time of their latest evidence
        self._by_evidence: dict[EventId, set[BeliefId]] = {}
        self._changed: dict[BeliefId, None] = {}
        for belief in beliefs:
            self._index(belief)

    def __iter__(self) -> Iterable[Belief]:
        return iter(self._beliefs.values())

    @property
    def changed(self) -> list[Belief]:
        """The new and changed beliefs, in the order in which they were first changed."""
        return [self._beliefs[identifier] for identifier in self._changed]

    @property
    def all(self) -> list[Belief]:
        """Every belief."""
        return list(self._beliefs.values())

    def get(self, identifier: str) -> Belief | None:
        """Return the belief with this id, or None."""
        return self._beliefs.get(BeliefId(identifier))

    def put(self, belief: Belief) -> Belief:
        """Add or replace a belief."""
        self._index(belief)
        self._changed[belief.id] = None
        return belief

    def with_evidence(self, event: EventId) -> list[Belief]:
        """Return the beliefs that have an event as evidence, ordered by id."""
        return [self._beliefs[each] for each in sorted(self._by_evidence.get(event, ()))]

    def with_key(self, key: str) -> list[BeliefId]:
        """Return the newest beliefs with a key that are not ended, at most CANDIDATES_PER_KEY, in no order."""
        live = self._by_key.get(key, {})
        if len(live) <= CANDIDATES_PER_KEY:
            return list(live)
        return [identifier for identifier, _ in nlargest(CANDIDATES_PER_KEY, live.items(), key=itemgetter(1, 0))]

    def candidates(self, subject: Subject) -> list[Belief]:
        """Return the beliefs that a statement may support, end or contradict: those that share most keys first."""
        shared: Counter[BeliefId] = Counter()
        for key in subject.keys:
            points = 8 if key.startswith(SAME) else 3 if key.startswith(NAME) else 1
            for identifier in self.with_key(key):
                shared[identifier] += points
        found = [
            (-points, -belief.last_at.timestamp(), identifier)
            for identifier, points in shared.items()
            for belief in [self._beliefs[identifier]]
            if points > 1 or len(belief.keys) <= KEYS_FEW
        ]
        return [self._beliefs[identifier] for _, _, identifier in nsmallest(CANDIDATES_MAX, found)]

    def _index(self, belief: Belief) -> None:
        old = self._beliefs.get(belief.id)
        if old is not None:
            for key in old.keys:
                self._by_key.get(key, {}).pop(belief.id, None)
            for event in old.evidence:
                self._by_evidence[event].discard(belief.id)
        self._beliefs[belief.id] = belief
        if belief.state != "ended":
            latest = belief.last_at.timestamp()
            for key in belief.keys:
                self._by_key.setdefault(key, {})[belief.id] = latest
        for event in belief.evidence:
            self._by_evidence.setdefault(event, set()).add(belief.id)


def learn(testimonies: Iterable[Testimony], known: KnownBeliefs) -> list[Belief]:
    """Apply testimonies in order to the known beliefs; returns all beliefs of `known` that were changed or are new."""
    for testimony in testimonies:
        _Lesson(testimony, known).apply()
    return known.changed


class _Lesson:
    """Applies one testimony to the known beliefs."""

    def __init__(self, testimony: Testimony, known: KnownBeliefs) -> None:
        self._testimony = testimony
        self._known = known

    def apply(self) -> None:
        match self._testimony.act:
            case "state":
                for number, stated in enumerate(self._testimony.stated):
                    self._state(stated, is_first=number == 0)
                self._end_targets()
            case "confirm":
                self._confirm()
            case "end":
                self._end_targets()
            case "retract":
                self._retract()

    # -- Statements

    def _state(self, stated: Assertion, *, is_first: bool) -> None:
        subject = subject_of(stated.text)
        replaced = self._replaced() if is_first else []
        if replaced:  # its author named what it replaces, so it is no guess
            stated = msgspec.structs.replace(stated, is_tagged=True, is_unsure=False)
        kind = stated.kind or (replaced[0].kind if replaced else None)
        candidates = self._known.candidates(subject)
        own = None if replaced else self._support(stated, kind, subject, candidates)
        if own is None and kind is not None:
            own = self._create(stated, kind, subject)
        for old in replaced:
            own = self._end(old, "replaced", own)
        for old in candidates:
            if own is not None and old.id == own.id:
                continue
            current = self._known.get(old.id)
            if current is None or current.state == "ended":
                continue
            later = self._later(stated, kind)
            ending = _ending_of_judgment(current, later) or ending_of(current, later)
            if ending is None and own is not None and self._brings_back(subject, current):
                ending = "replaced"
            if ending is not None:
                own = own or self._successor(stated, current, ending, subject)
                own = self._end(current, ending, own)
            elif own is not None and own.state != "ended" and contradicts(current, later):
                own = self._conflict(current, own)
        if own is not None:
            self._end_if_outdated(own, candidates)
            self._end_if_overruled(own, candidates, self._later(stated, kind))

    def _brings_back(self, subject: Subject, ender: Belief) -> bool:
        """True if the statement says again what another belief had replaced, which is thereby over."""
        if ender.last_at > self._testimony.at or not self._may_end(ender):
            return False
        replaced = (self._known.get(each) for each in ender.replaces)
        return any(each is not None and subject.same in each.keys for each in replaced)

    def _later(self, stated: Assertion, kind: BeliefKind | None) -> LaterStatement:
        testimony = self._testimony
        return LaterStatement(
            text=stated.text,
            kind=kind,
            by=testimony.by,
            place=stated.place,
            at=testimony.at,
            event=testimony.event,
            session=testimony.session,
        )

    def _support(
        self, stated: Assertion, kind: BeliefKind | None, subject: Subject, candidates: Sequence[Belief]
    ) -> Belief | None:
        """Add the statement as evidence to a belief that says the same; returns that belief, or None."""
        testimony = self._testimony
        for belief in candidates:
            if testimony.event in belief.evidence and stated.place != "teaching":
                continue
            if kind is None and belief.kind in ("task", "question"):  # it may be done or answered by that
                continue
            if stated.place == "commit" and belief.kind == "gotcha" and kind != "gotcha":  # it may be repaired by that
                continue
            if (kind is None or _are_related(kind, belief.kind)) and _says_same(subject, belief):
                return self._known.put(self._with_evidence(belief, stated))
        return None

    def _with_evidence(self, belief: Belief, stated: Assertion) -> Belief:
        testimony = self._testimony
        is_independent = (testimony.session, testimony.by, testimony.agent) != (belief.session, belief.by, belief.agent)
        certainty, state = supported(belief, by=testimony.by, place=stated.place, is_independent=is_independent)
        if stated.is_unsure and _is_unsure(belief):  # said twice, it is still only a guess what it is
            certainty, state = belief.certainty, belief.state
        if stated.place == "judgment":
            values = [weight(testimony.by, stated.place)] * (len(belief.evidence) + 1)
            observed = mature(values, sources=2 if is_independent else 1)
            state = max(state, observed, key=STATES.index) if observed != "ended" else state
        evidence = (
            *belief.evidence,
            *(each for each in (testimony.event, *stated.cites) if each not in belief.evidence),
        )
        changed = msgspec.structs.replace(
            belief,
            certainty=certainty,
            state=state,
            last_at=max(belief.last_at, testimony.at),
            evidence=evidence if len(evidence) <= EVIDENCE_MAX else (evidence[0], *evidence[1 - EVIDENCE_MAX :]),
        )
        rank, old_rank = (testimony.by != "user", testimony.at), (belief.by != "user", belief.at)
        if rank < old_rank:  # a user outranks an agent, and the first statement the later ones
            changed = msgspec.structs.replace(
                changed,
                text=stated.text,
                kind=belief.kind if stated.kind is None or stated.is_unsure else stated.kind,
                by=testimony.by,
                place=stated.place,
                session=testimony.session,
                user=testimony.user,
                agent=testimony.agent,
            )
            if state == "forming" and not stated.is_unsure:
                first = first_state(testimony.by, stated.place, changed.kind, is_tagged=stated.is_tagged)
                changed = msgspec.structs.replace(changed, state=first)
        return msgspec.structs.replace(changed, at=min(belief.at, testimony.at))

    def _create(self, stated: Assertion, kind: BeliefKind, subject: Subject) -> Belief:
        testimony = self._testimony
        state = first_state(testimony.by, stated.place, kind, is_tagged=stated.is_tagged)
        certainty = weight(testimony.by, stated.place) * (1.0 if stated.is_tagged else stated.confidence)
        if stated.is_unsure:
            state, certainty = "forming", min(UNSURE_MAX, certainty * UNSURE)
        return self._known.put(
            Belief(
                id=belief_id(testimony.event, stated.ordinal),
                kind=kind,
                text=stated.text,
                state=state,
                certainty=round(min(CERTAINTY_MAX, certainty), 4),
                by=testimony.by,
                place=stated.place,
                at=testimony.at,
                last_at=testimony.at,
                session=testimony.session,
                user=testimony.user,
                agent=testimony.agent,
                evidence=(testimony.event, *stated.cites)[:EVIDENCE_MAX],
                position=testimony.position,
                keys=subject.keys,
            )
        )

    def _successor(self, stated: Assertion, old: Belief, ending: Ending, subject: Subject) -> Belief | None:
        """Return a new belief for a statement that replaces or answers another one but has no kind by itself."""
        if ending == "replaced":
            return self._create(msgspec.structs.replace(stated, is_unsure=False), old.kind, subject)
        if ending != "answered":
            return None
        is_short = len(stated.text.split()) <= SHORT_ANSWER_WORDS and not stated.is_answer
        text = f"{old.text} → {stated.text}" if is_short else stated.text
        cites = (*stated.cites, *old.evidence[:1]) if is_short else stated.cites  # it has the words of the question
        answer = msgspec.structs.replace(stated, text=text, is_unsure=False, cites=cites)
        return self._create(answer, "decision" if self._testimony.by == "user" else "fact", subject_of(text))

    # -- Endings

    def _end(
        self,
        old: Belief,
        ending: Ending,
        by: Belief | None,
        *,
        reason: str = "",
    ) -> Belief | None:
        """End a belief. Returns the belief `by` that ended it, with its link and the keys of what it replaced."""
        testimony = self._testimony
        is_linked = by is not None and ending in ("replaced", "answered")
        self._known.put(
            msgspec.structs.replace(
                old,
                state="ended",
                ending=ending,
                ended_by=testimony.event,
                ended_at=max(testimony.at, old.last_at),
                reason=reason,
                replaced_by=by.id if by is not None and is_linked else None,
            )
        )
        return self._known.put(_replacing(by, old)) if by is not None and is_linked else by

    def _end_if_outdated(self, own: Belief, candidates: Sequence[Belief]) -> None:
        """End a belief that was learned late, if a later statement that is known already ends it."""
        later = [belief for belief in candidates if belief.id != own.id and belief.last_at > own.last_at]
        # What replaced something may have replaced a belief that would end this one.
        chains = [each for belief in later for link in belief.replaces if (each := self._known.get(link)) is not None]
        enders = []
        for belief in [*later, *(each for each in chains if each.last_at > own.last_at)]:
            statement = LaterStatement(
                text=belief.text,
                kind=belief.kind,
                by=belief.by,
                place=belief.place,
                at=belief.last_at,  # it was stated again then, if not for the first time
                event=belief.evidence[-1],
                session=belief.session,
            )
            ending = _ending_of_judgment(own, statement) or ending_of(own, statement)
            if ending is not None:
                enders.append((belief.last_at, belief.id, ending))
        if not enders:
            return
        at, identifier, ending = min(enders)
        ender = self._known.get(identifier)
        current = self._known.get(own.id)
        if ender is None or current is None:
            return
        self._known.put(
            msgspec.structs.replace(
                current,
                state="ended",
                ending=ending,
                ended_by=ender.evidence[-1],
                ended_at=at,
                replaced_by=ender.id if ending in ("replaced", "answered") else None,
            )
        )
        if ending in ("replaced", "answered"):
            self._known.put(_replacing(ender, current))

    def _end_if_overruled(self, own: Belief, candidates: Sequence[Belief], later: LaterStatement) -> None:
        """End a belief that was learned late, if what it would have ended was stated before it and again after it."""
        for old in candidates:
            current, mine = self._known.get(old.id), self._known.get(own.id)
            if current is None or mine is None or mine.state == "ended" or current.id == mine.id:
                continue
            if current.state == "ended" or not current.at < mine.at <= mine.last_at < current.last_at:
                continue
            if ending_of(msgspec.structs.replace(current, last_at=current.at), later) == "replaced":
                self._known.put(
                    msgspec.structs.replace(
                        mine,
                        state="ended",
                        ending="replaced",
                        ended_by=current.evidence[-1],
                        ended_at=current.last_at,
                        replaced_by=current.id,
                    )
                )

    def _replaced(self) -> list[Belief]:
        """Return the beliefs that the mark says it replaces, and that its author may replace."""
        return [
            belief for target in self._testimony.replaces for belief in self._targets(target) if self._may_end(belief)
        ]

    def _end_targets(self) -> None:
        testimony = self._testimony
        for target in testimony.ends:
            for belief in self._targets(target):
                if belief.state != "ended" and self._may_end(belief) and testimony.event not in belief.evidence:
                    self._end(belief, _ending_for(belief, testimony.ending), None, reason=testimony.reason)

    def _targets(self, target: str) -> list[Belief]:
        """Return the belief with this id, or the beliefs that the event with this id supports."""
        belief = self._known.get(target)
        if belief is not None:
            return [belief]
        found = self._known.with_evidence(EventId(target))
        if not found and self._testimony.fallback:  # its id has changed, because its first evidence was purged
            found = [each for event in self._testimony.fallback for each in self._known.with_evidence(event)]
            found = [each for each in found if each.kind == self._testimony.kind]
            return found if len({each.id for each in found}) == 1 else []
        return found

    def _may_end(self, belief: Belief) -> bool:
        return self._testimony.by == "user" or not (belief.by == "user" and belief.kind in USER_ONLY)

    # -- Confirmations, retractions, conflicts

    def _confirm(self) -> None:
        testimony = self._testimony
        for target in testimony.ends:
            for belief in self._targets(target):
                evidence = (*belief.evidence, testimony.event)
                self._known.put(
                    msgspec.structs.replace(
                        belief,
                        state="settled" if belief.state in ("held", "settled") else "held",
                        certainty=max(belief.certainty, CONFIRMED),
                        last_at=max(belief.last_at, testimony.at),
                        evidence=evidence
                        if len(evidence) <= EVIDENCE_MAX
                        else (evidence[0], *evidence[1 - EVIDENCE_MAX :]),
                        ending=None,
                        ended_by=None,
                        ended_at=None,
                        reason="",
                        replaced_by=None,
                    )
                )

    def _retract(self) -> None:
        """Take an event from the evidence of beliefs. A belief without evidence ends, and what it replaced returns."""
        testimony = self._testimony
        for target in testimony.ends:
            for belief in self._known.with_evidence(EventId(target)):
                left = tuple(each for each in belief.evidence if each != target)
                if left and belief.place != "teaching":
                    self._known.put(msgspec.structs.replace(belief, evidence=left))
                elif belief.state != "ended":
                    self._end(belief, "withdrawn", None, reason=testimony.reason)
                    self._restore(belief, EventId(target))

    def _restore(self, ended: Belief, event: EventId) -> None:
        for identifier in ended.replaces:
            old = self._known.get(identifier)
            if old is not None and old.replaced_by == ended.id and old.ended_by == event:
                state = (
                    "held"
                    if first_state(old.by, old.place, old.kind) != "forming" or len(old.evidence) > 1
                    else "forming"
                )
                self._known.put(
                    msgspec.structs.replace(
                        old, state=state, ending=None, ended_by=None, ended_at=None, reason="", replaced_by=None
                    )
                )

    def _conflict(self, old: Belief, own: Belief) -> Belief:
        if own.id in old.conflicts or old.id in own.conflicts:
            return own
        for one, other in ((old, own), (own, old)):
            self._known.put(
                msgspec.structs.replace(
                    one,
                    conflicts=tuple(sorted({*one.conflicts, other.id})[:CONFLICTS_MAX]),
                    certainty=round(one.certainty * CONFLICT, 4),
                )
            )
        return self._known.get(own.id) or own


def belief_id(event: EventId, ordinal: int) -> BeliefId:
    """Return the id of the belief that the statement with this number in an event begins."""
    number = int.from_bytes(blake2b(f"{event} {ordinal}".encode(), digest_size=8).digest())
    letters = []
    for _ in range(12):  # 26 to the power of 12 is about 56 bits
        number, letter = divmod(number, 26)
        letters.append(chr(ord("a") + letter))
    return BeliefId("b" + "".join(letters))


def _replacing(own: Belief, old: Belief) -> Belief:
    replaces = own.replaces if old.id in own.replaces else (*own.replaces, old.id)
    inherited = [key for key in old.keys if key not in own.keys and not key.startswith(SAME)]
    keys = sorted({*own.keys, *inherited[: max(0, KEYS_INHERITED_MAX - len(own.keys))]})
    changed = msgspec.structs.replace(own, replaces=replaces[:REPLACES_MAX], keys=tuple(keys))
    if not _is_unsure(own):
        return changed
    kind = own.kind if old.kind == "question" else old.kind  # what it replaces shows what it is
    return msgspec.structs.replace(
        changed,
        kind=kind,
        state=first_state(own.by, own.place, kind),
        certainty=round(own.certainty / UNSURE, 4),
    )


def _is_unsure(belief: Belief) -> bool:
    return belief.state == "forming" and belief.certainty <= UNSURE_MAX


def _are_related(one: BeliefKind, other: BeliefKind) -> bool:
    return one == other or any(one in kinds and other in kinds for kinds in _RELATED_KINDS)


def _says_same(subject: Subject, belief: Belief) -> bool:
    if subject.same in belief.keys:
        return True
    other = subject_of(belief.text)
    if subject.names != other.names or subject.values != other.values or subject.is_negated != other.is_negated:
        return False
    common, every = subject.stems & other.stems, subject.stems | other.stems
    return len(common) >= ALIKE_STEMS_MIN and len(common) >= ALIKE * len(every)


def _ending_for(belief: Belief, ending: Ending | None) -> Ending:
    """Return how a belief ends that a mark or a person ends without saying how."""
    return ending or {"task": "done", "question": "answered", "gotcha": "done"}.get(belief.kind, "withdrawn")  # type: ignore[return-value]


def _ending_of_judgment(old: Belief, new: LaterStatement) -> Ending | None:
    """A judgment holds until the next judgment about the same concept that has another verdict."""
    if old.place != "judgment" or new.place != "judgment" or new.at < old.last_at:
        return None
    (concept, _, verdict), (other, _, later) = old.text.partition("`: "), new.text.partition("`: ")
    return "replaced" if concept == other and verdict != later else None
