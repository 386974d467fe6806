"""The HTTP API matches its OpenAPI document, for well-formed and for hostile requests."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.web.server import web_server_at

import mica
from mica.beliefs.api import Beliefs
from mica.brief.api import Briefs
from mica.cli import cli
from mica.cli.groups import command_paths
from mica.crystals.api import Crystals
from mica.events.api import Events
from mica.format.documents import BUNDLES
from mica.memory import Memory
from mica.navigation.api import Trails
from mica.sources.api import Sources
from mica.store.target import open_store
from mica.upkeep.api import Upkeep
from mica.web.memory_pool import MemoryPool
from mica.web.operations import API_VERSION, VERSION_HEADER

JSON = "application/json"
EXAMPLES = 4  # per operation and phase: about two thousand requests
PATIENCE_S = 600  # for one answer, on a busy machine
SETTINGS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]
"""  # 422: well-formed but not usable, such as a query without a word


def test_schemathesis_finds_no_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server handles valid and invalid requests to every operation as its schema says."""
    monkeypatch.chdir(tmp_path)  # the tree to navigate; reading this repository would take seconds
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    with web_server_at(tmp_path / "server", open_store=open_store) as server:
        client = httpx2.Client(base_url=server.base, headers={"authorization": f"Bearer {server.token}"})
        with client:
            mark = {"text": "The cookie is set before the redirect", "session": "s1", "agent": "scout"}
            assert client.post("/api/mark", json=mark).status_code == 200
            document = tmp_path / "openapi.json"
            description = client.get("/api/openapi.json").json()
            for path, methods in [*description["paths"].items()]:
                if not all(JSON in each["responses"]["200"]["content"] for each in methods.values()):
                    del description["paths"][path]  # a stream never ends
            document.write_text(json.dumps(description))
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", server.base),
            *("--header", f"Authorization: Bearer {server.token}", "--max-examples", str(EXAMPLES)),
            *("--phases", "examples,coverage,fuzzing", "--seed", "1", "--workers", "1", "--warnings", "off"),
            *("--request-timeout", str(PATIENCE_S)),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert "generated" in done.stdout


STREAMS = ("/api/events/follow", "/api/crystals/stream")
EVENTS = "text/event-stream"


@pytest.fixture
async def document(client: httpx2.AsyncClient) -> dict[str, Any]:
    openapi: dict[str, Any] = (await client.get("/api/openapi.json")).json()
    return openapi


def test_every_operation_has_a_summary_and_response_schemas(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            media_type = {"/api/events/export": "application/x-ndjson"}.get(path, EVENTS if path in STREAMS else JSON)
            assert operation["responses"]["200"]["content"][media_type]["schema"], path
            assert "application/problem+json" in operation["responses"]["default"]["content"], path
    assert {"/api/server/spaces", "/api/events/export", *STREAMS} <= set(document["paths"])
    assert "/api/gateway" in document["info"]["description"]
    bundle = document["components"]["schemas"]["ResolveRequest"]["properties"]["bundle"]
    assert set(BUNDLES) < {name for each in bundle["anyOf"] for name in each.get("enum", [None])} | {None}


EVERYDAY = {"emit", "mark", "search", "brief", "navigate", "handoff", "why", "correct", "retract", "purge", "doctor"}
PACKAGE_CLASSES: dict[str, type] = {
    "events": Events,
    "beliefs": Beliefs,
    "crystals": Crystals,
    "trails": Trails,
    "sources": Sources,
    "briefs": Briefs,
    "upkeep": Upkeep,
}
PACKAGES = {*PACKAGE_CLASSES, "server"}


def test_paths_are_the_names_of_the_python_interface(document: dict[str, Any]) -> None:
    """Everyday verbs are `/api/<verb>`, the others `/api/<package>/<verb>`; the operation id is the Python name."""
    names = set()
    for path, methods in document["paths"].items():
        [operation] = methods.values()
        assert path == "/api/" + operation["operationId"].replace(".", "/")
        names.add(operation["operationId"])

    assert {name for name in names if "." not in name} == EVERYDAY
    assert {name.partition(".")[0] for name in names if "." in name} == PACKAGES
    assert all(name.count(".") <= 1 for name in names)


# Operations without a method of their own in Python, and why.
NOT_METHODS = {
    "doctor": "combines methods of `upkeep` and `events`, as the command does",
    "events.compare": "a pure function of two chains, which both come from `events.chain`",
    "server.spaces": "about the server, not about one memory",
}


def _returned_class(package: str) -> str:
    """The class that an attribute of `Memory` returns."""
    attribute = inspect.getattr_static(Memory, package)
    getter = attribute.fget if isinstance(attribute, property) else attribute.func
    assert getter is not None
    return str(inspect.signature(getter).return_annotation)


def test_every_operation_is_a_method_of_memory_or_of_its_package(document: dict[str, Any]) -> None:
    """The same verb on every surface: `/api/events/query` is `memory.events.query`."""
    names = {operation["operationId"] for methods in document["paths"].values() for operation in methods.values()}
    classes = {**PACKAGE_CLASSES, "": Memory, "server": object}

    without_method = {
        name for name in names for package, _, verb in [name.rpartition(".")] if not hasattr(classes[package], verb)
    }

    assert without_method == set(NOT_METHODS)
    for package, cls in PACKAGE_CLASSES.items():
        assert _returned_class(package) == cls.__name__


SHARED = (
    "mark search brief navigate handoff why purge doctor briefs.quality "
    "beliefs.list beliefs.add beliefs.correct beliefs.confirm beliefs.end "
    "crystals.list crystals.make crystals.expand crystals.promote crystals.stream crystals.teachings "
    "events.query events.chain events.compare events.failures events.follow events.impact events.overview "
    "sources.gather sources.health sources.judge sources.warm "
    "trails.create trails.explore trails.learn trails.list trails.load trails.replay trails.report trails.show "
    "trails.stats trails.track upkeep.pin upkeep.tick upkeep.unpin upkeep.verify"
).split()


def test_what_a_command_does_to_a_space_has_the_same_name_over_http(document: dict[str, Any]) -> None:
    """One word has one meaning: `mica crystals promote` is `/api/crystals/promote`."""
    operations = {operation["operationId"] for methods in document["paths"].values() for operation in methods.values()}
    commands = {".".join(path) for path in command_paths(cli)}

    assert operations & commands == set(SHARED)


async def test_every_answer_names_the_version_of_the_api(client: httpx2.AsyncClient) -> None:
    answered = await client.get("/api/events/query")
    unknown = await client.get("/api/nothing")
    same = await client.get("/api/events/query", headers={VERSION_HEADER: API_VERSION})

    assert [each.headers[VERSION_HEADER] for each in (answered, unknown, same)] == [API_VERSION] * 3
    assert same.status_code == 200


async def test_a_request_for_another_version_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/mark", json={"text": "x"}, headers={VERSION_HEADER: "99"})

    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert "version 1 of the API, not '99'" in answer.json()["detail"]
    assert (await client.get("/api/events/query")).json() == {"events": []}


async def test_a_request_continues_the_trace_of_its_sender(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    memory = await pool.memory()
    with memory.context(session="s1", agent="scout"):
        root = memory.emit("task.begun", {})
        with memory.context(parent=root):
            headers = memory.carrier()
    await client.post("/api/emit", json={"events": [{"name": "file.read"}]}, headers=headers)

    [event] = await memory.events.query(mica.EventQuery(names=("file.read",)))
    assert event.parent_id == root.id
    assert event.context.session == "s1"


async def test_a_matching_etag_is_answered_with_304(client: httpx2.AsyncClient) -> None:
    first = await client.get("/api/events/query")
    again = await client.get("/api/events/query", headers={"if-none-match": first.headers["etag"]})
    await client.post("/api/emit", json={"events": [{"name": "step"}]})
    later = await client.get("/api/events/query", headers={"if-none-match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert later.status_code == 200


async def test_a_body_that_is_not_json_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/mark", content=b"text=x", headers={"content-type": "text/plain"})

    assert answer.status_code == 415
