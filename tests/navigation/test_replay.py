"""A replay counts the savings and costs of offers, and predicts from earlier events only."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.llm.prices import prices
from mica.model.event import EventId
from mica.model.walk import ModelReply, Operation, Step, Walk
from mica.navigation.replay import (
    Guess,
    Replay,
    ReplayPrediction,
    bin_guesses,
    bootstrap_interval,
    combine,
    count_savings,
    latest_of,
    measure_effort,
    replay,
)

BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)


def walk(number: int, *steps: str, minutes: float = 5, model: str | None = "claude-sonnet-5") -> Walk:
    """A task that begins every ten minutes. A step is `operation path tokens call`."""
    at = BEGIN + timedelta(minutes=10 * number)
    made = []
    for index, text in enumerate(steps, 1):
        operation, path, tokens, call = text.split()
        made.append(
            Step(
                path=path,
                operation=_operation(operation),
                tokens=int(tokens),
                call=call,
                at=at + timedelta(seconds=index),
                event=EventId(f"{number}-{index}"),
            )
        )
    return Walk(
        id=EventId(f"task-{number}"),
        prompt=f"mend number {number}",
        at=at,
        ended_at=at + timedelta(minutes=minutes),
        steps=tuple(made),
        answers=tuple(ModelReply(at=at, model=model) for _ in steps),
    )


def _operation(word: str) -> Operation:
    assert word in ("read", "edit", "create", "search", "list")
    return word  # type: ignore[return-value]  # just checked


class FrequentFiles:
    """A simple predictor that offers the files that earlier tasks used most."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.known: list[str] = []

    def predict(self, walk: Walk) -> ReplayPrediction:
        self.known.append(f"{walk.id} after {sum(self.counts.values())}")
        total = sum(self.counts.values()) or 1
        guesses = tuple(Guess(path=path, probability=count / total) for path, count in self.counts.most_common())
        return ReplayPrediction(
            guesses=guesses, offered=guesses[:2], text=" ".join(guess.path for guess in guesses[:2])
        )

    def learn(self, walk: Walk) -> None:
        self.counts.update(walk.touched)


def run_replay(*walks: Walk, predictor: FrequentFiles | None = None) -> Replay:
    return replay(walks, predictor or FrequentFiles(), prices=prices(), shape=lambda prompt: prompt.split()[0])


SEARCHING = ("search a.py 300 c1", "search b.py 0 c1", "read a.py 900 c2", "search c.py 200 c3", "read c.py 80 c4")


def test_a_search_counts_as_saved_only_if_all_files_it_led_to_were_offered() -> None:
    """keeps: TA-06. This is the careful rule; reads cost the same with and without an offer."""
    task = walk(1, *SEARCHING, "edit a.py 10 c5", "search d.py 500 c6", "read d.py 1 c7")
    assert count_savings(task, ["a.py"]) == (300, 1)
    assert count_savings(task, ["a.py", "c.py"]) == (500, 2)
    assert count_savings(task, ["b.py", "d.py"]) == (0, 0)


def test_a_search_that_led_to_no_file_never_counts_as_saved() -> None:
    """keeps: TA-06. The purpose of such a search is unknown."""
    assert count_savings(walk(1, "search a.py 300 c1", "search b.py 200 c2"), ["a.py", "b.py"]) == (0, 0)


def test_the_effort_of_a_task_ends_at_its_first_edit() -> None:
    """keeps: A-25. Calls, tokens and seconds before the first edit are the baseline."""
    took = measure_effort(walk(1, *SEARCHING, "edit a.py 10 c5", "read d.py 7000 c6"))
    assert (took.calls, took.searches, took.tokens, took.search_tokens) == (4, 2, 1_480, 500)
    assert took.files == ("a.py", "c.py")
    assert took.seconds == 6
    assert took.edits


def test_the_output_of_a_shell_command_is_counted_once() -> None:
    """keeps: A-25. A command that shows three files is one call."""
    task = walk(1, "read a.py 5 c1", "read b.py 5 c1", "read c.py 5 c1")
    task = Walk(id=task.id, prompt="x", at=task.at, ended_at=task.ended_at, steps=task.steps, printed={"c1": 40})
    assert (measure_effort(task).calls, measure_effort(task).tokens) == (1, 40)


def test_a_task_is_learned_from_only_after_it_has_ended() -> None:
    """keeps: TA-01. A task that is still running is not used to predict the next one."""
    predictor = FrequentFiles()
    long = walk(1, "read a.py 10 c1", minutes=25)
    run_replay(
        long, walk(2, "read b.py 10 c1"), walk(3, "read c.py 10 c1"), walk(4, "read d.py 1 c1"), predictor=predictor
    )
    assert predictor.known == ["task-1 after 0", "task-2 after 0", "task-3 after 1", "task-4 after 3"]


