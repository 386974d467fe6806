"""Layered memory and context for AI agents: observe, store, crystallize, select, inject."""

import importlib as _importlib
import typing as _typing

from mica.crystals import Crystal, Dropped, Mood, Statement, Waiting
from mica.errors import (
    AccessDenied,
    Backlogged,
    BudgetExceeded,
    ClaimLost,
    DuplicateEvent,
    InvalidAnswer,
    InvalidContext,
    InvalidEvent,
    InvalidInput,
    InvalidSettings,
    LawBroken,
    MicaError,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    NoModel,
    NotAStore,
    PromptTooLong,
    SchemaTooNew,
    SourceFailed,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StreamBroken,
    UnknownEvent,
    UnknownSpace,
    UnknownTrail,
)
from mica.memory import Memory, open
from mica.model import Brief, Context, Event, EventQuery, Mark, Passage, Ref
from mica.observe import guards
from mica.observe.context import Here
from mica.select.chains import Comparison, Difference, Failure, Impact, compare
from mica.select.finding import CrystalHit
from mica.select.follow import Following
from mica.select.navigation.places import Lines, Place, Places
from mica.select.overview import Overview
from mica.select.rank import Hit
from mica.select.references import Resolved
from mica.settings import Settings, load_settings
from mica.store.copying import Copied
from mica.store.protocol import Sizes
from mica.store.purging import Purged
from mica.store.retention import Retained
from mica.store.scheduling import Ran
from mica.teachings import Candidate, Teaching
from mica.trails import Trail

_LATER = dict.fromkeys(("Imported", "LogImported", "Progress"), "mica.store.importing")  # with all it can read

if _typing.TYPE_CHECKING:
    from mica.store.importing import Imported, LogImported, Progress
else:

    def __getattr__(name: str) -> object:
        if name in _LATER:
            return getattr(_importlib.import_module(_LATER[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AccessDenied",
    "Backlogged",
    "Brief",
    "BudgetExceeded",
    "Candidate",
    "ClaimLost",
    "Comparison",
    "Context",
    "Copied",
    "Crystal",
    "CrystalHit",
    "Difference",
    "Dropped",
    "DuplicateEvent",
    "Event",
    "EventQuery",
    "Failure",
    "Following",
    "Here",
    "Hit",
    "Impact",
    "Imported",
    "InvalidAnswer",
    "InvalidContext",
    "InvalidEvent",
    "InvalidInput",
    "InvalidSettings",
    "LawBroken",
    "Lines",
    "LogImported",
    "Mark",
    "Memory",
    "MicaError",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "Mood",
    "NoModel",
    "NotAStore",
    "Overview",
    "Passage",
    "Place",
    "Places",
    "Progress",
    "PromptTooLong",
    "Purged",
    "Ran",
    "Ref",
    "Resolved",
    "Retained",
    "SchemaTooNew",
    "Settings",
    "Sizes",
    "SourceFailed",
    "Statement",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StreamBroken",
    "Teaching",
    "Trail",
    "UnknownEvent",
    "UnknownSpace",
    "UnknownTrail",
    "Waiting",
    "compare",
    "guards",
    "load_settings",
    "open",
]
