"""Reading files line by line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from mica.events import json_lines
from mica.events.json_lines import JsonLine, read_lines


def test_each_line_has_its_number_and_the_offset_after_it(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a":1}\n\n{"b"')

    assert list(read_lines(path)) == [
        JsonLine(1, 8, b'{"a":1}\n', whole=True, cut=False),
        JsonLine(2, 9, b"\n", whole=True, cut=False),
        JsonLine(3, 13, b'{"b"', whole=False, cut=False),
    ]


def test_an_open_file_is_read_from_its_current_position() -> None:
    file = io.BytesIO(b"one\ntwo\n")
    file.readline()

    assert [line.text for line in read_lines(file)] == [b"two\n"]


def test_a_line_over_the_limit_is_cut_and_the_next_one_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "LINE_BYTES_MAX", 4)

    assert list(read_lines(io.BytesIO(b"0123456789\nabc\n"))) == [
        JsonLine(1, 11, b"0123", whole=True, cut=True),
        JsonLine(2, 15, b"abc\n", whole=True, cut=False),
    ]


def test_a_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_lines(tmp_path / "gone.jsonl"))
