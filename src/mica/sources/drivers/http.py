"""HTTP servers as sources: a GET request for each question. Only redirects within the same host are followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote, urlsplit

import msgspec

from mica.errors import SourceFailed
from mica.redact import redact
from mica.settings import Secret
from mica.sources.drivers.documents import Selecting, Selector
from mica.sources.drivers.live import Conditions
from mica.sources.drivers.rows import MappedRows
from mica.sources.drivers.tables import (
    About,
    Around,
    DeclaredSource,
    QueryTemplate,
    SourceQueryPreview,
    SourceTable,
    Where,
    parts_of,
)
from mica.sources.protocol import Concept
from mica.sources.threads import imported

if TYPE_CHECKING:
    import httpx2

BYTES_MAX = 1_000_000  # of one answer
CONNECTIONS_MAX = 4
REDIRECTS_MAX = 3
NOTHING_KNOWN = (404, 410)  # status codes of a resource that does not exist: the source has no statements

Address = Annotated[
    str, About(pattern=r"^https?://", description='an address, as in "https://host/judgments/{id}", or with ?id={id}')
]
Headers = Annotated[dict[str, str], About(description="a table of headers and their values; no secrets")]
HeaderVariables = Annotated[dict[str, str], About(description="a table of headers and the variables that hold them")]


class HttpTable(SourceTable, frozen=True, kw_only=True, tag="http"):
    """The settings of a source that reads a resource of an HTTP server."""

    url: Address
    select: Selector | None = None
    where: Conditions = msgspec.field(default_factory=dict)
    headers: Headers = msgspec.field(default_factory=dict)
    headers_env: HeaderVariables = msgspec.field(default_factory=dict)
    format: Annotated[Literal["json", "text"], About(description='"json" or "text"')] = "json"
    bytes_max: Annotated[int, About(ge=1, le=100_000_000, description="a number of bytes")] = BYTES_MAX


class HttpSource(DeclaredSource):
    """A source that sends one GET request to an HTTP server for each question."""

    driver = "http"
    needs = "httpx2"
    table: HttpTable

    def __init__(self, name: str, table: HttpTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._url = UrlAsking(table.url)
        self._where = Where(table.where)
        self._selecting = Selecting(name, table.select)
        self._headers = headers(table.headers, table.headers_env, around.variables)
        self._unset = sorted(each for each in table.headers_env.values() if each not in around.variables)
        self._client: httpx2.AsyncClient | None = None

    @property
    def place(self) -> str:
        return self._url.place

    async def query(self, concept: Concept, *, now: datetime) -> MappedRows:
        try:
            url = self._url.of(concept)
        except ValueError as error:
            raise SourceFailed(self.name, f"{error}; narrow `concepts` of [sources.{self.name}]") from error
        body = await self._fetch_body(url)
        if body is None:
            return MappedRows((), ())
        return await self.blocking(lambda: self._map(body, concept, now))

    def _map(self, body: bytes, concept: Concept, now: datetime) -> MappedRows:
        kind = self.table.format
        try:
            root = {"key": str(concept), "text": body.decode()} if kind == "text" else msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SourceFailed(
                self.name, f"{self.place} answers with a body that is not {kind} in UTF-8: {error}"
            ) from error
        return self.map_document(self._selecting.of(root), concept, self._where.of(concept), now=now)

    async def _fetch_body(self, url: str) -> bytes | None:
        """Return the body at an address; None if the server answers that there is no such resource.

        Raises SourceFailed for any other failure, such as an error status, a redirect to another host, or a long body.
        """
        client = await self._connected()
        with self._translated():
            for _ in range(REDIRECTS_MAX + 1):
                async with client.stream("GET", url) as response:
                    if not response.is_redirect:
                        return await self._read(response)
                    url = self._redirected(response.url, response.headers.get("location", ""))
        raise SourceFailed(self.name, f"{self.place} redirects more than {REDIRECTS_MAX} times; give the last address")

    async def _connected(self) -> httpx2.AsyncClient:
        await imported(self.pool, self.name, self.needs, extra="sources")
        if self._unset:
            raise SourceFailed(
                self.name, f"the variable {self._unset[0]!r} that headers_env names is not set; export it"
            )
        if self._client is None:
            self._client = made_client(self._headers, timeout_s=self.table.timeout_s)
        return self._client

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Return a context in which errors of the HTTP client are replaced by SourceFailed or TimeoutError.

        The messages of the client's errors are left out, because they may contain headers.
        """
        import httpx2

        try:
            yield
        except httpx2.TimeoutException as error:
            raise TimeoutError(type(error).__name__) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise SourceFailed(
                self.name, f"{self.place} does not answer ({type(error).__name__}); is it running?"
            ) from error

    def _redirected(self, url: httpx2.URL, location: str) -> str:
        target = url.join(location)
        if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
            raise SourceFailed(
                self.name,
                f"{self.place} redirects to another host, {target.scheme}://{target.host}, which is not followed; "
                "if this host is right, give its address as url",
            )
        return str(target)

    async def _read(self, response: httpx2.Response) -> bytes | None:
        if response.status_code in NOTHING_KNOWN:
            return None
        if not response.is_success:
            remedy = "check the variables of headers_env" if response.status_code in {401, 403} else "try it with curl"
            raise SourceFailed(self.name, f"{self.place} answers {response.status_code}; {remedy}")
        if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
            raise SourceFailed(self.name, f"{self.place} answers in {encoding}, though plain bytes were asked for")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self.table.bytes_max:
                raise SourceFailed(
                    self.name, f"{self.place} answers with more than bytes_max = {self.table.bytes_max:,}; ask for less"
                )
        return bytes(body)

    def explain(self, concept: Concept) -> SourceQueryPreview:
        sent = {f"header {each}": f"from ${variable}" for each, variable in self.table.headers_env.items()}
        return self.preview(f"GET {self._url.shown(concept)}", sent | self._where.of(concept))

    async def check(self) -> str:
        """Request the root page of the host, and return a sentence with the status code.

        Any status counts as an answer. Raises SourceFailed if the host does not answer.
        """
        parts = urlsplit(self.table.url)
        client = await self._connected()
        with self._translated():
            async with client.stream("GET", f"{parts.scheme}://{parts.netloc}/") as response:
                return f"{parts.scheme}://{parts.netloc} answers {response.status_code}"

    async def connect(self) -> None:
        await self._connected()  # sends no request: loading certificates takes the time

    async def close(self) -> None:
        open_client, self._client = self._client, None
        if open_client is not None:
            await open_client.aclose()


