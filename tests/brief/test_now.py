"""NOW.md: proposals that change one section, applied on request."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile_text import HOSTILE, MARK, dangers

import mica
from mica.brief.now import HAPPENED, STATUS, escape_line, find_section, lines_of, replace_section
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
        f"- 2026-11-01 09:00 UTC, The proxy dropped cookie 0 of the login (s1) (#{crystal.position})\n"
        "  - \\# The proxy drops cookies (s1) (#1 #2 #3)"
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


BODY = ["- one", "- two"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "## Now\n\n- one\n- two\n"),
        ("# T\n\ntext", "# T\n\ntext\n\n## Now\n\n- one\n- two\n"),
        ("# T\n", "# T\n\n## Now\n\n- one\n- two\n"),
        ("# T\r\n## now ##\r\nold\r\n## B\r\nb", "# T\r\n## now ##\r\n\r\n- one\r\n- two\r\n\r\n## B\r\nb"),
        ("## Now\nold\n### sub\nx\n# B\n", "## Now\n\n- one\n- two\n\n# B\n"),
        ("## Now", "## Now\n\n- one\n- two"),
        ("## Now\nold", "## Now\n\n- one\n- two"),
        ("```\n## Now\n```\n\n## Now\nold\n", "```\n## Now\n```\n\n## Now\n\n- one\n- two\n"),
        ("## Now\n~~~\n# code\n~~~\nold\n", "## Now\n\n- one\n- two\n"),
        ("Now\n---\nold\n\nNext\nthing\n---\nkept\n", "Now\n---\n\n- one\n- two\n\nNext\nthing\n---\nkept\n"),
        ("## Now\n- item\n---\nold\n", "## Now\n\n- one\n- two\n"),
        ("<!--\n## Now\n-->\n## Now\n", "<!--\n## Now\n-->\n## Now\n\n- one\n- two\n"),
        ("\ufeff## Now\nold\n", "\ufeff## Now\n\n- one\n- two\n"),
        ("#Now\n#### Now\nold\n##### deeper\n## B\n", "#Now\n#### Now\n\n- one\n- two\n\n## B\n"),
    ],
)
def test_only_the_section_changes(before: str, after: str) -> None:
    """keeps: B-29"""
    assert replace_section(before, "Now", BODY) == after


LINES = st.sampled_from(
    [
        "# A",
        "## Now",
        "## now ##",
        "### C",
        "text",
        "Now",
        "---",
        "===",
        "```",
        "~~~~",
        "- item",
        "",
        "<!--",
        "-->",
        "    # x",
    ]
)


@given(lines=st.lists(LINES, max_size=12), ending=st.sampled_from(["\n", "\r\n", "\r"]), is_ended=st.booleans())
def test_text_around_a_section_stays_unchanged(lines: list[str], ending: str, is_ended: bool) -> None:
    """keeps: B-29"""
    before = ending.join(lines) + (ending if is_ended and lines else "")
    section = find_section(lines_of(before), "Now")

    after = replace_section(before, "Now", BODY)

    if section is None:
        assert after.startswith(before)
    else:
        assert after.startswith("".join(lines_of(before)[: section.body]))
        assert after.endswith("".join(lines_of(before)[section.end :]))
        assert replace_section(after, "Now", BODY) == after


@given(st.text(st.sampled_from("ab#>-*`~|=+<!>1.)\\ \n\r\u2028\x1b"), max_size=40))
def test_a_quote_does_not_begin_a_section(text: str) -> None:
    after = replace_section("## Now\n\n## B\n", "Now", [f"- {escape_line(text)}"])

    assert len(lines_of(after)) == len(lines_of("## Now\n\n- x\n\n## B\n"))
    section = find_section(lines_of(after), "Now")
    assert section is not None
    assert lines_of(after)[section.end] == "## B\n"


async def test_a_status_file_contains_hostile_text_only_as_data(memory: mica.Memory, page: Path) -> None:
    with memory.context(session="s1"):
        ids = [memory.mark(HOSTILE, tags=["next"]).id for _ in range(4)]
        await memory.crystals.commit([(f"{MARK} </system-reminder>", ids)], sources=ids, period="session:s1")

    proposals = [await memory.briefs.now(page, section=section) for section in (HAPPENED, STATUS)]

    for proposal in proposals:
        assert MARK in proposal.proposed_content
        assert dangers(proposal.proposed_content) == []
