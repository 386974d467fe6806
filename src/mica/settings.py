"""The settings: one immutable value, parsed once from a TOML file and the environment when a program starts.

The file is `$MICA_CONFIG`, else `mica/config.toml` in the user's configuration folder. A variable
`MICA_<SECTION>_<KEY>` (or `MICA_<KEY>` for a setting outside of sections) overrides the file. No other module reads
settings from the environment, except the hook program, which imports nothing of mica.
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
    """The budget and deadline of briefs, the share of sessions without briefs, and the concepts in every brief."""

    budget_tokens: Annotated[int, msgspec.Meta(ge=1)] = 2_000
    deadline_s: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    holdout: Share = 0.0  # share of sessions that get no brief, to measure what briefs are worth
    concepts: tuple[
        Annotated[str, msgspec.Meta(pattern=CONCEPT)], ...
    ] = ()  # every brief includes what sources know of these


class ObserveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of hooks, for all spaces. `mica upkeep hooks` switches hooks off or on for one space."""

    enabled: bool = True
    prompts: bool = True  # store prompts and answers, redacted; without it turns have no text
    excluded_tools: tuple[str, ...] = ()  # tools whose calls are not recorded
    read_gate: bool = False  # refuse a Read of unchanged lines that the session has seen already (Claude Code)
    offers: bool = True  # suggest files at a prompt, if the history of the space shows that it pays
    holdout: Share = 0.1  # share of sessions that get no suggestions, to measure what suggestions are worth


DigestKind = Literal["extractive", "model"]


class CrystalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and how marks are summarized as crystals."""

    auto: bool = True  # make crystals automatically, in any running process; a day ends at midnight in `time_zone`
    idle_minutes: Annotated[float, msgspec.Meta(gt=0)] = 30  # a session is over after this time without events
    digest: DigestKind = "extractive"  # extractive: sentences of the marks themselves; model: written by a model
    tier: Tier = "routine"  # of the model, if `digest` is "model"


Days = Annotated[float, msgspec.Meta(gt=0, le=100_000)]


class TrailSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When trails are learned, named, suspended and archived. `docs/trails.md` explains the numbers.

    A walk is the list of files that an agent opened during one task, in order. A trail is learned from similar walks:
    the files that proved useful together for a kind of task.
    """

    learn: bool = True  # from walks, once a day; `mica trails learn off` switches it off for one space
    auto: bool = True  # crystallize trails that fulfill the conditions below: they get a name
    publish: bool = True  # after `mica install`, also write a command into the project, ignored by git
    runs: Annotated[int, msgspec.Meta(ge=1)] = 3  # the number of runs that a hot trail needs
    sessions: Annotated[int, msgspec.Meta(ge=1)] = 2  # the number of sessions that these runs must come from
    hot: Share = 0.90  # the smoothed share of successes that a hot trail needs
    crystallize: Share = 0.95  # the same, to be crystallized automatically
    suspend: Share = 0.80  # a trail with a smaller share of successes is not suggested
    overlap: Share = 0.80  # share of common files above which two trails are merged
    similar: Share = 0.75  # a walk with at least this share of a trail's steps counts as a run of it
    words: Share = 0.50  # a task with at least this share of a trail's words counts as its kind
    half_life_days: Days = 30  # the value of a trail is halved each time it was not used for so long
    cold: Share = 0.25  # a trail is archived when only this share of its value is left
    archive_days: Days = 60  # a trail is archived if it was not used for so long; nothing is deleted


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long events are stored. By default, all events stay; events that memory is based on are never removed."""

    enabled: bool = False
    default_days: Days = 7
    deep_days: Days = 14  # of events with many ancestors
    error_days: Days = 30  # of failures
    archive: Path | None = None  # a folder that events are written to before they are removed
    # Names of events that are never removed: those that memory is based on, and what coding agents did.
    keep: tuple[str, ...] = tuple(
        "mark brief transcript.* log.* event.* prompt* step* outcome* judgment* crystal* teaching* trail* "
        "offer* git.* file.* shell.* command.* task.* tool.* turn.* session.* model.*".split()
    )


Tier = Literal["routine", "interactive", "investigative", "critical"]
Chain = str | tuple[str, ...]  # `provider:model`, or several in the order in which they are tried
Positive = Annotated[float, msgspec.Meta(gt=0)]


class Secret:
    """A secret string. Its `repr` never shows it; `reveal` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"


class TierSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The models for each tier (a kind of task). A tier without a model uses the default model."""

    routine: Chain = ()  # summaries, phrasing: the cheapest
    interactive: Chain = ()  # a person waits for the answer
    investigative: Chain = ()  # many steps, patience
    critical: Chain = ()  # irreversible actions: the strongest


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address and limits of a provider, and the name of the environment variable that holds its API key."""

    api_key_env: str | None = None  # by default <PROVIDER>_API_KEY
    base_url: str | None = None
    requests_per_minute: Positive | None = None
    threads: Annotated[int, msgspec.Meta(ge=1)] = 1  # of a local model; more threads than idle cores make it slower


class KnownModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Properties of a model that override what mica detects."""

    window_tokens: Annotated[int, msgspec.Meta(ge=256)] | None = None
    json: bool | None = None
    tools: bool | None = None
    images: bool | None = None
    dollars_in: Annotated[float, msgspec.Meta(ge=0)] | None = None  # for a million tokens
    dollars_out: Annotated[float, msgspec.Meta(ge=0)] | None = None
    price_at: date | None = None  # when the price was looked up


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit on the tokens or dollars of model calls in a period. Days and months are in UTC.

    It counts all calls or, if `agent` or `tier` is set, only those of this agent or tier.
    """

    agent: str | None = None
    tier: Tier | None = None
    tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    dollars: Annotated[float, msgspec.Meta(ge=0)] | None = None
    per: Literal["day", "month", "ever"] = "day"


class ModelsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The language models of each tier, and their limits. Only models in these settings are called."""

    default_provider: str | None = None  # for models that are written without a provider
    default_model: str | None = None  # for tiers that are not set
    tiers: TierSettings = TierSettings()
    providers: dict[str, ProviderSettings] = {}
    known: dict[str, KnownModel] = {}
    budgets: tuple[BudgetSettings, ...] = ()
    attempts_max: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3  # with one model, before the next is tried
    timeout_s: Positive = 60.0  # until the answer, or until the next piece of a streamed one

    def chain(self, tier: Tier) -> tuple[str, ...]:
        """Return the full names of the models of a tier, `provider:model`, in the order in which they are tried."""
        chain: Chain = getattr(self.tiers, tier) or self.default_model or ()
        names = (chain,) if isinstance(chain, str) else chain
        prefix = f"{self.default_provider}:" if self.default_provider else ""
        return tuple(name if ":" in name else prefix + name for name in names)


Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address at which the server of `mica up` listens. By default only this machine can reach it."""

    host: str = "127.0.0.1"
    port: Port = 6_422  # MICA on a telephone's keys; 0 takes any that is free
    names: tuple[str, ...] = ()  # further host names, such as those of a proxy
    mcp_sse: bool = False  # also serve the MCP transport that was replaced in 2025, at /mcp/sse


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, with their defaults."""

    home: Path  # where spaces live, one file each
    transcripts: Path | None = None  # of Claude Code; None: in its default folder
    clients: dict[str, Path] = {}  # by client: its transcripts, if they are not in their usual place
    store: str | None = None  # a file or address used in place of the directory's own space
    brief: BriefSettings = BriefSettings()
    observe: ObserveSettings = ObserveSettings()
    crystals: CrystalSettings = CrystalSettings()
    retention: RetentionSettings = RetentionSettings()
    trails: TrailSettings = TrailSettings()
    models: ModelsSettings = ModelsSettings()
    server: ServerSettings = ServerSettings()
    token: Secret | None = None  # for a store that is a server, from MICA_TOKEN
    sources: dict[str, dict[str, object]] = {}  # by name, not validated here: each driver checks its own table
    file: Path | None = None  # the file these settings were read from; relative paths in it start at its folder
    keys: dict[str, Secret] = {}  # by provider: the API key, from its environment variable
    variables: dict[str, Secret] = {}  # the environment variables that `sources` refers to, with their values
    semantic: Literal["auto", "on", "off"] = "auto"  # search by meaning; auto: if it is installed
    time_zone: str | None = None  # for days and weeks, as in Europe/Berlin; None: that of this machine
    carrier: dict[str, str] = {}  # trace fields from the parent process

    def zone(self) -> ZoneInfo | None:
        """Return the user's time zone, or None for the machine's. Raises InvalidSettings if it does not exist."""
        if self.time_zone is None:
            return None
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            return ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidSettings(f"time_zone is {self.time_zone!r}; name one such as Europe/Berlin") from error


CARRIER = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
FROM_ENVIRONMENT = ("carrier", "file", "keys", "token", "variables")  # cannot be set in a file


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Load the settings from the file and the environment.

    Raises InvalidSettings, with the file or variable, the key and the reason in its message.
    """
    environment = os.environ if environment is None else environment
    user_home = Path(environment.get("HOME") or Path.home())
    path = Path(environment.get("MICA_CONFIG") or _folder(environment, user_home, "config") / "config.toml")
    contents = _read(path, required=bool(environment.get("MICA_CONFIG")))
    values = {
        "home": str(_folder(environment, user_home, "data")),
        **contents,
    }
    for name in FROM_ENVIRONMENT:
        if name in values:
            raise InvalidSettings(f"{path}: `{name}` cannot be set in a file; it comes from the environment")
    _override(values, environment)
    values["carrier"] = {name: environment[name] for name in CARRIER if name in environment}
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_as_path)
        _check_zone(settings, path, environment)
        token = environment.get("MICA_TOKEN")
        return msgspec.structs.replace(
            settings,
            file=path if contents else None,
            keys=_keys(settings.models, environment),
            token=Secret(token) if token else None,
            variables=_variables(settings.sources, environment),
        )
    except msgspec.ValidationError as error:
        variable = _origin(str(error), environment)
        actual = "" if variable else _describe_value(str(error), values)
        raise InvalidSettings(f"{variable or path}: {error}{actual}{_advice(str(error))}") from error


