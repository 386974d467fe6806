"""Prepares what hooks show to agents: a brief at the start of a session, and suggested files for a prompt.

To suggest files, a hook runs the prompt engine, which is the code that ranks files for a prompt. This module writes a
copy of that engine: a small `mica` package with only the modules that are needed. A hook cannot import the whole
package, because the import alone exceeds a hook's time limit.
"""

from __future__ import annotations

import asyncio
import py_compile
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import mica.events
from mica import hook
from mica.clients.spool import AnswerLine, PromptAnswer, RunningSession, SessionAnswer, Spools
from mica.format.fence import neutralize_entry
from mica.model.brief import Brief
from mica.model.event import MARK, MICROSECOND, SESSION_ENDED, Event, EventId, EventQuery
from mica.model.mark import mark_of
from mica.navigation.engine import prompt
from mica.navigation.navigator import Navigator
from mica.private_files import ENGINE as FOLDER
from mica.private_files import is_protected, make_private_folder, replace_private
from mica.settings import Settings
from mica.spool_news import RUNNING_S
from mica.store.protocol import EventLog

TOKENS_MAX = 2_000  # of a hook's output: Codex accepts 2,500
DEADLINE_S = 10.0  # rendering ahead of time, so no agent waits
OFF = "mica: briefs are switched off in this project, so nothing is shown; `mica briefs on` switches them on."
_ENTRY = re.compile(r"^- .*(?:\n  .*)*", re.MULTILINE)  # a line, with its continuation lines
OPEN = frozenset(("open", "next", "question", "todo"))  # kinds and tags of lines that a later commit may end
LINE_CHARACTERS = 80  # of a passage's beginning, by which its line is found in the text
SOURCES_READ = 8  # of a passage, to know its sessions
PROMPT_CHARACTERS_MAX = 400
TREES_MAX = 8  # working trees of one space whose prompts are answered: the most recently used


class MakeBrief(Protocol):
    """The type of a function that makes a brief, as `Memory.brief` does."""

    async def __call__(self, *, budget_tokens: int, deadline_s: float, is_preview: bool) -> Brief: ...


async def write_session_answer(
    spools: Spools,
    log: EventLog,
    *,
    settings: Settings,
    brief: MakeBrief,
    receipt: Callable[[Brief], EventId | None],
    now: datetime,
) -> None:
    """Make and write the brief that hooks print at the start of a session, and what they need to add what is newer.

    `brief` makes it from the events in `log`; `receipt` records it as an event and returns the event's id. An unchanged
    text is not recorded again, and an unchanged answer is not written again. An empty text is written, too: hooks then
    print only what is newer. If briefs are switched off, the text says so, and nothing is added to it.
    """
    read = await asyncio.to_thread(spools.offsets)  # before the brief: what is spooled meanwhile counts as newer
    budget_tokens = min(settings.brief.budget_tokens, TOKENS_MAX)
    made = await brief(budget_tokens=budget_tokens, deadline_s=DEADLINE_S, is_preview=True)
    while len(made.text) > hook.ANSWER_CHARACTERS_MAX:
        budget_tokens = budget_tokens * 4 // 5
        made = await brief(budget_tokens=budget_tokens, deadline_s=DEADLINE_S, is_preview=True)
    before, holdout = spools.session_answer(), settings.brief.holdout
    if made.is_off:
        answer = SessionAnswer(text=OFF)
    else:
        is_known = before is not None and before.text == made.text
        number = before.receipt if before is not None and is_known else receipt(made) if made.text else None
        answer = SessionAnswer(
            text=made.text,
            receipt=number,
            holdout=holdout,
            budget_tokens=budget_tokens,
            read=read,
            lines=await _lines(made, log),
            running=await _running(log, now=now),
        )
    if answer != before:
        spools.write_answer(hook.SESSION_ANSWER, answer)


async def _lines(brief: Brief, log: EventLog) -> tuple[AnswerLine, ...]:
    """Return the lines of a brief that show one of its passages, with their places. Headings and notes show none."""
    entries = [match.span() for match in _ENTRY.finditer(brief.text)]
    lines: list[AnswerLine] = []
    for passage in brief.passages:
        said = neutralize_entry(passage.text)
        spans = ((brief.text.find(said[:LINE_CHARACTERS], start, end), start, end) for start, end in entries)
        place, start, end = next((span for span in spans if said and span[0] >= 0), (0, 0, 0))
        if not end:
            continue
        entries.remove((start, end))
        events = [event for source in passage.sources[:SOURCES_READ] if (event := await log.get(source)) is not None]
        sessions = {event.context.session for event in events}
        tags = {tag for event in events if event.name == MARK for tag in mark_of(event).tags}
        lines.append(
            AnswerLine(
                start=start,
                end=end,
                said_start=place,
                said_end=min(place + len(said), end),
                score=passage.score,
                is_open=not OPEN.isdisjoint({passage.kind, *tags}),
                sessions=tuple(sorted(each for each in sessions if each)) if None not in sessions else (),
            )
        )
    return tuple(lines)


