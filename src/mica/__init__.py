"""Memory for AI agents: records what they do, summarizes it, and gives each agent a brief of what it needs to know."""

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
    ReservedForUser,
    SchemaTooNew,
    ScopeMissing,
    SourceFailed,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StreamBroken,
    UnknownBelief,
    UnknownEvent,
    UnknownSpace,
    UnknownTrail,
)
from mica.events import guards
from mica.events.activity import Overview
from mica.events.chains import Comparison, Difference, Failure, Impact, compare
from mica.events.context import Here
from mica.events.follower import Follower
from mica.events.references import ResolvedEvents
from mica.memory import Memory, open
from mica.model.brief import Brief, Passage
from mica.model.crystal import Crystal, Dropped, Mood, Statement, Waiting
from mica.model.event import Context, Event, EventQuery, Ref
from mica.model.hit import CrystalHit, Hit
from mica.model.mark import Mark
from mica.model.teaching import Candidate, Teaching
from mica.model.trail import Trail
from mica.navigation.places import Lines, Place, Places
from mica.settings import Settings, load_settings
from mica.store.protocol import Sizes
from mica.store.purges import Purged

__all__ = [
    "AccessDenied",
    "Backlogged",
    "Brief",
    "BudgetExceeded",
    "Candidate",
    "ClaimLost",
    "Comparison",
    "Context",
    "Crystal",
    "CrystalHit",
    "Difference",
    "Dropped",
    "DuplicateEvent",
    "Event",
    "EventQuery",
    "Failure",
    "Follower",
    "Here",
    "Hit",
    "Impact",
    "InvalidAnswer",
    "InvalidContext",
    "InvalidEvent",
    "InvalidInput",
    "InvalidSettings",
    "LawBroken",
    "Lines",
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
    "PromptTooLong",
    "Purged",
    "Ref",
    "ReservedForUser",
    "ResolvedEvents",
    "SchemaTooNew",
    "ScopeMissing",
    "Settings",
    "Sizes",
    "SourceFailed",
    "Statement",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StreamBroken",
    "Teaching",
    "Trail",
    "UnknownBelief",
    "UnknownEvent",
    "UnknownSpace",
    "UnknownTrail",
    "Waiting",
    "compare",
    "guards",
    "load_settings",
    "open",
]
