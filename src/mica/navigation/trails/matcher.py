"""Which trail a task is about to walk: by its name, by the files already touched, by the words of the prompt (K-05)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from mica.model.trail import PREFIX, Trail, key_of, trust, walked
from mica.navigation.trails.co_reads import normalised, similarity
from mica.navigation.trails.task_kinds import HEAD_CHARACTERS
from mica.settings import TrailSettings
from mica.words import terms

Match = Literal["exact", "shape", "words"]
MATCHES: tuple[Match, ...] = ("exact", "shape", "words")
TASK_CHARACTERS = 2_000  # of a prompt, in which files are named; below are logs
CHOICES = 3  # that an agent is given; more are a list, not a choice

_NAMED = re.compile(rf"(?<![\w-]){PREFIX}([a-z0-9-]+)")


class Heard(NamedTuple):
    """A task as it is listened to: its text, its terms, and those of its head."""

    text: str
    terms: set[str]
    head: set[str]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A trail that fits a task, how well, and why."""

    trail: Trail
    match: Match
    score: float  # 0 to 1 within its tier
    reason: str


def choose(
    task: str,
    trails: Iterable[Trail],
    *,
    gates: TrailSettings,
    paths: Sequence[str] = (),
    agent: str | None = None,
    limit: int = CHOICES,
) -> list[Choice]:
    """The trails that fit a task, those of the surest tier first; none is an answer.

    `paths` are files that the task names or has touched, in order. Within a tier the better fit counts, then whom it
    served better, this agent first.
    """
    text = task[:TASK_CHARACTERS]
    heard = Heard(text, set(terms(text)), set(terms(text[:HEAD_CHARACTERS])))
    named = set(_NAMED.findall(text))
    touched = [path for path in map(normalised, paths) if path is not None]
    keys = {key_of(touched)} if touched else set()
    fits = (_fit(trail, named=named, keys=keys, touched=touched, heard=heard, gates=gates) for trail in trails)
    found = [choice for choice in fits if choice is not None]
    found.sort(
        key=lambda choice: (
            MATCHES.index(choice.match),
            -choice.score,
            -trust(choice.trail, gates, agent=agent),
            -choice.trail.runs,
            choice.trail.key,
        )
    )
    return found[:limit]


def _fit(
    trail: Trail, *, named: set[str], keys: set[str], touched: Sequence[str], heard: Heard, gates: TrailSettings
) -> Choice | None:
    if trail.slug in named:
        return Choice(trail=trail, match="exact", score=1.0, reason=f"the task names {trail.name}")
    if keys.intersection((trail.key, *trail.merged)):
        return Choice(trail=trail, match="exact", score=1.0, reason="the task touched exactly its files, in its order")
    if touched and (alike := max(similarity(trail.paths, touched), walked(trail.paths, touched))) >= gates.similar:
        return Choice(
            trail=trail, match="shape", score=round(alike, 6), reason=f"{alike:.0%} of its files were touched"
        )
    return _by_words(trail, heard, gates=gates)


def _by_words(trail: Trail, heard: Heard, *, gates: TrailSettings) -> Choice | None:
    """A trail whose files the task names, or of whose usual words and files' names it has enough, half by half.

    Measured: usual words alone choose wrongly five times of six, names of files two times of three.
    """
    files = [path.rpartition("/")[2] for path in trail.paths]
    named = [file for file in files if file in heard.text]
    asked = [(term, share) for term, share in trail.words if term in heard.head]
    names = {term for file in files for term in terms(file.partition(".")[0])}
    spoken = (sum(share for _, share in asked) + len(names & heard.terms) / (len(names) or 1)) / 2
    score = round(max(len(named) / len(files), spoken), 6)
    if score < gates.words:
        return None
    words = named or [*dict.fromkeys([*(term for term, _ in asked), *sorted(names & heard.terms)])]
    verb = "names" if named else "speaks of"
    return Choice(trail=trail, match="words", score=score, reason=f"the task {verb} {', '.join(words)}")
