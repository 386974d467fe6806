"""A small project with a space, and an agent that has worked in it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
from tests.hook_process import PATIENT_HOOK

import mica
from mica.store.space import space_of
from mica.testing.builders import HandClock

PROMPT = "The session cookie is lost after the login redirect of the shop"
FILES = {
    "auth/session.py": "def renew_session(cookie):\n    return cookie\n\n"
    + "# the session cookie is renewed here\n" * 200,
    "auth/redirect.py": "class LoginRedirect:\n    pass\n" + "# redirect after login\n" * 150,
    "billing/invoice.py": "def total(lines):\n    return sum(lines)\n",
    "tests/test_session.py": "from auth.session import renew_session\n",
    "docs/login.md": "How people sign in.\n",
    "Ünïcode dir/naïve.py": "# résumé of the café\n",
}


class Shop:
    """A project, its space, and an agent that has worked in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "data"
        self.root = folder / "shop"
        self.program: tuple[str, ...] = PATIENT_HOOK
        for path, text in FILES.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")
        self.git("init", "-q")
        self.git("add", "-A")
        commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Renew the session cookie"]
        self.git(*commit)
        self.settings = mica.load_settings({"HOME": str(folder), "MICA_HOME": str(self.home), "MICA_SEMANTIC": "off"})
        self.file = space_of(self.root, home=self.home).file
        self.clock = HandClock()

    def git(self, *words: str) -> None:
        before = {"GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}  # before any task
        subprocess.run(["git", "-C", str(self.root), *words], check=True, capture_output=True, env=os.environ | before)

    def open(self, **changed: object) -> mica.memory.Opening:
        return mica.open(self.file, settings=msgspec.structs.replace(self.settings, **changed), clock=self.clock)

    def walk(self, memory: mica.Memory) -> None:
        """Record six tasks of two kinds, each of which needs one file."""
        memory.emit("session.started", {"cwd": str(self.root)})
        for number in range(6):
            self.clock.move(hours=2)
            step = {"path": ("auth/session.py", "billing/invoice.py")[number % 2], "operation": "read"}
            memory.trails.record(
                (PROMPT, "Invoices are wrong")[number % 2], [step], session=f"s{number}", at=self.clock()
            )
        self.clock.move(hours=2)

    async def work(self, memory: mica.Memory, *, learns_git: bool = True) -> None:
        memory.emit("session.started", {"cwd": str(self.root)})
        kinds = (
            (PROMPT, "auth/session.py", "auth/redirect.py"),
            ("Invoices show the wrong total for some customers", "billing/invoice.py"),
        )
        for number in range(12):
            self.clock.move(hours=2)
            prompt, *paths = kinds[number % 2]
            steps = [
                {"path": paths[0], "operation": "search", "tokens": 700},
                *({"path": path, "operation": "read", "tokens": 50} for path in paths),
            ]
            memory.trails.record(prompt, steps, session=f"s{number}", at=self.clock())
        self.clock.move(hours=2)
        if learns_git:
            await memory.trails.learn_commits(root=self.root)
        assert await memory.trails.learn_tasks(root=self.root) == 12
        await memory.clients.ingest()

    def send_prompt(
        self, prompt: str, *, session: str = "s0", directory: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        return self.hook("UserPromptSubmit", session=session, directory=directory, prompt=prompt)

    def hook(
        self, event: str, *, session: str, directory: str = "", **more: object
    ) -> subprocess.CompletedProcess[bytes]:
        payload = {"session_id": session, "cwd": str(self.root / directory), "hook_event_name": event}
        return subprocess.run(
            [*self.program, "claude", event],
            input=json.dumps({**payload, **more}).encode(),
            capture_output=True,
            env={"HOME": str(self.home), "MICA_HOME": str(self.home)},
            cwd=self.root / directory,
            check=True,
        )

    def hook_text(self, prompt: str, *, session: str = "s0", directory: str = "") -> str:
        out = self.send_prompt(prompt, session=session, directory=directory).stdout
        return str(json.loads(out)["hookSpecificOutput"]["additionalContext"]) if out else ""
