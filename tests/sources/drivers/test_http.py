"""Answers of HTTP servers: one GET, bounded, that follows to no other host and shows no secret."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.sources.scripted_sources import ABOUT, ask

from mica.errors import SourceFailed
from mica.sources.protocol import Concept, Partial
from mica.sources.registry import SourceRegistry
from mica.testing.provider import LocalServer, QuietConnection

Declare = Callable[..., SourceRegistry]
TOKEN = "Bearer " + "s3cr" + "et-token"
Reply = tuple[int, dict[str, str], bytes]


class Site(LocalServer):
    """A server on loopback whose pages a test sets. `asked` holds what was asked for, with its headers."""

    def __init__(self) -> None:
        self.pages: dict[str, Reply] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.hanging = threading.Event()
        site = self

        class Page(QuietConnection):
            def do_GET(self) -> None:
                site.asked.append(
                    (self.command, self.path, {name.lower(): each for name, each in self.headers.items()})
                )
                if self.path == "/hang":
                    site.hanging.wait()
                    return
                status, headers, body = site.pages.get(self.path, (404, {}, b"nothing here"))
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # the client had enough

        super().__init__(Page)

    def has(self, path: str, document: object, status: int = 200, **headers: str) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.pages[path] = (status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as made:
        yield made
        made.hanging.set()


def table(url: str, **keys: str) -> str:
    keys = {"timeout_s": "60", **keys}  # on a busy machine; a test of time gives another
    said = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return f'[sources.api]\ndriver = "http"\nurl = "{url}"\n{said}'


async def test_a_resource_is_fetched_selected_and_mapped(site: Site, declare: Declare) -> None:
    """keeps: C-01. The answer of a server is a source; headers may come from variables."""
    site.has("/judgments/abc123?kind=code_review", {"rows": [{"verdict": "GROWL", "sure": 0.5}, {"verdict": "WAG"}]})
    sources = declare(
        table(
            f"{site.address}/judgments/{{id}}?kind={{type}}",
            select='"$.rows[?@.sure]"',
            headers_env='{ Authorization = "API_TOKEN" }',
            headers='{ X-Shop = "one" }',
            fragment='{ key = "verdict", value = "{verdict}", confidence = "{sure}" }',
        ),
        API_TOKEN=TOKEN,
    )

    [said] = await ask(sources, "api")

    assert (said.key, said.value, said.confidence) == ("verdict", "GROWL", 0.5)
    assert said.locator == f"{site.address}/judgments/{{id}}#$['rows'][0]"
    [(method, path, headers)] = site.asked
    assert (method, path) == ("GET", "/judgments/abc123?kind=code_review")
    assert (headers["authorization"], headers["x-shop"], headers["accept-encoding"]) == (TOKEN, "one", "identity")


async def test_a_page_of_text_is_one_fragment(site: Site, declare: Declare) -> None:
    site.has("/state", "café is open".encode())
    sources = declare(table(f"{site.address}/state", format='"text"'))

    [said] = await ask(sources, "api")

    assert (said.key, said.text) == (str(ABOUT), "café is open")


async def test_a_not_found_answer_means_nothing_is_known(site: Site, declare: Declare) -> None:
    sources = declare(table(f"{site.address}/judgments/{{id}}"))

    assert list(await ask(sources, "api")) == []


@pytest.mark.parametrize(
    "identifier", ["../admin", "a/../../admin", "x?admin=1", "x#y", "@evil.example", "%2e%2e/admin", "a b"]
)
async def test_a_concept_id_cannot_change_the_address(identifier: str, site: Site, declare: Declare) -> None:
    """It is one quoted part of the path, whatever it contains."""
    sources = declare(table(f"{site.address}/judgments/{{id}}"))

    await ask(sources, "api", Concept("judgment", "code_review", identifier))

    [(_, path, _)] = site.asked
    assert path.startswith("/judgments/")
    assert "/" not in path.removeprefix("/judgments/")
    assert not set("?#") & set(path)


@pytest.mark.parametrize("identifier", [".", ".."])
async def test_an_id_with_parent_folders_is_refused(identifier: str, site: Site, declare: Declare) -> None:
    sources = declare(table(f"{site.address}/judgments/{{id}}"))

    with pytest.raises(SourceFailed, match="cannot be part of an address"):
        await ask(sources, "api", Concept("judgment", "code_review", identifier))

    assert site.asked == []


async def test_redirects_to_another_host_are_not_followed(site: Site, declare: Declare) -> None:
    """Bad input: redirects to other hosts, ports and schemes; no header of ours reaches them."""
    with Site() as other:
        for target in (
            f"{other.address}/x",
            f"//127.0.0.1:{other.port}/x",
            "https://127.0.0.1/x",
            "file:///etc/passwd",
        ):
            site.has("/here", b"", status=302, location=target)
            sources = declare(
                table(f"{site.address}/here", headers_env='{ Authorization = "API_TOKEN" }'), API_TOKEN=TOKEN
            )

            with pytest.raises(SourceFailed, match=r"redirects to another host, .*, which is not followed"):
                await ask(sources, "api")
        assert other.asked == []


async def test_redirects_on_the_same_host_are_followed_a_few_times(site: Site, declare: Declare) -> None:
    site.has("/here", b"", status=307, location="/there")
    site.has("/there", {"key": "a", "value": 1})
    site.has("/circle", b"", status=302, location="/circle")
    found = declare(table(f"{site.address}/here"))
    lost = declare(table(f"{site.address}/circle"))

    assert [each.value for each in await ask(found, "api")] == [1]
    with pytest.raises(SourceFailed, match="redirects more than 3 times"):
        await ask(lost, "api")


@pytest.mark.parametrize(
    ("document", "status", "headers", "reason"),
    [
        (b"{" * 2_000_000, 200, {}, r"more than bytes_max = 1,000,000; ask for less"),
        (b'{"a": "caf\xe9"}', 200, {}, "is not json in UTF-8"),
        (b"<html>", 200, {}, "is not json in UTF-8"),
        (b"[" * 100_000, 200, {}, "is not json in UTF-8"),
        (
            gzip.compress(b"[]", mtime=0),
            200,
            {"content_encoding": "gzip"},
            "answers in gzip, though plain bytes were asked for",
        ),
        (b"", 500, {}, "answers 500; try it with curl"),
        (b"", 401, {}, "answers 401; check the variables of headers_env"),
        (b"", 204, {}, "is not json"),
        (b"[]", 200, {"content_length": "nonsense"}, "does not answer"),
    ],
    ids=["too long", "latin 1", "html", "too deep", "compressed", "broken", "refused", "empty", "no length"],
)
async def test_an_unusable_answer_is_reported(
    document: bytes, status: int, headers: dict[str, str], reason: str, site: Site, declare: Declare
) -> None:
    site.has("/x", document, status=status, **headers)
    sources = declare(table(f"{site.address}/x"))

    with pytest.raises(SourceFailed, match=reason):
        await ask(sources, "api")


async def test_rows_over_the_limit_are_reported(site: Site, declare: Declare) -> None:
    site.has("/x", [{"key": str(number), "value": number} for number in range(100)])
    sources = declare(table(f"{site.address}/x", fragments_max="3"))

    said = await ask(sources, "api")

    assert len(said) == 3
    assert isinstance(said, Partial)
    assert "only the first 3 rows are used" in said.missing


async def test_a_hung_or_unreachable_server_is_reported(site: Site, declare: Declare) -> None:
    """keeps: TC-03. No caller waits longer than its deadline, nothing is left running, and closing ends."""
    hung = declare(table(f"{site.address}/hang", timeout_s="0.1"))
    away = declare(table("http://127.0.0.1:1/x"))

    with pytest.raises(SourceFailed, match=r"/hang (gave no answer within 0\.1 s|timed out)"):
        await ask(hung, "api")
    with pytest.raises(
        SourceFailed, match=r"http://127\.0\.0\.1:1/x does not answer \(ConnectError\); is it running\?"
    ):
        await ask(away, "api")
    [health] = await away.health()
    assert not health.is_there


async def test_a_cancelled_query_leaves_no_task(site: Site, declare: Declare) -> None:
    sources = declare(table(f"{site.address}/hang", timeout_s="60"))
    before = asyncio.all_tasks()
    asking = asyncio.ensure_future(ask(sources, "api"))
    while not site.asked:
        await asyncio.sleep(0)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await sources.close()

    assert asyncio.all_tasks() == before


async def test_no_error_shows_headers_or_query_strings(site: Site, declare: Declare) -> None:
    site.has(f"/x?key={TOKEN.split()[1]}", b"", status=403)
    sources = declare(
        table(f"{site.address}/x?key={TOKEN.split()[1]}", headers_env='{ Authorization = "API_TOKEN" }'),
        API_TOKEN=TOKEN,
    )

    with pytest.raises(SourceFailed, match="answers 403") as caught:
        await ask(sources, "api")

    for shown in (str(caught.value), repr(sources.explain(ABOUT)), repr(await sources.health())):
        assert TOKEN.split()[1] not in shown


async def test_an_unset_variable_is_named(site: Site, declare: Declare) -> None:
    sources = declare(table(f"{site.address}/x", headers_env='{ Authorization = "API_TOKEN" }'))

    with pytest.raises(SourceFailed, match="the variable 'API_TOKEN' that headers_env names is not set"):
        await ask(sources, "api")
    assert site.asked == []


async def test_a_host_that_gives_any_answer_is_reachable(site: Site, declare: Declare) -> None:
    sources = declare(table(f"{site.address}/judgments/{{id}}"))

    [health] = await sources.health()

    assert health.is_there
    assert health.detail == f"{site.address} answers 404"
