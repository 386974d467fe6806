"""Log import: our exports come back equal, foreign logs complete, and each file all or nothing."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica import Context, EventQuery, Memory
from mica.brief.now import QUOTED
from mica.brief.receipts import BRIEF, SWITCHED
from mica.errors import InvalidInput
from mica.events import log_import as logs
from mica.events.log_import import LogImportResult
from mica.format.documents import event_line, select_fields
from mica.llm.budgets import RESERVED, SPENT
from mica.model.event import (
    BRIEFED,
    CRYSTAL,
    EPOCH_OPENED,
    JUDGED,
    JUDGMENT_RETRACTED,
    PURGED,
    REFUSED,
    RETRACTED,
    TRANSCRIPT_READ,
    Event,
    event_id,
    make_event,
)
from mica.model.teaching import PROMOTED, WITHDRAWN
from mica.model.trail import CREATED, CRYSTALLIZED, LEARNING
from mica.model.walk import OFFER, OUTCOME
from mica.settings import Settings
from mica.sources.protocol import DEGRADED, GATHERED_NAMES
from mica.sources.registry import TESTED
from mica.store.purges import ALLOWED, EXPORTED, PURGE
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock, build
from mica.testing.histories import History, histories

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def written(folder: Path, *records: object, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


async def everything(memory: Memory) -> list[Event]:
    return await memory.events.query(EventQuery(limit=None))


# -- Our own exports ------------------------------------------------------------------------------------------


@st.composite
def rich_histories(draw: st.DrawFn) -> History:
    """Histories whose data may be any JSON."""

    def enriched(event: Event) -> Event:
        if event.name == "mark":
            return event
        data = draw(st.dictionaries(st.text(), JSON, max_size=3))
        try:
            return msgspec.structs.replace(event, body=msgspec.json.encode(data))
        except UnicodeEncodeError:
            return event

    return [enriched(event) for event in draw(histories())]


@given(rich_histories())
async def test_an_export_read_back_gives_equal_events(history: History) -> None:
    """keeps: E-39, E-12. Ids, lineage, contexts, data bytes and the order of the log are equal."""
    store = EphemeralStore()
    await store.log.append(history)
    before = await store.log.read(0, limit=1_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.jsonl"
        path.write_bytes(b"".join(event_line(event) + b"\n" for event in before))
        for target in (":memory:", Path(folder) / "other.db"):
            async with mica.open(target, settings=mica.load_settings({"HOME": folder})) as memory:
                first = await memory.events.import_log(path)
                again = await memory.events.import_log(path)
                after = [event async for event in memory.events.log()]

            assert after == before
            assert (first.events, first.repeated) == (len(before), 0)
            assert (again.events, again.repeated) == (0, len(before))


async def test_a_partial_export_needs_its_parents(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-12, E-39. They may be in the space already; otherwise the line is named."""
    root = build(1)
    child = build(2, parent=root)
    parts = [tmp_path / "root.jsonl", tmp_path / "child.jsonl"]
    for path, event in zip(parts, (root, child), strict=True):
        path.write_bytes(event_line(event))

    with pytest.raises(InvalidInput, match=f"line 1 names the parent '{root.id}'"):
        await memory.events.import_log(parts[1])
    assert await everything(memory) == []
    await memory.events.import_log(parts[0])
    await memory.events.import_log(parts[1])

    assert [event.parent_id for event in await everything(memory)] == [None, root.id]


