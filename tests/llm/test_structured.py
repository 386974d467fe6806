"""Structured answers: what a model returns is checked, corrected once, and otherwise named for what it is."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.errors import InvalidAnswer
from mica.llm.protocol import Answer, Capabilities, question
from mica.llm.structured import ask_for, parse_answer, schema_of
from mica.testing import ScriptedModel, scripted


class Place(msgspec.Struct):
    name: str
    size: int


class Trip(msgspec.Struct):
    places: list[Place]
    note: str = ""


GOOD = {"places": [{"name": "Rome", "size": 3}], "note": "yes"}
ASK = question("Where shall we go? Answer with a list of places that are worth the journey and a note.")


@pytest.mark.parametrize(
    "text",
    [
        msgspec.json.encode(GOOD).decode(),
        f"```json\n{msgspec.json.encode(GOOD).decode()}\n```",
        f"Here you are:\n{msgspec.json.encode(GOOD).decode()}\nEnjoy!",
    ],
)
async def test_a_structured_answer_is_validated(text: str) -> None:
    """keeps: D-10. JSON is checked, even if the model wraps it in other text."""
    got = await ask_for(scripted(text), Trip, ASK)
    assert got.value == Trip(places=[Place(name="Rome", size=3)], note="yes")
    assert len(got.answers) == 1


BAD = [
    ("Well, I would go to Rome.", "prose came back and no JSON"),
    ('{"places": [{"name": "Ro', "half a JSON value came back"),
    ('{"places": "Rome"}', "JSON of another shape came back"),
    ('{"places": [{"name": "Rome", "size": "big"}]}', r"Expected `int`, got `str` - at `\$\.places\[0\]\.size`"),
    ("Where shall we go? Answer with a list of places that are worth the journey", "the question came back"),
    ("Error: upstream connect error or disconnect", "an error text came back"),
    ("", "nothing came back"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
async def test_an_invalid_answer_is_quoted_in_the_error(text: str, said: str) -> None:
    """keeps: B-64. Prose, half JSON, the prompt or an error text is a clear error, after one correction."""
    model = ScriptedModel(text, text)
    with pytest.raises(InvalidAnswer, match=said) as bad:
        await ask_for(scripted(model), Trip, ASK)
    assert len(model.requests) == 2
    assert (bad.value.model, bad.value.text) == ("scripted:model", text)


@pytest.mark.parametrize(("text", "said"), BAD)
async def test_a_model_may_correct_itself_once(text: str, said: str) -> None:
    model = ScriptedModel(text, GOOD)
    got = await ask_for(scripted(model), Trip, ASK)
    assert got.value.note == "yes"
    assert len(got.answers) == 2
    correction = model.requests[1].messages
    assert [message.role for message in correction] == ["user", "assistant", "user"]
    assert "This cannot be used" in correction[2].text


async def test_the_first_answer_is_used_if_a_correction_does_not_fit() -> None:
    prose = "Well, I would go to Rome. " * 40
    model = ScriptedModel(prose, able=Capabilities(json=True, window_tokens=1_200))
    with pytest.raises(InvalidAnswer, match="prose came back"):
        await ask_for(scripted(model), Trip, ASK)
    assert len(model.requests) == 1


async def test_an_answer_cut_at_its_limit_is_reported_as_cut() -> None:
    answer = Answer(text='{"places": [', model="a:m", input_tokens=1, output_tokens=9, dollars=None, finish="length")
    with pytest.raises(InvalidAnswer, match=r"cut off \(length\) after 9 tokens"):
        parse_answer(answer, Trip, ASK)


async def test_the_schema_is_sent_as_a_parameter_or_in_the_prompt() -> None:
    able, unable = ScriptedModel(GOOD), ScriptedModel(GOOD, able=Capabilities(json=None))
    await ask_for(scripted(able), Trip, ASK)
    await ask_for(scripted(unable), Trip, ASK)
    assert able.requests[0].schema is not None
    assert able.requests[0].system == ""
    assert unable.requests[0].schema is None
    assert '"places"' in unable.requests[0].system


def test_a_schema_has_no_references() -> None:
    text = msgspec.json.encode(schema_of(Trip)).decode()
    assert "$ref" not in text
    assert '"size":{"type":"integer"}' in text


@given(st.text(max_size=200))
def test_any_answer_becomes_a_value_or_a_named_refusal(text: str) -> None:
    answer = Answer(text=text, model="a:m", input_tokens=1, output_tokens=1, dollars=None)
    with suppress(InvalidAnswer):  # and no other error
        assert isinstance(parse_answer(answer, Trip, ASK), Trip)
