"""A store behind a server: `mica.open("http://…")`.

The journal stays here: what is emitted waits in segments of this machine until the server has taken it, so that nothing
is lost while the server is away.
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
from mica.store.addresses import recall, remember_space
from mica.store.leases import nothing_to_hear
from mica.store.listener import Listener
from mica.store.protocol import Store
from mica.store.remote.servers import notes
from mica.store.remote.wire import GENERATION, HERE, MEDIA_TYPE, PATH, PROBLEMS, About, Verb, verbs
from mica.store.space import shown

try:
    import httpx2
except ModuleNotFoundError as missing:
    raise StoreUnavailable("a server needs httpx2; install mica[client]") from missing

SCHEMES = ("http://", "https://")
CONNECT_S = 10  # beyond that the server or the way to it is down
PATIENCE_S = 120  # for one answer: a healthy one takes milliseconds
LONG_S = 3_600  # for one that looks at a whole space
LONG = ("age", "bury", "rebuild", "scrub", "verify")
CONNECTIONS_MAX = 8
STREAM = "/api/stream"
QUIET_S = 40.0  # of the stream: a server says every 15 s that it is there
REFUSED = (401, 403, 404)  # of the stream: asking again would be answered alike
ASKED_AGAIN = 3  # times at most, where the server asked for patience or an idle connection was closed


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What `http://host:port/?space=NAME` names. A password in it is a token."""

    base: str
    space: str | None
    token: str | None

    def __str__(self) -> str:
        return self.base + (f"/?space={quote(self.space)}" if self.space else "/")


