"""Access tokens: stored as digests, valid until they expire or are revoked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mica.errors import InvalidInput
from mica.settings import Settings
from mica.testing import HandClock
from mica.web.tokens import TokenFile


def test_only_digests_of_tokens_are_stored_and_tokens_expire(home: Settings, clock: HandClock) -> None:
    tokens = TokenFile(home.home, clock=clock)
    secret, _ = tokens.make("laptop", lifetime=timedelta(days=1))

    assert secret not in (home.home / "tokens.json").read_text()
    assert (home.home / "tokens.json").stat().st_mode & 0o077 == 0
    assert tokens.find(secret) is not None
    clock.move(days=2)
    assert tokens.find(secret) is None
    with pytest.raises(InvalidInput, match="no token"):
        tokens.revoke("desk")


def test_a_token_opens_only_the_spaces_it_names(home: Settings) -> None:
    tokens = TokenFile(home.home)

    assert tokens.make("all")[1].opens("shop")
    assert [tokens.make("one", spaces=["shop"])[1].opens(name) for name in ("shop", "other")] == [True, False]


def test_a_replacing_token_revokes_those_of_its_name(home: Settings) -> None:
    tokens = TokenFile(home.home)
    first, old = tokens.make("server")

    tokens.make("server", replaces=True)

    assert tokens.find(first) is None
    assert not tokens.is_valid(old)
    assert [token.name for token in tokens.all()] == ["server"]


def test_an_ambiguous_name_is_not_revoked(home: Settings) -> None:
    tokens = TokenFile(home.home)
    tokens.make("phone")
    tokens.make("phone")

    with pytest.raises(InvalidInput, match="2 tokens are called 'phone'"):
        tokens.revoke("phone")

    assert len(tokens.all()) == 2


def test_a_token_has_the_scopes_it_was_made_with(home: Settings) -> None:
    tokens = TokenFile(home.home)

    assert tokens.make("reader", scopes=["read"])[1].scopes == ("read",)
    assert tokens.make("both", scopes=["write", "read"])[1].scopes == ("read", "write")
    assert tokens.make("admin", scopes=["admin"])[1].scopes == ("read", "write", "admin"), "admin includes the others"
    assert [each.scopes for each in TokenFile(home.home).all()][:2] == [("read",), ("read", "write")]
    with pytest.raises(InvalidInput, match="at least one of the scopes read, write, admin, not none"):
        tokens.make("nothing", scopes=[])
