"""Benchmarks print true numbers, or end with an error."""

from __future__ import annotations

import asyncio
import importlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec
import pytest

import mica
from mica.testing import build

if TYPE_CHECKING:
    from witness import Observer

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "bench"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("log")


@pytest.fixture
def witness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("witness")


def test_learned_trails_match_ten_times_as_many_tasks_as_exact_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: TA-01. They are learned from the past only; the precision of the chosen files is printed beside it."""
    monkeypatch.syspath_prepend(str(BENCH))
    trails = importlib.import_module("trails")
    sessions = trails.made_up(30)
    every = [walk for session in sessions for walk in trails.walks(session)]

    tally = trails.replay(every, every[10:], trails.TrailSettings(), apart=1)

    assert tally.met >= 10 * max(1, tally.exact)
    assert trails.report("made_up", tally)["made_up_precision"] > 0.5
    first = trails.replay(every, every[:1], trails.TrailSettings(), apart=1)
    assert (first.tasks, first.met, first.exact) == (1, 0, 0)  # nothing had ended before it


def test_a_partly_installed_rival_is_left_out(log: ModuleType) -> None:
    """Packages share names, so one part of a name may belong to another package."""
    rivals = importlib.import_module("_rivals")

    assert rivals.Rival("whole", rivals.run_logging, ("json", "json.decoder")).is_installed
    assert not rivals.Rival("part", rivals.run_logging, ("json.nowhere",)).is_installed
    assert not rivals.Rival("none", rivals.run_logging, ("nowhere.at_all",)).is_installed


Measure = Callable[[ModuleType, Path], object]
MEASURES: dict[str, Measure] = {
    "rate": lambda log, path: asyncio.run(log.run_mica(log.stream(64), path.parent, 0)),
    "bytes": lambda log, path: asyncio.run(log.fill(path, log.stream(64))),
    "growth": lambda log, path: asyncio.run(log.grow(path, 64)),
}


@pytest.mark.parametrize("measure", MEASURES)
def test_a_wrong_count_ends_the_run(log: ModuleType, tmp_path: Path, measure: str) -> None:
    """keeps: TE-15, M-11, M-13. The input is durable and comes back from a query; otherwise no number is printed."""
    MEASURES[measure](log, tmp_path / "right" / "space.db")

    async def spoil(path: Path) -> None:
        async with log.opened(path) as memory:
            memory.emit("one.too.many")

    path = tmp_path / "wrong" / "space.db"
    asyncio.run(spoil(path))
    with pytest.raises(SystemExit, match=r"broken promise: \d+ events were emitted, \d+ are stored"):
        MEASURES[measure](log, path)


def killed(log: ModuleType) -> list[mica.Event]:
    """Four events of a writer, as the benchmark finds them when nothing is lost."""
    events: list[mica.Event] = []
    for number in range(1, 5):
        name, data = log.event_of(1, number)
        parent = events[-1] if events else None
        events.append(build(number, name, data, context=log.context_of(1, number), parent=parent))
    return events


def test_events_lost_or_doubled_by_a_kill_are_counted(log: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """keeps: TE-07, TE-15, E-15. Contents are compared, and a run that lost something fails."""
    whole = killed(log)
    assert log.compare_events(whole, {1: 4}) == (0, 0, 4)
    assert log.compare_events(whole, {1: 6}) == (2, 0, 4)
    assert log.compare_events([*whole, whole[-1]], {1: 4}) == (0, 1, 4)
    with pytest.raises(SystemExit, match="event 1 of writer 1 is as it was emitted"):
        log.compare_events([msgspec.structs.replace(whole[0], name="other"), *whole[1:]], {1: 4})

    numbers = dict.fromkeys(log.BARS, 1.0)
    with pytest.raises(SystemExit, match="no acknowledged event is lost"):
        log.report(numbers, 1)
    log.report(numbers | {"lost_acked": 0, "doubled": 0}, 1)
    assert '"lost_acked": 0' in capsys.readouterr().out.splitlines()[-1]


def test_too_many_marks_end_the_run(witness: ModuleType, tmp_path: Path) -> None:
    """keeps: M-11, M-13. Stored marks are counted before any query."""
    path = tmp_path / "space.db"
    asyncio.run(witness.fill(path, 20))

    with pytest.raises(SystemExit, match="broken promise: 20 marks were made, 40 are stored"):
        asyncio.run(witness.fill(path, 20))


def test_a_mark_neither_crystallized_nor_waiting_ends_the_run(witness: ModuleType, tmp_path: Path) -> None:
    """keeps: M-13. Every mark is in a crystal or waits for one; otherwise no number is printed."""

    async def whole(observer: Observer) -> None:
        await observer.session("crystallized", 40)
        await observer.memory.crystals.make(session="crystallized")
        await observer.session("goes on", 6)

    async def one_too_many(observer: Observer) -> None:
        await whole(observer)
        observer.emitted += 1

    asyncio.run(witness.in_new_space(tmp_path / "whole" / "space.db", whole))
    with pytest.raises(SystemExit, match="broken promise: 47 marks: 40 beneath crystals, 6 wait"):
        asyncio.run(witness.in_new_space(tmp_path / "less" / "space.db", one_too_many))


def test_texts_and_queries_are_the_same_each_time(witness: ModuleType) -> None:
    """A space and its rival hold the same texts, and every query has words of a mark in all spaces."""
    marks = list(witness.new_marks(200))
    queries = witness.queries([200, 400], 20)

    assert list(witness.new_marks(400))[:200] == marks
    assert witness.queries([200, 400], 20) == queries
    assert len({mark.text for mark in marks}) == 200
    assert all(
        set(query.split()) <= set(marks[number].text.lower().replace(".", "").split()) for number, query in queries
    )
    assert {len(query.split()) for _, query in queries} <= {2, 3, 4, 5}


def test_size_counts_every_file(log: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """keeps: M-12, E-15.

    It is compared with embedded contexts; the size of an empty space is subtracted and reported.
    """
    (tmp_path / "files" / "deep").mkdir(parents=True)
    for name in ("space.db", "space.db-wal", "deep/0.segment"):
        (tmp_path / "files" / name).write_bytes(b"x" * 100)
    assert log.files_bytes(tmp_path / "files") == 300

    plan = log.QUICK._replace(bytes_events=4_096, text_events=256)
    numbers = log.compare_bytes(plan, tmp_path)

    assert 0 < numbers["bytes_vs_embedded"] < 1
    assert "an empty space's" in capsys.readouterr().out


def test_emitting_storing_and_reading_are_timed(
    log: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """keeps: E-42. Each kind of read is timed in a smaller and a larger space."""
    plan = log.QUICK._replace(rounds=1, emit_events=256, queries=2)
    spaces = [(events, tmp_path / f"{events}.db") for events in (10_000, 12_000)]
    for events, path in spaces:
        asyncio.run(log.grow(path, events))

    emitted = log.compare_emit(plan, tmp_path)
    read = log.compare_growth(plan, spaces)

    assert emitted["emit_us"] > 0
    assert emitted["stored_vs_jsonl"] > 0
    assert read["growth"] > 0
    printed = capsys.readouterr().out
    assert [kind for kind in log.KINDS if kind not in printed] == []


def test_every_benchmark_is_described_and_shipped(log: ModuleType) -> None:
    """keeps: U-13, E-16. Every user of the package can measure, and each printed number is explained."""
    scripts = {path.name for path in BENCH.glob("[!_]*.py")}
    page = (BENCH / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert scripts == {name for name in scripts if f"| `{name}` |" in page}
    assert [name for name in log.BARS if f"`{name}`" not in page] == []
    assert "/bench" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


# -- Digests --------------------------------------------------------------------------------------------------


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("digest")


def test_the_judge_gives_no_points_to_an_invalid_digest(digests: ModuleType) -> None:
    """keeps: TB-13, B-35, B-60.

    Templates, fragments, invented and oversized texts fail a gate; sentences of the marks do not.
    """
    judged = importlib.import_module("_judge")
    instances = digests.made_up()
    judge = judged.Judge(instances)
    mark = instances[0].marks[4]

    def failed(text: str, cited: str = mark.id, share: float = 0.5) -> list[str]:
        rows = judge.run({each.id: [judged.Sentence(text, [cited])] for each in instances}, share)
        found: list[str] = rows[0].failed
        assert not found or rows[0].score == 0.0
        return found

    assert failed(mark.text) == []
    assert "not grounded" in failed(mark.text, cited="m1")
    assert failed(mark.text, share=0.01) == ["over budget"]
    assert failed("the cookie after the") == ["fragments"]
    assert "empty" in failed("")
    assert "template" in failed("An important session with 9 marks was crystallized today")


def test_a_digest_is_never_trained_on_its_own_reference(digests: ModuleType) -> None:
    """Every fold excludes the instance's project, or its part of a project that is alone."""
    learning = importlib.import_module("_learn")
    named = [
        msgspec.structs.replace(each, id=f"{source}/{number}", source=source)
        for each in digests.made_up()
        for source in ("one", "two")
        for number in range(3)
    ]
    lessons = learning.lessons(named)
    table = learning.learn([each for each in lessons if each.instance.source == "one"])

    assert table.learned_from
    assert {learning.fingerprint(each) for each in named if each.source == "two"}.isdisjoint(table.learned_from)
    assert len({learning.fold(each, {"one"}) for each in named if each.source == "one"}) > 1
    assert {learning.fold(each, set()) for each in named if each.source == "one"} == {"one"}


