"""A question, the error of a model that is down, and settings under which a model is asked once."""

from __future__ import annotations

from mica.errors import ModelUnavailable
from mica.llm.protocol import question
from mica.settings import ModelsSettings

ASK = question("What is it?", output_tokens_max=100)


def down(name: str = "first:m") -> ModelUnavailable:
    return ModelUnavailable(f"{name} answers 503", model=name)


def once(**more: object) -> ModelsSettings:
    return ModelsSettings(attempts_max=1, **more)  # type: ignore[arg-type]  # fields of the settings
