"""What can be set: one frozen value, parsed once in a surface from a TOML file and the environment.

The file is `$MICA_CONFIG`, else `mica/config.toml` in the user's configuration folder. A variable
`MICA_<SECTION>_<KEY>` (or `MICA_<KEY>` for the first level) wins over the file. Nothing else in mica reads the
environment.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Literal, Union, cast, get_args, get_origin

import msgspec

from mica.errors import InvalidSettings

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


CONCEPT = r"^\S[^:]*:[^:]+:.*\S$"  # domain:type:id


class BriefSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much an agent is told, and how long it may take."""

    budget_tokens: Annotated[int, msgspec.Meta(ge=1)] = 2_000
    deadline_s: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    holdout: Share = 0.0  # of sessions that are told none, to measure what telling is worth
    concepts: tuple[
        Annotated[str, msgspec.Meta(pattern=CONCEPT)], ...
    ] = ()  # every brief tells what sources know of them


class ObserveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What hooks of coding agents may tell. `mica upkeep hooks` switches one space; this is for all."""

    enabled: bool = True
    prompts: bool = True  # whether what was said is kept, redacted; without it turns have no text
    excluded_tools: tuple[str, ...] = ()  # tools whose calls are not kept
    read_gate: bool = False  # refuse a Read of lines that the session was shown and that have not changed (Claude Code)
    offers: bool = True  # paths at a prompt, where this space's own history says that they pay
    holdout: Share = 0.1  # of sessions that are told none, to measure what telling is worth


DigestKind = Literal["extractive", "model"]


class CrystalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When marks become crystals."""

    auto: bool = True  # whoever is active closes what is due; a day ends at midnight in `time_zone`
    idle_minutes: Annotated[float, msgspec.Meta(gt=0)] = 30  # after which a session is over
    digest: DigestKind = "extractive"  # in the words of the marks, or as a model says it
    tier: Tier = "routine"  # of the model


Days = Annotated[float, msgspec.Meta(gt=0, le=100_000)]


class TrailSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When what agents walk becomes a trail, and when a trail fades. `docs/trails.md` says what the numbers do."""

    learn: bool = True  # from walks, once a day; `mica trails learn off` switches it for one space
    auto: bool = True  # crystallize what passes the gate: it gets a name
    publish: bool = True  # after `mica install`, also a command in the project, which git is told to ignore
    runs: Annotated[int, msgspec.Meta(ge=1)] = 3  # that a candidate needs
    sessions: Annotated[int, msgspec.Meta(ge=1)] = 2  # in which they were
    hot: Share = 0.90  # of success, by a smoothed bound
    crystallize: Share = 0.95
    suspend: Share = 0.80  # below it nobody is told of a trail
    overlap: Share = 0.80  # of files, above which two trails are one
    similar: Share = 0.75  # of steps, from which a walk is taken for a trail
    words: Share = 0.50  # of a trail's own words, from which a task is taken for its kind
    half_life_days: Days = 30  # unused, after which it is worth half
    cold: Share = 0.25  # of its worth, below which it is archived
    archive_days: Days = 60  # unused, after which it is archived; nothing is deleted


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long bulk events are kept. Off unless enabled: nothing goes by itself."""

    enabled: bool = False
    default_days: Days = 7
    deep_days: Days = 14
    error_days: Days = 30
    archive: Path | None = None  # a folder that events are written to before they go
    # Names that are kept for good: what memory rests on, and what clients observe of an agent's work.
    keep: tuple[str, ...] = tuple(
        "mark brief transcript.* log.* event.* prompt* step* outcome* judgment* crystal* teaching* trail* "
        "offer* git.* file.* shell.* command.* task.* tool.* turn.* session.* model.*".split()
    )


Tier = Literal["routine", "interactive", "investigative", "critical"]
Chain = str | tuple[str, ...]  # `provider:model`, or several in the order in which they are tried
Positive = Annotated[float, msgspec.Meta(gt=0)]


