"""How much of an author's own summary does a digest made without a model contain?

    python bench/digest.py digest.jsonl
    python bench/digest.py digest.jsonl --quick
    python bench/digest.py digest.jsonl --learn

Each line of the file is a stretch of work: its marks, and the text that its author wrote about it afterwards. mica and
six baselines make digests of 5 % and 10 % of the marks' tokens, of the same sentences. The judge is `_judge.py`. No
model is used. mica's salience table is learned, so no instance is scored with a table trained on it: an instance that
the shipped table was trained on is digested with a table made from the other projects of the file. `--learn` makes the
shipped table again, from the whole file. Without a file a made-up stretch is digested, which shows that the script
works and nothing else. The last line of the output is one JSON object.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

import _judge
import _learn
from _judge import Instance, Judge, Row, Sentence
from _table import argument_parser, check, finish, machine, measure, show
from mica.crystals import digest, salience, sentences
from mica.model.event import EventId

SHARES = (0.05, 0.10)
DRAWS, QUICK_DRAWS, SEED = 10_000, 1_000, 7
MMR_NEWNESS = 0.3  # weight of redundancy against relevance
GROUP_MARKS, GROUPED_MIN = 12, 30  # of a lower crystal; marks of an instance that is worth levels
LOWER_SHARE = 0.2
TABLE = Path(__file__).parent.parent / "src" / "mica" / "crystals" / "salience.json"
Digests = dict[str, list[Sentence]]


# -- Baselines ------------------------------------------------------------------------------------------------


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A distinct sentence of the marks, with its token cost."""

    text: str
    marks: tuple[str, ...]
    tokens: int
    units: tuple[str, ...]


def lines_of(instance: Instance) -> list[Line]:
    marks: dict[str, list[str]] = defaultdict(list)
    for mark in instance.marks:
        for sentence in sentences.split(mark.text):
            marks[sentence].append(mark.id)
    return [
        Line(
            text=text,
            marks=tuple(dict.fromkeys(found)),
            tokens=_judge.tokens(text),
            units=tuple(dict.fromkeys(_judge.units(text))),
        )
        for text, found in marks.items()
    ]


Picker = Callable[[Sequence[Line], int, Instance, Judge], list[Line]]


def pack(lines: Iterable[Line], budget: int) -> list[Line]:
    """Return the lines that fit into a budget, tried in this order."""
    packed = []
    for line in lines:
        if line.tokens <= budget:
            packed.append(line)
            budget -= line.tokens
    return packed


def lead(lines: Sequence[Line], budget: int, instance: Instance, judge: Judge) -> list[Line]:
    return pack(lines, budget)


def tail(lines: Sequence[Line], budget: int, instance: Instance, judge: Judge) -> list[Line]:
    return pack(reversed(lines), budget)


def longest(lines: Sequence[Line], budget: int, instance: Instance, judge: Judge) -> list[Line]:
    return pack(sorted(lines, key=lambda line: -line.tokens), budget)


def at_random(lines: Sequence[Line], budget: int, instance: Instance, judge: Judge) -> list[Line]:
    return pack(random.Random(f"{SEED}:{instance.id}").sample(lines, len(lines)), budget)


def mmr(lines: Sequence[Line], budget: int, instance: Instance, judge: Judge) -> list[Line]:
    """Choose lines by maximal marginal relevance: close to the centroid, far from those already chosen."""
    vectors = [_unit_length({unit: judge.weight(unit) for unit in line.units}) for line in lines]
    middle = _unit_length(_sum(vectors))
    near = [_cosine(vector, middle) for vector in vectors]
    like = [0.0] * len(lines)
    taken: list[Line] = []
    rest = dict.fromkeys(range(len(lines)))
    while rest := {number: None for number in rest if lines[number].tokens <= budget}:
        best = max(rest, key=lambda number: ((1 - MMR_NEWNESS) * near[number] - MMR_NEWNESS * like[number], -number))
        del rest[best]
        taken.append(lines[best])
        budget -= lines[best].tokens
        for number in rest:
            like[number] = max(like[number], _cosine(vectors[number], vectors[best]))
    return taken


