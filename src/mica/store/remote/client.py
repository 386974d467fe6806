"""The client of a store on a mica server: `mica.open("http://…")`.

New events wait in local files (segments) until the server has stored them, so nothing is lost while it is down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from mica import errors
from mica.errors import AccessDenied, InvalidEvent, InvalidInput, MicaError, StoreError, StoreUnavailable
from mica.model.event import split_id
from mica.settings import Settings
from mica.store.listener import Listener, SilentNotices
from mica.store.protocol import (
    AppendNotices,
    BeliefTable,
    ChainIndex,
    CrystalIndex,
    EventLog,
    PurgeLog,
    ReplyTable,
    Store,
    StoreFiles,
    TextIndex,
    TrailTable,
    VectorIndex,
    WorkQueue,
)
from mica.store.remote.servers import running_servers
from mica.store.remote.wire import GENERATION, LOCAL, MEDIA_TYPE, PATH, PROBLEMS, About, RoleMethod, roles
from mica.store.space import recall_space, remember_space, without_password

try:
    import httpx2
except ModuleNotFoundError as missing:
    raise StoreUnavailable("a server needs httpx2; install mica[client]") from missing

SCHEMES = ("http://", "https://")
CONNECT_S = 10  # after that the server or the network is down
PATIENCE_S = 120  # timeout of a call; a response usually takes milliseconds
LONG_S = 3_600  # for a call that reads a whole space
LONG = ("age", "bury", "rebuild", "scrub", "verify")  # the methods with this timeout
CONNECTIONS_MAX = 8
STREAM = "/api/events/follow"
QUIET_S = 40.0  # without data from the stream; a server sends a heartbeat every 15 s
REFUSED = (401, 403, 404)  # status codes of the event stream after which a retry is pointless
RETRIES_MAX = 3  # attempts in all, if a response says "busy" or an idle connection was closed


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed server address, `http://host:port/?space=NAME`. A password in the address is the access token."""

    base: str
    space: str | None
    token: str | None

    def __str__(self) -> str:
        return self.base + (f"/?space={quote(self.space)}" if self.space else "/")


def parse_address(text: str) -> ServerAddress:
    """Parse the address of a mica server. Raises InvalidInput for a malformed one."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(f"{without_password(text)!r} is not an address: {error}") from error
    if not host or parts.path.strip("/"):
        raise InvalidInput(
            f"{without_password(text)!r} is not the address of a server; it looks like http://127.0.0.1:6422"
        )
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(set(options) - {"space"}):
        raise InvalidInput(f"{without_password(text)!r} has {unknown[0]!r}; only ?space=NAME is allowed")
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    return ServerAddress(base=f"{parts.scheme}://{netloc}", space=options.get("space"), token=parts.password)


async def open_remote(text: str, *, settings: Settings, must_exist: bool = False) -> Store:
    """Open the store at a server address.

    While the server is down, a store that was opened from this machine before can still be opened; any other raises
    StoreUnavailable. Raises AccessDenied if the server rejects the token. With `must_exist`, a missing space raises
    UnknownSpace.
    """
    address = parse_address(text)
    store = RemoteStore(address, token=_token(address, settings), home=settings.home)
    try:
        await store.connect(must_exist=must_exist)
    except BaseException:
        await store.close()
        raise
    return store


def _token(address: ServerAddress, settings: Settings) -> str | None:
    """Return the access token: from the address, from the settings, or from the server that runs on this machine."""
    if address.token or settings.token is not None:
        return address.token or (settings.token.reveal() if settings.token else None)
    host = urlsplit(address.base).hostname or ""
    if host != "localhost" and not _is_loopback(host):
        return None
    port = urlsplit(address.base).port
    return next((note.token for note in running_servers(settings.home) if urlsplit(note.address).port == port), None)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class RemoteStore:
    """A `Store` whose roles forward every call to a server."""

    def __init__(self, address: ServerAddress, *, token: str | None, home: Path) -> None:
        self._address = address
        self._home = home
        self.about = About(space="", location=str(address), generation=0)
        self._is_closed = False
        headers = {"content-type": MEDIA_TYPE} | ({"authorization": f"Bearer {token}"} if token else {})
        self._client = httpx2.AsyncClient(
            base_url=address.base,
            headers=headers,
            params={"space": address.space} if address.space else None,
            timeout=httpx2.Timeout(PATIENCE_S, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=CONNECTIONS_MAX),
            trust_env=False,  # ignore proxies and the netrc file
        )
        self.log = cast(EventLog, RemoteRole(self, "log"))
        self.chains = cast(ChainIndex, RemoteRole(self, "chains"))
        self.texts = cast(TextIndex, RemoteRole(self, "texts"))
        self.vectors = cast(VectorIndex, RemoteRole(self, "vectors"))
        self.crystals = cast(CrystalIndex, RemoteRole(self, "crystals"))
        self.trails = cast(TrailTable, RemoteRole(self, "trails"))
        self.beliefs = cast(BeliefTable, RemoteRole(self, "beliefs"))
        self.replies = cast(ReplyTable, RemoteRole(self, "replies"))
        self.work = cast(WorkQueue, RemoteRole(self, "work"))
        self.files = cast(StoreFiles, RemoteRole(self, "files"))
        self.purges = cast(PurgeLog, RemotePurges(self))
        self._notices = RemoteNotices(self._client)
        self.notices: AppendNotices = self._notices

    async def connect(self, *, must_exist: bool) -> None:
        """Get the id of the space from the server, or while it is down, from the record of an earlier opening.

        The server creates a missing space, unless `must_exist` is True.
        """
        try:
            answer = await self._post(PATH, msgspec.msgpack.encode({"make": not must_exist}), timeout_s=PATIENCE_S)
        except AccessDenied:
            raise
        except StoreUnavailable:
            if (known := await asyncio.to_thread(recall_space, self._home, self._address)) is None:
                raise
            self.about = msgspec.structs.replace(self.about, space=known)
            return
        about = msgspec.msgpack.decode(answer, type=About)
        self.about = msgspec.structs.replace(about, location=str(self._address))
        await asyncio.to_thread(remember_space, self._home, self._address, about.space)

    @property
    def space(self) -> str:
        return self.about.space

    @property
    def location(self) -> str:
        return self.about.location

    @property
    def segments(self) -> Path | None:
        return self._home / "segments" / self.space

    async def close(self) -> None:
        self._is_closed = True
        await self._notices.close()
        await self._client.aclose()

    async def call(self, method: RoleMethod, arguments: dict[str, Any]) -> object:
        """Call a method of the server's store; returns its result or raises its error."""
        if method.name == "append":
            for event in arguments["events"]:
                split_id(event.id)  # raises the same error as every other store
        try:
            body = msgspec.msgpack.encode(arguments)
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidInput(f"the arguments of `{method.role}.{method.name}` are not usable: {error}") from error
        timeout_s = LONG_S if method.name in LONG else PATIENCE_S
        answer = await self._post(method.path, body, timeout_s=timeout_s, is_claim=method.name == "claim")
        return msgspec.msgpack.decode(answer, type=method.answer)

    async def _post(self, path: str, body: bytes, *, timeout_s: float, is_claim: bool = False) -> bytes:
        if self._is_closed:
            raise StoreUnavailable(f"{self.location} is closed")
        for retries_left in reversed(range(RETRIES_MAX)):
            try:
                answer = await self._client.post(path, content=body, timeout=timeout_s)
            except httpx2.TransportError as error:
                # Every call can be retried except a claim: a second one would leave the first without an owner.
                if retries_left and not is_claim and isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
                    continue
                reason = str(error) or type(error).__name__
                raise StoreUnavailable(
                    f"the server at {self._address.base} does not answer ({reason}); is `mica up` running there?"
                ) from error
            if answer.status_code == 429 and retries_left:
                await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
                continue
            if not answer.is_success:
                self._fail(answer.status_code, answer.content)
            if (generation := answer.headers.get(GENERATION)) is not None:
                self.about = msgspec.structs.replace(self.about, generation=int(generation))
            return bytes(answer.content)
        raise StoreUnavailable(f"the server at {self._address.base} is overloaded; try again later")

    def _fail(self, status: int, content: bytes) -> NoReturn:
        """Raise the exception that an error response describes."""
        try:
            problem = msgspec.json.decode(content, type=ProblemBody)
        except msgspec.DecodeError:
            raise StoreUnavailable(f"{self._address.base} answered {status}; is it a mica server?") from None
        if status in (401, 403):
            raise AccessDenied(f"{self._address.base}: {problem.detail}")
        kind = getattr(errors, problem.type.removeprefix(PROBLEMS), None)
        if status == 400:
            raise InvalidEvent(f"the server rejected the request: {problem.detail}")
        if not (isinstance(kind, type) and issubclass(kind, MicaError)):
            raise StoreError(f"{self._address.base} answered {status}: {problem.detail}")
        error = kind.__new__(kind)
        Exception.__init__(error, problem.detail)
        vars(error).update(problem.facts)
        raise error


