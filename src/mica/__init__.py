"""Layered memory and context for AI agents: observe, store, crystallize, select, inject."""

import importlib as _importlib
import typing as _typing

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
from mica.events import guards
from mica.events.activity import Overview
from mica.events.chains import Comparison, Difference, Failure, Impact, compare
from mica.events.context import Here
from mica.events.follower import Following
from mica.events.references import Resolved
from mica.memory import Memory, open
from mica.model.crystal import Crystal, Dropped, Mood, Statement, Waiting
from mica.model.event import Brief, Context, Event, EventQuery, Mark, Passage, Ref
from mica.model.teaching import Candidate, Teaching
from mica.model.trail import Trail
from mica.navigation.places import Lines, Place, Places
from mica.search.ranker import Hit
from mica.search.search import CrystalHit
from mica.settings import Settings, load_settings
from mica.store.protocol import Sizes
from mica.store.purges import Purged
from mica.upkeep.copy import Copied
from mica.upkeep.retention import Retained
from mica.upkeep.schedule import Ran

_LATER = dict.fromkeys(("Imported", "LogImported", "Progress"), "mica.clients.importer")  # with all it can read

if _typing.TYPE_CHECKING:
    from mica.clients.importer import Imported, LogImported, Progress
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