class UrlAsking:
    """A URL template. The parts of a concept are inserted into its path or its query, percent-encoded."""

    def __init__(self, text: str) -> None:
        """Raises ValueError if the host is missing or has a placeholder, or if the URL contains a user or password."""
        parts = urlsplit(text)
        if "{" in parts.netloc or not parts.hostname:
            raise ValueError(f"url = {parts.scheme}://{parts.netloc.rpartition('@')[2]}… must name a fixed host")
        if "@" in parts.netloc:
            raise ValueError(f"url holds a user or password for {parts.hostname}; use headers_env instead")
        self._asking = QueryTemplate(text)
        self.place = f"{parts.scheme}://{parts.netloc}{parts.path}"  # the query may contain a key

    def of(self, concept: Concept) -> str:
        """Return the URL for a concept.

        Raises ValueError if a part of the concept that is inserted is `.` or `..`, because that would change the path.
        """
        for name in self._asking.names:
            if (part := parts_of(concept)[name]) in {".", ".."}:
                raise ValueError(f"{part!r} cannot be part of an address")
        return self._asking.of(concept, quoted=lambda part: quote(part, safe=""))

    def shown(self, concept: Concept) -> str:
        """Return the URL for a concept in a form that may be shown to a person.

        The query of the URL shows only the values that contain a part of the concept. The other values may be secret
        keys and are replaced by `…`.
        """
        address, _, query = self.of(concept).partition("?")
        declared = self._asking.text.partition("?")[2]
        pairs = zip(declared.split("&"), query.split("&"), strict=True)  # the concept's parts are quoted
        visible = [redact(filled) if "{" in each else f"{each.partition('=')[0]}=…" for each, filled in pairs if each]
        return f"{address}?{'&'.join(visible)}" if visible else address


def headers(fixed: Mapping[str, str], named: Mapping[str, str], variables: Mapping[str, Secret]) -> dict[str, Secret]:
    """Return the headers to send, as secrets by name.

    `fixed` maps the names of headers to values. `named` maps the names of other headers to the names of environment
    variables, whose values are in `variables`. A header whose variable is not set is left out. Raises ValueError for a
    header with an invalid name or value.
    """
    found = dict(fixed) | {name: variables[each].reveal() for name, each in named.items() if each in variables}
    for name, value in found.items():
        if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
            raise ValueError(f"headers: {name!r:.60} is not a valid header name")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(
                f"header {name!r} has a value with characters that are not allowed in a header; correct it"
            )
    return {name: Secret(value) for name, value in found.items()}


def made_client(sent: Mapping[str, Secret], *, timeout_s: float) -> httpx2.AsyncClient:
    """Create an HTTP client that sends the headers `sent` with each request.

    It follows no redirects by itself, and ignores proxies and logins that are set in the environment.
    """
    import httpx2

    return httpx2.AsyncClient(
        headers={"accept-encoding": "identity", "user-agent": "mica"}
        | {name: each.reveal() for name, each in sent.items()},
        follow_redirects=False,
        trust_env=False,
        timeout=timeout_s,
        limits=httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
    )
