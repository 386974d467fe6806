"""Are the right sentences believed, and do they end when they should?

    python bench/beliefs.py
    python bench/beliefs.py --labels tests/fixtures/beliefs --half test

Sentences that a person labelled, and pairs of statements of which the later one may end the earlier one, are recorded
as marks, and beliefs are read through the public API. For each kind: precision (of the sentences believed as this kind,
the share that is labelled so) and recall. Then what learning costs beside storing, and how the cost for one mark grows
with the number of marks. The last line of the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import mica
from _table import argument_parser, check, finish, machine, show
from mica.model.belief import KINDS, Belief
from mica.model.event import Origin, Ref

LABELS = Path(__file__).parent.parent / "tests" / "fixtures" / "beliefs"
KIND_NAMES = {"open_task": "task", "open_question": "question"}
PLACES = {"prompt": "prompt", "closing": "closing", "commit": "commit", "middle": None, "output": None}
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
RULE_PRECISION_MIN = 0.85
GROWTH_MAX = 1.25
GROWTH_MARKS, GROWTH_MARKS_QUICK = (10_000, 1_000_000), (2_000, 10_000)
SAMPLE_MARKS, SAMPLE_MARKS_QUICK = 2_000, 500  # learned at each size
COST_MARKS, COST_MARKS_QUICK = 10_000, 2_000
SEED = 20261117
STEP_S = 0.06  # between two marks, so that a million are younger than a day and nothing is compressed meanwhile

Row = dict[str, object]


class Tally(NamedTuple):
    """Hits, false alarms and misses."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


def opened(path: Path) -> mica.memory.Opening:
    """Open a space without background work, at a fixed time."""
    home = path.parent
    settings = mica.Settings(home=home, transcripts=home)
    return mica.open(path, settings=settings, clock=lambda: NOW, reads_ahead=False)


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def record(memory: mica.Memory, statement: Row, *, at: datetime, kind: str = "") -> Ref | None:
    """Record a labelled statement as coding agents do. What agents say in the middle of a turn is not recorded."""
    speaker, place = str(statement["speaker"]), str(statement.get("place", ""))
    origin: Origin = "user" if speaker == "user" else "agent"
    if speaker == "tool":
        return memory.mark(str(statement["text"]), tags=["output"], origin="tool", at=at)
    if kind:
        return memory.mark(str(statement["text"]), tags=[kind], origin=origin, at=at)
    tag = PLACES[place]
    if tag is None:
        return None
    return memory.mark(str(statement["text"]), tags=[tag], origin=origin, at=at)


# -- Kinds ----------------------------------------------------------------------------------------------------


async def kinds_of(labelled: Sequence[Row], folder: Path) -> dict[str, Tally]:
    """Return how well each kind is recognized. A sentence with two labels is found if it is believed as one of them."""
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    async with opened(folder / "kinds.db") as memory:
        refs = []
        for number, row in enumerate(labelled):
            with memory.context(session=f"s{number}", agent="agent"):
                refs.append(record(memory, row, at=NOW - timedelta(days=9) + timedelta(seconds=number)))
        believed = await memory.beliefs.list(limit=None) + await memory.beliefs.list(state="ended", limit=None)
    by_mark: dict[str, set[str]] = {}
    for belief in believed:
        for event in belief.evidence:
            if is_counted(belief):
                by_mark.setdefault(event, set()).add(belief.kind)
    for row, ref in zip(labelled, refs, strict=True):
        if ref is None:
            continue
        gold = {KIND_NAMES.get(str(kind), str(kind)) for kind in row["kinds"]}  # type: ignore[attr-defined]
        found = by_mark.get(ref.id, set())
        right.update(found & gold)
        wrong.update(found - gold)
        missed.update(gold - found if not found & gold else ())
    return {kind: Tally(right[kind], wrong[kind], missed[kind]) for kind in KINDS}


def is_counted(belief: Belief) -> bool:
    """True unless mica keeps a statement only because it may end another one; such a belief is never shown as true."""
    return belief.state != "forming" or belief.certainty > 0.39


