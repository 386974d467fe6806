"""Secrets out of text, before it is stored.

Every pattern begins with a literal and either consumes a whole run of its characters or stops within a few,
so the cost is linear in the text. A replacement never looks like a secret and never makes its neighbour
look like one, so redacting twice gives the same text; for that, no kind may contain a key word of _KEY.
"""

import re
from functools import partial
from typing import NamedTuple


class Pattern(NamedTuple):
    """One kind of secret. A group named `before` is kept."""

    kind: str
    hints: tuple[str, ...]  # lower case; a text without any of them costs no more than looking for them
    regex: re.Pattern[str]


_APART = r"(?<![A-Za-z0-9])"

PATTERNS = (
    Pattern(
        "pem",
        ("private key",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{0,60}-----"
            r"|(?:(?:\s|\\[nr])++[A-Za-z0-9+/=]{20,}+)++)"  # the text was cut before the end of the key
        ),
    ),
    Pattern("aws", ("akia", "asia"), re.compile(_APART + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])")),
    Pattern(
        "aws",
        ("aws_secret",),
        re.compile(
            r"(?i:(?P<before>aws_secret_access_key\\{0,3}[\"']?\s{0,4}[=:]\s{0,4}\\{0,3}[\"']?))"
            r"[A-Za-z0-9/+=]{40}(?![A-Za-z0-9/+=])"
        ),
    ),
    Pattern("github", ("ghp_", "gho_", "ghs_", "ghu_", "ghr_"), re.compile(_APART + r"gh[opsru]_[A-Za-z0-9]{20,}")),
    Pattern("github", ("github_pat_",), re.compile(_APART + r"github_pat_[A-Za-z0-9_]{22,}")),
    Pattern("gitlab", ("glpat-",), re.compile(_APART + r"glpat-[A-Za-z0-9_-]{20,}")),
    Pattern("slack", ("xox",), re.compile(_APART + r"xox[abeoprs]-[A-Za-z0-9-]{10,}")),
    Pattern("stripe", ("k_live_",), re.compile(_APART + r"[rs]k_live_[A-Za-z0-9]{10,}")),
    Pattern("anthropic", ("sk-ant-",), re.compile(_APART + r"sk-ant-[A-Za-z0-9_-]{20,}")),
    Pattern("openai", ("sk-",), re.compile(_APART + r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}")),
    # Others begin with sk- too, CSS classes among them; a key is one run with a digit early in it.
    Pattern("openai", ("sk-",), re.compile(_APART + r"sk-(?:or-v1-)?(?=[A-Za-z]{0,19}[0-9])[A-Za-z0-9]{20,}")),
    Pattern("google", ("aiza",), re.compile(_APART + r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])")),
    Pattern("npm", ("npm_",), re.compile(_APART + r"npm_[A-Za-z0-9]{36,}")),
    Pattern("pypi", ("pypi-age",), re.compile(_APART + r"pypi-AgE[A-Za-z0-9_-]{30,}")),
    Pattern("huggingface", ("hf_",), re.compile(_APART + r"hf_[A-Za-z0-9]{30,}")),
    # Looks back for all characters of its first part, or each eyJ within one long run would read to its end.
    Pattern(
        "jwt",
        ("eyj",),
        re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{4,}+){2,4}"),
    ),
    Pattern(
        "header",
        ("authorization",),
        re.compile(
            r"(?i)(?P<before>authorization\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}\\{0,3}[\"']?"
            r"(?:bearer|basic|token)\s{1,4})[A-Za-z0-9._~+/=-]{8,}"
        ),
    ),
    Pattern(
        "flag",  # --password VALUE, as typed on a command line
        ("--",),
        re.compile(
            r"(?i)(?P<before>(?<![\w-])--(?:[a-z]{1,20}-)?(?:passw(?:or)?d|passphrase|token|secret|api-key)\s[\"']?)"
            r"(?![-$<{%\[\"'])[^\s\"'`;|&]{8,}"
        ),
    ),
    Pattern(
        "flag",  # mysql -pVALUE, sshpass -p VALUE
        ("mysql", "mariadb", "sshpass"),
        re.compile(
            r"(?P<before>\b(?:(?:mysql|mariadb)\w{0,10}\s[^\n|;&]{0,200}?(?<=\s)-p|sshpass\s+-p\s*)[\"']?)"
            r"(?![-\s$<{%\[\"'])[^\s\"';|&]{4,}"
        ),
    ),
    Pattern(
        "login",  # curl -u name:VALUE
        ("curl",),
        re.compile(
            r"(?P<before>\bcurl\s[^\n|;&]{0,200}?(?<=\s)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:)"
            r"(?![$<{%\[])[^\s\"']{3,256}"
        ),
    ),
    Pattern(
        "credential",  # NAME_PASSWORD=VALUE, up to the next blank
        ("password=", "passwd=", "secret=", "token=", "key="),
        re.compile(
            r"(?P<before>(?<![A-Za-z0-9_&?])(?:[A-Z0-9]{1,30}_){0,6}(?:PASSWORD|PASSWD|SECRET|TOKEN|API_KEY)=)"
            r"(?![$<{%\[(*\"']|(?i:x{4}|changeme|your|none|null|true|false))[^\s\"'`]{6,}"
        ),
    ),
    Pattern(
        "url",
        ("://",),
        re.compile(r"(?P<before>://[^\s/?#:@\[\]\"'<>]{0,128}:)(?![$<{*]|\[redacted:)[^\s/?#@\"'<>]{1,256}(?=@)"),
    ),
)

