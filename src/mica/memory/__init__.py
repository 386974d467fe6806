"""The front door: wires the stages together and decides nothing. Each module holds the verbs of one stage.

They build on each other in the order of the flow, so that a verb may use those before it: wiring (the parts),
observing, reading, crystallizing, guiding (where to go), gathering (what other systems know), briefing, keeping;
opening has the whole, `Memory`.
"""

from mica.memory.briefing import LATEST_SHARE, PRESETS, Preset
from mica.memory.guiding import COMMITS_MAX
from mica.memory.opening import Memory, Opening, hooks_of, open

__all__ = ["COMMITS_MAX", "LATEST_SHARE", "PRESETS", "Memory", "Opening", "Preset", "hooks_of", "open"]