def test_losses_are_counted_like_gains() -> None:
    """keeps: TA-06, M-18. Costs count even if nothing was saved, and losing tasks are counted."""
    result = run_replay(
        walk(1, "read a.py 10 c1"), walk(2, "search b.py 400 c1", "read b.py 10 c2"), walk(3, *SEARCHING)
    )
    assert (result.offered_tasks, result.hits, result.losing, result.winning) == (2, 1, 1, 1)
    assert result.net_tokens == result.saved_tokens - result.cost_tokens == sum(row.net_tokens for row in result.rows)
    assert [row.rank for row in result.rows] == [None, None, 1]
    assert result.rows[1].net_tokens < 0


def test_a_verdict_needs_enough_tasks_and_an_interval_above_zero() -> None:
    """keeps: TA-05, K-04. With too few tasks there is no verdict."""
    assert "there is nothing to measure" in run_replay().verdict
    assert "Too little history" in run_replay(*(walk(n, "read a.py 10 c1") for n in range(4))).verdict
    losing = run_replay(*(walk(n, f"read {n}.py 10 c1") for n in range(40)))
    assert losing.verdict.startswith("Nothing worth offering")
    winning = run_replay(*(walk(n, "search a.py 900 c1", "read a.py 10 c2") for n in range(40)))
    assert winning.verdict.startswith("Worth offering")


def test_dollars_are_unknown_where_the_model_has_no_price() -> None:
    """keeps: K-04. The price of an unknown model is not guessed."""
    result = run_replay(
        walk(1, "read a.py 1 c1", model="mock-model"), walk(2, "read a.py 1 c1"), walk(3, "read b.py 1 c1")
    )
    assert [row.dollars is None for row in result.rows] == [True, False, False]
    assert result.unpriced == 1
    assert result.dollars is not None
    assert result.dollars < 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60))
def test_every_guess_is_in_one_bin(guesses: list[tuple[float, bool]]) -> None:
    """The calibration covers every guess."""
    made = bin_guesses(guesses)
    assert sum(each.count for each in made) == len(guesses)
    assert all(each.low - 1e-9 <= each.mean <= each.high + 1e-9 for each in made)


@given(st.lists(st.integers(-500, 500), min_size=8, max_size=40))
def test_an_interval_is_repeatable_and_within_the_possible_sums(values: list[int]) -> None:
    """keeps: TA-06. The same tasks give the same interval."""
    low, high = bootstrap_interval(values)
    assert (low, high) == bootstrap_interval(values)
    assert low is not None
    assert high is not None
    assert min(values) * len(values) <= low <= high <= max(values) * len(values)


def test_baselines_are_medians_of_each_shape() -> None:
    """keeps: A-25. The median cost of each kind of task is counted from the log."""
    result = run_replay(walk(1, "read a.py 10 c1"), walk(2, "read a.py 30 c1"), walk(3, "read b.py 20 c1"))
    (baseline,) = result.baselines
    assert (baseline.shape, baseline.tasks, baseline.median_tokens) == ("mend", 3, 20)


@pytest.mark.parametrize("prompt", ["", "mend"])
def test_a_turn_without_a_prompt_is_learned_but_not_judged(prompt: str) -> None:
    predictor = FrequentFiles()
    task = walk(1, "read a.py 10 c1")
    silent = Walk(id=EventId("t"), prompt=prompt, at=task.at, ended_at=task.at, steps=task.steps)
    result = run_replay(silent, walk(2, "read a.py 1 c1"), predictor=predictor)
    assert len(result.rows) == (2 if prompt else 1)
    assert predictor.known[-1] == "task-2 after 1"


def test_the_totals_of_projects_add_up() -> None:
    """keeps: TA-06. The totals of several projects are the sums of their replays."""
    one = run_replay(walk(1, "read a.py 10 c1"), walk(2, *SEARCHING), walk(3, "read a.py 1 c1"))
    other = run_replay(walk(4, "read b.py 10 c1"), walk(5, "search b.py 90 c1", "read b.py 10 c2"))
    whole = combine([one, other])
    assert whole.net_tokens == one.net_tokens + other.net_tokens
    assert [row.task for row in whole.rows] == [f"task-{number}" for number in range(1, 6)]
    assert sum(each.count for each in whole.bins) == sum(each.count for result in (one, other) for each in result.bins)
    assert combine([one]) is one


def test_only_the_latest_are_judged_and_all_are_learned_from() -> None:
    """keeps: A-40. Judging fewer tasks is faster, and earlier tasks are still learned from."""
    walks = [walk(number, "read a.py 10 c1") for number in range(5)]
    result = replay(walks, FrequentFiles(), prices=prices(), shape=str, judged=latest_of(walks, 1))
    assert [row.task for row in result.rows] == ["task-4"]
    assert result.rows[0].offered[0].path == "a.py"
