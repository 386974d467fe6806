"""Hosted models over real HTTP: the provider's own library against a server that answers from a script."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import traceback

import pytest
from tests.llm.conftest import KEY, Hosted

from mica.errors import ModelRefused, ModelUnavailable, NoModel, StreamBroken
from mica.llm.hosted import HostedModel
from mica.llm.models import open_models
from mica.llm.protocol import Answer, Image, ModelMessage, ModelUsage, Request, question
from mica.settings import ProviderSettings, load_settings
from mica.testing import HandClock, Turn

PROVIDERS = ["openai-chat", "openai", "anthropic"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_names_its_model_and_usage(hosted: Hosted, provider: str) -> None:
    """keeps: D-10. Every provider protocol reports the usage of each request."""
    models, server = hosted("Hello there", provider=provider)
    async with models:
        answer = await models.ask(question("Say hello", system="Be brief"))

    assert answer == Answer(
        text="Hello there", model=f"{provider}:m", input_tokens=1_000, output_tokens=50, dollars=None
    )
    assert (answer.provider, answer.is_whole) == (provider, True)
    [(_, _, body)] = server.requests
    assert "Be brief" in str(body)
    assert "Say hello" in str(body)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_stream_yields_text_as_it_arrives(hosted: Hosted, provider: str) -> None:
    """keeps: D-10. Partial results come first, and the whole answer last."""
    models, server = hosted("one two three", provider=provider)
    async with models:
        pieces = [piece async for piece in models.stream(question("Count"))]

    assert pieces[:-1] == ["one ", "two ", "three"]
    assert isinstance(pieces[-1], Answer)
    assert (pieces[-1].text, pieces[-1].input_tokens) == ("one two three", 1_000)
    assert server.requests[0][2]["stream"] is True


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_broken_stream_keeps_what_arrived(hosted: Hosted, provider: str) -> None:
    """Neither the half nor a second start passes for the answer; the received part counts as spent."""
    models, server = hosted(Turn("one two three four", breaks_after=2), "never asked", provider=provider)
    seen: list[object] = []

    async def watch() -> None:
        async for piece in models.stream(question("Count")):
            seen.append(piece)

    async with models:
        with pytest.raises(StreamBroken, match="broke off after 8 characters") as broken:
            await watch()

    assert (broken.value.partial, seen) == ("one two ", ["one ", "two "])
    assert len(server.requests) == 1
    assert models.ledger.spent().calls == 1
    assert models.ledger.spent().tokens > 0


async def test_an_unwatched_answer_is_retried_when_it_breaks(hosted: Hosted, clock: HandClock) -> None:
    models, server = hosted(Turn(status=503), Turn(status=500), "There")
    before = clock()
    async with models:
        answer = await models.ask(question("Hi"))
    assert (answer.text, answer.attempts, len(server.requests)) == ("There", 3, 3)
    assert (clock() - before).total_seconds() == pytest.approx(0.25 + 0.5)


async def test_retry_after_is_obeyed(hosted: Hosted, clock: HandClock) -> None:
    models, _ = hosted(Turn(status=429, headers={"retry-after": "7"}), "Now")
    before = clock()
    async with models:
        assert (await models.ask(question("Hi"))).text == "Now"
    assert (clock() - before).total_seconds() == pytest.approx(7)


async def test_a_retry_after_of_minutes_is_not_waited_for(hosted: Hosted, clock: HandClock) -> None:
    models, server = hosted(Turn(status=429, headers={"retry-after": "600"}))
    before = clock()
    async with models:
        with pytest.raises(ModelUnavailable, match="429"):
            await models.ask(question("Hi"))
    assert (len(server.requests), clock()) == (1, before)


async def test_the_providers_library_does_not_retry_by_itself(hosted: Hosted) -> None:
    models, server = hosted(*[Turn(status=500)] * 10, MICA_MODELS_ATTEMPTS_MAX="2")
    async with models:
        with pytest.raises(ModelUnavailable):
            await models.ask(question("Hi"))
    assert len(server.requests) == 2


async def test_a_silent_provider_costs_no_more_than_the_timeout(hosted: Hosted) -> None:
    never = threading.Event()
    models, _ = hosted(Turn(waits=never), MICA_MODELS_TIMEOUT_S="0.05", MICA_MODELS_ATTEMPTS_MAX="1")
    async with models:
        with pytest.raises(ModelUnavailable, match=r"did not answer for 0\.05 s"):
            await models.ask(question("Hi"))
        never.set()
    assert models.ledger.spent().calls == 0


async def test_cancelling_releases_the_reservation(hosted: Hosted) -> None:
    never = threading.Event()
    models, server = hosted(Turn(waits=never), more="[[models.budgets]]\ntokens = 2_000\nper = 'ever'\n")
    async with models:
        asking = asyncio.create_task(models.ask(question("Hi", output_tokens_max=1_900)))
        while not server.requests:
            await asyncio.sleep(0.01)
        assert models.ledger._open
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        never.set()
    assert not models.ledger._open
    assert models.ledger.spent().tokens == 0


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_refused_request_is_not_retried(hosted: Hosted, provider: str, status: int) -> None:
    models, server = hosted(Turn("no", status=status), provider=provider)
    async with models:
        with pytest.raises(ModelRefused) as refused:
            await models.ask(question("Hi"))
    assert (refused.value.status, len(server.requests)) == (status, 1)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("status", [401, 500])
async def test_a_key_appears_in_no_error(hosted: Hosted, provider: str, status: int) -> None:
    """Providers repeat the key in their refusals."""
    body = {"error": {"message": f"Incorrect API key provided: {KEY}.", "type": "invalid_request_error"}}
    models, server = hosted(*[Turn(status=status, body=body)] * 3, provider=provider)
    async with models:
        with pytest.raises((ModelRefused, ModelUnavailable)) as failed:
            await models.ask(question("Hi"))
        shown = "".join(traceback.format_exception(failed.value)) + repr(failed.value) + repr(vars(models))
    assert KEY in str(server.requests[0][1])  # it was really sent
    assert KEY not in shown
    assert "[key]" in str(failed.value)


def test_settings_show_no_key(tmp_path: object) -> None:
    """keeps: D-20. The file names a variable, never the key."""
    settings = load_settings({"HOME": str(tmp_path), "MICA_MODELS_DEFAULT_MODEL": "openai:m", "OPENAI_API_KEY": KEY})
    assert settings.keys["openai"].reveal() == KEY
    assert KEY not in repr(settings) + str(settings)


async def test_a_schema_is_sent_to_a_provider_that_can_enforce_it(hosted: Hosted) -> None:
    models, server = hosted('{"a": "b"}')
    async with models:
        assert models.capabilities("routine").json is True
        await models.ask(question("Hi", schema=SCHEMA))
    assert server.requests[0][2]["response_format"]["type"] == "json_schema"


async def test_a_provider_that_refuses_schemas_gets_them_in_the_prompt_from_then_on(hosted: Hosted) -> None:
    """keeps: D-10. The abilities of a server are found out by asking it."""
    models, server = hosted(Turn("response_format is not supported", status=400), '{"a": "b"}', '{"a": "c"}')
    async with models:
        answer = await models.ask(question("Hi", schema=SCHEMA))
        assert models.capabilities("routine").json is False
        await models.ask(question("Again", schema=SCHEMA))
    assert (answer.text, answer.passed_over) == ('{"a": "b"}', ())
    assert ["response_format" in body for _, _, body in server.requests] == [True, False, False]
    assert "one JSON value of this schema" in str(server.requests[1][2]["messages"])


async def test_settings_override_the_abilities_of_a_model(hosted: Hosted) -> None:
    models, server = hosted(
        "{}", more='[models.known."openai-chat:m"]\njson = false\nwindow_tokens = 4096\nimages = false\n'
    )
    async with models:
        able = models.capabilities("routine")
        await models.ask(question("Hi", schema=SCHEMA))
        with pytest.raises(ModelRefused, match="cannot see images"):
            await models.ask(question("What is it?", images=(Image(media_type="image/png", content=b"x"),)))
    assert (able.json, able.window_tokens, able.images) == (False, 4_096, False)
    assert "response_format" not in server.requests[0][2]


async def test_images_and_a_conversation_are_sent(hosted: Hosted) -> None:
    models, server = hosted("A cat")
    turns = (ModelMessage(text="Hi"), ModelMessage(role="assistant", text="Hello"), ModelMessage(text="What is it?"))
    async with models:
        await models.ask(Request(messages=turns, images=(Image(media_type="image/png", content=b"x"),)))
    sent = server.requests[0][2]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert "data:image/png;base64" in str(sent[2])


async def test_missing_usage_counts_are_estimated(hosted: Hosted) -> None:
    models, _ = hosted(Turn("Hello there", counts=False))
    async with models:
        answer = await models.ask(question("Say hello"))
    assert answer.is_estimated
    assert answer.input_tokens > 0


async def test_a_truncated_answer_is_reported_as_truncated(hosted: Hosted) -> None:
    models, _ = hosted(Turn("Once upon a", finish="length"))
    async with models:
        answer = await models.ask(question("A story"))
    assert (answer.finish, answer.is_whole) == ("length", False)


async def test_a_price_is_known_or_unknown_and_never_zero(hosted: Hosted) -> None:
    """keeps: D-11, K-04. A private server is not billed by the table of the provider it imitates."""
    known = '[models.known."openai-chat:m"]\ndollars_in = 2\ndollars_out = 10\nprice_at = 2026-11-01\n'
    models, _ = hosted("Hi", more=known)
    async with models:
        answer = await models.ask(question("Hi"))
    assert answer.dollars == pytest.approx(1_000 * 2e-6 + 50 * 10e-6)
    assert answer.price == "settings 2026-11-01"


def test_the_price_table_knows_real_models() -> None:
    """keeps: K-04. The price names the table it comes from."""
    usage = ModelUsage(input_tokens=1_000_000, output_tokens=0)
    found = HostedModel("openai:gpt-5-mini", access=ProviderSettings(), key=None).price(usage)
    assert found is not None
    assert found[0] > 0
    assert found[1].startswith("genai-prices ")
    assert HostedModel("openai:no-such-model", access=ProviderSettings(), key=None).price(usage) is None
    own_server = ProviderSettings(base_url="http://127.0.0.1:8080/v1")
    assert HostedModel("openai:gpt-5-mini", access=own_server, key=None).price(usage) is None


async def test_missing_configuration_is_reported_before_any_call(tmp_path: object) -> None:
    settings = load_settings({"HOME": str(tmp_path), "MICA_MODELS_DEFAULT_MODEL": "openai:m"})
    async with open_models(settings) as models:
        with pytest.raises(NoModel, match="set OPENAI_API_KEY"):
            await models.ask(question("Hi"))
    async with open_models(load_settings({"HOME": str(tmp_path)})) as models:
        with pytest.raises(NoModel, match=r"no model is configured for the tier 'routine'"):
            await models.ask(question("Hi"))


def test_importing_mica_imports_no_model_library() -> None:
    """A slow import is paid for only by callers that use a model."""
    code = (
        "import sys, mica, mica.llm.models\n"
        "libraries = {'pydantic_ai', 'pydantic', 'xllamacpp', 'openai', 'anthropic', 'httpx2', 'genai_prices'}\n"
        "found = {name.partition('.')[0] for name in sys.modules} & libraries\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
