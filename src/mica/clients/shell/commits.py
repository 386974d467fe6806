"""The commits a shell command made: their messages from the command, their hashes from what git printed."""

from __future__ import annotations

import re

import msgspec

COMMAND_CHARACTERS_MAX = 65_536  # a longer one writes files; commit messages are a thousandth of it

# Only where a command can begin. Options may stand between `git` and `commit`.
_COMMIT = re.compile(
    r"(?:^|[;&|(\n])[ \t]*+(?:\w+=\S*[ \t]++)*+git(?:[ \t]++-[cC][ \t]++\S++|[ \t]++-\S++)*+[ \t]++commit(?=\s|$)"
)
_WORD = re.compile(r"""(?:[ \t]|\\\n)*+((?:[^\s;&|()'"\\]++|'[^']*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\\.)++)""", re.DOTALL)
_PIECE = re.compile(r"""'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|\\.|[^'"\\]+""", re.DOTALL)
_ESCAPED = re.compile(r'\\([$`"\\])')
_EXPANDED = re.compile(r"(?<!\\)[$`]")
_HERE = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_PRINTED = re.compile(r"^\[[^\]\n]* ([0-9a-f]{7,40})\] (.*\S)", re.MULTILINE)  # [main 1a2b3c4] subject
_SHORT = re.compile(r"-[a-zA-Z]*m")
_QUIET = re.compile(r"-[a-zA-Z]*q[a-zA-Z]*$|--quiet$|[1&]?>")
_TRAILER = re.compile(r"(?:co-authored-by|signed-off-by|reviewed-by|claude-session):|🤖 generated with", re.IGNORECASE)


class Commit(msgspec.Struct, frozen=True):
    message: str
    sha: str | None = None  # as git printed it, mostly short


def commits(command: str, *, output: str, ok: bool) -> list[Commit]:
    """The commits that a command made, in order.

    What git printed is believed first. A command that silences git counts when it succeeded.
    """
    if "commit" not in command or len(command) > COMMAND_CHARACTERS_MAX:
        return []
    wanted = [_wanted(command, match.end()) for match in _COMMIT.finditer(command)]
    if not wanted:
        return []
    messages = {_subject(message): message for message, _ in wanted if message}
    if printed := _PRINTED.findall(output):
        return [Commit(messages.get(subject, subject), sha) for sha, subject in printed]
    return [Commit(message) for message, silent in wanted if ok and silent and message]


def _wanted(command: str, start: int) -> tuple[str | None, bool]:
    """The message that a `git commit` carries, where it can be read, and whether git's answer was hidden."""
    words: list[str] = []
    position = start
    while word := _WORD.match(command, position):
        words.append(word[1])
        position = word.end()
    if "--dry-run" in words:
        return None, False
    piped = command[position:].lstrip(" \t").startswith("|")
    silent = piped or any(_QUIET.match(word) for word in words)
    if here := _HERE.search(command, start, position):
        return _here_document(command, here), silent
    return _message(words), silent


def _message(words: list[str]) -> str | None:
    """The texts of -m and --message, a paragraph each; None when there is none or the shell fills it in."""
    texts: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--message" or _SHORT.fullmatch(word):
            texts.append(following)
        elif word.startswith(("--message=", "-m")):
            texts.append(word.removeprefix("--message=").removeprefix("-m"))
    plain = [_unquote(text) for text in texts]
    return None if None in plain else _tidy("\n\n".join(text for text in plain if text))


def _unquote(word: str) -> str | None:
    """A word as the shell passes it on; None when that depends on variables or other commands."""
    pieces: list[str] = []
    for piece in _PIECE.findall(word):
        if piece.startswith("'"):
            pieces.append(piece[1:-1])
        elif _EXPANDED.search(piece):
            return None
        elif piece.startswith('"'):
            pieces.append(_ESCAPED.sub(r"\1", piece[1:-1]))
        else:
            pieces.append(piece.removeprefix("\\"))
    return "".join(pieces)


def _here_document(command: str, here: re.Match[str]) -> str | None:
    begin = command.find("\n", here.end()) + 1
    end = re.compile(rf"^[ \t]*{here[2]}[ \t]*$", re.MULTILINE).search(command, begin) if begin else None
    return _tidy(command[begin : end.start()]) if end else None


def _tidy(message: str) -> str | None:
    """The message without trailers, which name people and programs."""
    lines = [line for line in message.strip().split("\n") if not _TRAILER.match(line.strip())]
    return "\n".join(lines).strip() or None


def _subject(message: str) -> str:
    """The first paragraph on one line, as git prints it."""
    return " ".join(line.strip() for line in message.split("\n\n", 1)[0].split("\n"))