def coverage(lines: Sequence[Line], budget: int, instance: Instance, judge: Judge) -> list[Line]:
    """Choose lines greedily by the weight of new units per token; a unit of many marks weighs more."""
    marks = Counter(unit for found in judge.mark_units[instance.id] for unit in found)
    worth = {unit: math.log1p(count) * judge.weight(unit) for unit, count in marks.items()}
    covered: set[str] = set()
    taken: list[Line] = []
    rest = dict.fromkeys(range(len(lines)))
    while rest := {number: None for number in rest if lines[number].tokens <= budget}:
        gains = {
            number: sum(worth.get(unit, 0.0) for unit in lines[number].units if unit not in covered)
            / lines[number].tokens
            for number in rest
        }
        best = max(gains, key=lambda number: (gains[number], -number))
        if gains[best] <= 0:
            break
        del rest[best]
        taken.append(lines[best])
        budget -= lines[best].tokens
        covered.update(lines[best].units)
    return taken


BASELINES: dict[str, Picker] = {
    "lead": lead,
    "tail": tail,
    "longest": longest,
    "random": at_random,
    "mmr": mmr,
    "coverage": coverage,
}


def _unit_length(vector: Mapping[str, float]) -> dict[str, float]:
    length = math.sqrt(sum(weight * weight for weight in vector.values()))
    return {unit: weight / length for unit, weight in vector.items()} if length else {}


