"""NOW.md: proposals that change one section, applied on request."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

import mica
from mica.brief.now import HAPPENED, STATUS
from mica.model.crystal import Crystal
from mica.testing import HandClock

PAGE = "# NOW\r\n\r\nBy hand.\r\n\r\n## What Just Happened\r\n\r\nOld news.\r\n\r\n## Plans\r\n\r\n- ship it"


async def commit(memory: mica.Memory, session: str = "s1", *, confidence: float = 0.9) -> Crystal:
    with memory.context(session=session):
        ids = [memory.mark(f"The proxy dropped cookie {number} of the login ({session})").id for number in range(5)]
        return await memory.crystals.commit(
            [(f"# The proxy drops cookies\n({session})", ids)],
            sources=ids,
            period=f"session:{session}",
            confidence=confidence,
        )


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "NOW.md"
    path.write_bytes(PAGE.encode())
    return path


async def test_a_proposal_writes_nothing(memory: mica.Memory, page: Path) -> None:
    """keeps: B-29, B-69"""
    crystal = await commit(memory)

    proposal = await memory.briefs.now(page)

    assert page.read_bytes() == PAGE.encode()
    assert proposal.section == HAPPENED
    assert proposal.current_content == "Old news."
    assert proposal.proposed_content == (
        f"- 2026-11-01 09:00 UTC, session:s1 (#{crystal.position})\n  - \\# The proxy drops cookies (s1) (#1 #2 #3)"
    )
    assert proposal.source_crystals == (crystal.id,)
    assert proposal.confidence == 0.9
    assert "-Old news.\r\n" in proposal.diff
    assert proposal.diff.startswith("--- NOW.md\n+++ NOW.md\n@@ ")


async def test_applying_changes_only_the_section_and_keeps_a_backup(memory: mica.Memory, page: Path) -> None:
    """keeps: B-29"""
    page.chmod(0o640)
    await commit(memory)
    proposal = await memory.briefs.now(page)

    applied = await memory.briefs.apply_now(proposal)

    content = proposal.proposed_content.replace("\n", "\r\n")
    assert page.read_bytes().decode() == PAGE.replace("Old news.", content)
    assert applied.backup == f"{page}.bak-20261101T090000Z"
    assert Path(applied.backup).read_bytes() == PAGE.encode()
    assert {path.stat().st_mode & 0o777 for path in (page, Path(applied.backup))} == {0o640}
    assert sorted(path.name for path in page.parent.glob("*NOW*")) == ["NOW.md", "NOW.md.bak-20261101T090000Z"]
    assert not (await memory.briefs.now(page)).is_change


async def test_two_backups_within_one_second_are_both_kept(memory: mica.Memory, page: Path) -> None:
    await commit(memory)
    first = await memory.briefs.apply_now(await memory.briefs.now(page))
    page.write_bytes(PAGE.encode())

    second = await memory.briefs.apply_now(await memory.briefs.now(page))

    assert second.backup == f"{first.backup}-2"


async def test_a_file_that_changed_since_the_proposal_is_left_alone(memory: mica.Memory, page: Path) -> None:
    await commit(memory)
    proposal = await memory.briefs.now(page)
    page.write_text("somebody else wrote this")

    with pytest.raises(mica.InvalidInput, match="has changed since the proposal was made"):
        await memory.briefs.apply_now(proposal)

    assert page.read_text() == "somebody else wrote this"


async def test_a_missing_file_is_created_with_the_section(memory: mica.Memory, tmp_path: Path) -> None:
    await commit(memory)
    path = tmp_path / "new.md"

    proposal = await memory.briefs.now(path, section="Today")
    assert proposal.diff.startswith("--- /dev/null\n+++ new.md\n")
    applied = await memory.briefs.apply_now(proposal)

    assert applied.backup is None
    assert path.read_text() == f"## Today\n\n{proposal.proposed_content}\n"
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


async def test_a_symbolic_link_stays_a_link(memory: mica.Memory, page: Path) -> None:
    await commit(memory)
    link = page.with_name("link.md")
    link.symlink_to(page)

    applied = await memory.briefs.apply_now(await memory.briefs.now(link))

    assert link.is_symlink()
    assert applied.file == str(page)
    assert "proxy drops cookies" in page.read_text()


@pytest.mark.parametrize("trouble", ["read-only", "a folder", "not UTF-8", "too large", "no folder"])
async def test_an_unusable_file_is_named_and_left_unchanged(memory: mica.Memory, page: Path, trouble: str) -> None:
    await commit(memory)
    expected = {
        "read-only": "is read-only; make it writable",
        "a folder": "is not a file",
        "not UTF-8": "is not UTF-8 at byte 1",
        "too large": "has more than 1,048,576 bytes",
        "no folder": "cannot be written: No such file or directory",
    }[trouble]
    path = {"a folder": page.parent, "no folder": page.parent / "none" / "NOW.md"}.get(trouble, page)
    if trouble == "read-only":
        page.chmod(0o444)
    elif trouble == "not UTF-8":
        page.write_bytes(b"a\xff")
    elif trouble == "too large":
        page.write_bytes(b"a" * (2**20 + 1))
    before = page.read_bytes()

    with pytest.raises(mica.InvalidInput, match=expected):
        await memory.briefs.apply_now(await memory.briefs.now(path))

    assert page.read_bytes() == before
    assert list(page.parent.glob("*.bak-*")) == []


@pytest.mark.parametrize("title", ["", "  ", "# Now", "a\nb", "x" * 201])
async def test_an_invalid_title_is_refused(memory: mica.Memory, page: Path, title: str) -> None:
    with pytest.raises(mica.InvalidInput, match="is not a section title"):
        await memory.briefs.now(page, section=title)


async def test_just_happened_covers_the_last_day_and_later_sessions(
    memory: mica.Memory, page: Path, clock: HandClock
) -> None:
    """keeps: B-29"""
    old = await commit(memory, "old")
    clock.at += timedelta(days=2)
    inner = await commit(memory, "s1")
    day = await memory.crystals.commit(
        [("A day of cookies", inner.insight[0].sources)], sources=[inner.id], period="day:2026-11-03", level="day"
    )
    clock.at += timedelta(hours=3)
    last = await commit(memory, "s2", confidence=0.5)

    proposal = await memory.briefs.now(page)

    assert proposal.source_crystals == (day.id, last.id)
    assert old.id not in proposal.source_crystals
    assert proposal.confidence == pytest.approx((day.confidence + 0.5) / 2)


async def test_a_session_status_lists_open_work_with_lower_confidence(memory: mica.Memory, page: Path) -> None:
    """keeps: B-69"""
    with memory.context(session="s1"):
        for number in range(6):
            memory.mark(f"The proxy of production dropped cookie {number} of the login page once more")
        memory.mark("Look at the logout page", tags="todo")
    crystal = (await memory.crystals.make())[0]

    proposal = await memory.briefs.now(page, section=STATUS)

    assert proposal.source_crystals == (crystal.id,)
    assert proposal.proposed_content.endswith("- todo: Look at the logout page (#7)")
    assert proposal.confidence == pytest.approx(crystal.confidence * 0.8, abs=0.001)
    assert proposal.after.startswith(PAGE)


async def test_without_crystals_nothing_is_proposed(memory: mica.Memory, page: Path) -> None:
    memory.mark("only a mark")

    proposal = await memory.briefs.now(page)

    assert (proposal.is_change, proposal.diff, proposal.source_crystals) == (False, "", ())


async def test_a_purge_names_a_file_that_quotes_purged_text(memory: mica.Memory, page: Path) -> None:
    crystal = await commit(memory)
    await memory.briefs.apply_now(await memory.briefs.now(page))

    purged = await memory.purge(ids=[crystal.sources[0]])

    assert [line for line in purged.unreached if "may quote purged marks" in line and str(page) in line]
