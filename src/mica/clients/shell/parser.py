"""Splits a shell command into words and operators, and finds the commits it made.

`shlex` cannot be used: it removes quotes, so a quoted `'|'` would look like a pipe and `'*.py'` like a pattern.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

PIECES_MAX = 4_096  # about one per word or operator; limits the time for a command with thousands of pipes


class ParseError(Exception):
    """Raised for a text that is not a shell command or exceeds the limits of the parser."""


class ShellToken(NamedTuple):
    """A word or an operator of a shell command."""

    text: str
    literal: bool = True  # False: it contains a glob or an expansion that only the shell can resolve
    operator: bool = False


STOP = ShellToken("", operator=True)  # parsing ends here
DIGITS = "0123456789"
_VARIABLE = re.compile(r"(?<!\\)\$[A-Za-z0-9_{@*#?$!-]")
_ESCAPED = re.compile(r'\\([$`"\\\n])')
_PIECE = re.compile(
    r"""
    (?P<blank>[ \t\r]+|\\\n)
  | (?P<hash>\#)
  | '(?P<single>[^']*)'
  | "(?P<double>(?:[^"\\`$]|\\.|\$(?!\())*+)"
  | (?P<variable>\$(?:[A-Za-z0-9_]+|[@*\#?$!-]|\{[^{}`$]*\}|'(?:[^'\\]|\\.)*+'))
  | (?P<stop>`|\$[({]|[<>]\(|\(\(|"(?:[^"\\`$]|\\.|\$(?!\())*+[`$])
  | (?P<operator>[0-9]*(?:<<<|<<-?|<&|<>|<|>>|>\||>&|>)|&>>?|&&|\|\||\|&|;;|[|&;()\n])
  | (?P<glob>[*?\[]|\{[^{}\s]*?(?:,|\.\.))
  | \\(?P<escaped>.)
  | (?P<plain>[^ \t\r\n'"\\$`*?\[{<>|&;()\#]+|[{$])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens_of(text: str) -> list[ShellToken]:
    """Return the words and operators of a command.

    At a substitution such as `$(…)` the list ends with STOP. Raises ParseError for a text that is not a command, or
    that has more than PIECES_MAX pieces.
    """
    tokens: list[ShellToken] = []
    documents: list[str] = []  # delimiters of the here-documents that begin on the next line
    position, pieces, in_word = 0, 0, False
    while position < len(text):
        piece = _PIECE.match(text, position)
        pieces += 1
        if piece is None or pieces > PIECES_MAX:
            raise ParseError
        position = piece.end()
        kind = piece.lastgroup or ""
        value = piece[kind]
        if kind == "stop":
            return [*tokens, STOP]
        if kind == "blank":
            in_word = False
        elif kind == "hash" and not in_word:
            position = _line_end(text, position)
        elif kind == "operator":
            in_word = False
            tokens.append(ShellToken(value, operator=True))
            if value == "\n":
                position = _skip_documents(text, position, documents)
                documents = []
        else:
            literal = kind not in ("variable", "glob")
            if kind == "double":
                literal = not _VARIABLE.search(value)
                value = _ESCAPED.sub(lambda pair: pair[1].strip("\n"), value)
            if in_word:
                before = tokens.pop()
                value, literal = before.text + value, before.literal and literal
            elif tokens and tokens[-1].operator and tokens[-1].text.lstrip(DIGITS) in ("<<", "<<-"):
                documents.append(value)
            tokens.append(ShellToken(value, literal))
            in_word = True
    return tokens


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _skip_documents(text: str, position: int, delimiters: Iterable[str]) -> int:
    for delimiter in delimiters:
        line = None
        while position < len(text) and line != delimiter:
            end = _line_end(text, position)
            line = text[position:end].strip("\t\r")
            position = end + 1
    return position


# -- Commits ---------------------------------------------------------------------------------------------

COMMAND_CHARACTERS_MAX = 65_536  # a longer command contains a file; commit messages are far shorter

# Matches only where a command can begin. There may be options between `git` and `commit`.
_COMMIT = re.compile(
    r"(?:^|[;&|(\n])[ \t]*+(?:\w+=\S*[ \t]++)*+git(?:[ \t]++-[cC][ \t]++\S++|[ \t]++-\S++)*+[ \t]++commit(?=\s|$)"
)
_WORD = re.compile(r"""(?:[ \t]|\\\n)*+((?:[^\s;&|()'"\\]++|'[^']*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\\.)++)""", re.DOTALL)
_QUOTED_PIECE = re.compile(r"""'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|\\.|[^'"\\]+""", re.DOTALL)
_ESCAPED_CHARACTER = re.compile(r'\\([$`"\\])')
_EXPANDED = re.compile(r"(?<!\\)[$`]")
_HERE = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_PRINTED = re.compile(r"^\[[^\]\n]* ([0-9a-f]{7,40})\] (.*\S)", re.MULTILINE)  # [main 1a2b3c4] subject
_SHORT = re.compile(r"-[a-zA-Z]*m")
_QUIET = re.compile(r"-[a-zA-Z]*q[a-zA-Z]*$|--quiet$|[1&]?>")
_TRAILER = re.compile(r"(?:co-authored-by|signed-off-by|reviewed-by|claude-session):|🤖 generated with", re.IGNORECASE)


class ShellCommit(msgspec.Struct, frozen=True):
    """A commit that a shell command made."""

    message: str
    sha: str | None = None  # as git printed it, mostly abbreviated


def commits(command: str, *, output: str, ok: bool) -> list[ShellCommit]:
    """Return the commits that a command made, in order.

    They are taken from git's output. If a `git commit` hides its output and the command was successful (`ok`), its
    message is taken from the command.
    """
    if "commit" not in command or len(command) > COMMAND_CHARACTERS_MAX:
        return []
    attempts = [_commit_at(command, match.end()) for match in _COMMIT.finditer(command)]
    if not attempts:
        return []
    messages = {_subject(message): message for message, _ in attempts if message}
    if printed := _PRINTED.findall(output):
        return [ShellCommit(messages.get(subject, subject), sha) for sha, subject in printed]
    return [ShellCommit(message) for message, silent in attempts if ok and silent and message]


def _commit_at(command: str, start: int) -> tuple[str | None, bool]:
    """Return the message of a `git commit` (None if it is not plain text), and True if git's output is hidden."""
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
    """Join the texts of `-m` and `--message` as paragraphs; None if there are none or one is not plain text."""
    texts: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--message" or _SHORT.fullmatch(word):
            texts.append(following)
        elif word.startswith(("--message=", "-m")):
            texts.append(word.removeprefix("--message=").removeprefix("-m"))
    plain = [_unquote(text) for text in texts]
    return None if None in plain else _tidy("\n\n".join(text for text in plain if text))


def _unquote(word: str) -> str | None:
    """Remove the quotes from a word, as the shell does; None if the word contains a variable or a command."""
    pieces: list[str] = []
    for piece in _QUOTED_PIECE.findall(word):
        if piece.startswith("'"):
            pieces.append(piece[1:-1])
        elif _EXPANDED.search(piece):
            return None
        elif piece.startswith('"'):
            pieces.append(_ESCAPED_CHARACTER.sub(r"\1", piece[1:-1]))
        else:
            pieces.append(piece.removeprefix("\\"))
    return "".join(pieces)


def _here_document(command: str, here: re.Match[str]) -> str | None:
    begin = command.find("\n", here.end()) + 1
    end = re.compile(rf"^[ \t]*{here[2]}[ \t]*$", re.MULTILINE).search(command, begin) if begin else None
    return _tidy(command[begin : end.start()]) if end else None


def _tidy(message: str) -> str | None:
    """Remove trailers such as `Co-authored-by:` from a message; None if nothing remains."""
    lines = [line for line in message.strip().split("\n") if not _TRAILER.match(line.strip())]
    return "\n".join(lines).strip() or None


def _subject(message: str) -> str:
    return " ".join(line.strip() for line in message.split("\n\n", 1)[0].split("\n"))
