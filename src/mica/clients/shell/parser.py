"""A shell command as words and operators.

`shlex` would not do: it forgets what was quoted, so `grep '|' F` falls in two and `cat '*.py'` looks like a glob.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

PIECES_MAX = 4_096  # words and operators have about one each; keeps thousands of pipes to milliseconds


class ParseError(Exception):
    """No shell would take this, or it is beyond our limits."""


class Token(NamedTuple):
    text: str
    literal: bool = True  # False: a glob or an expansion decides at run time what stands here
    operator: bool = False


STOP = Token("", operator=True)  # understanding ends here
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


def tokens_of(text: str) -> list[Token]:
    """Words and operators; the last one is STOP where a substitution begins."""
    tokens: list[Token] = []
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
            tokens.append(Token(value, operator=True))
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
            tokens.append(Token(value, literal))
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
