"""What the tests of models share: a scripted provider behind real settings, and a clock that needs no waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from mica.llm.models import Models, open_models
from mica.llm.resilience import Timing
from mica.settings import load_settings
from mica.testing import HandClock, ScriptedProvider, Turn

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
Hosted: TypeAlias = Callable[..., tuple[Models, ScriptedProvider]]


@pytest.fixture
def timing(clock: HandClock) -> Timing:
    """Time by the hand clock; chance is always one half."""
    return Timing(now=clock, monotonic=clock.monotonic, sleep=clock.sleep, chance=lambda: 0.5)


@pytest.fixture
def hosted(tmp_path: Path, timing: Timing) -> Iterator[Hosted]:
    """Models as settings name them, with a real server behind them that answers these turns."""
    with ExitStack() as running:

        def make(
            *turns: Turn | str, provider: str = "openai-chat", more: str = "", **variables: str
        ) -> tuple[Models, ScriptedProvider]:
            server = running.enter_context(ScriptedProvider(*turns))
            base = server.address + ("" if provider == "anthropic" else "/v1")
            config = tmp_path / "config.toml"
            config.write_text(
                f'[models.tiers]\nroutine = "{provider}:m"\n'
                f'[models.providers.{provider}]\nbase_url = "{base}"\napi_key_env = "TEST_KEY"\n{more}'
            )
            environment = {"HOME": str(tmp_path), "MICA_CONFIG": str(config), "TEST_KEY": KEY, **variables}
            return open_models(load_settings(environment), timing=timing), server

        yield make
