"""Replaces secrets in text before it is stored.

Every pattern begins with a literal and either consumes a whole run of characters or stops after a few, so the cost is
linear in the length of the text. A replacement, `[redacted:<kind>]`, must not look like a secret itself; therefore no
kind may contain a word such as `password` that _KEY looks for. A replacement can expose a second secret that was joined
to the first, so a text is redacted until it no longer changes. Redacting it again gives the same text.
"""

import re
from functools import cached_property, lru_cache, partial


class Pattern:
    """The pattern of one kind of secret, compiled on first use.

    Text that matches its group `before` is not replaced.
    """

    def __init__(self, kind: str, hints: tuple[str, ...], expression: str, flags: int = 0) -> None:
        self.kind = kind
        self.hints = hints  # lower case; a text without any of them is not searched
        self._expression = expression
        self._flags = flags

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self._expression, self._flags)


_APART = r"(?<![A-Za-z0-9])"

PATTERNS = (
    Pattern(
        "pem",
        ("private key",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{0,60}-----"
        r"|(?:(?:\s|\\[nr])++[A-Za-z0-9+/=]{20,}+)++)",  # the text ends before the key does
    ),
    Pattern("aws", ("akia", "asia"), _APART + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Pattern(
        "aws",
        ("aws_secret",),
        r"(?i:(?P<before>aws_secret_access_key\\{0,3}[\"']?\s{0,4}[=:]\s{0,4}\\{0,3}[\"']?))"
        r"[A-Za-z0-9/+=]{40}(?![A-Za-z0-9/+=])",
    ),
    Pattern(
        "aws",  # the secret after its key id or the word "secret"; a digest has no capitals
        ("akia", "asia", "redacted:aws", "secret"),
        r"(?P<before>(?:\[redacted:aws\][^\n]{0,40}?|(?<![A-Za-z0-9])(?i:secret)(?:\s{1,4}(?i:access\s{1,4})?(?i:key))?"
        r"(?:\s{1,4}(?i:is|was))?[\s:=]{1,4}[\"'`]?)(?<![A-Za-z0-9/+]))"
        r"(?=[a-z0-9/+]{0,39}[A-Z])(?=[A-Z0-9/+]{0,39}[a-z])(?=[A-Za-z]{0,39}[0-9/+])"
        r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    ),
    Pattern("github", ("ghp_", "gho_", "ghs_", "ghu_", "ghr_"), _APART + r"gh[opsru]_[A-Za-z0-9]{20,}"),
    Pattern("github", ("github_pat_",), _APART + r"github_pat_[A-Za-z0-9_]{22,}"),
    Pattern("gitlab", ("glpat-",), _APART + r"glpat-[A-Za-z0-9_-]{20,}"),
    Pattern("slack", ("xox", "xapp-"), _APART + r"x(?:ox[abcdeoprs]|app)-[A-Za-z0-9-]{10,}"),
    Pattern(
        "slack",  # anyone who has the address may post
        ("hooks.slack",),
        r"(?i)(?P<before>hooks\.slack\.com/(?:services|workflows|triggers)/)[A-Za-z0-9/_-]{10,}",
    ),
    Pattern("stripe", ("k_live_", "k_test_"), _APART + r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    Pattern("stripe", ("whsec_",), _APART + r"whsec_[A-Za-z0-9+/]{16,}={0,2}"),
    Pattern("sendgrid", ("sg.",), _APART + r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}"),
    Pattern("azure", ("accountkey=",), r"(?i)(?P<before>accountkey=)[A-Za-z0-9+/=]{20,}"),
    Pattern("digitalocean", ("_v1_",), _APART + r"do[opr]_v1_[A-Za-z0-9]{32,}"),
    Pattern("shopify", ("shp",), _APART + r"shp(?:at|ca|pa|ss)_[A-Za-z0-9]{20,}"),
    Pattern("groq", ("gsk_",), _APART + r"gsk_[A-Za-z0-9]{20,}"),
    Pattern("age", ("age-secret-key-1",), _APART + r"AGE-SECRET-KEY-1[A-Z0-9]{40,}"),
    Pattern("anthropic", ("sk-ant-",), _APART + r"sk-ant-[A-Za-z0-9_-]{20,}"),
    Pattern("openai", ("sk-",), _APART + r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}"),
    # CSS classes begin with sk- too; a key is one run with a digit near its beginning.
    Pattern("openai", ("sk-",), _APART + r"sk-(?:or-v1-)?(?=[A-Za-z]{0,19}[0-9])[A-Za-z0-9]{20,}"),
    Pattern("credential", ("sk-live-", "sk-test-"), _APART + r"sk-(?:live|test)-[A-Za-z0-9_-]{8,}"),
    Pattern("google", ("aiza",), _APART + r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    Pattern("google", ("ya29.",), _APART + r"ya29\.(?:[a-z]\.)?[A-Za-z0-9_-]{20,}"),
    Pattern("npm", ("npm_",), _APART + r"npm_[A-Za-z0-9]{36,}"),
    Pattern("pypi", ("pypi-age",), _APART + r"pypi-AgE[A-Za-z0-9_-]{30,}"),
    Pattern("huggingface", ("hf_",), _APART + r"hf_[A-Za-z0-9]{30,}"),
    # The look-behind has all characters of the first part; otherwise each eyJ in a long run would be read to its end.
    Pattern(
        "jwt",
        ("eyj",),
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{4,}+){2,4}",
    ),
    Pattern(
        "header",
        ("authorization",),
        r"(?i)(?P<before>authorization\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}\\{0,3}[\"']?"
        r"(?:(?:bearer|basic|token|api[_-]?key)\s{1,4}|(?=[A-Za-z._~+/=-]{0,40}[0-9][A-Za-z0-9._~+/=-]{19})))"
        r"[A-Za-z0-9._~+/=-]{8,}",
    ),
    Pattern(
        "header",  # Bearer VALUE anywhere; a word of prose has no digit
        ("bearer",),
        r"(?i)(?P<before>(?<![A-Za-z0-9_-])bearer\s{1,4}[\"'`]?)"
        r"(?=[A-Za-z._~+/=-]{0,60}[0-9])[A-Za-z0-9._~+/=-]{12,}",
    ),
    Pattern(
        "credential",  # the password is VALUE: with a digit or a sign, or in quotes; otherwise it is prose
        ("passw", "passphrase"),
        r"(?i)(?P<before>(?<![A-Za-z0-9])(?:passw(?:or)?d|passphrase)\s{1,4}(?:is|was)(?:\s{1,4}now)?:?\s{1,4})"
        r"(?:(?P<quote>[\"'`])(?![$<{%\[])[^\"'`\r\n]{6,64}(?P=quote)"
        r"|(?![$<{%\[(])(?=[^\s\"'`]{0,64}(?:[0-9]|[!@#$%^&*+=][^\s\"'`,;.!?]))[^\s\"'`,;]{5,63}[^\s\"'`,;.!?])",
    ),
    Pattern(
        "credential",  # my password is VALUE, unless VALUE describes the password
        ("passw", "passphrase"),
        r"(?i)(?P<before>(?<![A-Za-z0-9])my\s{1,4}(?:passw(?:or)?d|passphrase)\s{1,4}is:?\s{1,4})"
        r"(?!(?:in)?correct\b|missing\b|forgotten\b|unknown\b|(?:some|no|else|any|every)where\b|(?:some|any)thing\b"
        r"|[A-Za-z]{1,40}(?:ed|ing|ly|ble|ful|less|ent|ant|ous|ive|ure|ic|id)\b)"
        r"[A-Za-z-]{8,64}+(?=\s{0,4}(?:[.,;!?)\n]|\Z|(?:and|but)\b))",
    ),
    Pattern(
        "header",  # Cookie: name=VALUE; name=VALUE
        ("cookie",),
        r"(?i)(?P<before>cookie\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}\\{0,3}[\"']?)(?=[^\r\n\"'`\\]{12})"
        r"[a-z0-9_.-]{1,64}=(?![$<{%\[])[^\s;\"'`\\,]++(?:;\s{0,2}[a-z0-9_.-]{1,64}(?:=[^\s;\"'`\\,]*+)?+)*+",
    ),
    Pattern(
        "flag",  # --password VALUE, as typed on a command line
        ("--",),
        r"(?i)(?P<before>(?<![\w-])--(?:[a-z]{1,20}-)?(?:passw(?:or)?d|passphrase|token|secret|api-key)\s[\"']?)"
        r"(?![-$<{%\[\"'])[^\s\"'`;|&]{8,}",
    ),
    Pattern(
        "flag",  # mysql -pVALUE, sshpass -p VALUE
        ("mysql", "mariadb", "sshpass"),
        r"(?P<before>\b(?:(?:mysql|mariadb)\w{0,10}\s[^\n|;&]{0,200}?(?<=\s)-p|sshpass\s+-p\s*)[\"']?)"
        r"(?![-\s$<{%\[\"'])[^\s\"';|&]{4,}",
    ),
    Pattern(
        "flag",  # docker login -p VALUE
        ("docker", "podman"),
        r"(?P<before>\b(?:docker|podman)\s{1,4}login\s[^\n|;&]{0,200}?(?<=\s)-p[\s=]{0,4}[\"']?)"
        r"(?![-\s$<{%\[\"'])[^\s\"';|&]{4,}",
    ),
    Pattern(
        "login",  # curl -u name:VALUE
        ("curl",),
        r"(?P<before>\bcurl\s[^\n|;&]{0,200}?(?<=\s)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:)"
        r"(?![$<{%\[])[^\s\"']{3,256}",
    ),
    Pattern(
        "credential",  # NAME_PASSWORD=VALUE, up to the next blank
        ("password=", "passwd=", "pass=", "pwd=", "secret=", "token=", "key="),
        r"(?P<before>(?<![A-Za-z0-9_&?])(?:(?:[A-Z0-9]{1,30}_){0,6}(?:PASSWORD|PASSWD|SECRET|TOKEN|API_KEY)="
        r"|(?:[A-Z0-9]{1,30}_){1,6}(?:PASS=|PWD=(?![/~.]))))"  # PWD alone, or a path, is a working directory
        r"(?![$<{%\[(*\"']|(?i:x{4}|changeme|your|none|null|true|false))[^\s\"'`]{6,}",
    ),
    Pattern(
        "url",
        ("://",),
        r"(?P<before>://[^\s/?#:@\[\]\"'<>]{0,128}:)(?![$<{*]|\[redacted:)[^\s/?#@\"'<>]{1,256}(?=@)",
    ),
)

_PASSWORD = r"passw(?:or)?d|passphrase|(?<=_)pass|(?<=_)pwd"
_GAP = r"""
        [0-9]{0,2}(?![A-Za-z0-9_-])
        \\{0,3}["'`]?\]?                                                    # "password", config['password']
        (?P<gap>\s{0,4}
            (?::\s{0,4}[A-Za-z_][A-Za-z0-9_.\[\]]{0,40}(?:\s?\|\s?None)?\s{0,4}=(?!=)  # password: str = …
            |=>|:=|=(?!=)|:(?!:))
            \s{0,4})
        \\{0,3}"""
_KEY = Pattern(
    "credential",
    ("passw", "passphrase", "_pass", "_pwd", "secret", "token", "apikey", "api_key", "api-key", "private"),
    rf"""(?i:
        (?P<key>{_PASSWORD}|secret(?:[_-]?(?:access[_-]?)?key(?:_base)?)?|token|api[_-]?key|private[_-]?key)
        {_GAP}
        (?:"(?P<double>[^"\s]{{8,}})"|'(?P<single>[^'\s]{{8,}})'|`(?P<back>[^`\s]{{8,}})`
            |(?P<bare>[^\s"'`,;()\[\]{{}}<>&\\]{{6,}}))
    )""",
    re.VERBOSE,
)
_PHRASE = Pattern(  # a password of several words
    "credential",
    ("passw", "passphrase", "_pass", "_pwd"),
    rf"""(?i:
        (?P<key>{_PASSWORD})
        {_GAP}
        (?:"(?P<double>[^"\s][^"\r\n]{{6,}}+(?<!\s))"|'(?P<single>[^'\s][^'\r\n]{{6,}}+(?<!\s))')
    )""",
    re.VERBOSE,
)

_PLACEHOLDER = re.compile(
    r"\[redacted:|\$[A-Za-z_{(]|[<{]|%[(s]|(?:your|example|placeholder|dummy|changeme|insert|replace)[_-]"
    r"|(?:undefined|changeme|placeholder|redacted)$",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?://[^=]*|[.~]{0,2}(?:/[a-z0-9_.-]+)+/?")  # a token endpoint, a file with a secret
_WORDS = re.compile(r"[A-Za-z_.:|&?!*/-]+")  # a type, a name, prose
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_MIXED = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]")
_TYPED = re.compile(r"(?=[A-Za-z]*[0-9]+[A-Za-z])[A-Za-z0-9]+")  # a digit inside a word, so not a numbered name
_ABOUT = re.compile(  # words of a text about passwords
    r"(?i)\b(?:passw(?:or)?ds?|passphrases?|secrets?|tokens?|keys?|enter|your|must|should|required|invalid|wrong|missing"
    r"|please|is|are|for|to)\b"
)

_DESCRIPTION = re.compile(
    r"(?i)true|false|none|null|string|str|text|hidden|masked|empty|optional|expired|changed|reset|unset"
)
_SECRET_NAME = re.compile(
    r"(?P<kind>passw(?:or)?ds?|passphrases?|(?:(?<=_)|^)pass|(?<=_)pwd|^pwd|secrets?|tokens?|credentials?"
    r"|(?:api|private|secret|access|account|encryption|signing|shared|master)_?keys?)(?:_base)?_?[0-9]{0,2}$"
)
_HEADERS = ("authorization", "proxy_authorization", "cookie", "set_cookie")
KEY_CHARACTERS_MAX = 200  # a longer key is data and names no secret

_ALL_PATTERNS = (*PATTERNS, _KEY, _PHRASE)
_HINTS = {  # the numbers of the patterns to try on a text with this hint
    hint: frozenset(number for number, pattern in enumerate(_ALL_PATTERNS) if hint in pattern.hints)
    for each in _ALL_PATTERNS
    for hint in each.hints
}
_RARE = *"=_-./:zxjq", "pass", "ia", "ke", ""  # most texts lack most of these, so hints that contain one need no check
_HINTS_WITH = {
    rare: [
        (hint, numbers)
        for hint, numbers in _HINTS.items()
        if rare in hint and not any(each in hint for each in _RARE[:place])
    ]
    for place, rare in enumerate(_RARE)
}
ROUNDS_MAX = 20  # a command of 200 characters has room for a dozen flags, and each round replaces one


def redact(text: str) -> str:
    """Return the text with every known kind of secret replaced by `[redacted:<kind>]`."""
    for _ in range(ROUNDS_MAX):
        before, text = text, _redact_once(text)
        if text == before:
            break
    return text


def redact_data(value: object, *, key: str = "") -> object:
    """Return the JSON value with the secrets in all its texts replaced, as `redact` does.

    A text under a key such as `clientSecret` is replaced entirely, unless it is a placeholder or cannot be a secret.
    """
    match value:
        case str():
            return _redact_named(value, key)
        case dict():
            name = (
                value.get("name", value.get("key")) if "value" in value else None
            )  # the form of variables and headers
            secret_key = name if isinstance(name, str) else "value"
            return {
                each: redact_data(inner, key=secret_key if each == "value" else each if isinstance(each, str) else "")
                for each, inner in value.items()
            }
        case list() | tuple():
            return [redact_data(inner, key=key) for inner in value]
        case _:
            return value


def _redact_named(value: str, key: str) -> str:
    kind = _secret_kind(key) if 0 < len(key) <= KEY_CHARACTERS_MAX else None
    if kind is None:
        return redact(value)
    if kind == "header":
        return redact(f"Cookie: {value}" if "cookie" in key.lower() else f"Authorization: {value}").partition(": ")[2]
    value = redact(value)
    is_password = _is_password(kind)
    if kind == "pass" or (kind.endswith("s") and not is_password):  # a count of passes, or the tokens of a text
        can_be_one = bool(_MIXED.search(value)) and not re.search(r"\s", value)
    elif re.search(r"\s", value):
        can_be_one = is_password and bool(_MIXED.search(value) or not _ABOUT.search(value))
    else:
        can_be_one = not (_ABOUT.fullmatch(value) or _DESCRIPTION.fullmatch(value))
    if not can_be_one or _is_harmless(value, at_least=4 if is_password else 8):
        return value
    return value if kind == "pwd" and value.startswith(("/", "~", ".")) else "[redacted:credential]"


@lru_cache(maxsize=4_096)
def _secret_kind(key: str) -> str | None:
    """Return the kind of secret that a key such as `clientSecret` or `CLIENT-SECRET` holds; None for other keys."""
    words = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower())
    if words in _HEADERS:
        return "header"
    match = _SECRET_NAME.search(words)
    return None if match is None else match["kind"]


def forget_keys() -> None:
    """Empty the cache of `_secret_kind`, which contains keys from users' data."""
    _secret_kind.cache_clear()


def _redact_once(text: str) -> str:
    hints = text.lower()
    hinted: set[int] = set()
    for rare, some in _HINTS_WITH.items():
        if rare in hints:
            for hint, numbers in some:
                if hint in hints:
                    hinted |= numbers
    for number in sorted(hinted):
        if number < len(PATTERNS):
            text = PATTERNS[number].regex.sub(partial(_replace, kind=PATTERNS[number].kind), text)
        elif number == len(PATTERNS):
            text = _KEY.regex.sub(_replace_assigned, text)
        else:
            text = _PHRASE.regex.sub(_replace_phrase, text)
    return text


def _replace(match: re.Match[str], *, kind: str) -> str:
    return f"{match.groupdict().get('before', '')}[redacted:{kind}]"


def _replace_assigned(match: re.Match[str]) -> str:
    """Return the matched assignment with its value replaced, or unchanged if the value cannot be a secret."""
    kind = match.lastgroup or ""
    value = match[kind].rstrip("\\")  # the closing quote was escaped
    if _is_harmless(value, at_least=6 if _is_password(match["key"]) else 8) or _is_working_directory(match, value):
        return match[0]
    if kind == "bare" and (
        match.string.startswith(("(", "[", "{"), match.end()) or _is_code(value, key=match["key"], gap=match["gap"])
    ):
        return match[0]
    return _remove_value(match, kind, value)


def _replace_phrase(match: re.Match[str]) -> str:
    """Return an assignment with its quoted phrase replaced, or unchanged if the phrase is not a password."""
    kind = match.lastgroup or ""
    value = match[kind].rstrip("\\")
    if _is_harmless(value, at_least=8) or "[redacted:" in value or _is_working_directory(match, value):
        return match[0]
    if not _MIXED.search(value) and ("=" not in match["gap"] or _ABOUT.search(value)):
        return match[0]
    return _remove_value(match, kind, value)


def _remove_value(match: re.Match[str], kind: str, value: str) -> str:
    start = match.start(kind) - match.start()
    return f"{match[0][:start]}[redacted:credential]{match[0][start + len(value) :]}"


def _is_password(key: str) -> bool:
    return key.lower().startswith(("pass", "pwd"))


def _is_working_directory(match: re.Match[str], value: str) -> bool:
    return match["key"].lower() == "pwd" and value.startswith(("/", "~", "."))


def _is_harmless(value: str, *, at_least: int) -> bool:
    return len(value) < at_least or len(set(value)) <= 2 or bool(_PLACEHOLDER.match(value) or _ADDRESS.fullmatch(value))


def _is_code(value: str, *, key: str, gap: str) -> bool:
    """Return True if an unquoted value is not a secret: an expression, a type, a number or a word of prose.

    `key` is the name before it, and `gap` is the text between them, such as `=`.
    """
    if key.lower() in ("pass", "pwd") and not key.isupper():  # first_pass = second2
        return True
    if value.isdigit():
        return not _is_password(key)
    if key.isupper() and gap == "=":  # NAME=value, as in an environment file
        return False
    if _is_password(key) and gap in ("=", ":") and re.search("[0-9]", value):  # typed by a person, not code
        return False
    if _is_password(key) and gap.strip() == ":" and _TYPED.fullmatch(value):  # password: VALUE, in prose
        return False
    return bool(_WORDS.fullmatch(value)) or bool(
        _NAME.fullmatch(value) and re.search("(?i)pass|secret|token|key", value)
    )