class Secret:
    """A key. Nothing shows it; `reveal` tells it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"


class TierSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which models serve which kind of task. A tier that is not named takes the default model."""

    routine: Chain = ()  # summaries, phrasing: the cheapest
    interactive: Chain = ()  # somebody waits
    investigative: Chain = ()  # many steps, patience
    critical: Chain = ()  # what cannot be undone: the strongest


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a provider is reached. The key itself is never in a file: the variable that holds it is named."""

    api_key_env: str | None = None  # else <PROVIDER>_API_KEY
    base_url: str | None = None
    requests_per_minute: Positive | None = None
    threads: Annotated[int, msgspec.Meta(ge=1)] = 1  # of a local model; more than idle cores make it slower


class KnownModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What you know of a model, where it differs from what mica detects."""

    window_tokens: Annotated[int, msgspec.Meta(ge=256)] | None = None
    json: bool | None = None
    tools: bool | None = None
    images: bool | None = None
    dollars_in: Annotated[float, msgspec.Meta(ge=0)] | None = None  # for a million tokens
    dollars_out: Annotated[float, msgspec.Meta(ge=0)] | None = None
    price_at: date | None = None  # when the price was looked up


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be spent at most, by everybody or by one agent or tier. Days and months are UTC."""

    agent: str | None = None
    tier: Tier | None = None
    tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    dollars: Annotated[float, msgspec.Meta(ge=0)] | None = None
    per: Literal["day", "month", "ever"] = "day"


class ModelsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Language models. None is asked unless one is named here."""

    default_provider: str | None = None  # of names without one
    default_model: str | None = None  # for tiers that are not set
    tiers: TierSettings = TierSettings()
    providers: dict[str, ProviderSettings] = {}
    known: dict[str, KnownModel] = {}
    budgets: tuple[BudgetSettings, ...] = ()
    attempts_max: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3  # with one model, before the next is tried
    timeout_s: Positive = 60.0  # until the answer, or until the next piece of a streamed one

    def chain(self, tier: Tier) -> tuple[str, ...]:
        """The models of a tier by their whole names, in the order in which they are tried."""
        chain: Chain = getattr(self.tiers, tier) or self.default_model or ()
        names = (chain,) if isinstance(chain, str) else chain
        prefix = f"{self.default_provider}:" if self.default_provider else ""
        return tuple(name if ":" in name else prefix + name for name in names)


Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where `mica up` serves. Loopback unless another address is named."""

    host: str = "127.0.0.1"
    port: Port = 6_422  # MICA on a telephone's keys; 0 takes any that is free
    names: tuple[str, ...] = ()  # by which it may be reached besides, as behind a proxy
    mcp_sse: bool = False  # whether the transport of MCP that was replaced in 2025 is served too, at /mcp/sse


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set, with its default."""

    home: Path  # where spaces live, one file each
    transcripts: Path | None = None  # Claude Code's; None: where it keeps them by default
    clients: dict[str, Path] = {}  # by client: its transcripts, where they are not in their usual place
    store: str | None = None  # a file or address used in place of the directory's own space
    brief: BriefSettings = BriefSettings()
    observe: ObserveSettings = ObserveSettings()
    crystals: CrystalSettings = CrystalSettings()
    retention: RetentionSettings = RetentionSettings()
    trails: TrailSettings = TrailSettings()
    models: ModelsSettings = ModelsSettings()
    server: ServerSettings = ServerSettings()
    token: Secret | None = None  # for a store that is a server, from MICA_TOKEN
    sources: dict[str, dict[str, object]] = {}  # by name, as written: each driver knows what its table may hold
    file: Path | None = None  # that these settings were read from; relative paths in it start at its folder
    keys: dict[str, Secret] = {}  # of the providers that are named, from their variables
    variables: dict[str, Secret] = {}  # that the tables of sources name, with what they hold
    semantic: Literal["auto", "on", "off"] = "auto"  # whether meaning counts in search; auto: when it is installed
    time_zone: str | None = None  # by which days and weeks are told, as in Europe/Berlin; None: this machine's
    carrier: dict[str, str] = {}  # trace fields that the parent process handed down

    def zone(self) -> ZoneInfo | None:
        """The asker's time zone; None for this machine's. Raises InvalidSettings when there is no such zone."""
        if self.time_zone is None:
            return None
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            return ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidSettings(f"time_zone is {self.time_zone!r}; name one such as Europe/Berlin") from error


