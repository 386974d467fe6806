"""Search by meaning, with an encoder whose meanings the test gives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path

import pytest

import mica
from mica.errors import InvalidSettings
from mica.llm.embeddings import packed
from mica.model.event import Tombstone, Vectors
from mica.search import vectors as meaning
from mica.search.mark_search import search
from mica.search.ranker import parse
from mica.search.vectors import Meanings, nameless
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.testing.builders import START_AT, build
from mica.testing.encoder import WordEncoder
from mica.testing.residue import residue

SAME = {"automobile": "car", "vehicle": "car"}


async def found(store: Store, meanings: Meanings, query: str) -> list[int | None]:
    hits = await search(store, query, limit=9, now=START_AT, zone=UTC, likeness=meanings.likeness)
    return [hit.mark.position for hit in hits]


async def test_a_mark_is_found_by_its_meaning_alone(store: Store) -> None:
    """K-57: without a model the same question finds what shares its words, and nothing fails."""
    texts = ["The automobile broke down", "Rain all day", "The garden is green"]
    await store.append([build(number, "mark", {"text": text}) for number, text in enumerate(texts, 1)])
    meanings = Meanings(store, WordEncoder(SAME))

    assert await found(store, meanings, "vehicle") == []  # no mark was read yet
    assert await meanings.missing() == 3
    assert await meanings.catch_up() == 3
    assert await found(store, meanings, "vehicle") == [1]
    assert (await meanings.missing(), await meanings.catch_up()) == (0, 0)
    assert await search(store, "vehicle", limit=9, now=START_AT) == []
    await meanings.close()


async def test_new_and_purged_marks_are_followed(store: Store) -> None:
    """U-08: what was purged is in no matrix any more."""
    marks = [build(number, "mark", {"text": f"car {number}"}) for number in (1, 2, 3)]
    await store.append([*marks[:2], build(9, "mark", {"text": "something else"})])
    meanings = Meanings(store, WordEncoder(SAME))
    await meanings.catch_up()
    assert sorted(str(position) for position in await found(store, meanings, "vehicle")) == ["1", "2"]

    await store.append([marks[2]])
    await meanings.catch_up()
    assert 4 in await found(store, meanings, "vehicle")

    await store.bury([marks[0].id], Tombstone(purge=build(1_000).id, reason="leaked"))
    assert sorted(str(position) for position in await found(store, meanings, "vehicle")) == ["2", "4"]
    await meanings.close()


async def test_marks_get_their_vectors_while_nothing_else_happens(store: Store) -> None:
    """Whoever emits does not wait for a model."""
    naps: asyncio.Queue[float] = asyncio.Queue()

    async def nap(seconds: float) -> None:
        await naps.put(seconds)
        await asyncio.sleep(0)

    encoder = WordEncoder()
    meanings = Meanings(store, encoder, sleep=nap)
    await store.append([build(1, "mark", {"text": "car"})])
    assert encoder.texts == []

    meanings.disturb()
    while await meanings.missing():
        await asyncio.sleep(0.01)

    assert encoder.texts == ["car"]
    assert await naps.get() > 0
    await meanings.close()


def test_names_are_not_compared() -> None:
    asked = parse("What is Xochitl's favourite car, Xochitl?", now=START_AT, speakers=["Xochitl"])

    assert nameless(asked) == "What is favourite car, ?"
    assert nameless(parse("Tim", now=START_AT, speakers=["Tim"])) == "Tim"


async def test_the_front_door_reads_finds_rebuilds_and_purges_by_meaning(home: Settings, tmp_path: Path) -> None:
    """U-08: a purge leaves no vector in the file; a rebuild makes the others again."""
    path = tmp_path / "space.db"
    encoder = WordEncoder(SAME)
    async with mica.open(path, settings=home, encoder=encoder) as memory:
        secret = memory.mark("The automobile has the plate XK42")
        memory.mark("Rain all day")
        memory.mark("The garden is green")
        assert await memory.without_vector() == 3
        assert await memory.embed() == 3
        hits = await memory.search("vehicle")
        assert [hit.id for hit in hits] == [secret.id]
        assert hits[0].parts["meaning"] > 0
        assert "automobile" in (await memory.brief("vehicle")).text

        vector = encoder.encode(["The automobile has the plate XK42"])[0].astype("float16").tobytes()
        assert vector in path.read_bytes() + Path(f"{path}-wal").read_bytes()
        await memory.purge(ids=[secret.id])
        assert await memory.search("vehicle") == []
        assert vector not in path.read_bytes() + Path(f"{path}-wal").read_bytes()
        assert residue(tmp_path, ["XK42"]) == []

        await memory.rebuild()
        assert await memory.without_vector() == 0


async def test_a_model_that_fails_costs_a_brief_only_its_meaning(home: Settings) -> None:
    """U-05: the brief has what words find, and says what is missing."""

    class Broken(WordEncoder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            if texts == ["automobile"]:
                raise InvalidSettings("the weights are damaged")
            return super().encode(texts)

    async with mica.open(":memory:", settings=home, encoder=Broken()) as memory:
        memory.mark("The automobile broke down")
        memory.mark("Rain")
        await memory.embed()

        brief = await memory.brief("automobile")

        assert "broke down" in brief.text
        assert brief.missing == {"meaning": "the weights are damaged"}
        with pytest.raises(InvalidSettings, match="damaged"):
            await memory.search("automobile")


async def test_a_question_waits_for_one_text_and_not_for_a_batch(store: Store) -> None:
    """A brief has a tenth of a second; reading a batch takes longer than that."""
    asked: list[asyncio.Task[Mapping[int, float] | None]] = []
    loop = asyncio.get_running_loop()
    is_waiting = threading.Event()

    class Watched(WordEncoder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            if len(self.texts) == 3 and not asked:  # in the middle of a batch somebody asks
                question = parse("car", now=START_AT)
                loop.call_soon_threadsafe(lambda: asked.append(asyncio.ensure_future(meanings.likeness(question))))
                is_waiting.wait(60)
            return super().encode(texts)

    class Told(Meanings):
        async def _run(self, work):  # type: ignore[no-untyped-def]
            if asyncio.current_task() in asked:
                is_waiting.set()
            return await super()._run(work)

    await store.append([build(number, "mark", {"text": f"text {number}"}) for number in range(1, 31)])
    encoder = Watched()
    meanings = Told(store, encoder)
    await store.save_vectors("words", {30: packed(WordEncoder().encode(["text 30"]))[0]})
    await meanings.prepare()

    assert await meanings.catch_up() == 29
    assert await asked[0] is not None
    assert encoder.texts.index("car") == 4
    await meanings.close()


async def test_the_model_is_loaded_before_it_is_asked_where_there_are_vectors(home: Settings, tmp_path: Path) -> None:
    """U-05: the first brief of a process has its whole deadline for the answer."""

    class Loading(WordEncoder):
        loads = 0

        def encode(self, texts):  # type: ignore[no-untyped-def]
            self.loads += not texts
            return super().encode(texts)

    async with mica.open(tmp_path / "space.db", settings=home, encoder=(first := Loading())) as memory:
        memory.mark("The automobile broke down")
        await memory.prepare_brief()
        assert first.loads == 0  # nothing to compare with
        await memory.embed()

    async with mica.open(tmp_path / "space.db", settings=home, encoder=(second := Loading())) as memory:
        await memory.prepare_brief()

        assert (second.loads, second.texts) == (1, [])
        assert (await memory.brief("automobile")).missing == {}


async def test_only_marks_that_are_compared_get_vectors(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model takes hours for a million marks, of which the latest are compared."""
    monkeypatch.setattr(meaning, "VECTORS_MAX", 40)
    await store.append([build(number, "mark", {"text": f"text {number}"}) for number in range(1, 101)])
    meanings = Meanings(store, encoder := WordEncoder())

    assert await meanings.missing() == 40
    made = await meanings.catch_up()
    assert 40 <= made < 40 + meaning.BATCH
    assert (await meanings.missing(), await meanings.catch_up()) == (0, 0)

    await store.append([build(101, "mark", {"text": "text 101"})])
    assert await meanings.catch_up() == 1
    assert encoder.texts[-1] == "text 101"

    await store.append([build(number, "mark", {"text": f"text {number}"}) for number in range(102, 137)])
    assert await meanings.missing() == 35  # though there are more vectors than are compared
    assert (await meanings.catch_up(), await meanings.missing()) == (35, 0)
    await store.append([build(number, "mark", {"text": f"text {number}"}) for number in range(137, 237)])
    assert await meanings.missing() == 40
    await meanings.close()


async def test_a_new_mark_has_no_other_vectors_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large space holds 31 MB of them: they are read once, and then followed."""
    monkeypatch.setattr(meaning, "VECTORS_MAX", 40)

    class Counting(EphemeralStore):
        rows = 0

        async def vectors(self, model: str, *, after: int = 0, limit: int) -> Vectors:
            found = await super().vectors(model, after=after, limit=limit)
            self.rows += len(found.rows)
            return found

    store = Counting()
    await store.append([build(number, "mark", {"text": f"text {number}"}) for number in range(1, 101)])
    meanings = Meanings(store, WordEncoder())
    await meanings.catch_up()
    await meanings.prepare()
    store.rows = 0

    for number in (101, 102, 103):
        await store.append([build(number, "mark", {"text": f"text {number}"})])
        assert await meanings.catch_up() == 1
    await meanings.prepare()
    assert store.rows == 3
    await meanings.close()
