"""Tests of the promises of `BeliefTable`, which run unchanged on every kind of store."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from mica.model.belief import Belief, BeliefId, BeliefKind, BeliefQuery, BeliefState
from mica.model.event import EventId
from mica.model.trail import LearnedUpTo
from mica.store.protocol import Store
from mica.store.purges import Selection
from mica.testing.builders import START_AT, TOMBSTONE, build


def build_belief(
    name: str,
    *keys: str,
    kind: BeliefKind = "rule",
    state: BeliefState = "held",
    session: str | None = "s1",
    evidence: tuple[EventId, ...] = (),
    text: str = "Never force-push to grün.",
    after_s: float = 0,
) -> Belief:
    """Return a belief with all fields set. Those that say why it ended are set only if its state is "ended"."""
    is_ended = state == "ended"
    return Belief(
        id=BeliefId(name),
        kind=kind,
        text=text,
        state=state,
        certainty=0.75,
        by="user",
        place="prompt",
        at=START_AT - timedelta(days=1, microseconds=1),
        last_at=START_AT + timedelta(seconds=after_s),
        session=session,
        user="ann",
        agent="scout",
        evidence=evidence or (build(1).id,),
        position=1,
        keys=keys,
        ending="replaced" if is_ended else None,
        ended_by=build(2).id if is_ended else None,
        ended_at=START_AT if is_ended else None,
        reason="it moved" if is_ended else "",
        replaces=(BeliefId("b-before"),),
        replaced_by=BeliefId("b-after") if is_ended else None,
        conflicts=(BeliefId("b-other"),),
    )


async def learn(store: Store, *beliefs: Belief, position: int | None = None) -> None:
    """Store beliefs as learned up to `position`, by default the next one."""
    now = await store.beliefs.learned_up_to()
    lesson = msgspec.structs.replace(now, position=now.position + 1 if position is None else position)
    assert await store.beliefs.save(beliefs, lesson, after=now.position)


async def names(store: Store, query: BeliefQuery) -> list[str]:
    return [belief.id for belief in await store.beliefs.query(query)]


async def related(store: Store, *keys: str, per_key: int = 64) -> dict[str, list[str]]:
    found = await store.beliefs.related(keys, per_key=per_key)
    return {key: [belief.id for belief in beliefs] for key, beliefs in found.items()}


class BeliefContract:
    """Tests of `BeliefTable`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_beliefs_read_back_as_they_were_learned(self, store: Store) -> None:
        assert await store.beliefs.query(BeliefQuery()) == []
        assert await store.beliefs.learned_up_to() == LearnedUpTo(position=0, generation=store.purges.generation)
        lesson = msgspec.structs.replace(await store.beliefs.learned_up_to(), position=7)
        beliefs = [build_belief("b1", "main", "grün\0"), build_belief("b2", state="ended", session=None, after_s=-1)]

        assert await store.beliefs.save(beliefs, lesson, after=0)

        assert await store.beliefs.query(BeliefQuery()) == beliefs
        assert await store.beliefs.related(["grün\0"]) == {"grün\0": beliefs[:1]}
        assert await store.beliefs.learned_up_to() == lesson

    async def test_beliefs_are_learned_apart_from_trails(self, store: Store) -> None:
        await learn(store, build_belief("b1"), position=7)

        assert (await store.trails.learned_up_to()).position == 0

    async def test_a_belief_replaces_the_one_with_its_id(self, store: Store) -> None:
        """Also its session, evidence and keys. Other beliefs stay."""
        old = build_belief("b1", "main", "push", evidence=(build(1).id, build(2).id))
        await learn(store, old, build_belief("b2", "main", kind="fact", evidence=(build(1).id,), after_s=-1))
        new = build_belief(
            "b1", "main", "tag", kind="fact", state="settled", session="s2", evidence=(build(3).id,), after_s=9
        )

        await learn(store, old, new)

        assert await store.beliefs.query(BeliefQuery(ids=(new.id,))) == [new]
        assert await names(store, BeliefQuery()) == ["b1", "b2"]
        assert await names(store, BeliefQuery(kinds=("rule",))) == []
        assert await names(store, BeliefQuery(session="s1")) == ["b2"]
        assert await names(store, BeliefQuery(evidence=(build(2).id,))) == []
        assert await names(store, BeliefQuery(evidence=(build(1).id, build(3).id))) == ["b1", "b2"]
        assert await related(store, "main", "push", "tag") == {"main": ["b1", "b2"], "push": [], "tag": ["b1"]}

    async def test_beliefs_are_found_by_every_field_the_newest_first(self, store: Store) -> None:
        first, second, third = build(1).id, build(2).id, build(3).id
        await learn(
            store,
            build_belief("b1", kind="rule", state="held", evidence=(first, second), after_s=1),
            build_belief("b2", kind="fact", state="settled", evidence=(second,), session="sür", after_s=3),
            build_belief("b3", kind="task", state="forming", evidence=(third,), session="sür", after_s=2),
            build_belief("b4", kind="rule", state="ended", evidence=(third, first), session=None, after_s=4),
        )

        assert await names(store, BeliefQuery()) == ["b4", "b2", "b3", "b1"]
        assert await names(store, BeliefQuery(limit=None)) == ["b4", "b2", "b3", "b1"]
        assert await names(store, BeliefQuery(limit=2)) == ["b4", "b2"]
        assert await names(store, BeliefQuery(limit=0)) == []
        assert await names(store, BeliefQuery(kinds=("rule",))) == ["b4", "b1"]
        assert await names(store, BeliefQuery(kinds=("rule", "task", "rule"))) == ["b4", "b3", "b1"]
        assert await names(store, BeliefQuery(states=("held", "settled"))) == ["b2", "b1"]
        assert await names(store, BeliefQuery(kinds=("rule",), states=("held", "settled", "held"))) == ["b1"]
        assert await names(store, BeliefQuery(kinds=("rule", "fact", "task"), limit=1)) == ["b4"]
        assert await names(store, BeliefQuery(since=START_AT + timedelta(seconds=2))) == ["b4", "b2", "b3"]
        assert await names(store, BeliefQuery(since=START_AT + timedelta(seconds=2, microseconds=1))) == ["b4", "b2"]
        assert await names(store, BeliefQuery(ids=(BeliefId("b1"), BeliefId("b4"), BeliefId("b9")))) == ["b4", "b1"]
        assert await names(store, BeliefQuery(evidence=(first, third))) == ["b4", "b3", "b1"]
        assert await names(store, BeliefQuery(evidence=(first, third), limit=2)) == ["b4", "b3"]
        assert await names(store, BeliefQuery(evidence=(first, second), kinds=("rule",), states=("held",))) == ["b1"]
        assert await names(store, BeliefQuery(session="sür")) == ["b2", "b3"]
        assert await names(store, BeliefQuery(session="sür", since=START_AT + timedelta(seconds=3))) == ["b2"]
        assert await names(store, BeliefQuery(session="sür", ids=(BeliefId("b1"), BeliefId("b3")))) == ["b3"]
        assert await names(store, BeliefQuery(session="s9")) == []

    async def test_beliefs_with_evidence_of_the_same_time_are_in_order_of_their_ids(self, store: Store) -> None:
        await learn(store, *(build_belief(name, "main") for name in ("b2", "B3", "bä", "b10", "b1")))

        assert await names(store, BeliefQuery()) == ["B3", "b1", "b10", "b2", "bä"]
        assert await names(store, BeliefQuery(session="s1", limit=3)) == ["B3", "b1", "b10"]
        assert await related(store, "main", per_key=2) == {"main": ["B3", "b1"]}

    async def test_related_returns_the_newest_beliefs_of_each_key_that_are_not_ended(self, store: Store) -> None:
        await learn(
            store,
            build_belief("b1", "main", "push", state="forming", after_s=1),
            build_belief("b2", "main", "push", state="ended", after_s=9),
            build_belief("b3", "main", "main", state="settled", after_s=3),
            build_belief("b4", "main", state="held", after_s=2),
            build_belief("b5"),
        )

        assert await store.beliefs.related([]) == {}
        assert await related(store, "main", "push", "gone", "main") == {
            "main": ["b3", "b4", "b1"],
            "push": ["b1"],
            "gone": [],
        }
        assert await related(store, "push", "main", per_key=1) == {"push": ["b1"], "main": ["b3"]}
        assert await related(store, "main", per_key=0) == {"main": []}

        await learn(store, build_belief("b3", "main", state="ended", after_s=3))

        assert await related(store, "main") == {"main": ["b4", "b1"]}

    async def test_related_returns_at_most_64_beliefs_per_key(self, store: Store) -> None:
        """A key that many beliefs share, such as the name of the project, costs no more than another."""
        await learn(store, *(build_belief(f"b{number:03}", "main", after_s=number) for number in range(70)))

        found = await store.beliefs.related(["main"])

        assert [belief.id for belief in found["main"]] == [f"b{number:03}" for number in range(69, 5, -1)]

    async def test_keys_and_names_of_any_length_are_stored(self, store: Store) -> None:
        """The text is random, because an index of PostgreSQL compresses it before it refuses a long one."""
        long = "".join(chr(0x4E00 + number * 7_919 % 20_000) for number in range(4_000))
        await learn(store, build_belief("b1", long, session=long))

        assert await related(store, long) == {long: ["b1"]}
        assert await names(store, BeliefQuery(session=long)) == ["b1"]

    async def test_beliefs_are_saved_only_after_the_position_they_were_learned_after(self, store: Store) -> None:
        """If two processes learn at once, only the first result is stored, and the other begins again."""
        now = await store.beliefs.learned_up_to()
        await learn(store, build_belief("b1"), position=5)

        for after, position in ((0, 5), (0, 9), (4, 9), (6, 9)):
            lesson = msgspec.structs.replace(now, position=position)
            assert not await store.beliefs.save([build_belief("b2")], lesson, after=after)

        assert await names(store, BeliefQuery()) == ["b1"]
        assert (await store.beliefs.learned_up_to()).position == 5
        assert await store.beliefs.save([], msgspec.structs.replace(now, position=9), after=5)
        assert await names(store, BeliefQuery()) == ["b1"]
        assert (await store.beliefs.learned_up_to()).position == 9

    async def test_of_two_savers_at_once_one_wins(self, store: Store) -> None:
        now = await store.beliefs.learned_up_to()
        lessons = [msgspec.structs.replace(now, position=number) for number in range(1, 6)]

        stored = await asyncio.gather(
            *(store.beliefs.save([build_belief(f"b{each.position}", "main")], each, after=0) for each in lessons)
        )

        assert stored.count(True) == 1
        winner = lessons[stored.index(True)]
        assert await store.beliefs.learned_up_to() == winner
        assert await names(store, BeliefQuery()) == [f"b{winner.position}"]
        assert await related(store, "main") == {"main": [f"b{winner.position}"]}

    async def test_a_purge_removes_beliefs_for_good(self, store: Store) -> None:
        """keeps: U-08. Beliefs that another process was learning during the purge are not stored either."""
        secret = build(1, "mark", {"text": "The password is hunter2."})
        await store.log.append([secret, build(2)])
        belief = build_belief("b1", "password", evidence=(secret.id,), text="The password is hunter2.")
        begun = msgspec.structs.replace(await store.beliefs.learned_up_to(), position=2)
        assert await store.beliefs.save([belief], begun, after=0)

        await store.purges.bury([secret.id], TOMBSTONE)

        now = await store.beliefs.learned_up_to()
        assert now.position == 0
        assert now.generation > begun.generation
        for after in (0, 2):
            assert not await store.beliefs.save([belief], begun, after=after)
        assert await store.beliefs.query(BeliefQuery()) == []
        assert await names(store, BeliefQuery(evidence=(secret.id,))) == []
        assert await related(store, "password") == {"password": []}
        assert await store.beliefs.save([build_belief("b2")], msgspec.structs.replace(now, position=2), after=0)
        assert await names(store, BeliefQuery()) == ["b2"]

    async def test_a_belief_with_a_purged_value_is_not_stored(self, store: Store) -> None:
        """keeps: U-08, K-53. In any spelling, and a stored belief with its id is deleted. The position moves."""
        await store.log.append([build(1)])
        stored = [build_belief(f"b{number}", "main", text="It runs in Zürich.") for number in range(7)]
        await learn(store, *stored, position=1)
        purge = Selection(value="zürich").to_purge(at=START_AT, tombstone=TOMBSTONE)
        assert purge is not None
        await store.purges.add(purge)
        clean = [msgspec.structs.replace(belief, text="It runs in Basel.") for belief in stored]
        leaking = [
            stored[0],
            msgspec.structs.replace(clean[1], text="It runs in ZU\u0308RICH!"),
            msgspec.structs.replace(clean[2], reason="moved to zürich"),
            msgspec.structs.replace(clean[3], keys=("Zürich",)),
            msgspec.structs.replace(clean[4], session="from zürich"),
            msgspec.structs.replace(clean[5], user="zürich"),
        ]

        await learn(store, *leaking, clean[6], position=2)

        assert await store.beliefs.query(BeliefQuery()) == [clean[6]]
        assert await related(store, "main", "Zürich") == {"main": ["b6"], "Zürich": []}
        assert (await store.beliefs.learned_up_to()).position == 2

    async def test_rebuild_removes_beliefs(self, store: Store) -> None:
        """Beliefs are derived from the log and can be learned again."""
        await store.log.append([build(1)])
        await learn(store, build_belief("b1", "main"), position=1)

        await store.files.rebuild()

        assert await store.beliefs.query(BeliefQuery()) == []
        assert await names(store, BeliefQuery(evidence=(build(1).id,))) == []
        assert await related(store, "main") == {"main": []}
        assert (await store.beliefs.learned_up_to()).position == 0
        await learn(store, build_belief("b1", "main"), position=1)
        assert await store.files.verify() == []
