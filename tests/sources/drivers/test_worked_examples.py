"""The five concepts of docs/sources.md, asked as the page declares them."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import mica
from mica.settings import load_settings

PAGE = Path(__file__).parents[3] / "docs" / "sources.md"


def filled(folder: Path) -> None:
    """What an application would have left there."""
    for name in ("state", "people"):
        (folder / name).mkdir()
    (folder / "state" / "scout.json").write_text('{"budget": "0.32 of 0.50 dollars", "fatigue": 0.42}')
    (folder / "people" / "ann.json").write_text('{"prefers": "short answers"}')
    (folder / "people" / "bob.json").write_text('{"prefers": "long answers"}')
    review = {"file": "auth/session.py", "kind": "error", "line": 40, "said": "cookie lost", "at": "2026-11-01"}
    (folder / "reviews.jsonl").write_text(json.dumps(review) + "\n" + json.dumps(review | {"file": "other.py"}) + "\n")
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.executescript(
            """
            CREATE TABLE verdicts (kind, id, verdict, confidence, held, at);
            INSERT INTO verdicts VALUES ('code_review', 'abc123', 'GROWL', 0.52, '7 of 9', '2026-11-01');
            CREATE TABLE bandit (loop, task, arm, mean, locked);
            INSERT INTO bandit VALUES ('router', 'code_review', 'strict', 0.73, 'no');
            """
        )


async def test_the_five_worked_examples_are_gathered_before_their_tasks(tmp_path: Path) -> None:
    """keeps: C-21. Self-assessment, judging, learning, reviewing and answering a person work as the page shows."""
    section = PAGE.read_text(encoding="utf-8").partition("## Five concepts worth declaring")[2].partition("\n## ")[0]
    concepts = re.findall(r"\| `(\w+:\w+:[^`]+)` \|", section)
    [tables] = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    filled(tmp_path)
    file = tmp_path / "config.toml"
    file.write_text(re.sub(r"(?m)^(driver = .*)$", r"\1\ntimeout_s = 60  # on a busy machine", tables))
    settings = load_settings({"HOME": str(tmp_path), "MICA_CONFIG": str(file), "MICA_SEMANTIC": "off"})

    async with mica.open(":memory:", settings=settings) as memory:
        memory.sources.judge("self:state:scout", "rested", confidence=0.7)
        memory.sources.judge("code:file:auth/session.py", "fragile", confidence=0.6)
        told = {each: await memory.sources.gather(each, deadline_s=60) for each in concepts}

    said = {each: {fragment.text for fragment in made.fragments} for each, made in told.items()}
    assert all(made.missing == {} for made in told.values())
    assert said == {
        "self:state:scout": {"budget: 0.32 of 0.50 dollars", "fatigue: 0.42", "rested"},
        "judgment:code_review:abc123": {"GROWL, held 7 of 9"},
        "learning:router:code_review": {"strict: 0.73 (locked: no)"},
        "code:file:auth/session.py": {"cookie lost", "fragile"},
        "person:profile:ann": {"prefers: short answers"},
    }
