"""Who may come in: tokens, kept by their digests in one file of the data folder, each for all spaces or for some.

A token is shown once, when it is made. The same file serves every server of this user, so that a browser or a client
stays known when a server is started again.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import msgspec

from mica.errors import InvalidInput
from mica.model.event import Clock, utc_now

FILE = "tokens.json"
PREFIX = "mica_"
TOKENS_MAX = 1_000  # of one user; more are a loop that makes them
LAST_DAYS = timedelta(days=30)  # a browser is known for so long


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a token: never the token itself."""

    id: str
    digest: str
    name: str = ""
    spaces: tuple[str, ...] = ()  # that it opens; none named: all
    made_at: datetime
    until: datetime | None = None  # when it opens nothing any more

    def opens(self, space: str) -> bool:
        return not self.spaces or space in self.spaces


class Tokens:
    """The tokens of one user. Every change is on disk before it counts, and other processes see it at once."""

    def __init__(self, home: Path, *, clock: Clock = utc_now) -> None:
        self._file = home / FILE
        self._clock = clock
        self._read: tuple[tuple[int, int], list[Token]] | None = None  # by the file's time and size

    def make(
        self,
        name: str = "",
        *,
        spaces: Sequence[str] = (),
        lasting: timedelta | None = None,
        replaces: bool = False,
    ) -> tuple[str, Token]:
        """A new token, and what is kept of it. Nobody can be shown it again. It may replace those of its name."""
        if len(name) > 100 or not name.isprintable():
            raise InvalidInput(f"a token cannot be called {name[:60]!r}; give up to 100 printable characters")
        secret = PREFIX + secrets.token_urlsafe(32)
        now = self._clock()
        made = Token(
            id=secrets.token_hex(4),
            digest=_digest(secret),
            name=name,
            spaces=tuple(spaces),
            made_at=now,
            until=None if lasting is None else now + lasting,
        )
        with self._changing() as tokens:
            tokens[:] = [
                token
                for token in tokens
                if (token.until is None or token.until > now) and not (replaces and token.name == name)
            ]
            if len(tokens) >= TOKENS_MAX:
                raise InvalidInput(f"there are {TOKENS_MAX} tokens already; `mica token revoke` takes some back")
            tokens.append(made)
        return secret, made

    def of(self, secret: str) -> Token | None:
        """What a token opens; None when it is not known, or over."""
        digest, now = _digest(secret), self._clock()
        for token in self._load():
            if secrets.compare_digest(token.digest, digest) and (token.until is None or token.until > now):
                return token
        return None

    def holds(self, token: Token) -> bool:
        """Whether a token that opened something still does."""
        return any(kept.id == token.id for kept in self.all())

    def all(self) -> list[Token]:
        """Those that open something, oldest first."""
        now = self._clock()
        return [token for token in self._load() if token.until is None or token.until > now]

    def revoke(self, reference: str) -> Token:
        """Let the token of this id or name open nothing any more. Raises InvalidInput for none, and for several."""
        with self._changing() as tokens:
            found = [token for token in tokens if reference in (token.id, token.name)]
            if len(found) != 1:
                there = "no token" if not found else f"{len(found)} tokens"
                raise InvalidInput(f"{there} called {reference!r}; `mica token list` shows their ids")
            tokens.remove(found[0])
        return found[0]

    def _load(self) -> list[Token]:
        try:
            told = self._file.stat()
        except FileNotFoundError:
            return []
        state = (told.st_mtime_ns, told.st_size)
        if self._read is None or self._read[0] != state:
            try:
                self._read = state, msgspec.json.decode(self._file.read_bytes(), type=list[Token])
            except (OSError, msgspec.DecodeError) as error:
                raise InvalidInput(
                    f"cannot read {self._file}: {error}; mend or remove it, then make new tokens"
                ) from error
        return self._read[1]

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = list(self._load())
            yield tokens
            fresh = self._file.with_suffix(".new")
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(msgspec.json.format(msgspec.json.encode(tokens), indent=2))
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(self._file)
            self._read = None
        finally:
            os.close(lock)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