async def test_an_orphan_of_our_own_export_stays_an_orphan(memory: Memory, tmp_path: Path) -> None:
    root = build(1)
    child = build(2, parent=root)
    path = tmp_path / "part.jsonl"
    path.write_bytes(event_line(child))

    done = await memory.events.import_log(path, allow_orphans=True)

    assert done.orphans == 1
    assert await everything(memory) == [msgspec.structs.replace(child, position=1)]
    assert any("`mica events import-log`" in problem for problem in await memory.upkeep.verify())
    path.write_bytes(event_line(root))
    await memory.events.import_log(path)
    assert await memory.upkeep.verify() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 3}, "line 2 has a root or a depth that does not match"),
        ({"parent_id": None}, "line 2 has a root or a depth that does not match"),
        ({"id": "xyz"}, "line 2 'xyz' is not an event id"),
        ({"name": "two words"}, "line 2 event name"),
        ({"at": "2026-01-01T00:00:00"}, "line 2 event .* without a time zone"),
        ({"at": "yesterday"}, "line 2 is not an event of an export with the bundle full"),
        ({"data": [1]}, "line 2 "),
        ({"origin": "nobody"}, "line 2 is not an event of an export"),
        ({"context": {"mood": "x"}}, "line 2 is not an event of an export.*mood"),
        ({"context": {"session": ""}}, "line 2 context session"),
        ({"from_the_future": 1}, "line 2 is not an event of an export.*from_the_future"),
        ({"name": "mark"}, "line 2 this is not a mark"),
    ],
)
async def test_an_altered_export_is_refused_with_its_line(
    memory: Memory, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """keeps: E-39"""
    root = build(1)
    good, bad = (json.loads(event_line(event)) for event in (root, build(2, parent=root)))

    with pytest.raises(InvalidInput, match=message):
        await memory.events.import_log(written(tmp_path, good, bad | change))

    assert await everything(memory) == []


@pytest.mark.parametrize("bundle", ["minimal", "monitoring", "debugging", "timing", "errors"])
async def test_an_export_of_selected_fields_cannot_be_imported(memory: Memory, tmp_path: Path, bundle: str) -> None:
    """The error says that it is such an export."""
    path = tmp_path / "small.jsonl"
    for fields in (select_fields(bundle=bundle), ("name", "context.session")):
        path.write_bytes(event_line(build(1, context=Context(session="s1")), fields))
        with pytest.raises(InvalidInput, match=r"line 1 is .*(without --bundle and --fields|with the bundle full)"):
            await memory.events.import_log(path)


async def test_events_whose_ids_a_forged_import_took_are_stored_with_new_ids(memory: Memory, tmp_path: Path) -> None:
    """keeps: U-04. Each is reported once, its descendants follow it, and the forged events stay as they are."""
    first = memory.emit("own", {"n": 0})
    await memory.events.position()
    ids = [event_id(first.writer, first.sequence + n) for n in range(1, 8)]
    forged = [make_event(each, "forged", {"n": n}, at=NOW) for n, each in enumerate(ids, start=1)]
    forgery = tmp_path / "forgery.jsonl"
    forgery.write_bytes(b"".join(event_line(event) + b"\n" for event in forged))
    await memory.events.import_log(forgery)

    last = first
    for n in range(1, 11):
        last = memory.emit("own", {"n": n}, parent=last if n % 2 == 0 else None)
    own = await memory.events.query(EventQuery(names=("own",)))
    again = await memory.events.query(EventQuery(names=("own",)))

    notices = await memory.events.query(EventQuery(names=(REFUSED,)))
    assert [event.data["n"] for event in own] == list(range(11))
    assert own == again
    assert len(notices) == len({event.data["id"] for event in notices} & {*ids}) > 0
    assert {event.data["stored_as"] for event in notices} <= {event.id for event in own}
    by_number = {event.data["n"]: event for event in own}
    assert all(by_number[n].parent_id == by_number[n - 1].id for n in range(2, 11, 2))
    assert len(await memory.events.query(EventQuery(names=("forged",)))) == 7
    assert await memory.upkeep.verify() == []


async def test_a_flipped_bit_of_an_export_is_refused_or_changes_nothing(memory: Memory, tmp_path: Path) -> None:
    """keeps: U-09. Nothing is imported."""
    memory.mark("The cookie is set before the redirect", tags=["gotcha"])
    export = tmp_path / "export.jsonl"
    await memory.events.export(export)
    truth, raw = logs.read_log(export), export.read_bytes()

    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        export.write_bytes(damaged)
        with contextlib.suppress(InvalidInput):
            assert logs.read_log(export) == truth


async def test_an_export_of_an_earlier_version_has_no_checksums_and_is_imported(memory: Memory, tmp_path: Path) -> None:
    event = build(1, "mark", {"text": "Cookie is set before the redirect"})
    earlier = tmp_path / "earlier.jsonl"
    earlier.write_bytes(event_line(event) + b"\n")

    assert (await memory.events.import_log(earlier)).events == 1


async def test_one_id_with_two_contents_is_refused(memory: Memory, tmp_path: Path) -> None:
    """keeps: TE-03"""
    path = tmp_path / "twice.jsonl"
    path.write_bytes(event_line(build(1)) + b"\n" + event_line(build(1, data={"n": 2})))
    with pytest.raises(InvalidInput, match=r"line 2 event .* is on line 1 with other content"):
        await memory.events.import_log(path)


# -- Embedded contexts ----------------------------------------------------------------------------------------

KSI_ROOT = {
    "timestamp": 1753156038.988,
    "event_name": "agent:spawned",
    "data": {
        "profile": "analyst",
        "_ksi_context": {
            "_event_id": "evt_1",
            "_event_timestamp": 1753156038.988,
            "_correlation_id": "corr_456",
            "_root_event_id": "evt_1",
            "_event_depth": 0,
            "_agent_id": "agent_789",
            "_session_id": "sess_1",
            "_client_id": "ksi-cli",
        },
    },
}
KSI_CHILD = {
    "event": "agent:failed",
    "data": {"token": "x"},
    "_ksi_context": {
        "_event_id": "evt_2",
        "_event_timestamp": "2025-07-22T03:47:20",
        "_correlation_id": "corr_456",
        "_parent_event_id": "evt_1",
        "_root_event_id": "evt_wrong",
        "_event_depth": 17,
        "_error": True,
        "_error_type": "OSError",
        "_error_message": "disk",
        "_handler_duration": 0.25,
    },
}


async def test_a_ksi_log_becomes_events_with_nothing_dropped(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-12, K-46.

    Root and depth are computed again; fields without a counterpart are stored in the data.
    """
    done = await memory.events.import_log(written(tmp_path, KSI_ROOT, KSI_CHILD))

    assert done == LogImportResult(format="ksi", events=2, repeated=0, orphans=0, reused=0, undated=0, purged=0)
    root, child = [event async for event in memory.events.log()]
    assert (root.name, root.origin, root.error) == ("agent:spawned", "imported", False)
    assert root.at == datetime(2025, 7, 22, 3, 47, 18, 988_000, tzinfo=UTC)
    assert root.context == Context(session="sess_1", agent="agent_789", correlation="corr_456")
    assert root.data == {
        "profile": "analyst",
        "imported": {
            "format": "ksi",
            "id": "evt_1",
            "fields": {
                "timestamp": 1753156038.988,
                "_root_event_id": "evt_1",
                "_event_depth": 0,
                "_client_id": "ksi-cli",
            },
        },
    }
    assert (child.parent_id, child.root_id, child.depth, child.error) == (root.id, root.id, 1, True)
    assert child.data == {
        "token": "x",
        "error_type": "OSError",
        "error_message": "disk",
        "duration_s": 0.25,
        "imported": {
            "format": "ksi",
            "id": "evt_2",
            "parent": "evt_1",
            "fields": {"_root_event_id": "evt_wrong", "_event_depth": 17, "_error": True},
        },
    }
    assert await memory.upkeep.verify() == []


def test_only_the_importer_knows_foreign_fields() -> None:
    """keeps: K-46. The rest of mica has no compatibility code."""
    package = Path(mica.__file__).parent
    foreign = re.compile(r"_ksi_context|\b_(?:event|correlation|parent_event|root_event)_id\b|specversion")
    knowing = {path for path in package.rglob("*.py") if foreign.search(path.read_text(encoding="utf-8"))}
    assert knowing == {Path(logs.__file__)}


async def test_importing_again_changes_nothing(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-39, TE-03. Ids are derived from the log's own ids, so this holds after the log has grown too."""
    await memory.events.import_log(written(tmp_path, KSI_ROOT))
    before = await everything(memory)

    done = await memory.events.import_log(written(tmp_path, KSI_ROOT, KSI_CHILD))
    again = await memory.events.import_log(written(tmp_path, KSI_ROOT, KSI_CHILD))

    assert (done.events, done.repeated) == (1, 1)
    assert (again.events, again.repeated) == (0, 2)
    assert (await everything(memory))[:1] == before


async def test_parents_are_found_in_earlier_files_and_on_later_lines(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-39. Logs are rotated, and lines are not always in causal order."""
    grandchild = {"event": "x", "timestamp": 3, "_event_id": "evt_3", "_parent_event_id": "evt_2"}
    await memory.events.import_log(written(tmp_path, KSI_ROOT))

    await memory.events.import_log(written(tmp_path, grandchild, KSI_CHILD), format="flat")

    by_id = {str(event.data["imported"]["id"]): event for event in await everything(memory)}  # type: ignore[index]
    assert [(by_id[i].depth, by_id[i].root_id) for i in ("evt_1", "evt_2", "evt_3")] == [
        (depth, by_id["evt_1"].id) for depth in range(3)
    ]
    assert await memory.upkeep.verify() == []


async def test_flat_fields_are_read_beside_the_data_and_inside_it(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-05, E-39"""
    at = "2026-01-01T00:00:00+01:00"
    beside = {"event": "tool ran*", "time": at, "_event_id": 7, "_agent_id": "a", "answer": 42}
    own = {"_event_id": "e2", "_parent_event_id": 7, "imported": 1}
    inside = {"event_name": "mark", "timestamp": 1753156038988, "data": own}
    text = {"event": "said", "timestamp": 1, "event_id": "e3", "correlation_id": "c", "data": "only words"}

    await memory.events.import_log(written(tmp_path, beside, inside, text))

    first, second, third = [event async for event in memory.events.log()]
    assert (first.name, first.data["answer"], first.context.agent) == ("tool_ran_", 42, "a")
    assert first.data["imported"] == {"format": "flat", "id": "7", "name": "tool ran*"}
    assert first.at == datetime(2025, 12, 31, 23, tzinfo=UTC)
    assert (second.name, second.parent_id, second.at.year) == ("imported.mark", first.id, 2025)
    assert second.data["imported"] == 1
    assert second.data["imported_"] == {"format": "flat", "id": "e2", "parent": "7", "name": "mark"}
    assert third.data["data"] == "only words"
    assert third.context.correlation == "c"


async def test_an_orphan_is_refused_with_its_line_or_imported_as_a_root(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-39. The verifier fails on any missing reference."""
    lost = {"_event_id": "evt_9", "_event_timestamp": 1, "_parent_event_id": "evt_8"}
    path = written(tmp_path, KSI_ROOT, KSI_CHILD, KSI_CHILD | {"_ksi_context": lost})

    with pytest.raises(InvalidInput, match="line 3 names the parent 'evt_8', which is neither in the file nor in this"):
        await memory.events.import_log(path)
    assert await everything(memory) == []

    done = await memory.events.import_log(path, allow_orphans=True)

    assert (done.events, done.orphans) == (3, 1)
    [orphan] = [event for event in await everything(memory) if event.at.year == 1970]
    assert (orphan.parent_id, orphan.depth, orphan.root_id) == (None, 0, orphan.id)
    assert orphan.data["imported"] == {"format": "ksi", "id": "evt_9", "parent": "evt_8"}
    assert await memory.upkeep.verify() == []


async def test_a_cycle_is_refused_with_its_line(memory: Memory, tmp_path: Path) -> None:
    """keeps: TE-02"""
    one = {"event": "x", "timestamp": 1, "_event_id": "a", "_parent_event_id": "b"}
    two = {"event": "x", "timestamp": 2, "_event_id": "b", "_parent_event_id": "a"}
    own = {"event": "x", "timestamp": 3, "_event_id": "c", "_parent_event_id": "c"}
    path = written(tmp_path, one, two, own)

    with pytest.raises(InvalidInput, match=r"line \d names the parent '[abc]', which descends from it.*line 3"):
        await memory.events.import_log(path)
    await memory.events.import_log(path, allow_orphans=True)

    assert sorted(event.depth for event in await everything(memory)) == [0, 0, 1]
    assert await memory.upkeep.verify() == []


async def test_an_id_used_twice_makes_two_events(memory: Memory, tmp_path: Path) -> None:
    """keeps: TE-03. Results that were logged under the id of their request are not lost."""
    result = {"event": "done", "timestamp": 2, "_event_id": "a", "answer": 1}
    path = written(tmp_path, {"event": "x", "timestamp": 1, "_event_id": "a"}, result, result)

    done = await memory.events.import_log(path)

    assert (done.events, done.repeated, done.reused) == (2, 1, 2)
    assert [event.name for event in await everything(memory)] == ["x", "done"]
    assert (await memory.events.import_log(path)).events == 0


async def test_logs_with_equal_ids_are_kept_apart_by_their_source(memory: Memory, tmp_path: Path) -> None:
    """keeps: TE-13. Ids of eight digits collide."""
    await memory.events.import_log(written(tmp_path, {"event": "x", "timestamp": 1, "_event_id": "a"}))
    other = written(tmp_path, {"event": "y", "timestamp": 1, "_event_id": "a"})

    with pytest.raises(InvalidInput, match=r"line 1, event 'a', is in this space with other content.*--source"):
        await memory.events.import_log(other)
    assert (await memory.events.import_log(other, source="second")).events == 1


async def test_an_unresolvable_context_reference_is_reported(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-39"""
    with pytest.raises(InvalidInput, match="line 1 names its context 'ctx_1', which is not in the file"):
        await memory.events.import_log(written(tmp_path, {"event": "x", "timestamp": 1, "_ksi_context": "ctx_1"}))


async def test_a_context_that_is_not_an_object_is_reported_and_not_dropped(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-39"""
    record = {"event": "x", "timestamp": 1, "data": {"_ksi_context": ["a"]}}
    with pytest.raises(InvalidInput, match="line 1 has a list as its _ksi_context, not an object"):
        await memory.events.import_log(written(tmp_path, record))


@pytest.mark.parametrize(
    "name",
    [
        *(PURGED, REFUSED, CRYSTAL, RETRACTED, EPOCH_OPENED, PROMOTED, WITHDRAWN, JUDGED, JUDGMENT_RETRACTED),
        *(DEGRADED, *GATHERED_NAMES, TESTED, BRIEF, SWITCHED, CREATED, CRYSTALLIZED, LEARNING, OUTCOME, OFFER, BRIEFED),
        *(PURGE, EXPORTED, ALLOWED, QUOTED, TRANSCRIPT_READ, RESERVED, SPENT, "job.failed"),
    ],
)
async def test_a_foreign_log_cannot_speak_for_mica(memory: Memory, tmp_path: Path, name: str) -> None:
    """keeps: K-46. Statements of people and of mica itself are never taken from another program's log."""
    found = await memory.events.import_log(written(tmp_path, cloud("1", type=name, data={"on": False, "x": 1})))

    assert found.events == 1
    event = await memory.events.get(1)
    assert event.name == f"imported.{name}"
    assert event.data["imported"]["name"] == name  # type: ignore[index]  # its original name


async def test_a_foreign_log_cannot_change_switches_or_retract(memory: Memory, tmp_path: Path) -> None:
    """keeps: K-46"""
    seen = memory.mark("Cookie is set before the redirect")
    at = {"timestamp": 2_000_000_000}
    switched = {"event": SWITCHED, **at, "data": {"on": False, "_ksi_context": {"_event_id": "1"}}}
    retracted = {"event": RETRACTED, **at, "data": {"mark": seen.id, "_ksi_context": {"_event_id": "2"}}}

    assert (await memory.events.import_log(written(tmp_path, switched, retracted))).events == 2

    assert await memory.briefs.is_on()
    assert [hit.mark.id for hit in await memory.search("cookie") if isinstance(hit, mica.Hit)] == [seen.id]


async def test_lines_of_another_format_are_named(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-39. Read in the wrong format, they would lose their id and their parent."""
    first = {"event": "x", "timestamp": 1, "_event_id": "a"}
    with pytest.raises(InvalidInput, match="line 2 is a CloudEvent, and those before are flat"):
        await memory.events.import_log(written(tmp_path, first, cloud("1", causationid="nowhere")))

    assert await everything(memory) == []


async def test_an_export_reformatted_by_a_tool_is_the_same(memory: Memory, tmp_path: Path) -> None:
    """keeps: TE-03. Whitespace and escapes are not content."""
    memory.emit("x", {"said": "Grüße\u2028", "n": [1, 2.5, 2**70]})
    (event,) = await everything(memory)
    path = written(tmp_path, json.loads(event_line(event)))
    assert event.body not in path.read_bytes()

    assert (await memory.events.import_log(path)).repeated == 1
    async with mica.open(":memory:") as other:
        await other.events.import_log(path)
        assert (await everything(other))[0].body == event.body


async def test_an_event_refused_by_the_store_is_named_by_its_line(memory: Memory, tmp_path: Path) -> None:
    memory.emit("x", {})
    memory.emit("x", {})
    one, two = await everything(memory)
    changed = json.loads(event_line(two)) | {"name": CRYSTAL}
    path = written(tmp_path, json.loads(event_line(one)), changed)

    async with mica.open(":memory:") as other:
        with pytest.raises(InvalidInput, match=f"line 2 cannot be stored: event '{two.id}' is not a crystal"):
            await other.events.import_log(path)
        assert await everything(other) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"event":"x","timestamp":"yesterday"}', "line 1 has the time 'yesterday', which is not a time"),
        (b'{"event":"x","timestamp":1,"n":' + b"9" * 5_000 + b"}", "line 1 holds a number of more than 4,300 digits"),
        (b'{"event":"x","timestamp":1,"n":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "line 1 is nested too deeply"),
        (
            gzip.compress(b'{"event":"x","timestamp":1}', mtime=0),
            "log.jsonl is compressed; `zcat .* | mica events import-log -`",
        ),
    ],
)
async def test_an_unreadable_file_gets_a_clear_error(memory: Memory, tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / "log.jsonl").write_bytes(line + b"\n")

    with pytest.raises(InvalidInput, match=message):
        await memory.events.import_log(tmp_path / "log.jsonl", format="flat")


@pytest.mark.parametrize(
    ("line", "message"), [("null", "holds null"), ("[1]", "holds a list"), ("3", "holds a number")]
)
async def test_a_line_that_is_not_an_object_gets_a_clear_error(
    memory: Memory, tmp_path: Path, line: str, message: str
) -> None:
    (tmp_path / "log.jsonl").write_text(line + "\n")

    with pytest.raises(InvalidInput, match=f"{message}, not an object"):
        await memory.events.import_log(tmp_path / "log.jsonl")


@pytest.mark.parametrize("source", ["", "other"])
async def test_an_altered_export_of_mica_is_recognized(memory: Memory, tmp_path: Path, source: str) -> None:
    memory.mark("one")
    (event,) = await memory.events.query()
    path = tmp_path / "ours.jsonl"
    path.write_bytes(event_line(event).replace(b'"one"', b'"two"') + b"\n")

    with pytest.raises(InvalidInput, match=r"with other content; the file or that event was changed") as refused:
        await memory.events.import_log(path, source=source)

    assert "--source" not in str(refused.value)


async def test_secrets_of_foreign_logs_are_redacted(memory: Memory, tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "aB3" * 20
    record = {"event": "x", "timestamp": 1, "_event_id": "a", "deep": [{"said": f"key {key}"}], "_client_id": key}

    await memory.events.import_log(written(tmp_path, record))

    assert key not in (await memory.events.get(1)).body.decode()


async def test_secrets_are_redacted_by_their_key(memory: Memory, tmp_path: Path) -> None:
    secrets = {
        "password": "hunter2" + "secret",
        "api_key": "abcdefghijklmnop" + "123456",
        "clientSecret": "w" * 3 + "Zx" * 9,
    }
    data = {**secrets, "env": {"AWS_SECRET_ACCESS_KEY": "wJalr" + "XUtnFEMI" * 4}, "user": "ann"}

    await memory.events.import_log(written(tmp_path, cloud("1", data=data)))

    body = (await memory.events.get(1)).body.decode()
    assert '"user":"ann"' in body
    assert not [value for value in (*secrets.values(), "wJalr") if value in body]


# -- CloudEvents ----------------------------------------------------------------------------------------------


def cloud(identifier: str, **more: object) -> dict[str, object]:
    at = "2026-02-03T04:05:06Z"
    return {"specversion": "1.0", "id": identifier, "source": "/shop", "type": "com.shop.paid", "time": at} | more


async def test_cloudevents_become_events(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-39, E-36"""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await memory.events.import_log(
        written(
            tmp_path,
            cloud("1", data={"total": 5}, traceparent=trace, subject="order 7"),
            cloud("1", source="/till", data=[1, 2], causationid="2"),
            cloud("2", data_base64="AAE=", causationid="1", correlationid="c-1"),
        )
    )

    paid, listed, binary = [event async for event in memory.events.log()]
    assert paid.name == "com.shop.paid"
    assert paid.context == Context(correlation="0af7651916cd43dd8448eb211c80319c", labels=(("source", "/shop"),))
    assert paid.data == {
        "total": 5,
        "imported": {
            "format": "cloudevents",
            "id": "1",
            "fields": {"traceparent": trace, "subject": "order 7", "source": "/shop"},
        },
    }
    assert listed.data["data"] == [1, 2]
    assert binary.data["data_base64"] == "AAE="
    assert (binary.parent_id, binary.context.correlation) == (paid.id, "c-1")
    assert listed.parent_id == binary.id
    assert len({paid.id, listed.id, binary.id}) == 3


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"specversion": "1.0", "id": "1", "source": "/x"}, "type is missing"),
        (cloud("1", specversion="0.3"), "version 1"),
        (cloud("1", time=True), "has no time"),
    ],
)
async def test_an_invalid_cloudevent_is_refused(
    memory: Memory, tmp_path: Path, record: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=f"line 1 .*{message}"):
        await memory.events.import_log(written(tmp_path, record))


async def test_a_cloudevent_without_a_time_gets_that_of_the_one_before(
    memory: Memory, tmp_path: Path, clock: HandClock
) -> None:
    """keeps: E-39. Their `time` is optional. The import reports it, and importing again later changes nothing."""
    undated = cloud("2", time=None)
    file = written(tmp_path, cloud("0", time=None), cloud("1"), undated, undated, cloud("3"), name="some.jsonl")
    alone = written(tmp_path, cloud("8", time=None), {k: v for k, v in cloud("9").items() if k != "time"})

    done = await memory.events.import_log(file)

    assert (done.events, done.undated) == (4, 2)
    stored = await everything(memory)
    assert {event.at.isoformat() for event in stored} == {"2026-02-03T04:05:06+00:00"}
    assert ["undated" in str(event.data["imported"]) for event in stored] == [True, False, True, False]
    assert (await memory.events.import_log(alone)).undated == 2
    assert {event.at for event in (await everything(memory))[4:]} == {clock()}
    clock.move(days=1)
    for again in (file, alone):
        assert (await memory.events.import_log(again)).events == 0


# -- Bad files ------------------------------------------------------------------------------------------------


async def test_broken_lines_are_named_and_nothing_is_imported(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-39. An import is all or nothing."""
    path = tmp_path / "broken.jsonl"
    good = json.dumps(KSI_ROOT).encode()
    path.write_bytes(b"\n".join([good, b"", b"\xff\xfe", b"[1]", b'{"event": "x"}', b'{"a": NaN}', good[:-9]]))

    with pytest.raises(
        InvalidInput,
        match=r"nothing of .*line 3 is not in UTF-8: byte 1 is 0xff; line 4 holds a list"
        r".*line 5 .*no time.*line 6 .*line 7 is not JSON: ",
    ):
        await memory.events.import_log(path)

    assert await everything(memory) == []


async def test_only_the_first_broken_lines_are_listed(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text("nonsense\n" * 12)
    with pytest.raises(InvalidInput, match=r"line 5 .*and 7 more lines"):
        await memory.events.import_log(path)


async def test_a_file_of_unknown_format_is_refused(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"line 1 is in none of the formats mica, ksi, flat, .*it has a, b"):
        await memory.events.import_log(written(tmp_path, {"a": 1, "b": 2}))


async def test_a_missing_file_is_named(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none.jsonl cannot be read: No such file"):
        await memory.events.import_log(tmp_path / "none.jsonl")


async def test_an_empty_file_holds_no_events(memory: Memory, tmp_path: Path) -> None:
    assert (await memory.events.import_log(written(tmp_path))).events == 0


async def test_a_file_too_large_for_one_step_is_refused(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "EVENTS_MAX", 2)
    path = written(tmp_path, *({"event": "x", "timestamp": n, "_event_id": n} for n in range(3)))
    with pytest.raises(InvalidInput, match=r"more than 2 events .*split it into parts"):
        await memory.events.import_log(path)


async def test_a_long_chain_needs_no_deep_stack(home: Settings, tmp_path: Path) -> None:
    records = [
        {"event": "x", "timestamp": n, "_event_id": f"e{n}", "_parent_event_id": f"e{n + 1}"} for n in range(5_000)
    ]
    path = written(tmp_path, *records, {"event": "x", "timestamp": 0, "_event_id": "e5000"})
    async with mica.open(":memory:", settings=home) as memory:
        await memory.events.import_log(path)
        assert max(event.depth for event in await everything(memory)) == 5_000


@given(st.lists(st.tuples(st.integers(0, 8), st.none() | st.integers(0, 8)), max_size=10))
async def test_stored_lineage_is_consistent_for_any_log(pairs: list[tuple[int, int | None]]) -> None:
    """keeps: E-39, TE-02. The log may contain any references, once orphans are allowed."""
    records = [
        {"event": "x", "timestamp": n, "_event_id": f"e{own}", "_parent_event_id": parent and f"e{parent}"}
        for n, (own, parent) in enumerate(pairs)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), *records)
        async with mica.open(":memory:", settings=mica.load_settings({"HOME": folder})) as memory:
            done = await memory.events.import_log(path, format="flat", allow_orphans=True)
            again = await memory.events.import_log(path, format="flat", allow_orphans=True)

            assert await memory.upkeep.verify() == []
            assert (done.events, again.events) == (len(records), 0)
