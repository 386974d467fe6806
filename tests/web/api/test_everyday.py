"""The everyday verbs over HTTP."""

from __future__ import annotations

import httpx2


async def test_a_mark_is_found_by_search_brief_and_why(client: httpx2.AsyncClient) -> None:
    """keeps: D-12, B-66. All everyday verbs work over HTTP."""
    mark = {"text": "The cookie is set before the redirect", "session": "s1", "agent": "scout", "tags": ["gotcha"]}
    marked = await client.post("/api/mark", json=mark)
    assert marked.status_code == 200

    found = (await client.get("/api/search", params={"query": "cookie redirect"})).json()
    brief = (await client.post("/api/brief", json={"query": "cookie", "deadline_s": 30})).json()
    why = (await client.get("/api/why", params={"reference": brief["receipt"]})).json()

    assert found["hits"][0]["id"] == marked.json()["id"]
    assert found["hits"][0]["mark"]["tags"] == ["gotcha"]
    assert "The cookie is set before the redirect" in brief["text"]
    assert why["why"][0]["because"][0]["evidence"][0]["id"] == marked.json()["id"]


async def test_a_query_without_a_word_is_refused(client: httpx2.AsyncClient) -> None:
    for query in ("", "?!"):
        answer = await client.get("/api/search", params={"query": query})

        assert answer.status_code == 422
        assert "no word to search for" in answer.json()["detail"]


async def test_a_purge_needs_a_confirmation_of_the_same_selection(client: httpx2.AsyncClient) -> None:
    await client.post("/api/mark", json={"text": "We called it hunter2", "session": "s1"})
    first = (await client.post("/api/purge", json={"value": "hunter2"})).json()
    assert (first["events"], first["record"], first["spellings"]) == (1, None, {"hunter2": 1})

    await client.post("/api/mark", json={"text": "hunter2 again", "session": "s1"})
    other = await client.post("/api/purge", json={"value": "hunter2", "confirm": first["confirm"]})
    assert other.status_code == 422  # one more event matches than was shown
    preview = (await client.post("/api/purge", json={"value": "hunter2"})).json()
    done = (await client.post("/api/purge", json={"value": "hunter2", "confirm": preview["confirm"]})).json()

    assert (done["events"], done["confirm"]) == (2, None)
    assert "hunter2" not in (await client.get("/api/events/query")).text


async def test_a_subject_is_listed_before_it_is_purged_or_retracted(client: httpx2.AsyncClient) -> None:
    """keeps: K-53. Issue 18."""
    for text in ("The staging proxy is slow", "The proxy on staging fails", "The cookie is set late"):
        await client.post("/api/mark", json={"text": text, "session": "s1"})
    subject = {"matching": "everything about the staging proxy", "keep": ["#2"]}

    preview = (await client.post("/api/purge", json=subject)).json()
    retracting = (await client.post("/api/purge", json=subject | {"retract": True})).json()
    mixed = await client.post("/api/purge", json=subject | {"retract": True, "confirm": preview["confirm"]})
    retracted = (
        await client.post("/api/purge", json=subject | {"retract": True, "confirm": retracting["confirm"]})
    ).json()
    log = (await client.get("/api/events/query")).text
    preview = (await client.post("/api/purge", json=subject)).json()
    done = (await client.post("/api/purge", json=subject | {"confirm": preview["confirm"]})).json()

    assert [item["text"] for item in preview["items"] if item["because"] == "matches"] == ["The staging proxy is slow"]
    assert mixed.status_code == 422
    assert retracted["retracted"] == [preview["items"][0]["id"]]
    assert "The staging proxy is slow" in log
    assert (done["confirm"], done["items"]) == (None, [])
    assert "The staging proxy is slow" not in (await client.get("/api/events/query")).text
    assert (await client.post("/api/purge", json={"ids": ["#2"], "retract": True})).status_code == 422
    nothing = (await client.post("/api/purge", json={"matching": "kitchen sink"})).json()
    assert (nothing["events"], nothing["items"]) == (0, [])


async def test_a_short_value_must_be_confirmed_and_neighbours_are_shown(client: httpx2.AsyncClient) -> None:
    """keeps: K-53. Issue 18."""
    await client.post("/api/mark", json={"text": "We called it abc and prod-web-01-backup"})

    refused = await client.post("/api/purge", json={"value": "abc"})
    taken = (await client.post("/api/purge", json={"value": "abc", "really": True})).json()
    whole = (await client.post("/api/purge", json={"value": "prod-web-01"})).json()
    inside = (await client.post("/api/purge", json={"value": "prod-web-01", "anywhere": True})).json()

    assert refused.status_code == 422
    assert (taken["events"], whole["events"], inside["events"]) == (1, 0, 1)
    assert whole["inside"][0]["text"] == "prod-web-01-backup"
    assert inside["matches"][0]["around"] == ["We called it abc and prod-web-01-backup"]


async def test_a_purge_lists_the_crystals_it_made_again(client: httpx2.AsyncClient) -> None:
    """keeps: K-53"""
    for word in ("first", "second", "third", "fourth", "fifth", "sixth", "hunter2"):
        text = f"The {word} cookie is set before the redirect, so the session of {word} is lost on every login"
        await client.post("/api/mark", json={"text": text, "session": "s1"})
    [before] = (await client.post("/api/crystals/make", json={})).json()["crystals"]

    preview = (await client.post("/api/purge", json={"value": "hunter2"})).json()
    done = (await client.post("/api/purge", json={"value": "hunter2", "confirm": preview["confirm"]})).json()

    assert (preview["remade"], preview["ended"], done["ended"]) == ([], [], [])
    assert [(each["period"], each["marks"]) for each in done["remade"]] == [(before["period"], before["marks"] - 1)]


async def test_a_retracted_mark_is_no_longer_used_and_stays_in_the_log(client: httpx2.AsyncClient) -> None:
    """keeps: B-66"""
    text = "The cookie is set before the redirect"
    marked = (await client.post("/api/mark", json={"text": text, "session": "s1"})).json()["id"]

    answer = await client.post("/api/retract", json={"reference": marked, "reason": "wrong file"})

    assert (answer.status_code, answer.json()["retracted"]) == (200, marked)
    assert (await client.get("/api/search", params={"query": "cookie redirect"})).json()["hits"] == []
    assert text not in (await client.post("/api/brief", json={"query": "cookie", "deadline_s": 30})).json()["text"]
    stored = (await client.get("/api/events/get", params={"reference": marked})).json()
    retracting = (await client.get("/api/events/get", params={"reference": answer.json()["event"]})).json()
    assert stored["data"]["text"] == text
    assert (retracting["data"]["mark"], retracting["data"]["reason"]) == (marked, "wrong file")


async def test_retracting_needs_a_reason_and_an_event(client: httpx2.AsyncClient) -> None:
    marked = (await client.post("/api/mark", json={"text": "The cookie is set late"})).json()["id"]

    refused = [
        await client.post("/api/retract", json={"reference": reference, "reason": reason})
        for reference, reason in ((marked, ""), (marked, "  "), ("9999", "wrong file"))
    ]

    assert [each.status_code for each in refused] == [400, 422, 404]
