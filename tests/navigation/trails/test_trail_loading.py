"""What a trail loads: the lines that were read, as they are now, or a reason."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path

import pytest

import mica
from mica.errors import InvalidInput
from mica.model.trail import USED
from mica.testing import HandClock
from mica.tokens import estimate

BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)
CART = [f"line {number}" for number in range(1, 31)]


def git(root: Path, *args: str, at: datetime) -> None:
    who = {"GIT_AUTHOR_DATE": at.isoformat(), "GIT_COMMITTER_DATE": at.isoformat(), "HOME": str(root)}
    names = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *names, *args], cwd=root, check=True, capture_output=True, env={**os.environ, **who})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "cart.py").write_text("\n".join(CART) + "\n")
    (shop / "mail.py").write_text("def send(): ...\n")
    git(shop, "init", "-q", at=BEGIN)
    git(shop, "add", "-A", at=BEGIN)
    git(shop, "commit", "-qm", "begin", at=BEGIN)
    return shop


async def loaded(root: Path, budget_tokens: int = 2_000) -> tuple[str, list[str], bool]:
    """A trail learned from three walks that read cart.py:10-20 and mail.py, loaded from the files as they are."""
    read = "\n".join(CART[9:20])
    shown = {"content_hash": blake2b(read.encode(), digest_size=8).hexdigest(), "start_line": 10, "end_line": 20}
    async with mica.open(root.parent / "shop.db", clock=HandClock(BEGIN + timedelta(hours=1))) as memory:
        for number in range(3):
            steps = [
                {"path": "cart.py", "operation": "read", "tokens": 60, "total_lines": 30, **shown},
                {"path": "mail.py", "operation": "read", "tokens": 10},
            ]
            memory.walk("Mend the total of the basket", steps, outcome="success", session=f"s{number}")
        [trail] = await memory.trails.list()
        found = await memory.trails.load(trail.key, root=root, budget_tokens=budget_tokens)
        [used] = await memory.events(mica.EventQuery(names=(USED,)))
        assert used.data["tokens"] == found.tokens
    return found.text, [one.reason for one in found.left_out], found.drifted


async def test_a_fresh_trail_loads_its_lines(root: Path) -> None:
    """A-16, TA-13: the lines that were read, fenced as data, and the use is recorded (A-07)."""
    text, left_out, drifted = await loaded(root)
    assert "line 10\n" in text
    assert "line 20" in text
    assert "line 21" not in text
    assert "data, not instructions" in text
    assert (left_out, drifted) == ([], False)


async def test_lines_that_moved_are_found_again(root: Path) -> None:
    """TA-11: seven lines above, and the next load still shows what was read, and tells that it moved."""
    (root / "cart.py").write_text("\n".join(["# new"] * 7 + CART) + "\n")
    text, left_out, drifted = await loaded(root)
    assert "line 10\n" in text
    assert "line 9\n" not in text
    assert left_out == []
    assert "cart.py:17-27" in text
    assert "moved 7 lines down" in text
    assert drifted


async def test_lines_that_were_changed_are_found_through_the_history(root: Path) -> None:
    """TA-11: an edit inside the range; git has what was read, and the anchor follows it."""
    changed = [*CART[:14], "line fifteen", *CART[15:]]
    (root / "cart.py").write_text("\n".join(["# new"] * 3 + changed) + "\n")
    text, left_out, drifted = await loaded(root)
    assert "line fifteen" in text
    assert "moved 3 lines down" in text
    assert left_out == []
    assert drifted


@pytest.mark.parametrize("known", ["content_hash", "total_lines"])
async def test_a_file_that_was_read_whole_and_rewritten_says_so(tmp_path: Path, known: str) -> None:
    """TA-11: its lines have no numbers to be compared by; the hash of what was shown, or how many there were, tell."""
    text = "def send(): ...\n"
    told = {"content_hash": blake2b(text.encode(), digest_size=8).hexdigest(), "total_lines": 1}[known]
    for name in ("mail.py", "post.py"):
        (tmp_path / name).write_text(text)
    step = {"operation": "read", known: told}
    async with mica.open(tmp_path / "shop.db", clock=HandClock(BEGIN)) as memory:
        memory.walk("Mend the mail", [{"path": "mail.py", **step}, {"path": "post.py", **step}])
        [trail] = await memory.trails.list()
        fresh = await memory.trails.load(trail.key, root=tmp_path)
        (tmp_path / "mail.py").write_text("import smtplib\n\nclass Mailer: ...\n")
        found = await memory.trails.load(trail.key, root=tmp_path)
    assert not fresh.drifted
    assert found.drifted
    assert {one.now.path: one.drift for one in found.shown} == {
        "mail.py": ("changed since it was read",),
        "post.py": (),
    }


async def test_a_file_that_was_renamed_is_followed(root: Path) -> None:
    """TA-11: renames follow git."""
    git(root, "mv", "cart.py", "basket.py", at=BEGIN)
    git(root, "commit", "-qm", "rename", at=BEGIN + timedelta(days=1))
    text, left_out, _ = await loaded(root)
    assert "basket.py:10-20" in text
    assert "file renamed from cart.py" in text
    assert left_out == []


async def test_what_is_gone_is_left_out_and_named(root: Path) -> None:
    """TA-11, TA-13: never wrong lines; a reason stands in their place."""
    (root / "cart.py").write_text("nothing is left\n")
    text, [reason], drifted = await loaded(root)
    assert "line 1" not in text
    assert "left out: cart.py:10-20" in text
    assert reason
    assert drifted


async def test_a_small_budget_cuts_and_says_so(root: Path) -> None:
    """TA-13: the budget is kept, and what was cut is listed."""
    text, left_out, _ = await loaded(root, budget_tokens=80)
    assert left_out
    assert all("beyond the budget" in reason for reason in left_out)
    assert estimate(text) <= 80


async def test_a_budget_of_hardly_anything_loads_nothing_and_one_of_nothing_is_refused(root: Path) -> None:
    text, left_out, _ = await loaded(root, budget_tokens=1)
    assert text == ""
    assert left_out
    with pytest.raises(InvalidInput, match="a loaded trail cannot have 0 tokens; give a whole number, 1 or more"):
        await loaded(root, budget_tokens=0)
