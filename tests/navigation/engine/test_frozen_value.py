"""Frozen values: fields by keyword, defaults, equality, and no changes."""

from __future__ import annotations

import pytest

from mica.navigation.engine.frozen_value import FrozenValue


class Point(FrozenValue):
    x: int
    y: int = 2


def test_fields_are_keywords_and_may_have_defaults() -> None:
    assert (Point(x=1).x, Point(x=1).y, Point(x=1, y=5).y) == (1, 2, 5)
    assert repr(Point(x=1)) == "Point(x=1, y=2)"


def test_values_are_equal_by_class_and_fields() -> None:
    class Other(FrozenValue):
        x: int
        y: int = 2

    assert Point(x=1) == Point(x=1, y=2)
    assert Point(x=1) != Point(x=3)
    assert Point(x=1) != Other(x=1)


def test_a_missing_or_unknown_field_is_an_error() -> None:
    with pytest.raises(AttributeError, match="x"):
        Point()  # type: ignore[call-arg]  # the error is the point
    with pytest.raises(TypeError, match="Point has no field z"):
        Point(x=1, z=3)  # type: ignore[call-arg]  # the error is the point


def test_a_value_cannot_be_changed_or_hashed() -> None:
    point = Point(x=1)
    with pytest.raises(AttributeError, match="cannot be changed"):
        point.x = 2  # type: ignore[misc]  # the error is the point
    with pytest.raises(TypeError, match="unhashable"):
        hash(point)
