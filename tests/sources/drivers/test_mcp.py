"""Other MCP servers: their resources and tools, over standard input and output or HTTP, by the official SDK."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from tests.sources.scripted_sources import ABOUT, NOW, ask

import mica
from mica.errors import SourceFailed
from mica.settings import Settings
from mica.sources.answer import ask_once
from mica.sources.drivers import mcp
from mica.sources.protocol import Concept
from mica.sources.registry import SourceRegistry

Declare = Callable[..., SourceRegistry]
TOKEN = "Bearer " + "s3cr" + "et-token"
SOON_S = 60  # to start a process on a busy machine

SERVER = """
import asyncio, os
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("shop")

@server.tool()
def judgments(kind: str, id: str) -> list[dict[str, object]]:
    return [{"key": "verdict", "value": "GROWL", "text": f"{kind} {id}", "token": os.environ.get("SHOP_TOKEN")}]

@server.tool()
def plain(id: str) -> str:
    return f"{id} is under review"

@server.tool()
def broken(id: str) -> str:
    raise ValueError("no such judgment")

@server.tool(annotations=ToolAnnotations(read_only_hint=False))
def delete(id: str) -> str:
    return "gone"

@server.tool()
async def hang(id: str) -> str:
    await asyncio.Event().wait()
    return ""

@server.tool()
def leave(id: str) -> str:
    os._exit(3)

@server.tool()
def huge(id: str) -> str:
    return "x" * 2_000_000

@server.resource("judgment://{kind}/{id}")
def judgment(kind: str, id: str) -> str:
    return '{"rows": [{"key": "verdict", "value": "%s of %s"}]}' % (kind, id)

server.run("stdio")
"""


@pytest.fixture
def declare_server(tmp_path: Path, declare: Declare, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SourceRegistry]:
    """Sources that start servers of their own: the keys of each, by name."""
    monkeypatch.setattr(mcp, "CONNECT_S", 2 * SOON_S)
    program = tmp_path / "server.py"
    program.write_text(SERVER)

    def declaring(variables: dict[str, str] | None = None, **tables: str) -> SourceRegistry:
        command = f'["{sys.executable}", "{program}"]'
        head = '[sources.{}]\ndriver = "mcp"\ncommand = {}\n{}\n'
        return declare("".join(head.format(name, command, keys) for name, keys in tables.items()), **(variables or {}))

    return declaring


def servers() -> list[psutil.Process]:
    """The servers that run beneath this process."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # one that has just ended
            if "server.py" in " ".join(each.cmdline()):
                found.append(each)
    return found


async def test_a_tool_is_called_with_the_parts_of_a_concept(declare_server: Callable[..., SourceRegistry]) -> None:
    """keeps: C-01. A tool of another server is a source; the environment variables it needs are passed by name."""
    sources = declare_server(
        {"SHOP_TOKEN": TOKEN, "OTHER": "not handed down"},
        shop="""
            timeout_s = 60
            tool = "judgments"
            arguments = { kind = "{type}", id = "{id}" }
            env = ["SHOP_TOKEN"]
            fragment = { text = "{text} {token}" }
        """,
    )

    [said] = await ask(sources, "shop")
    [again] = await ask(sources, "shop")
    [running] = servers()
    await sources.close()

    assert (said.key, said.value, said.text) == ("verdict", "GROWL", f"code_review abc123 {TOKEN}")
    assert again.text == said.text
    await asyncio.to_thread(running.wait, SOON_S)
    assert servers() == []


async def test_resources_are_read_and_plain_text_is_one_fragment(declare_server: Callable[..., SourceRegistry]) -> None:
    sources = declare_server(
        resource='resource = "judgment://{type}/{id}"\nselect = "$.rows[*]"\ntimeout_s = 60',
        plain='tool = "plain"\narguments = { id = "{id}" }\ntimeout_s = 60',
    )

    [said], [plain] = await asyncio.gather(ask(sources, "resource"), ask(sources, "plain"))
    [other] = await ask(sources, "resource", Concept("judgment", "code_review", "a/b?c"))

    assert said.value == "code_review of abc123"
    assert other.value == "code_review of a/b?c"
    assert (plain.key, plain.text) == (str(ABOUT), "abc123 is under review")


async def test_an_unusable_tool_is_reported(declare_server: Callable[..., SourceRegistry]) -> None:
    reasons = {
        "broken": "the tool 'broken' failed: Error executing tool broken",
        "delete": "the tool 'delete' says that it changes things; name one that only reads",
        "judgement": "has no tool 'judgement'; it has judgments",
        "huge": "answers with more than bytes_max = 1,000,000",
        "leave": "ended the connection",
    }
    sources = declare_server(
        **{name: f'tool = "{name}"\narguments = {{ id = "{{id}}" }}\ntimeout_s = 60' for name in reasons}
    )

    said = await asyncio.gather(*(ask_once(sources[name], ABOUT, now=NOW) for name in reasons))

    for tested, reason in zip(said, reasons.values(), strict=True):
        assert reason in tested.error


