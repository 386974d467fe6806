"""What hooks may offer at a prompt: only what this space's own history has shown to pay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

import mica
from mica import hook
from mica.inject.answers import offered
from mica.model import EventId, EventQuery
from mica.select.navigation.hinting import hints
from mica.settings import ObserveSettings, load_settings
from mica.walks import Step, Walk

BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)


def walk(number: int, prompt: str, path: str, *, searched: int) -> Walk:
    at = BEGIN + timedelta(hours=number)
    steps = [("search", searched, "s"), ("read", 200, "r"), ("edit", 5, "e")]
    return Walk(
        id=EventId(f"w{number:03}"),
        prompt=prompt,
        at=at,
        ended_at=at + timedelta(minutes=5),
        steps=tuple(
            Step(path=path, operation=kind, tokens=tokens, call=call, at=at, event=EventId(f"{number}{call}"))  # type: ignore[arg-type]
            for kind, tokens, call in steps
        ),
    )


def history(*, searched: int) -> list[Walk]:
    asked = [("basket shows wrong totals", "cart.py"), ("mails never reach customers", "mail.py")]
    found = [walk(number, *asked[number % 2], searched=searched) for number in range(40)]
    others = [
        walk(50 + number, f"chore {number} upgrade linters", f"x{number}.cfg", searched=0) for number in range(40)
    ]
    return sorted(found + others, key=lambda walk: walk.id[-2:])


def test_words_lead_to_the_files_they_led_to_before() -> None:
    """A-18, A-42: the hook's own arithmetic finds the file of such prompts, with its reason."""
    made = hints(history(searched=900), exists=lambda path: True, holdout=0.1)
    assert made is not None
    answers = as_read(made)
    [best, *_] = hook.chosen_places(answers, "why are totals in the basket wrong")
    assert made.places[best].path == "cart.py"
    assert "20 of 80 tasks" in made.places[best].text
    assert hook.chosen_places(answers, "upgrade the linter please") == []


def test_a_history_in_which_lists_cost_more_than_they_save_gives_no_hints() -> None:
    """A-18, TA-06: speaking must have paid here, the cost counted; else nothing is said."""
    assert hints(history(searched=3), exists=lambda path: True, holdout=0.1) is None
    assert hints(history(searched=900)[:5], exists=lambda path: True, holdout=0.1) is None
    assert hints([], exists=lambda path: True, holdout=0.1) is None


def test_what_is_gone_is_never_offered() -> None:
    """TA-11: a file that is no longer there has no place among the hints."""
    made = hints(history(searched=900), exists=lambda path: path != "cart.py", holdout=0.1)
    assert made is not None
    assert "cart.py" not in [place.path for place in made.places]
    assert made.places[0].path == "mail.py"


def test_a_task_is_scored_with_tasks_that_had_ended_and_no_others() -> None:
    """TA-01: forty tasks that all run at once know nothing of each other; one after the other they do."""
    alone = history(searched=900)
    assert hints(alone, exists=lambda path: True, holdout=0.1) is not None
    late = max(task.ended_at for task in alone) + timedelta(days=1)
    together = [msgspec.structs.replace(task, ended_at=late) for task in alone]
    assert hints(together, exists=lambda path: True, holdout=0.1) is None


def test_the_gate_must_have_paid_on_tasks_after_those_that_set_it() -> None:
    """A-18, TA-06: what saved once and lost ever since is not said, however good it looks over all."""
    once = [walk(number, "basket shows wrong totals", "cart.py", searched=900) for number in range(9)]
    since = [walk(20 + number, "basket shows wrong totals", f"x{number}.py", searched=0) for number in range(60)]
    assert hints(once, exists=lambda path: True, holdout=0.1) is None
    assert hints([*once, *since], exists=lambda path: True, holdout=0.1) is None


async def test_an_ingest_renders_hints_only_where_they_pay(tmp_path: Path) -> None:
    """A-18, A-47, B-43: offers follow from the log without what was retracted, and can be switched off."""
    root = tmp_path / "shop"
    root.mkdir()
    (root / "cart.py").write_text("x")
    async with mica.open(tmp_path / "shop.db") as memory:
        memory.emit("session.started", {"cwd": str(root)})
        for number in range(24):
            memory.walk(
                "basket shows wrong totals",
                [
                    {"path": "cart.py", "operation": "search", "tokens": 900},
                    {"path": "cart.py", "operation": "read", "tokens": 50},
                ],
                session=f"s{number}",
            )
        await memory.durable()
        await memory.events()
        made = await offered(memory._store, settings=memory._settings)
        assert made is not None
        assert [place.path for place in made.places] == ["cart.py"]
        for prompt in await memory.events(EventQuery(names=("mark",))):
            await memory.retract(prompt.id, reason="meant for another project")
        assert await offered(memory._store, settings=memory._settings) is None
    silent = msgspec.structs.replace(load_settings(), observe=ObserveSettings(offers=False))
    async with mica.open(tmp_path / "shop.db", settings=silent) as memory:
        assert await offered(memory._store, settings=memory._settings) is None


def as_read(made: object) -> dict[str, object]:
    answers: dict[str, object] = msgspec.json.decode(msgspec.json.encode(made))
    return answers