def parse_address(text: str) -> Address:
    """The parts of an address. Raises InvalidInput."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(f"{shown(text)!r} is not an address: {error}") from error
    if not host or parts.path.strip("/"):
        raise InvalidInput(f"{shown(text)!r} is not the address of a server; it looks like http://127.0.0.1:6422")
    given = dict(parse_qsl(parts.query))
    if unknown := sorted(set(given) - {"space"}):
        raise InvalidInput(f"{shown(text)!r} has {unknown[0]!r}; only ?space=NAME is possible")
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    return Address(base=f"{parts.scheme}://{netloc}", space=given.get("space"), token=parts.password)


async def open_remote(text: str, *, settings: Settings, must_exist: bool = False) -> Store:
    """The store behind a server. One that was opened from here before opens also while the server is away.

    Raises StoreUnavailable when the server is away, AccessDenied when it does not let us in, and UnknownSpace.
    """
    address = parse_address(text)
    store = RemoteStore(address, token=_token(address, settings), home=settings.home)
    try:
        await store.meet(must_exist=must_exist)
    except BaseException:
        await store.close()
        raise
    return cast(Store, store)


def _token(address: Address, settings: Settings) -> str | None:
    """The token of the address, of MICA_TOKEN, or of a server that this user runs on this machine."""
    if address.token or settings.token is not None:
        return address.token or (settings.token.reveal() if settings.token else None)
    host = urlsplit(address.base).hostname or ""
    if host != "localhost" and not _is_loopback(host):
        return None
    port = urlsplit(address.base).port
    return next((note.token for note in notes(settings.home) if urlsplit(note.address).port == port), None)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class RemoteStore:
    """Every verb of `Store`, sent to a server. What the protocol says holds: the server's store keeps it."""

    def __init__(self, address: Address, *, token: str | None, home: Path) -> None:
        self._address = address
        self._home = home
        self._about = About(space="", location=str(address), generation=0)
        self._is_closed = False
        headers = {"content-type": MEDIA_TYPE} | ({"authorization": f"Bearer {token}"} if token else {})
        self._client = httpx2.AsyncClient(
            base_url=address.base,
            headers=headers,
            params={"space": address.space} if address.space else None,
            timeout=httpx2.Timeout(PATIENCE_S, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=CONNECTIONS_MAX),
            trust_env=False,  # no proxy, and no password of another program
        )
        self._listener = _StreamListener(self._client)

    async def meet(self, *, must_exist: bool) -> None:
        """Learn which space it is; of one that was met before, also while the server is away."""
        try:
            answer = await self._post(PATH, msgspec.msgpack.encode({"make": not must_exist}), timeout_s=PATIENCE_S)
        except AccessDenied:
            raise
        except StoreUnavailable:
            if (known := await asyncio.to_thread(recall, self._home, self._address)) is None:
                raise
            self._about = msgspec.structs.replace(self._about, space=known)
            return
        told = msgspec.msgpack.decode(answer, type=About)
        self._about = msgspec.structs.replace(told, location=str(self._address))
        await asyncio.to_thread(remember_space, self._home, self._address, told.space)

    @property
    def space(self) -> str:
        return self._about.space

    @property
    def location(self) -> str:
        return self._about.location

    @property
    def segments(self) -> Path | None:
        return self._home / "segments" / self.space

    @property
    def generation(self) -> int:
        return self._about.generation

    @property
    def hears(self) -> bool:
        return self._listener.is_listening

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        return nothing_to_hear(ring) if self._is_closed else self._listener.begin(ring)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if (verb := verbs().get(name)) is None:
            raise AttributeError(f"a store has no verb {name!r}")

        async def call(*args: object, **kwargs: object) -> object:
            given = verb.signature.bind(*args, **kwargs).arguments
            return await self._call(verb, {key: value for key, value in given.items() if key not in HERE})

        return call

    async def close(self) -> None:
        self._is_closed = True
        await self._listener.close()
        await self._client.aclose()

    async def _call(self, verb: Verb, given: dict[str, Any]) -> object:
        if verb.name == "append":
            for event in given["events"]:
                split_id(event.id)  # says what an id looks like, as every store does
        try:
            body = msgspec.msgpack.encode(given)
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidInput(f"what was given to `{verb.name}` is not usable: {error}") from error
        timeout_s = LONG_S if verb.name in LONG else PATIENCE_S
        answer = await self._post(f"{PATH}/{verb.name}", body, timeout_s=timeout_s, is_claim=verb.name == "claim")
        return msgspec.msgpack.decode(answer, type=verb.gives)

    async def _post(self, path: str, body: bytes, *, timeout_s: float, is_claim: bool = False) -> bytes:
        if self._is_closed:
            raise StoreUnavailable(f"{self.location} is closed")
        for left in reversed(range(ASKED_AGAIN)):
            try:
                answer = await self._client.post(path, content=body, timeout=timeout_s)
            except httpx2.TransportError as error:
                # Every verb may be asked twice; a claim, asked twice, would leave one that nobody knows of.
                if left and not is_claim and isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
                    continue
                reason = str(error) or type(error).__name__
                raise StoreUnavailable(
                    f"the server at {self._address.base} does not answer ({reason}); is `mica up` running there?"
                ) from error
            if answer.status_code == 429 and left:
                await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
                continue
            if not answer.is_success:
                self._fail(answer.status_code, answer.content)
            if (generation := answer.headers.get(GENERATION)) is not None:
                self._about = msgspec.structs.replace(self._about, generation=int(generation))
            return bytes(answer.content)
        raise StoreUnavailable(f"the server at {self._address.base} has too much to do; try again later")

    def _fail(self, status: int, content: bytes) -> NoReturn:
        """Raise what the server's store raised, or what its refusal means."""
        try:
            told = msgspec.json.decode(content, type=_Told)
        except msgspec.DecodeError:
            raise StoreUnavailable(f"{self._address.base} answered {status}; is it a mica server?") from None
        if status in (401, 403):
            raise AccessDenied(f"{self._address.base}: {told.detail}")
        kind = getattr(errors, told.type.removeprefix(PROBLEMS), None)
        if status == 400:
            raise InvalidEvent(f"this cannot be stored or asked for as it is: {told.detail}")
        if not (isinstance(kind, type) and issubclass(kind, MicaError)):
            raise StoreError(f"{self._address.base} answered {status}: {told.detail}")
        error = kind.__new__(kind)
        Exception.__init__(error, told.detail)
        vars(error).update(told.facts)
        raise error


class _StreamListener(Listener):
    """Rings for every event that the server streams."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        super().__init__((httpx2.HTTPError,))
        self._client = client

    async def _listen(self) -> bool:
        timeout = httpx2.Timeout(QUIET_S, connect=CONNECT_S)
        async with self._client.stream("GET", STREAM, params={"bundle": "minimal"}, timeout=timeout) as stream:
            if stream.status_code in REFUSED:
                return False
            stream.raise_for_status()  # it is stopping, or has too much to do: another time
            try:
                async for _ in stream.aiter_raw():  # the first says where it begins
                    self.is_listening = True
                    self._ring()
            finally:
                self.is_listening = False
        return True


class _Told(msgspec.Struct):
    """What a problem document says."""

    detail: str
    type: str = ""
    facts: dict[str, Any] = {}
