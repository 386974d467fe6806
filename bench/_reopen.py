"""Open and read a space after its process was killed, and print the cost as JSON; `log.py` runs this script."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import mica

LATEST = 100


async def reopen(path: Path) -> dict[str, float | int]:
    begun, wall = time.process_time(), time.perf_counter()
    async with mica.open(path, settings=mica.Settings(home=path.parent, transcripts=path.parent)) as memory:
        opened = time.process_time()
        latest = await memory.events.query(mica.EventQuery(limit=LATEST))
        first = time.process_time(), time.perf_counter() - wall
        counted = (await memory.upkeep.sizes()).events
        last = time.process_time(), time.perf_counter() - wall
    return {
        "begun_cpu_s": begun,
        "opened_cpu_s": opened,
        "first_cpu_s": first[0],
        "first_wall_s": first[1],
        "counted_cpu_s": last[0],
        "counted_wall_s": last[1],
        "latest": len(latest),
        "counted": counted,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(reopen(Path(sys.argv[1])))))
