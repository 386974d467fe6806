"""Score extractive digests by their overlap with the author's own summary, subject to gates.

A text is a set of units: stems of content words, identifiers, numbers. A unit weighs more the fewer instances have
it. *Recall* is the share of the reference's units in the marks that the digest kept; *focus* the share of
the digest's units that the reference has too. The score is their harmonic mean, and 0 where a gate fails: over the
budget, not verbatim from the cited marks, cut to fragments, a template, or empty.
"""

from __future__ import annotations

import json
import math
import random
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import msgspec

STOP_WORDS = frozenset(
    "a about above after again against all also am an and any are as at be because been before being below between both"
    " but by can could did do does doing done down during each else etc few for from further get gets got had has have"
    " having he her here hers him his how i if in into is it its itself just let like may me might more most must my"
    " new no nor not now of off on once one only onto or other our out over own per please same see set she should so"
    " some such than that the their them then there these they this those through to too two under until up upon us use"
    " used uses using very via was we were what when where which while who whom why will with within without would yes"
    " yet you your well good look looks lets ok okay need needs make makes made sure start first next still actually"
    " already mark marks session sessions event events total item items count".split()
)
FIRST_FORMS = {
    form: first
    for first, *forms in (
        group.split()
        for group in (
            "write wrote written,make made,run ran,build built,find found,break broke broken,keep kept,send sent,"
            "choose chose chosen,leave left,lose lost,begin began,take took taken,give gave given,go went gone,"
            "see saw seen,hold held,show shown,hide hidden,throw thrown threw,catch caught,understand understood,"
            "child children,index indices,matrix matrices,dependency dependencies"
        ).split(",")
    )
    for form in forms
}
FILE_ENDINGS = frozenset(
    "py js ts tsx jsx rs go md rst txt json jsonl yml yaml toml cfg ini sh sql html css scss svg lock xml java kt c h"
    " cpp cs rb php ipynb csv env db log proto".split()
)
FAMILIES = {
    "agent-report": "session",
    "compaction": "session",
    "retrospective": "day",
    "now-page": "day",
    "changelog": "release",
}
ASKING = {"prompt", "plan"}  # tags of marks that state requests, not work
OTHERS = 8  # number of other references that a digest is compared with
RUN_TOKENS_MIN = 4  # a shorter common run is chance
GROUNDED_MIN, WHOLE_MIN, TEMPLATE_MAX = 0.85, 0.8, 0.25
FRAME_SHARE, FRAMES_MIN = 0.05, 3  # of the other digests that must have a pair of words, for it to be a template's

_TOKEN = re.compile(r"\w+|[^\w\s]")
_RAW = re.compile(r"--[A-Za-z][\w-]*|#\d+|[A-Za-z_]\w*(?:[./:-]+\w+)*|\d+(?:[.,:]\d+)*")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2,}[a-z]")
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_BOUNDARY = frozenset(".!?;:,)]}-–—•*|→\"'")


