"""Search hits: both kinds have the same properties."""

from __future__ import annotations

import msgspec

from mica.model.event import MARK
from mica.model.hit import Hit
from mica.model.mark import mark_of
from mica.testing.builders import START_AT, build


def test_a_hit_has_the_id_text_time_and_position_of_its_mark() -> None:
    event = msgspec.structs.replace(
        build(1, MARK, {"text": "The cookie is set too early", "tags": []}, after_s=0), position=7
    )

    hit = Hit(mark=mark_of(event), score=1.5, parts={"own": 1.5})

    assert (hit.id, hit.text, hit.at, hit.position) == (event.id, "The cookie is set too early", START_AT, 7)