async def _running(log: EventLog, *, now: datetime) -> tuple[RunningSession, ...]:
    """Return the sessions of coding agents that were active lately and have no end, the most recently active last."""
    since = now - timedelta(seconds=RUNNING_S)
    prompts: dict[str, Event] = {}
    active_at: dict[str, datetime] = {}
    closed_at: dict[str, datetime] = {}
    recent = await log.query(EventQuery(since=since, limit=None))
    for event in sorted(recent, key=lambda event: event.sort_key):
        session = event.context.session
        if session is None:
            continue
        active_at[session] = event.at
        if event.name == SESSION_ENDED:
            prompts.pop(session, None)
        elif event.name == MARK and "client" in dict(event.context.labels):
            tags = mark_of(event).tags
            if "prompt" in tags:
                prompts[session] = event
            elif "closing" in tags:
                closed_at[session] = event.at
    return tuple(
        RunningSession(
            file=hook.spool_name(session),
            prompt=mark_of(prompts[session]).text[:PROMPT_CHARACTERS_MAX],
            at=_microseconds(prompts[session].at),
            active_at=_microseconds(at),
            closed_at=_microseconds(closed_at[session]) if session in closed_at else 0,
        )
        for session, at in sorted(active_at.items(), key=lambda each: each[1])
        if session in prompts
    )


def _microseconds(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND


async def write_prompt_answer(
    spools: Spools, navigator: Navigator | None, *, root: Path | None, settings: Settings, now: datetime
) -> None:
    """Write what hooks need to suggest files for a prompt: data on past work and on the working tree, and ranking code.

    `root` is the folder of the working tree. If suggestions are switched off or impossible, the data written before is
    removed instead.
    """
    library = find_stemmer()
    if not settings.observe.offers or navigator is None or root is None or library is None:
        remove_prompt_answer(spools)
        return
    tree = await navigator.save(spools.past, now=now)
    if tree is None:
        return
    before = spools.prompt_answer()
    others = {} if before is None else before.trees
    trees = {str(root): str(tree), **{each: file for each, file in others.items() if each != str(root)}}
    made = PromptAnswer(
        engine=str(await asyncio.to_thread(write_engine, settings.home)),
        entry=ENTRY,
        library=str(library),
        past=str(spools.past),
        trees=dict(list(trees.items())[:TREES_MAX]),
        holdout=settings.observe.holdout,
    )
    if made != before:
        spools.write_answer(hook.PROMPT_ANSWER, made)


def remove_answers(spools: Spools) -> None:
    """Remove everything that was prepared for hooks, because it may contain text that was withdrawn.

    The next preparation writes the answers again, without that text.
    """
    spools.write_answer(hook.SESSION_ANSWER, None)
    remove_prompt_answer(spools)


def remove_prompt_answer(spools: Spools) -> None:
    """Remove the data that hooks need to suggest files for a prompt."""
    spools.write_answer(hook.PROMPT_ANSWER, None)
    spools.past.unlink(missing_ok=True)


ENGINE = "navigation/engine"
ENTRY = f"{prompt.answer.__module__}:{prompt.answer.__name__}"  # the function that hooks call
OLD_ENTRY = "inject/prompting.py"  # imported by older hook launchers, which were installed before ENTRY existed
FOLDERS = ("", "format", "navigation", ENGINE, "inject")
OLD_MAX = 3  # number of copies of other versions that are not deleted, because hooks may be using them


def write_engine(home: Path) -> Path:
    """Write a copy of this version of the prompt engine into the data folder `home`, if it is missing.

    Return the folder from which hooks import the copy. Copies of other versions are deleted, except the latest OLD_MAX.
    """
    names = [
        "words.py",
        "tokens.py",
        "format/fence.py",
        *sorted(f"{ENGINE}/{path.name}" for path in (_PACKAGE / ENGINE).glob("*.py")),
    ]
    sources = {name: (_PACKAGE / name).read_bytes() for name in names if not name.endswith("__init__.py")}
    sources[OLD_ENTRY] = f"from {prompt.answer.__module__} import {prompt.answer.__name__}\n".encode()
    digest = blake2b(digest_size=6)
    for name, source in sources.items():
        digest.update(name.encode() + b"\0" + source + b"\0")
    folder = home / FOLDER / digest.hexdigest()
    if not is_protected(folder):  # missing, or hooks refuse it
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder, sources)
    return folder


def find_stemmer() -> Path | None:
    """The folder of the `Stemmer` library, the only library that the engine needs; None if it is not installed."""
    spec = find_spec("Stemmer")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


_PACKAGE = Path(mica.events.__file__).parent.parent


def _write(folder: Path, sources: dict[str, bytes]) -> None:
    make_private_folder(folder.parent)
    new = folder.with_name(f".{folder.name}.{id(sources):x}")
    shutil.rmtree(new, ignore_errors=True)
    for name in FOLDERS:
        make_private_folder(new / "mica" / name / "__pycache__")
        sources[f"{name}/__init__.py".lstrip("/")] = b""
    for name, source in sources.items():
        path = new / "mica" / name
        replace_private(path, source)
        py_compile.compile(
            str(path),
            cfile=None,
            dfile=str(folder / "mica" / name),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    try:
        new.rename(folder)
    except OSError:  # another process has written the same
        shutil.rmtree(new, ignore_errors=True)
    others = sorted((each for each in folder.parent.iterdir() if each != folder), key=lambda each: each.stat().st_mtime)
    for old in others[:-OLD_MAX]:
        shutil.rmtree(old, ignore_errors=True)
