"""Values match whole tokens, in any spelling, in linear time; a known value and its digest match alike."""

from __future__ import annotations

from datetime import timedelta
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.model.event import Tombstone
from mica.store.purged_values import Form, PurgedValue, SearchedText
from mica.store.purges import PurgeFilter, Selection
from mica.testing import build
from mica.testing.builders import START_AT, TOMBSTONE

HOST = "prod-web-01"


def matches(value: str, text: str, *, anywhere: bool = False) -> bool:
    """Whether a text matches; a stored purge, which knows only digests, gives the same answer."""
    found = PurgedValue(value, anywhere=anywhere).is_in(text)
    purge = Selection(value=value, anywhere=anywhere).to_purge(at=START_AT, tombstone=TOMBSTONE)
    assert purge is not None
    assert purge.is_in(SearchedText(text)) == found
    assert (PurgeFilter([purge]).find_purge(text) is not None) == found
    assert (purge.written_in(text) is not None) == found
    assert bool(list(PurgedValue(value, anywhere=anywhere).matches(SearchedText(text)))) == found
    assert purge.is_of(value)
    return found


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (
            HOST,
            [HOST, f"use {HOST}.", f"'{HOST}'", f"({HOST})", f"[{HOST},x]", f"/{HOST}/x", f"h={HOST};", f"{HOST}:80"],
        ),
        (HOST, [f"**{HOST}**", f"_{HOST}_", f"@{HOST}", f"#{HOST}!", f"{HOST}...and", f"{HOST}’s", f"<b>{HOST}</b>"]),
        (HOST, ["Prod-Web-1", "PROD_WEB_01", "prod web 01", "prodweb01", "prod-web-001", "pród-wéb-01", "prod‑web‑01"]),
        (HOST, [rf"a\n{HOST}\n", f"\x1b[31m{HOST}\x1b[0m", f"q=%20{HOST}", f"http://u:{HOST}@db/x", f"服务器{HOST}的"]),
        ("12345", ["12345", "id 12345.", "#12345", "012345", "a=12345&b", "12345%", "$12345", "12345,12346"]),
        ("anna@x.org", ["anna+news@x.org", "Anna@X.org", "<anna@x.org>", "mailto:anna@x.org.", "anna+a.b-c@x.org"]),
        ("anna+news@x.org", ["anna@x.org", "anna+other@x.org"]),
        ("Zürich", ["zurich", "ZÜRICH", "Zu\u0308rich", "Zürich's", "Zu\u00adrich"]),
        ("søren", ["Soren", "SØREN"]),
        ("straße", ["STRASSE", "Straße 5"]),
        ("10.0.1.12", ["10.0.1.12:80", "10.0.1.12/24", "10.0.01.012"]),
        ("4111111111111111", ["4111 1111 1111 1111", "4111-1111-1111-1111"]),
        ("4111 1111 1111 1111", ["4111111111111111"]),
        ("DE44500105175407324931", ["DE44 5001 0517 5407 3249 31"]),
        ("https://staging.proxy/a?b=c", ["see https://staging.proxy/a?b=c&d=1", "(https://staging.proxy/a?b=c)"]),
        ("a b, (c) d=e", ["x a b, (c) d=e y"]),
        ("山田太郎", ["山田太郎さん"]),
        ("김철수", ["김철수는"]),
        (".env", ["see .env", "./.env", "'.env'"]),
        ("0042", ["0042", "no 0042."]),
        ("p@ss!w0rd", ["PW=p@ss!w0rd", "ftp://u:p@ss!w0rd@h"]),
        ("$%&!", ["x$%&!y"]),
    ],
)
def test_a_value_matches_whole_tokens_in_any_spelling(value: str, texts: list[str]) -> None:
    """keeps: K-53. Accents, case, zeros before a number and tags of e-mail addresses do not count."""
    assert [text for text in texts if not matches(value, text)] == []
    assert [text for text in texts if value in text and not matches(value, text, anywhere=True)] == []


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (HOST, [f"{HOST}-backup", f"{HOST}1", f"{HOST}0", f"old-{HOST}", f"{HOST}.internal", f"{HOST}_x", f"x{HOST}"]),
        (HOST, ["prod-web-0", "prod-web-1-1", "prod-web-02", "prod-web", f"root@{HOST}"]),
        ("12345", ["123456", "112345", "1 2345", "12,345", "1-2345", "12345-6", "0.12345", "v12345", "12345km"]),
        ("anna@x.org", ["joanna@x.org", "bob.anna@x.org", "anna@x.org.uk", "anna@x.organ", "anna @y.org"]),
        ("news@x.org", ["anna+news@x.org"]),
        ("Zürich", ["Zürichsee", "Zür"]),
        ("10.0.1.12", ["10.0.11.2", "110.0.1.12", "10.0.1.120", "10.0.1.12.5", "100112"]),
        ("4111111111111111", ["41111111111111112", "4111,1111,1111,1111"]),
        ("0042", ["42", "00042", "10042"]),
        ("v1.1", ["v11", "v1.1.1", "v1.10"]),
        (".env", ["app.env", ".envrc"]),
        ("a-b-", ["A-B-", "xa-b-"]),
        ("山田太郎", ["山田花子"]),
    ],
)
def test_a_value_does_not_match_inside_of_a_longer_name_or_number(value: str, texts: list[str]) -> None:
    """keeps: K-53. Issue 18: `prod-web-01` must not take `prod-web-01-backup`, nor 12345 take 123456."""
    assert [text for text in texts if matches(value, text)] == []


