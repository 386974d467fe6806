"""What `memory.navigate` promises, on every store and a working tree made here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import mica
from mica.testing import HandClock

FILES = {
    "auth/session.py": "class SessionCookie:\n    def renew(self):\n        return 'cookie'\n",
    "auth/redirect.py": "def redirect(request):\n    return request.session\n",
    "billing/invoice.py": "def total(lines):\n    return sum(lines)\n",
    "docs/login.md": "# Login\n\nHow the redirect works after a login.\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def turn(memory: mica.Memory, clock: HandClock, session: str, prompt: str, *paths: str) -> None:
    """A prompt and the files that were read for it, one a second."""
    with memory.context(session=session):
        asked = memory.mark(prompt, tags="prompt", origin="user")
        for path in paths:
            clock.move(seconds=1)
            memory.emit("file.read", {"path": path}, parent=asked, origin="tool")
    clock.move(seconds=1)


async def test_navigate_answers_with_typed_places_from_an_empty_history(memory: mica.Memory, root: Path) -> None:
    """TA-12, A-42: a typed result that says how sure it is and why; names and words alone do without history."""
    places = await memory.navigate("the login redirect in auth/session.py loses the cookie", root=root)

    assert places[0].path == "auth/session.py"
    assert places[0].tier == "named"
    assert "named in the prompt" in places[0].reasons
    assert {place.path for place in places} <= set(FILES)
    assert all(0 <= place.probability <= 0.9 and place.reasons for place in places)


async def test_what_similar_prompts_needed_is_offered(memory: mica.Memory, root: Path, clock: HandClock) -> None:
    """A-16, K-05: history counts beside words, and the tier says so."""
    turn(memory, clock, "s1", "customers are charged twice", "billing/invoice.py")
    turn(memory, clock, "s1", "thanks")

    places = await memory.navigate("charged twice again", root=root)

    assert places[0].path == "billing/invoice.py"
    assert places[0].tier == "walked"
    assert "similar task: «customers are charged twice»" in places[0].reasons
