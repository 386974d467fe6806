"""Search by meaning, with an encoder whose meanings the test gives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path

import pytest
from tests.residue import residue

import mica
from mica.errors import InvalidSettings
from mica.llm.embeddings import pack
from mica.model.event import Tombstone
from mica.model.mark import Vectors
from mica.search import vectors as meaning
from mica.search.mark_search import search
from mica.search.ranker import parse
from mica.search.vectors import MarkVectors, remove_speakers
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.store.reference.vectors import ReferenceVectors
from mica.testing.builders import START_AT, build
from mica.testing.models import WordEncoder

SAME = {"automobile": "car", "vehicle": "car"}


async def found(store: Store, meanings: MarkVectors, query: str) -> list[int | None]:
    hits = await search(
        query,
        log=store.log,
        chains=store.chains,
        texts=store.texts,
        limit=9,
        now=START_AT,
        zone=UTC,
        likeness=meanings.likeness,
    )
    return [hit.mark.position for hit in hits]


async def test_a_mark_is_found_by_its_meaning_alone(store: Store) -> None:
    """keeps: K-57, K-08. Without a model the same question finds marks that share its words, and nothing fails."""
    texts = ["The automobile broke down", "Rain all day", "The garden is green"]
    await store.log.append([build(number, "mark", {"text": text}) for number, text in enumerate(texts, 1)])
    meanings = MarkVectors(store.vectors, store.files, WordEncoder(SAME))

    assert await found(store, meanings, "vehicle") == []  # no mark was read yet
    assert await meanings.missing() == 3
    assert await meanings.catch_up() == 3
    assert await found(store, meanings, "vehicle") == [1]
    assert (await meanings.missing(), await meanings.catch_up()) == (0, 0)
    by_words = await search("vehicle", log=store.log, chains=store.chains, texts=store.texts, limit=9, now=START_AT)
    assert by_words == []
    await meanings.close()


async def test_vectors_follow_new_and_purged_marks(store: Store) -> None:
    """keeps: U-08. A purged mark is in no matrix."""
    marks = [build(number, "mark", {"text": f"car {number}"}) for number in (1, 2, 3)]
    await store.log.append([*marks[:2], build(9, "mark", {"text": "something else"})])
    meanings = MarkVectors(store.vectors, store.files, WordEncoder(SAME))
    await meanings.catch_up()
    assert sorted(str(position) for position in await found(store, meanings, "vehicle")) == ["1", "2"]

    await store.log.append([marks[2]])
    await meanings.catch_up()
    assert 4 in await found(store, meanings, "vehicle")

    await store.purges.bury([marks[0].id], Tombstone(purge=build(1_000).id, reason="leaked"))
    assert sorted(str(position) for position in await found(store, meanings, "vehicle")) == ["2", "4"]
    await meanings.close()


async def test_marks_get_their_vectors_while_the_process_is_idle(store: Store) -> None:
    """The code that emits does not wait for a model."""
    naps: asyncio.Queue[float] = asyncio.Queue()

    async def nap(seconds: float) -> None:
        await naps.put(seconds)
        await asyncio.sleep(0)

    encoder = WordEncoder()
    meanings = MarkVectors(store.vectors, store.files, encoder, sleep=nap)
    await store.log.append([build(1, "mark", {"text": "car"})])
    assert encoder.texts == []

    meanings.wake()
    while await meanings.missing():
        await asyncio.sleep(0.01)

    assert encoder.texts == ["car"]
    assert await naps.get() > 0
    await meanings.close()


def test_speaker_names_are_not_compared() -> None:
    asked = parse("What is Xochitl's favourite car, Xochitl?", now=START_AT, speakers=["Xochitl"])

    assert remove_speakers(asked) == "What is favourite car, ?"
    assert remove_speakers(parse("Tim", now=START_AT, speakers=["Tim"])) == "Tim"


async def test_memory_searches_rebuilds_and_purges_by_meaning(home: Settings, tmp_path: Path) -> None:
    """keeps: U-08, K-08. A purge leaves no vector in the file; a rebuild recreates the others."""
    path = tmp_path / "space.db"
    encoder = WordEncoder(SAME)
    async with mica.open(path, settings=home, encoder=encoder) as memory:
        secret = memory.mark("The automobile has the plate XK42")
        memory.mark("Rain all day")
        memory.mark("The garden is green")
        assert await memory.upkeep.without_vector() == 3
        assert await memory.upkeep.embed() == 3
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

        await memory.upkeep.rebuild()
        assert await memory.upkeep.without_vector() == 0


async def test_a_failing_model_costs_a_brief_only_the_search_by_meaning(home: Settings) -> None:
    """keeps: U-05. The brief has the matches by words, and names what is missing."""

    class Broken(WordEncoder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            if texts == ["automobile"]:
                raise InvalidSettings("the weights are damaged")
            return super().encode(texts)

    async with mica.open(":memory:", settings=home, encoder=Broken()) as memory:
        memory.mark("The automobile broke down")
        memory.mark("Rain")
        await memory.upkeep.embed()

        brief = await memory.brief("automobile")

        assert "broke down" in brief.text
        assert brief.missing == {"meaning": "the weights are damaged"}
        with pytest.raises(InvalidSettings, match="damaged"):
            await memory.search("automobile")


async def test_a_query_waits_for_one_text_and_not_for_a_batch(store: Store) -> None:
    """A brief has a tenth of a second; embedding a batch takes longer."""
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

    class Told(MarkVectors):
        async def _run(self, work):  # type: ignore[no-untyped-def]
            if asyncio.current_task() in asked:
                is_waiting.set()
            return await super()._run(work)

    await store.log.append([build(number, "mark", {"text": f"text {number}"}) for number in range(1, 31)])
    encoder = Watched()
    meanings = Told(store.vectors, store.files, encoder)
    await store.vectors.save("words", {30: pack(WordEncoder().encode(["text 30"]))[0]})
    await meanings.prepare()

    assert await meanings.catch_up() == 29
    assert await asked[0] is not None
    assert encoder.texts.index("car") == 4
    await meanings.close()


async def test_the_model_is_loaded_ahead_if_there_are_vectors(home: Settings, tmp_path: Path) -> None:
    """keeps: U-05. The first brief of a process has its whole deadline for the answer."""

    class Loading(WordEncoder):
        loads = 0

        def encode(self, texts):  # type: ignore[no-untyped-def]
            self.loads += not texts
            return super().encode(texts)

    async with mica.open(tmp_path / "space.db", settings=home, encoder=(first := Loading())) as memory:
        memory.mark("The automobile broke down")
        await memory.briefs.prepare()
        assert first.loads == 0  # nothing to compare with
        await memory.upkeep.embed()

    async with mica.open(tmp_path / "space.db", settings=home, encoder=(second := Loading())) as memory:
        await memory.briefs.prepare()

        assert (second.loads, second.texts) == (1, [])
        assert (await memory.brief("automobile")).missing == {}


async def test_only_marks_that_are_compared_get_vectors(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model needs hours for a million marks, of which only the latest are compared."""
    monkeypatch.setattr(meaning, "VECTORS_MAX", 40)
    await store.log.append([build(number, "mark", {"text": f"text {number}"}) for number in range(1, 101)])
    meanings = MarkVectors(store.vectors, store.files, encoder := WordEncoder())

    assert await meanings.missing() == 40
    made = await meanings.catch_up()
    assert 40 <= made < 40 + meaning.BATCH
    assert (await meanings.missing(), await meanings.catch_up()) == (0, 0)

    await store.log.append([build(101, "mark", {"text": "text 101"})])
    assert await meanings.catch_up() == 1
    assert encoder.texts[-1] == "text 101"

    await store.log.append([build(number, "mark", {"text": f"text {number}"}) for number in range(102, 137)])
    assert await meanings.missing() == 35  # though there are more vectors than are compared
    assert (await meanings.catch_up(), await meanings.missing()) == (35, 0)
    await store.log.append([build(number, "mark", {"text": f"text {number}"}) for number in range(137, 237)])
    assert await meanings.missing() == 40
    await meanings.close()


async def test_a_new_mark_does_not_reload_the_other_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large space holds 31 MB of them: they are read once and then updated."""
    monkeypatch.setattr(meaning, "VECTORS_MAX", 40)

    class CountingVectors(ReferenceVectors):
        rows = 0

        async def read(self, model: str, *, after: int = 0, limit: int) -> Vectors:
            found = await super().read(model, after=after, limit=limit)
            self.rows += len(found.rows)
            return found

    store = EphemeralStore()
    store.vectors = counting = CountingVectors(store.state)
    await store.log.append([build(number, "mark", {"text": f"text {number}"}) for number in range(1, 101)])
    meanings = MarkVectors(store.vectors, store.files, WordEncoder())
    await meanings.catch_up()
    await meanings.prepare()
    counting.rows = 0

    for number in (101, 102, 103):
        await store.log.append([build(number, "mark", {"text": f"text {number}"})])
        assert await meanings.catch_up() == 1
    await meanings.prepare()
    assert counting.rows == 3
    await meanings.close()