# -- Instances ------------------------------------------------------------------------------------------------


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    at: str
    text: str
    tags: list[str]


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of a stretch of work, and the text that its author wrote about it afterwards."""

    id: str
    level: str
    source: str
    kind: str
    marks: list[Mark]
    reference: str
    task: str | None = None
    decisions: list[str] = []

    @property
    def family(self) -> str:
        return FAMILIES[self.kind]


class Sentence(msgspec.Struct, frozen=True):
    """A sentence of a digest, and the marks it cites."""

    text: str
    marks: Sequence[str]


def read(path: Path) -> list[Instance]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Instance) for line in lines if line.strip()]


# -- Units ----------------------------------------------------------------------------------------------------


def tokens(text: str) -> int:
    """Count the words and punctuation marks in a text."""
    return len(_TOKEN.findall(text))


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    word = FIRST_FORMS.get(word, word)
    if len(word) <= 3:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= 3 and re.search("[aeiouy]", root):
            doubled = len(root) > 3 and root[-1] == root[-2] and root[-1] not in "lsz"
            word = root[:-1] if doubled else root
            break
    if word.endswith("e") and len(word) > 4:
        word = word[:-1]
    if word.endswith("y") and len(word) > 4:
        word = word[:-1] + "i"
    return word


def units(text: str, *, parts: bool = False) -> list[str]:
    """Return the units of a text in order; `parts` adds the pieces of identifiers, for a text that covers another."""
    return [unit for raw in _RAW.findall(text) for unit in _units_of(raw, parts)]


@lru_cache(maxsize=200_000)
def _units_of(raw: str, parts: bool) -> tuple[str, ...]:  # noqa: FBT001  # lru_cache keys by position
    if raw[0].isdigit() or raw[0] == "#":
        digits = raw.lstrip("#")
        return (f"n:{digits}",) if len(digits) > 1 or raw[0] == "#" else ()
    raw = raw.rstrip(".:/-")
    if raw.startswith("--"):
        return (raw.lower(), *(_pieces(raw) if parts else ()))
    *folders, last = re.split(r"/|::?", raw)
    last = last or raw
    found: list[str] = []
    if "_" in last or "." in last or _CAMEL.search(last):
        found += _identifier(last, parts=parts)
    else:
        found += [stem(word) for word in last.lower().split("-") if len(word) > 2 and word not in STOP_WORDS]
    if parts:
        found += [piece for folder in folders for piece in _pieces(folder)]
    return tuple(found)


def _identifier(name: str, *, parts: bool) -> Iterator[str]:
    """Yield the unit of an identifier: `engine.ts` and `BATCH_SIZE` whole, `attr.asdict` as `asdict`; then parts."""
    ending = re.search(r"\.([A-Za-z0-9]{1,5})$", name)
    if "." in name and not (ending and ending[1] in FILE_ENDINGS):
        name = name.rsplit(".", 1)[1]
    low = name.lower().strip("_")
    if len(low) > 1:
        if "_" in low or "." in low or _CAMEL.search(name):
            yield low
        elif low not in STOP_WORDS:
            yield stem(low)
    if parts:
        yield from _pieces(name)


def _pieces(name: str) -> list[str]:
    return [stem(piece.lower()) for piece in _PIECE.findall(name) if len(piece) > 2]


# -- Scores ---------------------------------------------------------------------------------------------------


class Row(msgspec.Struct, kw_only=True):
    """The scores of one digest, from 0 to 1."""

    id: str
    family: str
    kind: str
    source: str
    tokens: int
    share: float
    recall: float
    recall_all: float
    recall_pos: float
    focus: float
    lift: float
    support: float
    redundancy: float
    grounded: float
    whole: float
    asked: float
    f: float
    score: float
    failed: list[str]
    frames: list[str]  # for each sentence the words outside every verbatim run
    decisions: float | None = None
    template: float = 0.0


class Judge:
    """Scores digests of the instances of one file. A unit weighs more the fewer of these instances have it."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.instances = {instance.id: instance for instance in instances}
        self.mark_units = {each.id: [set(units(mark.text, parts=True)) for mark in each.marks] for each in instances}
        self.reachable = {name: set().union(*mark_units) for name, mark_units in self.mark_units.items()}
        self.frequency = Counter(unit for found in self.reachable.values() for unit in found)
        self.wanted = {each.id: set(units(each.reference)) for each in instances}
        self.known = {each.id: set(units(each.reference, parts=True)) for each in instances}
        self.tokens = {each.id: sum(tokens(mark.text) for mark in each.marks) for each in instances}
        self.others = dict(_others(instances))
        self.weights: dict[str, float] = {}

    def budget(self, name: str, share: float) -> int:
        return math.floor(share * self.tokens[name])

    def weight(self, unit: str) -> float:
        if unit not in self.weights:
            total = len(self.instances)
            rarity = math.log(1 + total / (1 + self.frequency[unit])) / math.log(1 + total)
            self.weights[unit] = rarity / 2 if unit.startswith("n:") else rarity
        return self.weights[unit]

    def weigh(self, found: Iterable[str]) -> float:
        return sum(map(self.weight, found))

    def recall(self, name: str, covered: Collection[str], *, reachable: bool) -> float:
        wanted = self.wanted[name] & self.reachable[name] if reachable else self.wanted[name]
        return _ratio(self.weigh(unit for unit in wanted if unit in covered), self.weigh(wanted))

    def recall_by_thirds(self, name: str, covered: Collection[str]) -> float:
        """Return the mean recall of the three thirds of the marks; a unit counts in each third that mentions it."""
        mark_units = self.mark_units[name]
        reached, whole = [0.0] * 3, [0.0] * 3
        for unit in sorted(self.wanted[name]):
            thirds = [3 * number // len(mark_units) for number, found in enumerate(mark_units) if unit in found]
            for third, count in Counter(thirds).items():
                weight = self.weight(unit) * count / len(thirds)
                whole[third] += weight
                reached[third] += weight if unit in covered else 0.0
        return _mean(_ratio(part, total) for part, total in zip(reached, whole, strict=True) if total > 0)

    def score(self, name: str, digest: Sequence[Sentence], share: float) -> Row:
        instance = self.instances[name]
        text = "\n".join(sentence.text for sentence in digest)
        spent = tokens(text)
        used, covered = units(text), set(units(text, parts=True))
        distinct = set(used)
        weight = self.weigh(distinct)
        grounded, whole, frames = ground(instance, digest)
        known = {mark.id for mark in instance.marks}
        asking = {mark.id for mark in instance.marks if mark.tags and mark.tags[0] in ASKING}
        recall = self.recall(name, covered, reachable=True)
        recall_all = self.recall(name, covered, reachable=False)
        focus = _ratio(self.weigh(distinct & self.known[name]), weight)
        failed = []
        if spent > self.budget(name, share):
            failed.append("over budget")
        if grounded < GROUNDED_MIN or not all(known.intersection(each.marks) for each in digest):
            failed.append("not grounded")
        if whole < WHOLE_MIN:
            failed.append("fragments")
        if not spent:
            failed.append("empty")
        harmonic = _ratio(2 * recall * focus, recall + focus)
        return Row(
            id=name,
            family=instance.family,
            kind=instance.kind,
            source=instance.source,
            tokens=spent,
            share=_ratio(spent, self.tokens[name]),
            recall=recall,
            recall_all=recall_all,
            recall_pos=self.recall_by_thirds(name, covered),
            focus=focus,
            lift=recall_all - _mean(self.recall(other, covered, reachable=False) for other in self.others[name]),
            support=_ratio(self.weigh(distinct & self.reachable[name]), weight),
            redundancy=1 - weight / all_used if (all_used := self.weigh(used)) else 0.0,
            grounded=grounded,
            whole=whole,
            asked=_ratio(sum(tokens(each.text) for each in digest if each.marks and set(each.marks) <= asking), spent),
            f=harmonic,
            score=0.0 if failed else harmonic,
            failed=failed,
            frames=frames,
            decisions=self.decision_recall(instance, covered),
        )

    def decision_recall(self, instance: Instance, covered: Collection[str]) -> float | None:
        """Return the share of the listed decisions that a digest covers by half of their weight. None without any."""
        if not instance.decisions:
            return None
        found = [set(units(decision)) for decision in instance.decisions]
        return _mean(float(_ratio(self.weigh(each & set(covered)), self.weigh(each)) >= 0.5) for each in found)

    def run(self, digests: Mapping[str, Sequence[Sentence]], share: float) -> list[Row]:
        """Score the digest of each instance; one without a digest scores 0."""
        rows = [self.score(name, digests.get(name, ()), share) for name in self.instances]
        mark_templates(rows)
        return rows


def _others(instances: Sequence[Instance]) -> Iterator[tuple[str, list[str]]]:
    """Yield for each instance some others of its project and kind, chosen at random."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for instance in instances:
        groups[instance.source, instance.kind].append(instance.id)
    for names in groups.values():
        for name in names:
            rest = [other for other in names if other != name]
            random.Random(f"swap:{name}").shuffle(rest)
            yield name, rest[:OTHERS]


# -- Gates ----------------------------------------------------------------------------------------------------


def ground(instance: Instance, digest: Sequence[Sentence]) -> tuple[float, float, list[str]]:
    """Compare each sentence with the marks it cites.

    Returns the share of its tokens in verbatim runs, the share of those in whole runs, and for each sentence the words
    in no run. A run has at least RUN_TOKENS_MIN tokens or is a whole sentence; it is whole if it begins and ends at a
    boundary of the mark: a line end, or punctuation before a blank.
    """
    marks = {mark.id: mark.text for mark in instance.marks}
    total = verbatim = whole = 0
    frames = []
    for sentence in digest:
        words = _TOKEN.findall(sentence.text)
        total += len(words)
        free: list[str] = []
        start = 0
        cited = [_bounded(marks[name]) for name in sentence.marks if name in marks]
        while start < len(words):
            length, is_whole = _longest_run([word.lower() for word in words], start, cited)
            if length >= RUN_TOKENS_MIN or (is_whole and length == len(words)):
                verbatim += length
                whole += length * is_whole
                start += length
            else:
                free.append(words[start])
                start += 1
        frames.append(" ".join(free))
    return _ratio(verbatim, total), _ratio(whole, verbatim), frames


@lru_cache(maxsize=20_000)
def _bounded(text: str) -> tuple[list[str], set[int]]:
    """Return the tokens of a mark, and the positions between them where a sentence may begin or end."""
    found: list[str] = []
    edges = {0}
    for line in text.split("\n"):
        for token in _TOKEN.finditer(line):
            found.append(token[0].lower())
            if token[0] in _BOUNDARY and line[token.end() : token.end() + 1] in ("", " "):
                edges.add(len(found))
        edges.add(len(found))
    return found, edges


def _longest_run(words: Sequence[str], start: int, marks: Iterable[tuple[list[str], set[int]]]) -> tuple[int, bool]:
    longest, is_whole = 0, False
    for found, edges in marks:
        for place, token in enumerate(found):
            if token != words[start]:
                continue
            length = 0
            for ours, theirs in zip(words[start:], found[place:], strict=False):
                if ours != theirs:
                    break
                length += 1
            if length > longest:
                longest, is_whole = length, False
            if length == longest and place in edges and edges & {place + length, place + length + 1}:
                is_whole = True
    return longest, is_whole


def mark_templates(rows: Sequence[Row]) -> None:
    """Fail the digests whose words outside verbatim runs are mostly pairs that other digests share."""
    skeletons = [[_skeleton(frame) for frame in row.frames] for row in rows]
    users: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row, frames in zip(rows, skeletons, strict=True):
        for pair in (pair for frame in frames for pair in pairwise(frame)):
            users[pair].add(row.id)
    needed = max(FRAMES_MIN, math.ceil(FRAME_SHARE * len(rows)))
    for row, frames in zip(rows, skeletons, strict=True):
        shared = 0
        for frame in frames:
            pairs = [number for number, pair in enumerate(pairwise(frame)) if len(users[pair]) >= needed]
            shared += len({place for number in pairs for place in (number, number + 1)})
        row.template = _ratio(shared, row.tokens)
        if row.template > TEMPLATE_MAX:
            row.failed.append("template")
            row.score = 0.0


def _skeleton(frame: str) -> list[str]:
    """Return the words of a frame, with numbers and identifiers masked."""
    words = (word.strip(".,;:!?()[]\"'`*") for word in frame.split())
    return [
        "0" if re.search(r"\d", word) else "X" if re.search(r"[_/.]|[a-z][A-Z]", word) else word.lower()
        for word in words
        if word
    ]


# -- Means and intervals --------------------------------------------------------------------------------------


def by_family(rows: Iterable[Row], value: Callable[[Row], float | None]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if (number := value(row)) is not None:
            found[row.family].append(number)
    return dict(found)


def macro(rows: Iterable[Row], value: Callable[[Row], float | None]) -> float:
    """Return the mean over the families of the mean over their instances."""
    return _mean(_mean(values) for values in by_family(rows, value).values())


def interval(values: Mapping[str, Sequence[float]], *, draws: int, seed: int) -> tuple[float, float, float]:
    """Return the mean over families and its 95 % bootstrap interval; instances are drawn within families."""
    import numpy

    generator = numpy.random.default_rng(seed)
    means = numpy.zeros(draws)
    for family in sorted(values):
        numbers = numpy.array(values[family])
        means += numbers[generator.integers(0, len(numbers), (draws, len(numbers)))].mean(axis=1) / len(values)
    low, high = numpy.percentile(means, [2.5, 97.5])
    return _mean(_mean(numbers) for numbers in values.values()), float(low), float(high)


def write(path: Path, digests: Mapping[str, Sequence[Sentence]], share: float) -> None:
    """Append digests to a file of JSON lines, for another judge."""
    with path.open("a", encoding="utf-8") as file:
        for name, digest in digests.items():
            sentences = [{"text": each.text, "marks": list(each.marks)} for each in digest]
            file.write(json.dumps({"id": name, "budget": share, "sentences": sentences}) + "\n")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.fmean(found) if found else 0.0