_KEY = re.compile(
    r"""(?i:
        (?P<key>passw(?:or)?d|passphrase|secret(?:[_-]?(?:access[_-]?)?key(?:_base)?)?|token|api[_-]?key
            |private[_-]?key)
        [0-9]{0,2}(?![A-Za-z0-9_-])
        \\{0,3}["'`]?\]?                                                    # "password", config['password']
        (?P<gap>\s{0,4}
            (?::\s{0,4}[A-Za-z_][A-Za-z0-9_.\[\]]{0,40}(?:\s?\|\s?None)?\s{0,4}=(?!=)  # password: str = …
            |=>|:=|=(?!=)|:(?!:))
            \s{0,4})
        \\{0,3}
        (?:"(?P<double>[^"\s]{8,})"|'(?P<single>[^'\s]{8,})'|`(?P<back>[^`\s]{8,})`
            |(?P<bare>[^\s"'`,;()\[\]{}<>&\\]{6,}))
    )""",
    re.VERBOSE,
)
_KEY_HINTS = ("passw", "passphrase", "secret", "token", "apikey", "api_key", "api-key", "private")

_PLACEHOLDER = re.compile(
    r"\[redacted:|\$[A-Za-z_{(]|[<{]|%[(s]|(?:your|example|placeholder|dummy|changeme|insert|replace)[_-]"
    r"|(?:undefined|changeme|placeholder|redacted)$",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?://[^=]*|[.~]{0,2}(?:/[a-z0-9_.-]+)+/?")  # a token endpoint, a file with a secret
_WORDS = re.compile(r"[A-Za-z_.:|&?!*/-]+")  # a type, a name, prose
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


_HINTS = [
    *((hint, number) for number, pattern in enumerate(PATTERNS) for hint in pattern.hints),
    *((hint, len(PATTERNS)) for hint in _KEY_HINTS),
]


def redact(text: str) -> str:
    """The text with every known kind of secret replaced by `[redacted:<kind>]`."""
    hints = text.lower()
    hinted = {number for hint, number in _HINTS if hint in hints}
    for number in sorted(hinted):
        if number == len(PATTERNS):
            text = _KEY.sub(_assigned, text)
        else:
            text = PATTERNS[number].regex.sub(partial(_replaced, kind=PATTERNS[number].kind), text)
    return text


def _replaced(found: re.Match[str], *, kind: str) -> str:
    return f"{found.groupdict().get('before', '')}[redacted:{kind}]"


def _assigned(found: re.Match[str]) -> str:
    """An assignment whose value is replaced, if the value can be a secret."""
    kind = found.lastgroup or ""
    value = found[kind].rstrip("\\")  # the closing quote was escaped
    if _is_harmless(value, at_least=6 if found["key"].lower().startswith("pass") else 8):
        return found[0]
    if kind == "bare" and (
        found.string.startswith(("(", "[", "{"), found.end()) or _is_code(value, key=found["key"], gap=found["gap"])
    ):
        return found[0]
    start = found.start(kind) - found.start()
    return f"{found[0][:start]}[redacted:credential]{found[0][start + len(value) :]}"


def _is_harmless(value: str, *, at_least: int) -> bool:
    return len(value) < at_least or len(set(value)) <= 2 or bool(_PLACEHOLDER.match(value) or _ADDRESS.fullmatch(value))


def _is_code(value: str, *, key: str, gap: str) -> bool:
    """Whether an unquoted value is rather an expression, a type, a number or a word of prose."""
    if value.isdigit():
        return not key.lower().startswith("pass")
    if key.isupper() and gap == "=":  # NAME=value, as in an environment file
        return False
    if key.lower().startswith("pass") and gap in ("=", ":") and re.search("[0-9]", value):  # typed, not programmed
        return False
    return bool(_WORDS.fullmatch(value)) or bool(
        _NAME.fullmatch(value) and re.search("(?i)pass|secret|token|key", value)
    )