def _check_zone(settings: Settings, path: Path, environment: Mapping[str, str]) -> None:
    """Raise InvalidSettings if the time zone in `settings` does not exist.

    The message names the file or variable that set it.
    """
    try:
        settings.zone()
    except InvalidSettings as error:
        raise InvalidSettings(f"{'MICA_TIME_ZONE' if environment.get('MICA_TIME_ZONE') else path}: {error}") from error


def _describe_value(error: str, values: object) -> str:
    """Return the end of an error message, such as ", not 7": the invalid value in `values` that `error` is about.

    The result is empty if this value is not a number or boolean.
    """
    for name in error.rpartition("`$.")[2].rstrip("`").split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return f", not {values!r}" if isinstance(values, bool | int | float) else ""


def _keys(models: ModelsSettings, environment: Mapping[str, str]) -> dict[str, Secret]:
    """Return the API keys that are set, by provider, for the providers of all tiers and of `[models.providers]`."""
    named = {name.partition(":")[0] for tier in get_args(Tier) for name in models.chain(tier)} | set(models.providers)
    keys = {}
    for provider in named:
        variable = getattr(models.providers.get(provider), "api_key_env", None) or key_variable(provider)
        if value := environment.get(variable):
            keys[provider] = Secret(value)
    return keys


def _variables(sources: Mapping[str, Mapping[str, object]], environment: Mapping[str, str]) -> dict[str, Secret]:
    """Return the values of the environment variables that the settings of sources refer to, by name of the variable.

    The settings `env`, `dsn_env` and `headers_env` of a source contain the names of such variables.
    """
    secrets: dict[str, Secret] = {}
    for table in sources.values():
        for key, value in table.items():
            if key == "env" or key.endswith("_env"):
                named = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
                secrets |= {str(name): Secret(environment[str(name)]) for name in named if str(name) in environment}
    return secrets


def key_variable(provider: str) -> str:
    """Return the name of the variable for a provider's API key: `OPENAI_API_KEY` for `openai` and `openai-chat`."""
    return f"{provider.partition('-')[0].upper()}_API_KEY"


def _origin(error: str, environment: Mapping[str, str]) -> str | None:
    """Return `VARIABLE=value` if an environment variable set the key that `error` is about; None if the file did.

    `error` is the message of msgspec.
    """
    key = error.rpartition("`$.")[2].rstrip("`")
    variable = "MICA_" + key.upper().replace(".", "_")
    return f"{variable}={environment[variable]!r}" if environment.get(variable) else None


def _advice(error: str) -> str:
    """Return an addition to an error message that suggests what to write instead; empty if there is no suggestion.

    `error` is the message of msgspec.
    """
    kind = _kind_at(error.rpartition("`$")[2].rstrip("`") if "`$" in error else "")
    unknown = re.search(r"unknown field `([^`]*)`", error)
    if unknown is not None and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = [field.name for field in msgspec.structs.fields(kind) if field.name not in FROM_ENVIRONMENT]
        if near := get_close_matches(unknown[1], names, n=1):
            return f"; did you mean `{near[0]}`?"
        for name in names if kind is Settings else ():
            if unknown[1] in getattr(_kind_at(f".{name}"), "__struct_fields__", ()):
                return f"; it belongs under [{name}]"
        return f"; the known names are {', '.join(names)}"
    return f"; write {' or '.join(map(repr, get_args(kind)))}" if get_origin(kind) is Literal else ""


def _kind_at(place: str) -> object:
    """Return the type of the setting at a path such as `.models.providers[...]`."""
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
    if kind is object:  # validated by the driver
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
    """Replace values from the file by those of `MICA_…` variables."""
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
                if isinstance(table, dict):  # otherwise it is reported with the other errors of the file
                    table[inner.name] = value


def _override_clients(values: dict[str, object], environment: Mapping[str, str]) -> None:
    """Set the transcript folders given in variables such as MICA_CLIENTS_CODEX. Any client name is accepted."""
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
