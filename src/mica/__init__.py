"""Layered memory and context for AI agents: observe, store, crystallize, select, inject."""

from mica.errors import MicaError
from mica.memory import Memory, open
from mica.model import Brief, Context, Event, EventQuery, Mark, Passage, Ref
from mica.observe import guards
from mica.select.chains import compare
from mica.settings import Settings, load_settings

__all__ = [
    "Brief",
    "Context",
    "Event",
    "EventQuery",
    "Mark",
    "Memory",
    "MicaError",
    "Passage",
    "Ref",
    "Settings",
    "compare",
    "guards",
    "load_settings",
    "open",
]
