"""The verbs over HTTP: recorded is on disk, read as written, refused in words."""

from __future__ import annotations

import httpx2
import pytest
from tests.web.conftest import Calling

import mica
from mica.settings import Settings
from mica.testing.contract.trails import build_trail
from mica.web import metrics
from mica.web.access import Access
from mica.web.memory_pool import House
from mica.web.metrics import Uses


async def test_what_is_marked_is_found_briefed_and_explained(client: httpx2.AsyncClient) -> None:
    """D-12, B-66: the HTTP server does more than health."""
    told = {"text": "The cookie is set before the redirect", "session": "s1", "agent": "scout", "tags": ["gotcha"]}
    marked = await client.post("/api/marks", json=told)
    assert marked.status_code == 200

    found = (await client.get("/api/search", params={"query": "cookie redirect"})).json()
    brief = (await client.post("/api/brief", json={"query": "cookie", "deadline_s": 30})).json()
    why = (await client.get("/api/why", params={"about": brief["receipt"]})).json()

    assert found["hits"][0]["id"] == marked.json()["id"]
    assert found["hits"][0]["mark"]["tags"] == ["gotcha"]
    assert "The cookie is set before the redirect" in brief["text"]
    assert why["why"][0]["because"][0]["evidence"][0]["id"] == marked.json()["id"]


async def test_events_keep_their_chain_and_their_context(client: httpx2.AsyncClient) -> None:
    root = (await client.post("/api/events", json={"events": [{"name": "task.begun", "session": "s1"}]})).json()
    parent = root["events"][0]["id"]
    below = {"name": "file.read", "data": {"path": "a.py"}, "parent": parent, "agent": "scout", "labels": {"host": "a"}}
    await client.post("/api/events", json={"events": [below, {**below, "error": True}]})

    tree = (await client.get(f"/api/events/{parent}/tree")).json()
    failed = (await client.get("/api/errors")).json()["failures"]
    minimal = (await client.get("/api/events", params={"names": ["file.*"], "bundle": "minimal"})).json()["events"]

    assert [each["depth"] for each in tree["descendants"]] == [1, 1]
    assert tree["descendants"][0]["context"] == {"agent": "scout", "labels": {"host": "a"}}
    assert [each["id"] for each in failed[0]["led"]] == [parent]
    assert [sorted(each) for each in minimal] == [["correlation", "id", "name"]] * 2


async def test_a_request_goes_on_where_its_sender_was(client: httpx2.AsyncClient, house: House) -> None:
    memory = await house.memory()
    with memory.context(session="s1", agent="scout"):
        root = memory.emit("task.begun", {})
        with memory.context(parent=root):
            headers = memory.carrier()
    await client.post("/api/events", json={"events": [{"name": "file.read"}]}, headers=headers)

    [event] = await memory.events(mica.EventQuery(names=("file.read",)))
    assert event.parent_id == root.id
    assert event.context.session == "s1"


async def test_the_log_is_read_page_by_page_without_gap_or_repeat(client: httpx2.AsyncClient) -> None:
    await client.post("/api/events", json={"events": [{"name": f"step.{number}"} for number in range(25)]})
    names: list[str] = []
    after: int | None = 0
    while after is not None:
        page = (await client.get("/api/log", params={"after": after, "limit": 7})).json()
        names += [each["name"] for each in page["events"]]
        after = page["next"]

    assert names == [f"step.{number}" for number in range(25)]