class RemoteRole:
    """A role of a store, such as `EventLog`, whose methods are calls to the server.

    Results are decoded by the type annotations of the role's protocol.
    """

    def __init__(self, store: RemoteStore, role: str) -> None:
        self._store = store
        self._methods = roles()[role]

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if (method := self._methods.get(name)) is None:
            raise AttributeError(f"the role has no method {name!r}")

        async def call(*args: object, **kwargs: object) -> object:
            arguments = method.signature.bind(*args, **kwargs).arguments
            sent = {key: value for key, value in arguments.items() if key not in LOCAL}
            return await self._store.call(method, sent)

        return call


class RemotePurges(RemoteRole):
    """`PurgeLog` on a server. `generation` is the value in the last response of the server."""

    def __init__(self, store: RemoteStore) -> None:
        super().__init__(store, "purges")

    @property
    def generation(self) -> int:
        return self._store.about.generation


class RemoteNotices:
    """`AppendNotices` on a server. The notifications come from its event stream."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._listener = _StreamListener(client)
        self._is_closed = False

    @property
    def is_live(self) -> bool:
        return self._listener.is_listening

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        return SilentNotices().listen(ring) if self._is_closed else self._listener.begin(ring)

    async def close(self) -> None:
        self._is_closed = True
        await self._listener.close()


class _StreamListener(Listener):
    """Notifies listeners of every event that the server streams."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        super().__init__((httpx2.HTTPError,))
        self._client = client

    async def _listen(self) -> bool:
        timeout = httpx2.Timeout(QUIET_S, connect=CONNECT_S)
        async with self._client.stream("GET", STREAM, params={"bundle": "minimal"}, timeout=timeout) as stream:
            if stream.status_code in REFUSED:
                return False
            stream.raise_for_status()  # stopping or overloaded: retry later
            try:
                async for _ in stream.aiter_raw():  # the first chunk gives the start position
                    self.is_listening = True
                    self._ring()
            finally:
                self.is_listening = False
        return True


class ProblemBody(msgspec.Struct):
    """The JSON body of an error response."""

    detail: str
    type: str = ""
    facts: dict[str, Any] = {}
