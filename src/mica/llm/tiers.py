"""Opens the models that the settings name. Each tier has a list of models, which are tried in order."""

from __future__ import annotations

from typing import get_args

from mica.errors import InvalidSettings
from mica.llm.budgets import Ledger, Record
from mica.llm.hosted import HostedModel
from mica.llm.local import LocalModel
from mica.llm.models import Models
from mica.llm.protocol import Model
from mica.llm.resilience import Timing
from mica.settings import ProviderSettings, Settings, Tier

LOCAL = "local"


def open_models(
    settings: Settings, *, space: str = "", record: Record | None = None, timing: Timing | None = None
) -> Models:
    """Return the models of the settings; each is loaded at its first use.

    `record` is called with every reservation and every cost of a call. `Models.ledger.restore` reads these records in a
    later process. Raises InvalidSettings for a name that is not of the form `provider:model`.
    """
    timing = timing or Timing()
    opened: dict[str, Model] = {}
    chains: dict[Tier, list[Model]] = {}
    for tier in get_args(Tier):
        for name in settings.models.chain(tier):
            if name not in opened:
                opened[name] = open_model(name, settings)
            chains.setdefault(tier, []).append(opened[name])
    ledger = Ledger(settings.models.budgets, now=timing.now, record=record)
    return Models(chains, settings=settings.models, space=space, ledger=ledger, timing=timing)


def open_model(name: str, settings: Settings) -> Model:
    """Return the model with a name such as `local:<path of a GGUF file>` or `provider:model`. It is loaded when used.

    Raises InvalidSettings for a name of another form.
    """
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise InvalidSettings(
            f'[models.tiers]: {name!r} names no provider; write "provider:model", or set default_provider in [models]'
        )
    access = settings.models.providers.get(provider, ProviderSettings())
    known = settings.models.known.get(name)
    if provider == LOCAL:
        return LocalModel(model, threads=access.threads, window_tokens=known.window_tokens if known else None)
    return HostedModel(name, access=access, key=settings.keys.get(provider))