# -- Endings --------------------------------------------------------------------------------------------------


async def endings_of(pairs: Sequence[Row], folder: Path) -> tuple[Tally, dict[str, Tally]]:
    """Return how well endings are recognized, in total and by the kind of ending."""
    outcomes: list[tuple[str, bool, bool]] = []
    for number, pair in enumerate(pairs):
        async with opened(folder / f"pair{number}.db") as memory:
            old, new = pair["old"], pair["new"]
            with memory.context(session="s1", agent="agent"):
                kind = KIND_NAMES.get(str(old["kind"]), str(old["kind"]))  # type: ignore[index]
                ref = record(memory, old, at=NOW - timedelta(days=2), kind=kind)  # type: ignore[arg-type]
                record(memory, new, at=NOW - timedelta(days=1))  # type: ignore[arg-type]
            believed = await memory.beliefs.of_event(ref.id) if ref is not None else []
            is_ended = any(belief.state == "ended" for belief in believed)
            outcomes.append((str(pair.get("how") or "none"), bool(pair["ends"]), is_ended))
    hows = sorted({how for how, ends, _ in outcomes if ends})
    return tally_of(outcomes), {how: tally_of([each for each in outcomes if each[0] == how]) for how in hows}


def tally_of(outcomes: Sequence[tuple[str, bool, bool]]) -> Tally:
    return Tally(
        sum(ends and found for _, ends, found in outcomes),
        sum(found and not ends for _, ends, found in outcomes),
        sum(ends and not found for _, ends, found in outcomes),
    )


# -- Cost -----------------------------------------------------------------------------------------------------


THINGS = "parser invoice gateway scheduler importer mailer router cache ledger widget".split()
PARTS = "retries timeout schema encoding header queue index backup export token layout locale".split()
SAID = (
    ("prompt", "user", "always check the {part} of the {thing} before you push {number}"),
    ("prompt", "user", "fix the {part} of the {thing}, it fails since yesterday in {number} places"),
    (
        "closing",
        "agent",
        "Done: the {part} of `{thing}_{number}.py` is fixed.\n\nStill open: the {thing} tests for {part}",
    ),
    ("commit", "agent", "Change the {part} of the {thing} to {number}"),
    ("prompt", "user", "thanks, looks good"),
    ("closing", "agent", "I read {number} files. The {thing} reads its {part} from `{thing}.toml` at boot."),
)


def made_up(count: int, *, first: int = 0) -> Iterator[tuple[str, str, str, datetime, str]]:
    """Yield place, origin, text, time and session of marks as a busy team makes them."""
    for number in range(first, first + count):
        chance = random.Random(SEED + number)
        place, origin, text = SAID[number % len(SAID)]
        said = text.format(part=chance.choice(PARTS), thing=chance.choice(THINGS), number=chance.randrange(10**6))
        yield place, origin, said, NOW - timedelta(hours=20) + timedelta(seconds=STEP_S * number), f"s{number // 12}"


def fill(memory: mica.Memory, count: int, *, first: int = 0) -> None:
    for place, origin, text, at, session in made_up(count, first=first):
        with memory.context(session=session, agent="agent"):
            memory.mark(text, tags=[place], origin=origin, at=at)  # type: ignore[arg-type]


async def cost_of(count: int, folder: Path) -> tuple[float, float]:
    """Return the CPU milliseconds per 1,000 marks for storing them, and for learning beliefs from them."""
    async with opened(folder / "cost.db") as memory:
        began = time.process_time()
        fill(memory, count)
        await memory.events.position()
        stored = time.process_time()
        await memory.beliefs.refresh()
        learned = time.process_time()
    return 1e6 * (stored - began) / count, 1e6 * (learned - stored) / count


