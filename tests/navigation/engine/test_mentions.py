"""Mentions: the files and lines that a prompt names."""

from __future__ import annotations

from tests.navigation.file_trees import PATHS

from mica.navigation.engine.mentions import TreeNames, find_mentions


def test_paths_are_found_in_every_notation() -> None:
    """A path may be absolute or relative, follow an @, stand in backticks, or be a Windows path."""
    names = TreeNames([*PATHS, "src/billing/invoice.py"])
    for written in (
        "see auth/session.py now",
        "@auth/session.py",
        "`./auth/session.py`",
        "/home/someone/shop/auth/session.py:12",
        r"C:\shop\auth\session.py",
        "a/auth/session.py",
        "(auth/session.py)",
    ):
        assert find_mentions(written, names).paths == {"auth/session.py": 1.0}, written
    assert find_mentions("in billing/invoice.py", names).paths == dict.fromkeys(
        ("billing/invoice.py", "src/billing/invoice.py"), 0.5
    )
    assert find_mentions("nothing.like this/at.all", names).paths == {}
    assert set(find_mentions("all of auth/ please", names).folders) == {"auth/session.py", "auth/redirect.py"}


def test_line_numbers_next_to_a_path_belong_to_it() -> None:
    names = TreeNames(PATHS)

    assert find_mentions("auth/session.py:40-92 loses it", names).lines == {"auth/session.py": ((40, 92),)}
    assert find_mentions("auth/session.py (lines 189-207)", names).lines == {"auth/session.py": ((189, 207),)}
    assert find_mentions("auth/session.py, 3 times", names).lines == {}


def test_a_symbol_mentions_the_files_that_define_it() -> None:
    named = find_mentions(
        "SessionCookie is lost", TreeNames(PATHS), lambda name: ["auth/session.py"] if name == "SessionCookie" else []
    )

    assert named.symbols == {"auth/session.py": 1.0}
