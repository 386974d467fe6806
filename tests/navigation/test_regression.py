"""The regression that learns the weights of signals, task by task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mica.navigation.engine.signals import PromptQuestion, Weights
from mica.navigation.predictor import Predictor
from mica.navigation.regression import Tenths, load_prior, make_training_task, solve


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4), st.lists(st.floats(-2, 2), min_size=16, max_size=16))
def test_solve_finds_a_solution(right: list[float], numbers: list[float]) -> None:
    rows = [numbers[4 * index : 4 * index + 4] for index in range(4)]
    matrix = [
        [sum(one[k] * other[k] for k in range(4)) + (i == j) for j, other in enumerate(rows)]
        for i, one in enumerate(rows)
    ]
    solution = solve([row[: index + 1] for index, row in enumerate(matrix)], right)

    back = [sum(value * x for value, x in zip(row, solution, strict=True)) for row in matrix]
    assert all(abs(one - other) < 1e-6 for one, other in zip(back, right, strict=True))


def test_the_prior_fits_the_current_features() -> None:
    model = load_prior()

    assert model.fits()
    assert "BSD" in model.source
    assert (
        make_training_task(Predictor().predict(PromptQuestion(text="x")).candidates, {}, (), scales=model.scales).rows
        == []
    )


def test_predictions_that_never_come_true_are_lowered() -> None:
    assert corrected(Tenths().with_outcomes([(0.75, False)] * 30), 0.75) < 0.2
    assert corrected(Tenths().with_outcomes([(0.25, True)] * 30), 0.25) > 0.8


def corrected(tenths: Tenths, predicted: float) -> float:
    return Weights(start=0.0, slopes=(), corrections=tenths.corrections).correct(predicted)