def test_a_value_matches_inside_of_words_if_asked() -> None:
    """keeps: K-53. The match that is shown is the whole longer word."""
    for text in (f"{HOST}-backup", f"x{HOST}", f"{HOST.upper()}9", f"ä {HOST}é"):
        assert matches(HOST, text, anywhere=True)
    for text in ("prod-web-02", "prod-web-1-1"):
        assert not matches(HOST, text, anywhere=True)
    searched = SearchedText(f"on X{HOST}-backup and Prod-Web-01 or {HOST}")
    found = list(PurgedValue(HOST, anywhere=True).matches(searched))
    assert [each.text for each in found] == [f"X{HOST}-backup", "Prod-Web-01", HOST]
    assert (found[1].before, found[1].after) == (f"on X{HOST}-backup and ", f" or {HOST}")
    assert [each.text for each in PurgedValue(HOST).matches(searched)] == ["Prod-Web-01", HOST]


PIECES = st.lists(
    st.sampled_from(
        [HOST, "prod", "web", "01", "1", "-", "_", ".", "@", " ", "/", "+", "é", "山", "\\n", "%20", "://", "\u0301"]
    ),
    max_size=12,
).map("".join)


@given(value=PIECES.filter(lambda text: text.strip() != ""), before=PIECES, after=PIECES)
def test_a_value_is_always_found_between_blanks_and_alike_by_its_digest(value: str, before: str, after: str) -> None:
    """keeps: U-08"""
    assert matches(value, f"{before} {value} {after}") or not value.strip() or "\u0301" in value
    matches(value, before + value + after)
    matches(value, before + value + after, anywhere=True)


@pytest.mark.parametrize("form", ["exact", "folded", "regrouped"])
@pytest.mark.parametrize(
    "piece", ["lorem 12 dolor-sit ", "a+", "_", "-a", "://a", "\\n", HOST + "-", "é", "@", "+", "1 "]
)
def test_the_search_takes_linear_time(form: Form, piece: str) -> None:
    value = {"exact": "a-b", "folded": HOST, "regrouped": "4111111111111111"}[form]

    def seconds(size: int) -> float:
        """CPU time of this thread, the least of several tries: a busy machine only adds to it."""
        text = piece * (size // len(piece)) + "@"
        tries = []
        for _ in range(3):
            began = thread_time()
            PurgedValue(value).is_in(text)
            sum(1 for _ in SearchedText(text).parts(form, 9))
            tries.append(thread_time() - began)
        return min(tries)

    # Linear time is 40 times as much, quadratic time 1,600 times.
    assert seconds(80_000) < max(300 * seconds(2_000), 2.0)


def test_a_purge_is_allowed_again_in_every_spelling_that_it_matches() -> None:
    """keeps: K-53. In no other spelling."""
    for value, same, other in (
        (HOST, "Prod Web 1", f"{HOST}-backup"),
        ("4111111111111111", "4111 1111 1111 1111", "411111111111111"),
        ("US1", "US1", "us1"),
    ):
        purge = Selection(value=value).to_purge(
            at=START_AT + timedelta(days=1), tombstone=Tombstone(purge=build(9).id, reason="x")
        )
        assert purge is not None
        assert (purge.is_of(same), purge.is_of(other)) == (True, False)
