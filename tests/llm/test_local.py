"""A real small model in this process: SmolLM2-135M by xllamacpp. Its words are poor; the path is the real one."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mica.errors import ModelUnavailable, NoModel, PromptTooLong
from mica.llm.local import LocalModel
from mica.llm.models import Models, open_models
from mica.llm.protocol import Answer, question
from mica.llm.structured import ask_for
from mica.settings import load_settings


@pytest.fixture
async def models(weights: Path, tmp_path: Path) -> AsyncIterator[Models]:
    """As a user has it: the weights named in a settings file."""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[models.tiers]\nroutine = "local:{weights}"\n[models.known."local:{weights}"]\nwindow_tokens = 1024\n'
    )
    variables = {"HOME": str(tmp_path), "MICA_CONFIG": str(config)}
    async with open_models(load_settings(variables)) as opened:
        yield opened


async def test_a_real_model_answers_streams_and_costs_nothing(models: Models) -> None:
    """keeps: K-57. It needs no account and no network; settings choose it, and its usage is counted."""
    pieces = [piece async for piece in models.stream(question("Say hello.", output_tokens_max=12))]
    answer = pieces[-1]
    assert isinstance(answer, Answer)
    assert len(pieces) > 2
    assert answer.text == "".join(str(piece) for piece in pieces[:-1])
    assert (answer.provider, answer.dollars, answer.price, answer.is_estimated) == ("local", 0.0, "local", False)
    assert answer.input_tokens > 0
    assert models.ledger.spent().tokens == answer.input_tokens + answer.output_tokens


class Colour(msgspec.Struct):
    colour: str


async def test_a_grammar_makes_a_real_model_follow_the_schema(models: Models) -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    got = await ask_for(models, Colour, question("What colour is the sky?", output_tokens_max=30), schema=schema)
    assert got.value.colour in ("red", "blue")
    assert json.loads(got.answers[0].text) == {"colour": got.value.colour}


async def test_an_abandoned_model_call_stops(models: Models) -> None:
    asking = asyncio.create_task(models.ask(question("Tell me a long story.", output_tokens_max=500)))
    while not models.ledger._open:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not models.ledger._open
    answer = await models.ask(question("Say hello.", output_tokens_max=5))  # it is free again
    assert answer.text


async def test_a_prompt_that_does_not_fit_is_refused_by_the_model_itself(weights: Path) -> None:
    """The estimate may be wrong; then the model's own count decides. Nothing is cut silently."""
    model = LocalModel(weights, window_tokens=256)
    with pytest.raises(PromptTooLong, match="256 tokens"):
        await anext(model.pieces(question("word " * 400), streamed=True))
    await model.close()


async def test_other_programs_cannot_use_the_local_model(weights: Path) -> None:
    """The library opens a port on loopback; without its key it answers nothing."""
    model = LocalModel(weights, window_tokens=256)
    await anext(model.pieces(question("Hi", output_tokens_max=2), streamed=True))
    call = urllib.request.Request(
        model._server.listening_address + "/v1/chat/completions", data=b"{}", headers={"content-type": "text/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        await asyncio.to_thread(urllib.request.urlopen, call)
    with refused.value as error:  # which holds the connection
        assert error.code == 401
    await model.close()


async def test_invalid_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(NoModel, match="there are no weights at"):
        await anext(LocalModel(tmp_path / "none.gguf").pieces(question("Hi"), streamed=True))
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    with pytest.raises(ModelUnavailable, match="whole GGUF file"):
        await anext(LocalModel(tmp_path / "bad.gguf").pieces(question("Hi"), streamed=True))