async def test_who_has_it_already_is_not_sent_it_again(client: httpx2.AsyncClient) -> None:
    first = await client.get("/api/events")
    again = await client.get("/api/events", headers={"if-none-match": first.headers["etag"]})
    await client.post("/api/events", json={"events": [{"name": "step"}]})
    later = await client.get("/api/events", headers={"if-none-match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert later.status_code == 200


async def test_a_query_without_a_word_is_refused(client: httpx2.AsyncClient) -> None:
    for query in ("", "?!"):
        answer = await client.get("/api/search", params={"query": query})

        assert answer.status_code == 422
        assert "no word to search for" in answer.json()["detail"]


async def test_nothing_is_purged_before_exactly_that_was_confirmed(client: httpx2.AsyncClient) -> None:
    await client.post("/api/marks", json={"text": "We called it hunter2", "session": "s1"})
    tried = (await client.post("/api/purge", json={"value": "hunter2"})).json()
    assert (tried["events"], tried["record"], tried["spellings"]) == (1, None, {"hunter2": 1})

    await client.post("/api/marks", json={"text": "hunter2 again", "session": "s1"})
    other = await client.post("/api/purge", json={"value": "hunter2", "confirm": tried["confirm"]})
    assert other.status_code == 422  # one more would go than was shown
    seen = (await client.post("/api/purge", json={"value": "hunter2"})).json()
    done = (await client.post("/api/purge", json={"value": "hunter2", "confirm": seen["confirm"]})).json()

    assert (done["events"], done["confirm"]) == (2, None)
    assert "hunter2" not in (await client.get("/api/events")).text


async def test_a_purged_value_may_be_said_again_where_somebody_allows_it(client: httpx2.AsyncClient) -> None:
    """K-53: what was purged stays gone."""
    said = {"text": "The login page is slow", "session": "s1"}
    await client.post("/api/marks", json=said)
    seen = (await client.post("/api/purge", json={"value": "login"})).json()
    done = (await client.post("/api/purge", json={"value": "login", "confirm": seen["confirm"]})).json()
    refused = await client.post("/api/marks", json=said)

    allowed = await client.post("/api/purge/allow", json={"value": "Login"})

    assert (refused.status_code, "was purged" in refused.json()["detail"]) == (422, True)
    assert (allowed.status_code, allowed.json()) == (200, {"allowed": [done["record"]]})
    assert (await client.post("/api/marks", json=said)).status_code == 200
    again = await client.post("/api/purge/allow", json={"value": "Login"})
    assert (again.status_code, "no purge of the value" in again.json()["detail"]) == (422, True)
    assert [each["name"] for each in (await client.get("/api/events")).json()["events"]].count("mark") == 1


async def test_a_purge_says_what_it_made_anew(client: httpx2.AsyncClient) -> None:
    """K-53"""
    for word in ("first", "second", "third", "fourth", "fifth", "sixth", "hunter2"):
        text = f"The {word} cookie is set before the redirect, so the session of {word} is lost on every login"
        await client.post("/api/marks", json={"text": text, "session": "s1"})
    [before] = (await client.post("/api/crystallize", json={})).json()["crystals"]

    seen = (await client.post("/api/purge", json={"value": "hunter2"})).json()
    done = (await client.post("/api/purge", json={"value": "hunter2", "confirm": seen["confirm"]})).json()

    assert (seen["remade"], seen["ended"], done["ended"]) == ([], [], [])
    assert [(each["period"], each["marks"]) for each in done["remade"]] == [(before["period"], before["marks"] - 1)]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/marks", b"{", 400),
        ("/api/marks", b'{"text": "x", "colour": "red"}', 400),
        ("/api/marks", b'{"text": 7}', 400),
        ("/api/marks", b"\xff\xfe", 400),
        ("/api/marks", b'{"text": "  "}', 422),
        ("/api/marks", b'{"text": "x", "parent": "9999"}', 404),
        ("/api/marks?colour=red", b'{"text": "x"}', 400),
        ("/api/crystallize", b'{"tree": "1", "level": "day"}', 404),
        ("/api/retract", b'{"reference": "1", "reason": ""}', 400),
        ("/api/nothing", b"{}", 404),
        ("/api/store/nothing", b"{}", 404),
        ("/api/store/append", b"\xc1", 400),
        ("/api/store/log", b"\x80", 400),
    ],
)
async def test_what_cannot_be_used_is_refused_in_words(
    client: httpx2.AsyncClient, path: str, body: bytes, status: int
) -> None:
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


async def test_a_body_that_says_it_is_no_json_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/marks", content=b"text=x", headers={"content-type": "text/plain"})

    assert answer.status_code == 415


async def test_an_error_of_ours_tells_its_kind_and_facts(client: httpx2.AsyncClient) -> None:
    problem = (await client.get("/api/events/12345")).json()

    assert problem["type"] == "/problems/UnknownEvent"
    assert problem["facts"] == {"reference": "12345"}


@pytest.mark.parametrize(
    "name", ["../hidden", "../../etc/passwd", "..", "a/b", "/etc/passwd", "shop.db", "none", "%2e"]
)
async def test_no_name_of_a_space_leads_out_of_the_data_folder(
    client: httpx2.AsyncClient, home: Settings, name: str
) -> None:
    """U-09"""
    async with mica.open(home.home / "hidden.db", settings=home) as memory:  # beside the folder of spaces
        memory.mark("nobody is to see this")
    (home.home / "spaces").mkdir(exist_ok=True)

    read = await client.get("/api/events", params={"space": name})

    assert read.status_code == 404
    assert read.json()["type"] == "/problems/UnknownSpace"


async def test_a_token_of_one_space_opens_no_other(
    client: httpx2.AsyncClient, calling: Calling, access: Access, home: Settings
) -> None:
    """U-09: spaces are walls over HTTP too."""
    for name in ("one", "two"):
        async with mica.open(home.home / "spaces" / f"{name}.db", settings=home) as memory:
            memory.mark(f"only {name} knows")
    secret, _ = access.tokens.make("guest", spaces=["one"])

    async with calling(secret) as guest:
        own = await guest.get("/api/events")
        other = await guest.get("/api/events", params={"space": "two"})
        default = await guest.get("/api/events", params={"space": "shop"})
        listed = (await guest.get("/api/spaces")).json()
        linked = await guest.post("/api/links")

    assert "only one knows" in own.text
    assert (other.status_code, default.status_code, linked.status_code) == (403, 403, 403)
    assert listed == {"spaces": ["one"], "default": "one"}
    assert "only two knows" in (await client.get("/api/events", params={"space": "two"})).text


async def test_metrics_have_the_names_that_were_promised(client: httpx2.AsyncClient, house: House) -> None:
    """A-35"""
    memory = await house.memory()
    steps = build_trail("fix-login", "auth/login.py", "auth/session.py").steps
    with memory.context(session="s1", agent="scout"):
        made = await memory.trails.create("fix-login", steps, description="fix the login")
        await memory.trails.track(made.slug, tokens=120)
    text = (await client.get("/metrics")).text

    assert 'crystal_usage_total{crystal_name="nav:fix-login",agent_id="scout"} 1' in text
    for name in ("token_savings_total", "pattern_success_rate", "crystal_load_duration_seconds", "mica_alert"):
        assert f"# TYPE {name} " in text
    assert 'mica_events{space="shop"}' in text
    assert "mica_requests_total" in text


@pytest.mark.parametrize("read_on_max", [20_000, 2], ids=["read on", "asked anew"])
async def test_uses_of_trails_are_counted_on_and_end_with_a_purge(
    house: House, monkeypatch: pytest.MonkeyPatch, read_on_max: int
) -> None:
    """A-35: none is missed or counted twice, however often and however late it is asked."""
    monkeypatch.setattr(metrics, "READ_ON_MAX", read_on_max)
    memory, uses = await house.memory(), Uses()

    def use(agent: str) -> mica.Ref:
        with memory.context(agent=agent):
            return memory.emit("trail.used", {"key": "k"})

    secret = use("Rosalind")
    assert await uses.of(memory) == {("k", "Rosalind"): 1}
    for _ in range(3):
        use("scout")
        memory.emit("tick")
    assert await uses.of(memory) == {("k", "Rosalind"): 1, ("k", "scout"): 3}
    assert await uses.of(memory) == {("k", "Rosalind"): 1, ("k", "scout"): 3}
    await memory.purge(ids=[secret.id])
    assert await uses.of(memory) == {("k", "scout"): 3}


async def test_what_was_judged_is_part_of_what_is_gathered(client: httpx2.AsyncClient) -> None:
    told = {
        "concept": "judgment:code_review:abc123",
        "verdict": "approve",
        "confidence": 0.9,
        "reasons": ["tests pass"],
    }
    assert (await client.post("/api/judgments", json=told)).status_code == 200

    account = (await client.post("/api/defrag", json={"concept": told["concept"], "deadline_s": 30})).json()
    listed = (await client.get("/api/judgments", params={"concept": str(told["concept"])})).json()
    wrong = await client.post("/api/defrag", json={"concept": "nothing"})

    assert "approve" in account["injection"]
    assert [each["verdict"] for each in listed["judgments"]] == ["approve"]
    assert (wrong.status_code, "domain:type:id" in wrong.text) == (422, True)


async def test_briefs_are_switched_judged_and_gathered_ahead(client: httpx2.AsyncClient) -> None:
    judged = {"concept": "judgment:code_review:1", "verdict": "GROWL", "confidence": 0.5}
    assert (await client.post("/api/judgments", json=judged)).status_code == 200

    assert (await client.get("/api/briefs")).json() == {"on": True}
    assert (await client.post("/api/briefs", json={"on": False})).json() == {"on": False}
    assert (await client.post("/api/briefs", json={})).status_code == 400
    assert (await client.get("/api/briefs")).json() == {"on": False}
    [ahead] = (await client.post("/api/warm", json={"limit": 1})).json()["gathered"]
    told = (await client.get("/api/quality", params={"weeks": 2})).json()

    assert ahead["concept"] == judged["concept"]
    assert told["verdict"]
    assert len(told["weeks"]) >= 2