async def growth_of(sizes: tuple[int, int], sample: int, folder: Path) -> tuple[float, float]:
    """Return the CPU milliseconds per 1,000 marks for learning at the smaller and at the larger size."""
    costs = []
    async with opened(folder / "growth.db") as memory:
        filled = 0
        for size in sizes:
            while filled < size:
                step = min(50_000, size - filled)
                fill(memory, step, first=filled)
                filled += step
                await memory.events.position()
                await memory.beliefs.refresh()
            spent = []
            for _ in range(3):
                fill(memory, sample, first=filled)
                filled += sample
                await memory.events.position()
                began = time.process_time()
                await memory.beliefs.refresh()
                spent.append(time.process_time() - began)
            costs.append(1e6 * min(spent) / sample)
    return costs[0], costs[1]


# -- Report ---------------------------------------------------------------------------------------------------


def cells(tally: Tally, *, has_precision: bool = True) -> list[str]:
    precision = f"{tally.precision:.2f}" if has_precision else ""
    return [precision, f"{tally.recall:.2f}", str(tally.right + tally.missed)]


async def run(labels: Path, half: str, *, quick: bool) -> dict[str, float | int]:
    sentences, pairs = rows(labels / f"sentences.{half}.jsonl"), rows(labels / f"endings.{half}.jsonl")
    report: dict[str, float | int] = {"sentences": len(sentences), "pairs": len(pairs)}
    with TemporaryDirectory(prefix="mica-beliefs-") as made:
        folder = Path(made)
        by_kind = await kinds_of(sentences, folder)
        table = [[kind, *cells(each)] for kind, each in by_kind.items()]
        show(f"Kinds of {len(sentences)} sentences", ["kind", "precision", "recall", "labelled"], table)
        report |= {f"{kind}_precision": round(each.precision, 3) for kind, each in by_kind.items()}
        report |= {f"{kind}_recall": round(each.recall, 3) for kind, each in by_kind.items()}
        every, by_how = await endings_of(pairs, folder)
        listed = [("all", every), *by_how.items()]
        table = [[how, *cells(each, has_precision=how == "all")] for how, each in listed]
        show(f"Endings of {len(pairs)} pairs", ["ending", "precision", "recall", "labelled"], table)
        report |= {"endings_precision": round(every.precision, 3), "endings_recall": round(every.recall, 3)}
        storing, learning = await cost_of(COST_MARKS_QUICK if quick else COST_MARKS, folder)
        sizes = GROWTH_MARKS_QUICK if quick else GROWTH_MARKS
        small, large = await growth_of(sizes, SAMPLE_MARKS_QUICK if quick else SAMPLE_MARKS, folder)
    show(
        "CPU per 1,000 marks",
        ["", "ms"],
        [
            ["storing them", f"{storing:.0f}"],
            ["learning from them", f"{learning:.0f}"],
            [f"learning after {sizes[0]:,} marks", f"{small:.0f}"],
            [f"learning after {sizes[1]:,} marks", f"{large:.0f}"],
        ],
    )
    report |= {
        "storing_ms": round(storing, 1),
        "learning_ms": round(learning, 1),
        "growth": round(large / small, 3),
        "growth_from": sizes[0],
        "growth_to": sizes[1],
    }
    return report


def check_promises(report: dict[str, float | int], half: str, *, quick: bool) -> None:
    """Fail if a promise is broken. The test half is only reported: a bar on it would make it a half to develop with."""
    if half == "dev":
        bar = RULE_PRECISION_MIN
        check(report["rule_precision"] >= bar, f"precision of rules is at least {bar}")
    if not quick:
        check(report["growth"] <= GROWTH_MAX, f"the cost for a mark grows by at most {GROWTH_MAX}")


def main() -> None:
    parser = argument_parser(__doc__, quick=f"growth from {GROWTH_MARKS_QUICK[0]:,} to {GROWTH_MARKS_QUICK[1]:,} marks")
    parser.add_argument("--labels", type=Path, default=LABELS, help="folder with sentences.*.jsonl and endings.*.jsonl")
    parser.add_argument("--half", default="dev", choices=["dev", "test"])
    options = parser.parse_args()
    print(machine())
    report = asyncio.run(run(options.labels, options.half, quick=options.quick))
    finish(report)
    check_promises(report, options.half, quick=options.quick)


if __name__ == "__main__":
    main()
