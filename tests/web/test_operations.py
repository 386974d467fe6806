"""The API is as its own document says, also for whoever means harm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.web.server import web_server_at

import mica
from mica.cli import cli
from mica.format.documents import BUNDLES

JSON = "application/json"
EXAMPLES = 4  # of each operation and phase: some two thousand requests
PATIENCE_S = 600  # for one answer: how quick it is depends on what else the machine does
SETTINGS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]
"""  # 422: well-formed, and still not usable, as a text without a word to look for


def test_schemathesis_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation, with what fits its schema and with what does not: the server never fails or surprises."""
    monkeypatch.chdir(tmp_path)  # the tree that is navigated: of this clone it would take seconds to read
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    with web_server_at(tmp_path / "server", opening=mica.open) as server:
        client = httpx2.Client(base_url=server.base, headers={"authorization": f"Bearer {server.token}"})
        with client:
            mark = {"text": "The cookie is set before the redirect", "session": "s1", "agent": "scout"}
            assert client.post("/api/marks", json=mark).status_code == 200
            document = tmp_path / "openapi.json"
            told = client.get("/api/openapi.json").json()
            for path, methods in [*told["paths"].items()]:
                if not all(JSON in each["responses"]["200"]["content"] for each in methods.values()):
                    del told["paths"][path]  # an answer that does not end is not waited for
            document.write_text(json.dumps(told))
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", server.base),
            *("--header", f"Authorization: Bearer {server.token}", "--max-examples", str(EXAMPLES)),
            *("--phases", "examples,coverage,fuzzing", "--seed", "1", "--workers", "1", "--warnings", "off"),
            *("--request-timeout", str(PATIENCE_S)),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert "generated" in done.stdout


STREAMS = ("/api/stream", "/api/crystals/stream")
EVENTS = "text/event-stream"


@pytest.fixture
async def described(client: httpx2.AsyncClient) -> dict[str, Any]:
    document: dict[str, Any] = (await client.get("/api/openapi.json")).json()
    return document


def test_every_operation_is_described_and_names_what_it_answers(described: dict[str, Any]) -> None:
    for path, methods in described["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            media_type = {"/api/export": "application/x-ndjson"}.get(path, EVENTS if path in STREAMS else JSON)
            assert operation["responses"]["200"]["content"][media_type]["schema"], path
            assert "application/problem+json" in operation["responses"]["default"]["content"], path
    assert {"/api/spaces", "/api/export", *STREAMS} <= set(described["paths"])
    assert "/api/gateway" in described["info"]["description"]
    bundle = described["components"]["schemas"]["ResolveAsked"]["properties"]["bundle"]
    assert set(BUNDLES) < {name for each in bundle["anyOf"] for name in each.get("enum", [None])} | {None}


VERBS = set(
    "mark search brief why navigate crystallize crystals expand retract handoff teachings tick replay report doctor "
    "verify purge pin unpin sessions overview promote quality briefs warm".split()
)


def test_the_verbs_of_the_command_line_are_there(described: dict[str, Any]) -> None:
    """One word, one meaning: what a command does to a space can be asked over HTTP by the same name."""
    operations = {each["operationId"] for methods in described["paths"].values() for each in methods.values()}

    assert set(cli.commands) >= VERBS
    assert operations >= VERBS | {"allow", "emit", "events", "log", "tree", "impact", "errors", "resolve", "sizes"}
