"""Access tokens, whose digests are stored in a file. A token has scopes, for all spaces or for some of them.

A token is shown once, when it is made. All servers of a user share the file, so a browser stays logged in when a server
is restarted.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from mica.disk import sync
from mica.errors import InvalidInput
from mica.model.event import Clock, utc_now
from mica.private_files import make_private_folder, open_private

TokenScope: TypeAlias = Literal["read", "write", "admin"]

SCOPES: tuple[TokenScope, ...] = ("read", "write", "admin")
EVERYDAY_SCOPES: tuple[TokenScope, ...] = (
    "read",
    "write",
)  # of a new token and of a browser, unless more are requested
FILE = "tokens.json"
PREFIX = "mica_"
TOKENS_MAX = 1_000  # of one user; beyond that, a program makes them in a loop
BROWSER_LIFETIME = timedelta(days=30)  # of the token in a browser's cookie


class AccessToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored form of a token: its digest, never the secret itself."""

    id: str
    digest: str
    name: str = ""
    scopes: tuple[TokenScope, ...] = SCOPES  # tokens from before there were scopes have none stored: they may do all
    spaces: tuple[str, ...] = ()  # the spaces it opens; all if empty
    made_at: datetime
    until: datetime | None = None  # when it expires

    def opens(self, space: str) -> bool:
        return not self.spaces or space in self.spaces

    def allows(self, scope: TokenScope) -> bool:
        return scope in self.scopes


class TokenFile:
    """The tokens of one user. A change is written to disk before it takes effect; other processes see it at once."""

    def __init__(self, home: Path, *, clock: Clock = utc_now) -> None:
        self._file = home / FILE
        self._clock = clock
        self._cache: tuple[tuple[int, int], list[AccessToken]] | None = None  # with the file's time and size

    def make(
        self,
        name: str = "",
        *,
        scopes: Iterable[TokenScope] = SCOPES,
        spaces: Sequence[str] = (),
        lifetime: timedelta | None = None,
        replaces: bool = False,
    ) -> tuple[str, AccessToken]:
        """Make a token. Returns its secret, which is not stored and cannot be shown again, and its stored form.

        The token opens the given `spaces`, or all if none are given. It expires after `lifetime`; by default, never.
        The scope admin includes the others. With `replaces`, tokens of the same name are revoked. Raises InvalidInput
        for a bad name, for unknown scopes or none, and for too many tokens.
        """
        if len(name) > 100 or not name.isprintable():
            raise InvalidInput(f"a token cannot be called {name[:60]!r}; give up to 100 printable characters")
        allowed = _complete(scopes)
        secret = PREFIX + secrets.token_urlsafe(32)
        now = self._clock()
        made = AccessToken(
            id=secrets.token_hex(4),
            digest=_digest(secret),
            name=name,
            scopes=allowed,
            spaces=tuple(spaces),
            made_at=now,
            until=None if lifetime is None else now + lifetime,
        )
        with self._edit() as tokens:
            tokens[:] = [
                token
                for token in tokens
                if (token.until is None or token.until > now) and not (replaces and token.name == name)
            ]
            if len(tokens) >= TOKENS_MAX:
                raise InvalidInput(f"there are {TOKENS_MAX} tokens already; `mica server token revoke` takes some back")
            tokens.append(made)
        return secret, made

    def find(self, secret: str) -> AccessToken | None:
        """Find the stored form of a token by its secret. None if it is unknown or has expired."""
        digest, now = _digest(secret), self._clock()
        for token in self._load():
            if secrets.compare_digest(token.digest, digest) and (token.until is None or token.until > now):
                return token
        return None

    def is_valid(self, token: AccessToken) -> bool:
        """Return True if a token is neither revoked nor expired."""
        return any(each.id == token.id for each in self.all())

    def all(self) -> list[AccessToken]:
        """List the valid tokens, oldest first."""
        now = self._clock()
        return [token for token in self._load() if token.until is None or token.until > now]

    def revoke(self, reference: str) -> AccessToken:
        """Revoke the token with this id or name. Raises InvalidInput if no token or several tokens match."""
        with self._edit() as tokens:
            matching = [token for token in tokens if reference in (token.id, token.name)]
            if len(matching) != 1:
                count = "no token is" if not matching else f"{len(matching)} tokens are"
                raise InvalidInput(f"{count} called {reference!r}; `mica server token list` shows their ids")
            tokens.remove(matching[0])
        return matching[0]

    def _load(self) -> list[AccessToken]:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return []
        state = (status.st_mtime_ns, status.st_size)
        if self._cache is None or self._cache[0] != state:
            try:
                self._cache = state, msgspec.json.decode(self._file.read_bytes(), type=list[AccessToken])
            except (OSError, msgspec.DecodeError) as error:
                raise InvalidInput(
                    f"cannot read {self._file}: {error}; repair or remove it, then make new tokens"
                ) from error
        return self._cache[1]

    @contextmanager
    def _edit(self) -> Iterator[list[AccessToken]]:
        """Lock the file and yield its tokens, to be changed in place. If the block succeeds, they are written."""
        make_private_folder(self._file.parent)
        lock = open_private(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = list(self._load())
            yield tokens
            fresh = self._file.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            descriptor = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(msgspec.json.format(msgspec.json.encode(tokens), indent=2))
                stream.flush()
                sync(stream.fileno())
            fresh.replace(self._file)
            self._cache = None
        finally:
            os.close(lock)


def _complete(scopes: Iterable[TokenScope]) -> tuple[TokenScope, ...]:
    """Return the scopes in order, with those that admin includes. Raises InvalidInput for unknown ones or none."""
    named = set(scopes)
    if not named or named - set(SCOPES):
        wrong = ", ".join(sorted(map(repr, named - set(SCOPES)))) or "none"
        raise InvalidInput(f"a token has at least one of the scopes {', '.join(SCOPES)}, not {wrong}")
    return SCOPES if "admin" in named else tuple(scope for scope in SCOPES if scope in named)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