async def test_a_dead_server_is_restarted(declare_server: Callable[..., SourceRegistry]) -> None:
    """keeps: C-17. It is killed between two queries, and the next answer is complete."""
    sources = declare_server(shop='tool = "plain"\narguments = { id = "{id}" }\ntimeout_s = 60')
    assert len(await ask(sources, "shop")) == 1
    [running] = servers()

    running.kill()
    await asyncio.to_thread(running.wait, SOON_S)

    assert len(await ask(sources, "shop")) == 1
    [other] = servers()
    assert other.pid != running.pid


async def test_a_hung_tool_is_reported_and_the_session_survives(declare_server: Callable[..., SourceRegistry]) -> None:
    """keeps: TC-03. A cancelled caller returns at once; closing leaves no process and no task."""
    before = asyncio.all_tasks()
    sources = declare_server(shop='tool = "hang"\narguments = { id = "{id}" }\ntimeout_s = 60')
    async with asyncio.timeout(SOON_S):
        await sources["shop"].check()  # type: ignore[attr-defined]  # it is there
    asking = asyncio.ensure_future(ask(sources, "shop"))
    for _ in range(5):
        await asyncio.sleep(0)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await sources.close()

    assert servers() == []
    assert asyncio.all_tasks() == before


async def test_a_slow_start_is_finished_for_the_next_query(
    declare_server: Callable[..., SourceRegistry],
) -> None:
    sources = declare_server(shop='tool = "plain"\narguments = { id = "{id}" }\ntimeout_s = 0.01')

    with pytest.raises(SourceFailed, match=r"no answer within 0\.01 s"):
        await ask(sources, "shop")
    async with asyncio.timeout(SOON_S):
        assert "answers with protocol" in await sources["shop"].check()  # type: ignore[attr-defined]  # it goes on


async def test_a_missing_program_is_named(declare: Declare) -> None:
    sources = declare('[sources.shop]\ndriver = "mcp"\ncommand = ["no-such-program"]\ntool = "x"\ntimeout_s = 60\n')

    with pytest.raises(
        SourceFailed, match=r"the MCP server 'no-such-program' cannot be reached .*no program of this name"
    ):
        await ask(sources, "shop")


async def test_a_program_without_a_valid_answer_is_named(declare: Declare) -> None:
    sources = declare('[sources.shop]\ndriver = "mcp"\ncommand = ["true"]\ntool = "x"\ntimeout_s = 60\n')

    with pytest.raises(SourceFailed, match="cannot be reached"):
        await ask(sources, "shop")


async def test_our_own_server_is_a_source_of_another_space(tmp_path: Path, home: Settings, declare: Declare) -> None:
    """keeps: C-01. `mica mcp` of another project answers like any other server."""
    store = tmp_path / "other.db"
    async with mica.open(store, settings=home) as memory:
        memory.mark("abc123 was reviewed twice", tags=["gotcha"])
    library = Path(mica.__file__).parent.parent
    sources = declare(
        f'[sources.other]\ndriver = "mcp"\ncommand = ["{sys.executable}", "-m", "mica", "mcp", "--store", "{store}"]\n'
        'tool = "search"\narguments = { query = "{id}" }\ntimeout_s = 60\nenv = ["PYTHONPATH", "MICA_SEMANTIC"]\n'
        'select = "$.hits[*]"\nfragment = { key = "{number}", text = "{text}", at = "{at}" }\n',
        PYTHONPATH=str(library),
        MICA_SEMANTIC="off",
    )

    [said] = await ask(sources, "other")

    assert (said.key, said.text) == ("#1", "abc123 was reviewed twice")


@pytest.fixture
def hosted() -> Iterator[str]:
    """A server of the SDK over HTTP, on loopback, that wants a token."""
    made = MCPServer("shop")

    @made.tool(annotations=ToolAnnotations(read_only_hint=True))
    def judgments(id: str) -> list[dict[str, str]]:
        return [{"key": "verdict", "value": f"GROWL for {id}"}]

    application = made.streamable_http_app()

    async def guarded(scope: dict[str, object], receive: object, send: object) -> None:
        headers = dict(scope.get("headers", []))  # type: ignore[call-overload]  # pairs of bytes
        if scope["type"] == "http" and headers.get(b"authorization") != TOKEN.encode():
            scope = {**scope, "path": "/refused"}
        await application(scope, receive, send)  # type: ignore[arg-type]  # as the server hands them over

    server = uvicorn.Server(uvicorn.Config(guarded, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive(), "the server did not start"
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join(SOON_S)


async def test_a_server_over_http_gets_headers_from_variables(hosted: str, declare: Declare) -> None:
    text = (
        f'[sources.shop]\ndriver = "mcp"\nurl = "{hosted}"\ntool = "judgments"\narguments = {{ id = "{{id}}" }}\n'
        'timeout_s = 60\nheaders_env = { Authorization = "SHOP_TOKEN" }\n'
    )
    sources = declare(text, SHOP_TOKEN=TOKEN)
    refused = declare(text, SHOP_TOKEN=TOKEN + "x")
    unset = declare(text)

    [said] = await ask(sources, "shop")

    assert said.value == "GROWL for abc123"
    for other, reason in ((refused, "cannot be reached|refuses"), (unset, "the variable 'SHOP_TOKEN' is not set")):
        with pytest.raises(SourceFailed, match=reason) as caught:
            await ask(other, "shop")
        assert TOKEN.split()[1] not in str(caught.value)