def _sum(vectors: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for vector in vectors:
        for unit, weight in vector.items():
            total[unit] += weight
    return total


def _cosine(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    if len(one) > len(other):
        one, other = other, one
    return sum(weight * other.get(unit, 0.0) for unit, weight in one.items())


# -- mica -----------------------------------------------------------------------------------------------------


class Tables:
    """Provides the salience table for each instance, never one that was trained on the instance itself."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.shipped = salience.load_table()
        self.alone = _learn.alone(instances)
        learned = set(self.shipped.learned_from)
        self.seen = [each for each in instances if _learn.fingerprint(each) in learned]
        self.learned: dict[str, salience.Table] = {}
        if self.seen:
            lessons = _learn.lessons(instances)
            for fold in sorted({self.fold(each) for each in self.seen}):
                others = [lesson for lesson in lessons if self.fold(lesson.instance) != fold]
                check(bool(others), f"there is something else than {fold} to learn from")
                self.learned[fold] = _learn.learn(others)
        self.unseen = len(instances) - len(self.seen)

    def fold(self, instance: Instance) -> str:
        return _learn.fold(instance, self.alone)

    def of(self, instance: Instance) -> salience.Table:
        learned = _learn.fingerprint(instance) in self.shipped.learned_from
        return self.learned[self.fold(instance)] if learned else self.shipped


def make_digest(
    sources: Sequence[digest.DigestSource],
    budget: int,
    table: salience.Table,
    counted: salience.MentionTally | None = None,
) -> digest.Digest:
    made = digest.extract(sources, budget_tokens=budget, table=table, count=_judge.tokens, counted=counted)
    check(made.tokens <= budget, f"a digest of {made.tokens} tokens keeps a budget of {budget}")
    cited = [name for statement in made.statements for name in statement.sources]
    listed = {*cited, *(dropped.id for dropped in made.dropped)}
    check(listed == {source.id for source in sources}, "every mark is cited or listed as dropped")
    return made


def as_sentences(digest: digest.Digest) -> list[Sentence]:
    return [Sentence(statement.text, statement.sources) for statement in digest.statements]


# -- Levels ---------------------------------------------------------------------------------------------------


def make_nested_digest(instance: Instance, budget: int, table: salience.Table, *, with_counts: bool) -> list[Sentence]:
    """Make a digest of digests: of groups of marks first, then of their statements."""
    sources = _learn.sources(instance)
    groups = [sources[start : start + GROUP_MARKS] for start in range(0, len(sources), GROUP_MARKS)]
    tags = {source.id: source.tags for source in sources}
    statements: dict[str, tuple[EventId, ...]] = {}
    for group in groups:
        lower = math.floor(LOWER_SHARE * sum(_judge.tokens(source.text) for source in group))
        for sentence in as_sentences(make_digest(group, lower, table)):
            statements[sentence.text] = (*statements.get(sentence.text, ()), *map(EventId, sentence.marks))
    above = [digest.DigestSource(marks[0], text, tags[marks[0]]) for text, marks in statements.items()]
    counted = salience.merge(map(digest.count_mentions, groups)) if with_counts else None
    return as_sentences(make_digest(above, budget, table, counted))


def levels(judge: Judge, tables: Tables) -> dict[str, list[Row]]:
    """Score flat and nested digests of the instances that have enough marks, at 5 % of their tokens."""
    large = {name: each for name, each in judge.instances.items() if len(each.marks) >= GROUPED_MIN}
    share = SHARES[0]

    def rows(make: Callable[[Instance, int, salience.Table], list[Sentence]]) -> list[Row]:
        return [
            judge.score(name, make(each, judge.budget(name, share), tables.of(each)), share)
            for name, each in large.items()
        ]

    return {
        "flat from marks": rows(
            lambda each, budget, table: as_sentences(make_digest(_learn.sources(each), budget, table))
        ),
        "lower crystals, counts carried up": rows(
            lambda each, budget, table: make_nested_digest(each, budget, table, with_counts=True)
        ),
        "lower crystals, their text alone": rows(
            lambda each, budget, table: make_nested_digest(each, budget, table, with_counts=False)
        ),
    }


# -- One run --------------------------------------------------------------------------------------------------


def run(judge: Judge, tables: Tables) -> dict[float, dict[str, list[Row]]]:
    """Score the digests of all instances, by token share and system."""
    lines = {name: lines_of(instance) for name, instance in judge.instances.items()}
    found: dict[float, dict[str, list[Row]]] = {}
    for share in SHARES:
        digests: dict[str, Digests] = {name: {} for name in BASELINES}
        ours: Digests = {}
        for name, instance in judge.instances.items():
            budget = judge.budget(name, share)
            for system, pick in BASELINES.items():
                picked = pick(lines[name], budget, instance, judge)
                digests[system][name] = [Sentence(line.text, line.marks) for line in picked]
            ours[name] = as_sentences(make_digest(_learn.sources(instance), budget, tables.of(instance)))
        found[share] = {system: judge.run(each, share) for system, each in (*digests.items(), ("mica", ours))}
        print(f"{share:.0%} of {len(judge.instances)} stretches", file=sys.stderr, flush=True)
    return found


def percent(rows: Iterable[Row], value: Callable[[Row], float | None]) -> float:
    return 100 * _judge.macro(rows, value)


def difference(ours: Sequence[Row], theirs: Sequence[Row], draws: int) -> tuple[float, float, float]:
    """Return the paired difference of two systems in points, with its 95 % interval."""
    other = {row.id: row.score for row in theirs}
    gains = _judge.by_family(ours, lambda row: 100 * (row.score - other[row.id]))
    return _judge.interval(gains, draws=draws, seed=SEED)


def interval_text(values: tuple[float, float, float], sign: str = "") -> str:
    return "{:{sign}.1f} [{:{sign}.1f}, {:{sign}.1f}]".format(*values, sign=sign)


def report(found: Mapping[float, Mapping[str, Sequence[Row]]], draws: int) -> None:
    families = sorted({row.family for row in found[SHARES[0]]["mica"]}, key=["session", "day", "release"].index)
    for share, systems in found.items():
        rows = []
        for system, scored in systems.items():
            values = _judge.by_family(scored, lambda row: 100 * row.score)
            rows.append(
                [
                    system,
                    interval_text(_judge.interval(values, draws=draws, seed=SEED)),
                    *(f"{sum(values[family]) / len(values[family]):.1f}" for family in families),
                    *(f"{percent(scored, value):.1f}" for value in COLUMNS.values()),
                    str(sum(bool(row.failed) for row in scored)),
                ]
            )
        columns = ["system", "score [95 %]", *families, *COLUMNS, "failed"]
        show(f"{share:.0%} of the tokens of the marks", columns, rows)
    against = [
        [
            f"{share:.0%}, mica − {system}",
            interval_text(difference(systems["mica"], systems[system], draws), "+"),
            *(
                interval_text(
                    difference(
                        [row for row in systems["mica"] if row.family == family],
                        [row for row in systems[system] if row.family == family],
                        draws,
                    ),
                    "+",
                )
                for family in families
            ),
        ]
        for share, systems in found.items()
        for system in ("coverage", "mmr")
    ]
    show("Paired differences; an interval that holds 0 is no difference", ["pair", "all", *families], against)


COLUMNS: dict[str, Callable[[Row], float | None]] = {
    "recall": lambda row: row.recall,
    "focus": lambda row: row.focus,
    "lift": lambda row: row.lift,
    "recall_pos": lambda row: row.recall_pos,
    "redundancy": lambda row: row.redundancy,
    "grounded": lambda row: row.grounded,
    "asked": lambda row: row.asked if row.family == "session" else None,
    "decisions": lambda row: row.decisions,
}


def report_levels(found: Mapping[str, Sequence[Row]]) -> None:
    families = sorted({row.family for scored in found.values() for row in scored})
    rows = []
    for how, scored in found.items():
        values = _judge.by_family(scored, lambda row: 100 * row.f)
        means = (sum(values[family]) / len(values[family]) for family in families)
        rows.append([how, f"{percent(scored, lambda row: row.f):.1f}", *(f"{mean:.1f}" for mean in means)])
    show(f"Levels, {SHARES[0]:.0%}, {GROUPED_MIN} marks or more, without gates", ["how", "mean", *families], rows)


def summary(found: Mapping[float, Mapping[str, Sequence[Row]]], draws: int) -> Iterator[tuple[str, float | int]]:
    for share, systems in found.items():
        name = f"{share * 100:.0f}"
        ours = systems["mica"]
        yield f"score_{name}", percent(ours, lambda row: row.score)
        for system in ("coverage", "mmr", "lead", "random"):
            yield f"{system}_{name}", percent(systems[system], lambda row: row.score)
        gain, low, high = difference(ours, systems["coverage"], draws)
        yield f"vs_coverage_{name}", gain
        yield f"vs_coverage_{name}_low", low
        yield f"vs_coverage_{name}_high", high
    every = [row for systems in found.values() for row in systems["mica"]]
    sessions = [row for row in every if row.family == "session"]
    yield "grounded", 100 * min(row.grounded for row in every)
    yield "asked", 100 * sum(row.asked for row in sessions) / max(1, len(sessions))
    yield "failed", sum(bool(row.failed) for row in every)
    yield "n", len(found[SHARES[0]]["mica"])


# -- A made-up stretch ----------------------------------------------------------------------------------------

MADE_UP = (
    "Login loses the session after the redirect. Please find out why.",
    "Let me look at the session code first.",
    "The cookie is set before the redirect, so the browser drops it. The proxy strips headers of a 302.",
    "Edited auth/session.py",
    "Moved the cookie after the redirect. Login keeps the session now.",
    "Now let me run the tests.",
    "All 14 tests of test_session.py pass.",
    "Fix the session cookie: set it after the redirect (#12)",
    "The proxy must never see a cookie on a redirect.",
)


def made_up() -> list[Instance]:
    tags = ("prompt", "narration", "narration", "edit", "narration", "narration", "narration", "commit", "decision")
    marks = [
        _judge.Mark(id=f"m{number}", at="", text=text, tags=[tag])
        for number, (text, tag) in enumerate(zip(MADE_UP, tags, strict=True), 1)
    ]
    reference = "The session cookie was set before the redirect and the proxy dropped it. It is set afterwards now."
    return [
        Instance(
            id=f"made-up/{kind}", level="session", source="made-up", kind=kind, marks=marks * 3, reference=reference
        )
        for kind in ("agent-report", "retrospective", "changelog")
    ]


def encode_table(table: salience.Table) -> bytes:
    """Encode a table as JSON with one unit per line, so that two tables can be compared with diff."""
    return msgspec.json.encode(table).replace(b"],", b"],\n").replace(b":{", b":{\n").replace(b"},", b"},\n") + b"\n"


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, quick="no levels and fewer draws: under 40 s")
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="the data; without it, a made-up stretch")
    parser.add_argument("--learn", action="store_true", help="write the table that ships, learned from all of PATH")
    options = parser.parse_args()
    if options.learn and not options.path:
        parser.error("--learn needs PATH")
    return options


def main() -> None:
    options = arguments()
    instances = _judge.read(options.path) if options.path else made_up()
    if options.learn:
        table = _learn.learn(_learn.lessons(instances))
        TABLE.write_bytes(encode_table(table))
        print(f"{TABLE.name}: {len(table.weights)} signals, {len(table.words)} common units")
        return
    judge = Judge(instances)
    tables, learning = measure(lambda: Tables(instances))
    found, digesting = measure(lambda: run(judge, tables))
    draws = QUICK_DRAWS if options.quick else DRAWS
    print(f"# {options.path.stem if options.path else 'made-up'}: {len(instances)} stretches; {machine()}; model: none")
    print(
        f"{len(tables.seen)} of them taught the shipped table and are digested with {len(tables.learned)} tables of"
        f" other projects; {tables.unseen} with the shipped one. Learning {learning.cpu_s:.0f} s, all else"
        f" {digesting.cpu_s:.0f} s of CPU."
    )
    report(found, draws)
    if not options.quick and options.path:
        report_levels(levels(judge, tables))
    numbers = dict(summary(found, draws))
    check(not options.path or numbers["failed"] == 0, "no digest of mica fails a gate")
    finish(numbers)


if __name__ == "__main__":
    main()
