"""Models that are opened as the settings name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mica.errors import InvalidSettings
from mica.llm.hosted import HostedModel
from mica.llm.local import LocalModel
from mica.llm.tiers import open_model, open_models
from mica.settings import load_settings


async def test_settings_name_the_fallback_chains(tmp_path: object) -> None:
    """keeps: D-20. They define tiers, a default for unset tiers, and names without a provider."""
    variables = {"HOME": str(tmp_path), "MICA_MODELS_DEFAULT_PROVIDER": "openai", "MICA_MODELS_DEFAULT_MODEL": "mini"}
    settings = load_settings(variables)
    assert settings.models.chain("critical") == ("openai:mini",)
    bad = load_settings({"HOME": str(tmp_path), "MICA_MODELS_DEFAULT_MODEL": "mini"})
    with pytest.raises(InvalidSettings, match="'mini' names no provider"):
        open_models(bad)


@pytest.mark.parametrize("name", ["", "gpt", ":gpt", "openai:"])
def test_a_name_without_provider_or_model_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSettings, match="names no provider"):
        open_model(name, load_settings({"HOME": str(tmp_path)}))


def test_the_provider_decides_between_a_local_and_a_hosted_model(tmp_path: Path) -> None:
    settings = load_settings({"HOME": str(tmp_path)})

    local, hosted = open_model("local:/weights/small.gguf", settings), open_model("openai:gpt-x", settings)

    assert isinstance(local, LocalModel)
    assert isinstance(hosted, HostedModel)
    assert (local.name, hosted.name) == ("local:/weights/small.gguf", "openai:gpt-x")


async def test_a_model_shared_by_two_tiers_is_opened_once(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[models.tiers]\nroutine = "local:a.gguf"\ncritical = ["local:a.gguf", "local:b.gguf"]\n')
    settings = load_settings({"HOME": str(tmp_path), "MICA_CONFIG": str(config)})

    async with open_models(settings) as models:
        routine, critical = models._chains["routine"], models._chains["critical"]

    assert [model.name for model in critical] == ["local:a.gguf", "local:b.gguf"]
    assert routine[0] is critical[0]