def test_the_digest_benchmark_runs_without_data(
    digests: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["digest.py", "--quick"])

    digests.main()

    numbers = msgspec.json.decode(capsys.readouterr().out.splitlines()[-1], type=dict[str, float])
    assert {"score_5", "score_10", "coverage_10", "grounded", "asked"} <= numbers.keys()


# -- Navigation -------------------------------------------------------------------------------------------


@pytest.fixture
def navigation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("navigation")


def test_the_navigation_benchmark_runs_without_data(
    navigation: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rankings are written in the format of the scorer of held-out data."""
    out = tmp_path / "rankings.jsonl"
    monkeypatch.setattr("sys.argv", ["navigation.py", "--quick", "--out", str(out)])

    navigation.main()

    numbers = msgspec.json.decode(capsys.readouterr().out.splitlines()[-1], type=dict[str, float])
    bars = "session_r10 task_r5 task_r10 human_r10 mrr ece replay_net_change replay_share_losing".split()
    assert set(bars) <= numbers.keys()
    rankings = [msgspec.json.decode(line) for line in out.read_bytes().splitlines()]
    assert {"set", "session", "task", "ranking"} == set(rankings[0])
    assert {each["task"] for each in rankings} == {None, 0}


def test_a_prompt_is_ranked_without_knowledge_of_its_future(navigation: ModuleType) -> None:
    """keeps: TA-01. Later sessions change no ranking of an earlier one."""

    def rankings(data: object) -> list[object]:
        return [answer.prediction.ranked for answer in navigation.OnlineRun(data).answers()]

    whole = navigation.made_up()
    part = msgspec.structs.replace(whole, sessions=whole.sessions[:2])

    assert rankings(part) == rankings(whole)[:2]


def test_the_savings_of_a_list_are_counted_by_two_rules(navigation: ModuleType) -> None:
    """One counts all searches, the other only those whose every new file was named."""
    session = navigation.made_up().sessions[0]
    before = navigation.before_edit(session)

    assert (before.tokens, before.search_tokens) == (720, 120)
    assert before.saved(["auth/session.py"]) == before.saved_carefully(["auth/session.py"]) == 0
    both = ["auth/session.py", "auth/redirect.py"]
    assert before.saved(both) == before.saved_carefully(both) == 120


@pytest.fixture
def conversations(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("conversations")


def test_metrics_match_their_names(conversations: ModuleType) -> None:
    """keeps: M-01, M-02. They are any@k, all@k, and NDCG whose ideal is all of the evidence."""
    evidence = frozenset({"a", "b"})

    found = conversations.rank_metrics(["x", "a", *"123456789", "b"], evidence)
    whole = conversations.rank_metrics(["a", "b"], evidence)
    none = conversations.rank_metrics(["x"], evidence)

    assert (found["any@10"], found["all@10"], found["frac@10"], found["mrr"]) == (1.0, 0.0, 0.5, 0.5)
    assert found["ndcg@10"] == pytest.approx(0.6309 / 1.6309, abs=1e-3)
    assert (whole["all@5"], whole["ndcg@10"]) == (1.0, 1.0)
    assert set(none.values()) == {0.0}


def test_a_run_reports_what_it_measured_and_its_rows_follow_from_its_rankings(
    conversations: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """keeps: M-03, M-04, M-07, M-08, M-09, M-10.

    It names corpus, unit, questions and configuration; no model answers or judges.
    """
    out = tmp_path / "run.jsonl"
    monkeypatch.setattr("sys.argv", ["conversations.py", "--limit", "3", "--out", str(out)])

    conversations.main()

    printed = capsys.readouterr().out
    assert (
        "made-up: 3 of 12 questions, evenly spread; sqlite stores of 48 to 48 turns; unit: turn; tokens: cl100k"
        in printed
    )
    assert "model: none" in printed
    assert "| multi-hop | 3 |" in printed
    header = msgspec.json.decode(out.with_suffix(".header.json").read_bytes())
    assert {"configuration", "estimator", "token_costs", "bootstrap", "command", "machine"} <= header.keys()
    [conversation] = conversations.made_up()
    prices = conversations.Prices(conversation.turns)
    evidence = {question.number: question.evidence for question in conversation.questions}
    rankings = [msgspec.json.decode(line) for line in out.read_bytes().splitlines()]
    rows = [msgspec.json.decode(line) for line in out.with_suffix(".rows.jsonl").read_bytes().splitlines()]
    for each in rankings:
        [row] = [row for row in rows if (row["q"], row["method"]) == (each["q"], "mica")]
        again = conversations.score(each["ranking"], evidence[each["q"]], prices)
        assert {name: row[name] for name in again} == pytest.approx(again, abs=1e-4)
    ranks = [int(name.partition("@")[2]) for name in rows[0] if name.startswith(("any@", "frac@", "ndcg@"))]
    assert max(ranks) == 10


def test_no_turn_id_is_indexed(conversations: ModuleType) -> None:
    """keeps: M-06. Only the spoken text is marked, so evidence cannot be found by its name."""
    for conversation in conversations.made_up():
        texts = [turn.text for turn in conversation.turns]
        assert not any(turn.id in text for turn in conversation.turns for text in texts)
        assert {turn.id for turn in conversation.turns} >= set().union(
            *(each.evidence for each in conversation.questions)
        )


def test_figures_come_from_the_development_split_and_are_labelled() -> None:
    """keeps: M-05"""
    page = (ROOT / "docs" / "ranking.md").read_text(encoding="utf-8")

    assert "**Development split: for tuning, not for publication.**" in page
    assert "locomo-dev" in page
