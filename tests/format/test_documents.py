"""Documents of events: bundles, fields, and whole events that can be imported again."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.errors import InvalidInput
from mica.format.documents import BUNDLES, FULL, event_document, event_line, select_fields
from mica.model.event import Context
from mica.testing import build
from mica.testing.histories import History, histories

CONTEXT = Context(session="s1", agent="scout", labels=(("branch", "main"),))
ROOT = build(1, context=CONTEXT)
EVENT = build(
    2,
    "tool.failed",
    {"path": "a.py", "deep": {"er": [1]}, "dotted.name": 5, "error_type": "OSError", "text": "no", "duration_s": 0.5},
    parent=ROOT,
    context=CONTEXT,
    error=True,
)


def sent(*fields: str, bundle: str | None = None) -> object:
    return json.loads(event_line(EVENT, select_fields(bundle=bundle, fields=fields)))


def test_small_bundles_grow_from_each_other() -> None:
    """keeps: E-22. Minimal, monitoring, debugging."""
    minimal = {"id": EVENT.id, "name": "tool.failed", "correlation": ROOT.id}
    monitoring = minimal | {"depth": 1, "context": {"agent": "scout"}}

    assert sent(bundle="minimal") == minimal
    assert sent(bundle="monitoring") == monitoring
    assert sent(bundle="debugging") == monitoring | {"parent_id": ROOT.id, "root_id": ROOT.id}


def test_timing_errors_and_full_bundles() -> None:
    """keeps: E-23, E-20. The saving is measured in bytes, not calculated."""
    assert sent(bundle="timing") == {
        "id": EVENT.id,
        "name": "tool.failed",
        "at": "2026-11-01T09:00:02Z",
        "data": {"duration_s": 0.5},
    }
    assert sent(bundle="errors") == {
        "id": EVENT.id,
        "name": "tool.failed",
        "correlation": ROOT.id,
        "error": True,
        "data": {"error_type": "OSError", "text": "no"},
    }
    assert sent(bundle="full") == json.loads(event_line(EVENT))
    sizes = {bundle: len(event_line(EVENT, fields)) for bundle, fields in BUNDLES.items()}
    assert sizes["minimal"] < sizes["monitoring"] < sizes["debugging"] < sizes["full"]


def test_a_field_list_takes_dotted_names_and_skips_missing_fields() -> None:
    """keeps: E-21, E-10"""
    assert sent("id", "data.path", "context.session", "data.deep.er", "data.none", "context.user") == {
        "id": EVENT.id,
        "data": {"path": "a.py", "deep": {"er": [1]}},
        "context": {"session": "s1"},
    }
    assert sent("data.dotted.name") == {"data": {"dotted.name": 5}}
    assert sent("context.labels.branch") == {"context": {"labels": {"branch": "main"}}}
    assert sent("name", bundle="minimal") == sent(bundle="minimal")
    assert sent("data", "data.path") == {"data": EVENT.data}


@pytest.mark.parametrize("field", ["nmae", "context.x", "data.", "context.labels.", "", "id.x", "body", "context."])
def test_an_unknown_field_is_refused_with_the_known_ones(field: str) -> None:
    """keeps: E-21"""
    with pytest.raises(InvalidInput, match=r"there is no field .*id, name, at.*context\.session.*data\.NAME"):
        select_fields(fields=[field])


def test_an_unknown_bundle_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="'tiny'; the bundles are minimal, monitoring, debugging, timing, errors"):
        select_fields(bundle="tiny")


def test_without_a_selection_all_fields_are_included() -> None:
    assert select_fields() == FULL


def test_whole_data_is_sent_as_its_stored_bytes() -> None:
    body = b'{"large": 1000000000000000000000000000001, "exact": 1.50, "small": 1E-400}'
    assert body in event_line(msgspec.structs.replace(EVENT, body=body))


@given(
    histories(),
    st.sets(st.sampled_from(["id", "name", "data.path", "data.text", "context.agent", "depth"]), min_size=1),
)
def test_selected_fields_are_a_part_of_the_whole_document(history: History, fields: set[str]) -> None:
    def is_part(small: object, whole: object) -> bool:
        if isinstance(small, dict) and isinstance(whole, dict):
            return all(name in whole and is_part(value, whole[name]) for name, value in small.items())
        return small == whole

    for event in history:
        picked = json.loads(event_line(event, select_fields(fields=sorted(fields))))
        assert is_part(picked, json.loads(event_line(event)))
        assert event_document(event, ("data",)).keys() == {"data"}
