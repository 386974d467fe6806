"""`memory.briefs` over HTTP: measure whether briefs help, and switch them on or off."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mica.brief.quality import Quality
from mica.memory import Memory
from mica.web.operations import API


class QualityRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    weeks: Annotated[int, msgspec.Meta(ge=1, le=520)] = 8


class QualityAnswer(Quality, frozen=True, kw_only=True):
    """The measured effect of briefs, as a sentence and as figures."""

    verdict: str


@API.get("briefs.quality", needs="read")
async def quality(memory: Memory, request: QualityRequest) -> QualityAnswer:
    """Compare the outcomes of tasks with and without briefs, and report what asking sources cost."""
    measured = await memory.briefs.quality(weeks=request.weeks)
    return QualityAnswer(verdict=measured.helped.verdict, **msgspec.structs.asdict(measured))


class BriefSwitch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether agents receive briefs in a space."""

    on: bool


@API.get("briefs.is_on", needs="read")
async def is_on(memory: Memory) -> BriefSwitch:
    """Report whether agents receive briefs in this space."""
    return BriefSwitch(on=await memory.briefs.is_on())


@API.post("briefs.switch", needs="write")
async def switch(memory: Memory, request: BriefSwitch) -> BriefSwitch:
    """Switch briefs on or off for this space. While they are off, hooks give no brief either."""
    await memory.briefs.switch(on=request.on)
    return BriefSwitch(on=await memory.briefs.is_on())