CARRIER = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
FROM_ENVIRONMENT = ("carrier", "file", "keys", "token", "variables")  # what no file sets


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of this machine. Raises InvalidSettings naming the file, the key and the reason."""
    environment = os.environ if environment is None else environment
    user_home = Path(environment.get("HOME") or Path.home())
    path = Path(environment.get("MICA_CONFIG") or _folder(environment, user_home, "config") / "config.toml")
    given = _read(path, required=bool(environment.get("MICA_CONFIG")))
    values = {
        "home": str(_folder(environment, user_home, "data")),
        **given,
    }
    for name in FROM_ENVIRONMENT:
        if name in values:
            raise InvalidSettings(f"{path}: `{name}` is not for a file: it comes from the environment")
    _override(values, environment)
    values["carrier"] = {name: environment[name] for name in CARRIER if name in environment}
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_as_path)
        _check_zone(settings, path, environment)
        token = environment.get("MICA_TOKEN")
        return msgspec.structs.replace(
            settings,
            file=path if given else None,
            keys=_keys(settings.models, environment),
            token=Secret(token) if token else None,
            variables=_variables(settings.sources, environment),
        )
    except msgspec.ValidationError as error:
        given_as = _origin(str(error), environment)
        found = "" if given_as else _found(str(error), values)
        raise InvalidSettings(f"{given_as or path}: {error}{found}{_advice(str(error))}") from error


def _check_zone(settings: Settings, path: Path, environment: Mapping[str, str]) -> None:
    """Raise InvalidSettings, naming the file or the variable, when there is no such time zone."""
    try:
        settings.zone()
    except InvalidSettings as error:
        raise InvalidSettings(f"{'MICA_TIME_ZONE' if environment.get('MICA_TIME_ZONE') else path}: {error}") from error


def _found(error: str, values: object) -> str:
    """What stands at the place that an error speaks of, where it can be shown: a number or a short text."""
    for name in error.rpartition("`$.")[2].rstrip("`").split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return f", not {values!r}" if isinstance(values, bool | int | float) else ""


def _keys(models: ModelsSettings, environment: Mapping[str, str]) -> dict[str, Secret]:
    """The keys of providers that a tier or a section names; of no others."""
    named = {name.partition(":")[0] for tier in get_args(Tier) for name in models.chain(tier)} | set(models.providers)
    keys = {}
    for provider in named:
        variable = getattr(models.providers.get(provider), "api_key_env", None) or key_variable(provider)
        if value := environment.get(variable):
            keys[provider] = Secret(value)
    return keys


def _variables(sources: Mapping[str, Mapping[str, object]], environment: Mapping[str, str]) -> dict[str, Secret]:
    """What the variables hold that sources name: by `dsn_env`, `headers_env` and `env`; of no others."""
    found: dict[str, Secret] = {}
    for table in sources.values():
        for key, value in table.items():
            if key == "env" or key.endswith("_env"):
                named = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
                found |= {str(name): Secret(environment[str(name)]) for name in named if str(name) in environment}
    return found


def key_variable(provider: str) -> str:
    """Where the key of a provider is looked for: OPENAI_API_KEY, also for `openai-chat`."""
    return f"{provider.partition('-')[0].upper()}_API_KEY"


def _origin(error: str, environment: Mapping[str, str]) -> str | None:
    """The variable that set the key an error speaks of, if one did."""
    key = error.rpartition("`$.")[2].rstrip("`")
    variable = "MICA_" + key.upper().replace(".", "_")
    return f"{variable}={environment[variable]!r}" if environment.get(variable) else None


def _advice(error: str) -> str:
    """What to write in place of what an error speaks of, as far as that can be told."""
    kind = _kind_at(error.rpartition("`$")[2].rstrip("`") if "`$" in error else "")
    unknown = re.search(r"unknown field `([^`]*)`", error)
    if unknown is not None and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = [field.name for field in msgspec.structs.fields(kind) if field.name not in FROM_ENVIRONMENT]
        if near := get_close_matches(unknown[1], names, n=1):
            return f"; did you mean `{near[0]}`?"
        for name in names if kind is Settings else ():
            if unknown[1] in getattr(_kind_at(f".{name}"), "__struct_fields__", ()):
                return f"; it belongs under [{name}]"
        return f"; there are {', '.join(names)}"
    return f"; write {' or '.join(map(repr, get_args(kind)))}" if get_origin(kind) is Literal else ""


def _kind_at(place: str) -> object:
    """The type of what stands at a place such as `.models.providers[...]`."""
    kind: object = Settings
    for name in re.findall(r"\.\w+|\[", place):
        if name == "[":
            kind = next(each for each in reversed(get_args(kind)) if each is not ...)
        else:
            kind = next(field.type for field in msgspec.structs.fields(cast(type, kind)) if field.name == name[1:])
        while get_origin(kind) in (Annotated, Union, UnionType):
            kind = get_args(kind)[0]
    return kind


def _as_path(kind: type, value: object) -> object:
    if kind is object:  # what a driver reads itself
        return value
    if not isinstance(value, str) or not value:
        raise ValueError(f"Expected a path as text, got {value!r}")
    return Path(value).expanduser()


def _read(path: Path, *, required: bool) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise InvalidSettings(
                f"MICA_CONFIG names {path}, which does not exist; create it or unset MICA_CONFIG"
            ) from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(f"cannot read settings from {path}: {error}") from error


def _override(values: dict[str, object], environment: Mapping[str, str]) -> None:
    for field in msgspec.structs.fields(Settings):
        if field.name in FROM_ENVIRONMENT:
            continue
        if field.name == "clients":
            _override_clients(values, environment)
            continue
        section = field.type if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct) else None
        if section is None:
            if value := environment.get(f"MICA_{field.name.upper()}"):
                values[field.name] = value
            continue
        for inner in msgspec.structs.fields(section):
            if value := environment.get(f"MICA_{field.name.upper()}_{inner.name.upper()}"):
                table = values.setdefault(field.name, {})
                if isinstance(table, dict):  # a section that is no table is reported with the file's other faults
                    table[inner.name] = value


def _override_clients(values: dict[str, object], environment: Mapping[str, str]) -> None:
    """Take MICA_CLIENTS_CODEX and the like; settings know no client by name."""
    for variable, value in environment.items():
        name = variable.removeprefix("MICA_CLIENTS_").lower().replace("_", "-")
        if variable.startswith("MICA_CLIENTS_") and name and value:
            table = values.setdefault("clients", {})
            if isinstance(table, dict):
                table[name] = value


def _folder(environment: Mapping[str, str], user_home: Path, kind: str) -> Path:
    if sys.platform == "darwin":
        return user_home / "Library" / "Application Support" / "mica"
    variable, default = ("XDG_DATA_HOME", ".local/share") if kind == "data" else ("XDG_CONFIG_HOME", ".config")
    return Path(environment.get(variable) or user_home / default) / "mica"
