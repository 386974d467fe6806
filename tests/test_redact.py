"""Secrets leave a text before it is stored; everything else stays.

The samples have the shape of real ones but are put together here, so that no scanner takes them for a leak.
"""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.secret_corpus import SHAPES, Secret, fill, leaks, look_alikes, secrets

from mica.redact import PATTERNS, VENDORS, Rules, randomness, redact, redact_data, redact_lines

ALPHANUMERIC = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 8
HEX = "3f9a01c7" * 8
DASHES = "-" * 5


def pem(kind: str, body: str, newline: str = "\n") -> str:
    label = kind + "PRIVATE" + " KEY"
    return f"{DASHES}BEGIN {label}{DASHES}{newline}{body}{newline}{DASHES}END {label}{DASHES}"


JWT = ".".join(["ey" + "J" + ALPHANUMERIC[:30], "ey" + "J" + ALPHANUMERIC[:60], ALPHANUMERIC[:43]])

SECRETS = [
    ("pem", pem("RSA ", "\n".join([ALPHANUMERIC[:64]] * 20))),
    ("pem", pem("OPENSSH ", ALPHANUMERIC[:64])),
    ("pem", pem("", ALPHANUMERIC[:64], newline="\\n")),
    ("pem", pem("EC ", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n" + ALPHANUMERIC[:64])),
    ("pem", pem("", "\n".join([ALPHANUMERIC[:64]] * 3)).partition("\n" + DASHES + "END")[0]),
    ("aws", "AKI" + "A" + "IOSFODNN7ABCDEFG"),
    ("aws", "ASI" + "A" + "IOSFODNN7ABCDEFG"),
    ("github", "gh" + "p_" + ALPHANUMERIC[:36]),
    ("github", "gh" + "s_" + ALPHANUMERIC[:36]),
    ("github", "github" + "_pat_" + ALPHANUMERIC[:22] + "_" + ALPHANUMERIC[:59]),
    ("gitlab", "glp" + "at-" + ALPHANUMERIC[:20]),
    ("slack", "xox" + "b-123456789012-1234567890123-" + ALPHANUMERIC[:24]),
    ("stripe", "sk" + "_live_" + ALPHANUMERIC[:24]),
    ("stripe", "rk" + "_live_" + ALPHANUMERIC[:24]),
    ("stripe", "sk" + "_test_" + ALPHANUMERIC[:24]),
    ("stripe", "wh" + "sec_" + ALPHANUMERIC[:32]),
    ("slack", "xap" + "p-1-A0123456789-1234567890123-" + HEX),
    ("sendgrid", "S" + "G." + ALPHANUMERIC[:22] + "." + ALPHANUMERIC[:43]),
    ("digitalocean", "dop" + "_v1_" + HEX),
    ("shopify", "shp" + "at_" + HEX[:32]),
    ("groq", "gs" + "k_" + ALPHANUMERIC[:52]),
    ("google", "ya" + "29." + ALPHANUMERIC[:60] + "-" + ALPHANUMERIC[:20]),
    ("google", "ya" + "29.c." + ALPHANUMERIC[:60]),
    ("age", "AGE-SECRET" + "-KEY-1" + ALPHANUMERIC[:58].upper()),
    ("anthropic", "sk" + "-ant-api03-" + ALPHANUMERIC[:40] + "-" + ALPHANUMERIC[:40] + "_AA"),
    ("openai", "sk" + "-" + ALPHANUMERIC[:48]),
    ("openai", "sk" + "-proj-" + ALPHANUMERIC[:40] + "_" + ALPHANUMERIC[:40]),
    ("openai", "sk" + "-or-v1-" + HEX),
    ("google", "AI" + "za" + ALPHANUMERIC[:35]),
    ("npm", "npm" + "_" + ALPHANUMERIC[:36]),
    ("pypi", "pypi" + "-AgEIcHlwaS5vcmc" + ALPHANUMERIC[:120]),
    ("huggingface", "hf" + "_" + ALPHANUMERIC[:34]),
    ("jwt", JWT),
]


@pytest.mark.parametrize(("kind", "secret"), SECRETS)
@pytest.mark.parametrize("frame", ["{}", "see {}, then go on", 'x = "{}"\n', "curl -H 'X: {}'", "a={}&b=1", "({})"])
def test_a_secret_is_replaced_in_any_surroundings(kind: str, secret: str, frame: str) -> None:
    assert redact(frame.format(secret)) == frame.format(f"[redacted:{kind}]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG+" + "bPxRfiCYABCDEFGHIJ",
            "aws_secret_access_key = [redacted:aws]",
        ),
        (
            "aws AKI" + "AIOSFODNN7ABCDEFG and secret " + "wJalrXUtnFEMI/K7MDENG+" + "bPxRfiCYABCDEFGHIJ, so",
            "aws [redacted:aws] and secret [redacted:aws], so",
        ),
        (
            "AKI" + "AIOSFODNN7ABCDEFG:" + "wJalrXUtnFEMI/K7MDENG+" + "bPxRfiCYABCDEFGHIJ",
            "[redacted:aws]:[redacted:aws]",
        ),
        (
            "the secret access key is " + "wJalrXUtnFEMIXK7MDENGX" + "bPxRfiCYABCDEFGHIJ",
            "the secret access key is [redacted:aws]",
        ),
        ("my password is " + "correcthorsebattery", "my password is [redacted:credential]"),
        ("My passphrase is " + "opensesamenow, and", "My passphrase is [redacted:credential], and"),
        ("Authorization: Bearer " + HEX, "Authorization: Bearer [redacted:header]"),
        ("send Bearer " + HEX + " along", "send Bearer [redacted:header] along"),
        ("the key sk-live-" + "abcDEF_12345-678", "the key [redacted:credential]"),
        ("The password is " + "hunter2!", "The password is [redacted:credential]!"),
        ("the passphrase was " + "Tr0ub4dor&3, so", "the passphrase was [redacted:credential], so"),
        ("password is now '" + "open sesame now'", "password is now [redacted:credential]"),
        ("'authorization': 'Basic " + "dXNlcjpwYXNzd29yZA=='", "'authorization': 'Basic [redacted:header]'"),
        (
            "postgresql://app:" + "s3cr3t!@db.local:5432/shop",
            "postgresql://app:[redacted:url]@db.local:5432/shop",
        ),
        ("redis://:" + "hunter2@cache", "redis://:[redacted:url]@cache"),
        ("Authorization: ApiKey " + ALPHANUMERIC[:24], "Authorization: ApiKey [redacted:header]"),
        ('{"Authorization": "' + ALPHANUMERIC[:24] + '"}', '{"Authorization": "[redacted:header]"}'),
        ("Cookie: sessionid=" + HEX[:32] + "\nHost: x", "Cookie: [redacted:header]\nHost: x"),
        ("curl -H 'Cookie: theme=dark; sid=" + HEX[:16] + "' x", "curl -H 'Cookie: [redacted:header]' x"),
        ("Set-Cookie: sid=" + HEX[:16] + "; Path=/; HttpOnly", "Set-Cookie: [redacted:header]"),
        (
            "AccountName=shop;" + "Account" + "Key=" + ALPHANUMERIC[:86] + "==;EndpointSuffix=core",
            "AccountName=shop;AccountKey=[redacted:azure];EndpointSuffix=core",
        ),
        (
            "https://hooks.slack" + ".com/services/T0123456/B0123456/" + ALPHANUMERIC[:24],
            "https://hooks.slack.com/services/[redacted:slack]",
        ),
    ],
)
def test_text_around_a_secret_is_unchanged(text: str, expected: str) -> None:
    assert redact(text) == expected


VALUE = "hunter2" + "hunter2"


@pytest.mark.parametrize(
    "frame",
    [
        'password = "{}"',
        "passwd: '{}'",
        "DB_PASSWORD={}",
        "DB_PASS={}",
        "SMTP_PASS='{}'",
        "export MYSQL_PWD={} && make",
        'db_pass = "{}"',
        "export GITHUB_TOKEN={}",
        "SECRET_KEY = '{}'",
        '"client_secret": "{}",',
        r"{{\"api_key\": \"{}\"}}",
        "apiKey: `{}`",
        "x-api-key: {}",
        "config['password'] = '{}'",
        "const accessToken: string = '{}'",
        'token: str | None = "{}"',
        'password := "{}"',
        ":secret => '{}'",
        "Server=db;Password={};Database=shop",
        "https://example.com/cb?access_token={}&state=1",
        "--api-key={} --verbose",
        "privateKey: {}",
        'token = authenticate_user(password="{}")',
        "token = credentials[api_key='{}']",
    ],
)
def test_a_value_is_replaced_if_its_key_names_a_secret(frame: str) -> None:
    assert redact(frame.format(VALUE)) == frame.format("[redacted:credential]")


@pytest.mark.parametrize(
    ("frame", "phrase"),
    [
        ('password = "{}"', "correct horse" + " battery staple"),
        ("DB_PASSWORD='{}'", "open sesame" + " now"),
        ('"password": "{}",', "Tr0ub4dor and" + " 3x"),
        (r"{{\"password\": \"{}\"}}", "Tr0ub4dor and" + " 3x"),
        ("SMTP_PASS='{}'", "two little" + " words"),
    ],
)
def test_a_quoted_password_of_several_words_is_replaced(frame: str, phrase: str) -> None:
    assert redact(frame.format(phrase)) == frame.format("[redacted:credential]")


def test_a_text_about_passwords_does_not_protect_a_secret_in_it() -> None:
    text = "password = 'Enter your token=" + VALUE + " here'"
    assert VALUE not in redact(text)


def test_an_unquoted_word_is_a_secret_only_in_an_environment_file() -> None:
    assert redact("DB_PASSWORD=" + "correcthorse") == "DB_PASSWORD=[redacted:credential]"
    assert redact("password: correcthorse") == "password: correcthorse"
    assert redact("password: 1234" + "5678") == "password: [redacted:credential]"
    assert redact("token: 12345678") == "token: 12345678"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The password must not be written down; the token expires, and the secret: nobody knows.",
        "tokens: 1234",
        "The password is required. The passphrase was wrong, and the password is hashed!",
        "my password is incorrect. My password is required, my passphrase is somewhere; my password is important",
        "my password is probably in the vault, and my password is something else",
        "the secret 3f786850e387550fdab836ed7e6dc881de23001b is a digest, AKIA is a prefix",
        "bearer authentication is used, and the bearer of this letter waits",
        "the password is <secret>, the passphrase is $PASSPHRASE1",
        "tokens: 12345678 in, 87654321 out",
        "max_tokens = 100000000",
        "token_count: 123456789",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAAAAUA" * 20,
        "token: str",
        "token: str | None = None",
        "password: Optional[SecretStr] = None",
        "token: string | undefined;",
        "password: PasswordInput",
        "token = None",
        "token=null, secret=true",
        "token = <your-token-goes-here>",
        "token = $GITHUB_TOKEN",
        'token = "${GITHUB_TOKEN}"',
        "password: ${{ secrets.DB_PASSWORD }}",
        'api_key = "{api_key}"',
        'api_key = "YOUR_API_KEY_HERE"',
        "password = xxxxxxxxxxxx",
        'password = "************"',
        'token = os.environ["GITHUB_TOKEN"]',
        "token = get_token()",
        "token = await client.fetch_token(user)",
        "token = settings.github_token",
        "login(password=password, token=access_token)",
        "if token == expected_token_2:",
        'error("password: is wrong")',
        '"password": "Enter your password"',
        "token: https://auth.example.com/oauth2/token",
        'secret = "/run/secrets/database"',
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer <token>",
        "https://user@example.com/path and http://example.com:8080/a@b",
        "postgresql://app:${PASSWORD}@db/shop",
        "git@github.com:owner/repo.git",
        "class sk-toggleable__label-arrow, task-management-1234567890, disk-usage",
        "npm_config_registry, hf_hub_download, ghp_short, xoxb-, pypi-publish, AKIA",
        "eyJhbGciOiJIUzI1NiJ9 alone is no token",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "grep -rn 'BEGIN PRIVATE KEY' .",
        "PWD=/home/ann/shop OLDPWD=/home/ann",
        "OLD_PWD=/Users/Ann/Shop9",
        'PROJECT_PWD="/Users/Ann/My Shop9"',
        "first_pass = phase2_result",
        "all tests pass: 1234567 of them",
        'password = "Enter your password"',
        "password: 'must not be empty'",
        "DB_PASS=$SECRET DB_PASS=${SECRET} SMTP_PASS='<password>'",
        "Cookie: sessionid=$SESSION",
        "Cookie: sessionid=<the id of the session>",
        "the cookie: it is set before the redirect",
        "Authorization: required for everybody who reads",
        "docker login -p $PASSWORD && docker run -p 8080:80 shop",
        "SG.1 sk_test_ gsk_ whsec_ shpat_ ya29. dop_v1_ AccountKey= AGE-SECRET-KEY-1 xapp-",
        "https://hooks.slack.com/services/",
    ],
)
def test_ordinary_text_is_not_touched(text: str) -> None:
    assert redact(text) == text


SAMPLES = [
    *[secret for _kind, secret in SECRETS],
    *("hunter22", "Hunter2 hunter2", ALPHANUMERIC[:20], HEX[:40], "a b", "x", "1", "None", "str", "eyJ", "sk-", "AKIA"),
]
KEYS = ["password", "token", "secret", "api_key", "PASSWORD", "DB_PASS", "db_pass", "MYSQL_PWD", "private-key", "pass"]
FRAMES = [
    *(
        "Authorization: Bearer ",
        "Authorization: ",
        "Cookie: a=",
        "cookie=",
        "curl -u a:",
        "mysql -p",
        "docker login -p ",
    ),
    *("sshpass -p ", "--password ", "--token ", "://", "://a:", "hooks.slack.com/services/", "AccountKey=", DASHES),
    "aws_secret_access_key=",
]
MARKERS = ["[redacted:", "[redacted:credential]", "[redacted:header]", "[redacted:url]", "[redacted", "redacted", "]"]
SEPARATORS = [*"=:@\"'`,;()[]{}<>&?$%*|# \n\t\\-_./", ": str = ", " = ", "=>", ":=", '="', "='", '": "', '\\"']
FRAGMENTS = st.sampled_from([*SAMPLES, *KEYS, *FRAMES, *MARKERS, *SEPARATORS])
ASSIGNMENTS = st.tuples(
    *(st.sampled_from(each) for each in (KEYS + FRAMES, SEPARATORS, SAMPLES + MARKERS, SEPARATORS))
).map("".join)
TEXTS = st.one_of(
    st.text(),
    st.lists(FRAGMENTS, max_size=12).map("".join),
    st.lists(st.one_of(ASSIGNMENTS, FRAGMENTS), max_size=6).map("".join),
    st.text(alphabet="pasword=:\"'`[]redact 1@/-_", max_size=60),
)


@settings(max_examples=1_000)
@given(text=TEXTS)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)

    assert redact(once) == once


@pytest.mark.parametrize("flag", ["mysql|-p{}", "sshpass|-p {}", "docker login|-p {}", "curl|-u a:{}"])
@pytest.mark.parametrize("value", ["ab" + "12", "hunter2" + "x"])
def test_a_command_with_many_flags_is_redacted_completely(flag: str, value: str) -> None:
    command, _, option = flag.partition("|")
    once = redact(" ".join([command, *[option.format(value)] * 40]))

    assert redact(once) == once


@given(before=st.text(), after=st.text(), number=st.integers(0, len(SECRETS) - 1))
def test_no_surrounding_text_hides_a_secret(before: str, after: str, number: int) -> None:
    secret = SECRETS[number][1]

    assert secret not in redact(f"{before} {secret} {after}")


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "-",
        "password",
        "password=",
        'password="',
        "password = ",
        "password    :    ",
        "password: a | None",
        'token\\\\\\"=',
        "://",
        "://a:",
        "://a:b",
        "eyJ-",
        "eyJaaaaaaaaaa.",
        "sk-",
        "sk-ant-",
        "AKIA",
        "ghp_",
        "authorization: bearer ",
        "aws_secret_access_key=",
        "cookie: a=",
        "cookie: a=b;",
        "cookie: a=b; c",
        "authorization: a",
        "docker login ",
        "DB_PASS=",
        "A_",
        "db_pass='",
        "password='a \"",
        "password=\"a b c d e f '",
        "SG.aaaaaaaaaaaaaaaaaaaa",
        "ya29.a.",
        "hooks.slack.com/services/",
        "sk_test_",
        "xapp-",
        f"{DASHES}BEGIN PRIVATE KEY{DASHES}",
        f"{DASHES}BEGIN PRIVATE KEY{DASHES}\n" + ALPHANUMERIC[:24] + " ",
        "\u200b",
        "\x1b[31m",
        "\\n",
        "%41",
        "token is ",
        "x|password|y\n",
        ALPHANUMERIC[:80] + "\n",
        "use a1b2c3 as password ",
        "redis-cli -a ",
        "htpasswd -b a ",
        "$2b$10$",
        "seed word ",
        "密码是",
    ],
)
def test_a_megabyte_of_hostile_text_takes_linear_time(unit: str) -> None:
    """Eight times the text takes at most twenty times the processor time; quadratic work would take 64 times as much.

    A short time is not compared, and an interruption of the measurement gives it a second chance.
    """
    small, large = (unit * (length // len(unit)) for length in (125_000, 1_000_000))

    took = processor_s(large)

    assert took < 1.0 or took < 20 * processor_s(small) or processor_s(large) < 20 * processor_s(small)


def processor_s(text: str) -> float:
    began = time.process_time()
    assert redact(text)
    return time.process_time() - began


def test_no_kind_contains_a_key_word() -> None:
    """Otherwise `[redacted:…-token]=value` would count as an assignment the second time."""
    for kind in {*(pattern.kind for pattern in PATTERNS), *(vendor.kind for vendor in VENDORS)}:
        assert redact(f"{kind}={VALUE}") == f"{kind}={VALUE}"


@pytest.mark.parametrize(
    ("command", "secret"),
    [
        ("mysql --user ann --password {} shop", "hunter2" + "hunter2"),
        ("deploy --auth-token '{}' now", "abc" + "DEF123456"),
        ("curl -s -u ann:{} https://example.com", "pass" + "phrase1"),
        ('curl --user "ann:{}" -X POST https://example.com', "x7" * 6),
        ("password={}", "hunter2" + "secret"),
        ("password={}", "hunter2"),
        ("password:{}", "hunter" + "22"),
        ("mysql -u root -p{} shop", "secret" + "pass123"),
        ("sshpass -p {} ssh host", "hunter2" + "secret"),
        ("docker login -u ann -p {} registry.example.com", "hunter2" + "secret"),
        ("docker login -p '{}'", "hunter2" + "secret"),
        ("DB_PASSWORD={} make run", "Tr0ub4dor&" + "3xyz"),
    ],
)
def test_credentials_on_a_command_line_are_replaced(command: str, secret: str) -> None:
    text = redact(command.format(secret))
    assert secret not in text
    assert secret[-4:] not in text
    assert redact(text) == text


@pytest.mark.parametrize(
    "command", ["pg_dump --password $PGPASSWORD", "tool --token --verbose", "curl -u $USER:$PASS x"]
)
def test_names_of_variables_on_a_command_line_are_unchanged(command: str) -> None:
    assert redact(command) == command


@pytest.mark.parametrize("text", ["password: {}", "the password: {}", "Password:   {}, for the staging site"])
def test_a_password_after_a_colon_is_replaced_even_if_it_contains_words(text: str) -> None:
    for value in ("hunter2" + "secret", "my3key" + "words", "s3cret" + "token"):
        assert redact(text.format(value)) == text.format("[redacted:credential]")


@pytest.mark.parametrize(
    "text",
    ["password: reset flow is broken", "password: password2", "password: form.password1", "password: secret_v2"],
)
def test_prose_and_code_after_a_colon_are_unchanged(text: str) -> None:
    assert redact(text) == text


REDACTED = "[redacted:credential]"


@pytest.mark.parametrize(
    "key",
    [
        *("password", "Password", "DB_PASSWORD", "db-password", "userPassword", "passwd", "passphrase", "smtp_pass"),
        *("api_key", "apiKey", "X-API-Key", "APIKEY", "client_secret", "clientSecret", "AWS_SECRET_ACCESS_KEY"),
        *("token", "accessToken", "refresh_token", "private_key", "secretKey", "SECRET_KEY_BASE", "password2"),
    ],
)
def test_a_text_under_a_key_that_names_a_secret_is_replaced(key: str) -> None:
    assert redact_data({key: VALUE}) == {key: REDACTED}
    assert redact_data({"deep": [{key: VALUE, "user": "ann"}]}) == {"deep": [{key: REDACTED, "user": "ann"}]}
    assert redact_data({"env": [{"name": key, "value": VALUE}]}) == {"env": [{"name": key, "value": REDACTED}]}


def test_secrets_of_structured_data_need_no_digit() -> None:
    for data in (
        {"password": "correct" + "horse"},
        {"password": "open sesame" + " now"},
        {"passwords": ["hun" + "ter"]},
    ):
        assert REDACTED in str(redact_data(data))
    assert redact_data({"Authorization": "Basic " + "dXNlcjpwYXNzd29yZA=="}) == {
        "Authorization": "Basic [redacted:header]"
    }
    assert redact_data({"set-cookie": "sid=" + HEX[:16]}) == {"set-cookie": "[redacted:header]"}


@pytest.mark.parametrize(
    "data",
    [
        {"errors": {"password": "is too short for you"}, "password": {"type": "string"}},
        {"password": "required", "token": None, "secret": True, "api_key": 5, "DB_PASSWORD": "${DB_PASSWORD}"},
        {"tokens": ["understanding", "everything"], "max_tokens": "123456789", "token_type": "authorization_code"},
        {"secret_name": "database-production-7", "token": "https://auth.example.com/token", "password": "********"},
        {"pass": "all twelve of them", "PWD": "/home/ann/shop", "keyboard": "qwertz-12345", "monkey": "bananas99"},
        {"name": "shop", "value": "hunter2" + "hunter2", "cookie": "yes, please", "authorization": "is required"},
    ],
)
def test_structured_data_without_secrets_is_not_touched(data: dict[str, object]) -> None:
    assert redact_data(data) == data


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner)))
def test_redacting_data_twice_changes_nothing_more(data: object) -> None:
    once = redact_data(data)

    assert redact_data(once) == once


# -- The corpus ------------------------------------------------------------------------------------------------

ROWS = list(secrets())


def share(rows: list[Secret], rules: Rules) -> float:
    return sum(not leaks(rules.redact(row.text), row.secret) for row in rows) / len(rows)


def test_secrets_of_the_corpus_are_found() -> None:
    """keeps: U-09. In every form: coloured, escaped, quoted, wrapped, in prose, in native configuration."""
    assert len(ROWS) >= 1_000
    assert len(SHAPES) >= 140
    assert share(ROWS, Rules()) >= 0.97

    for frame in {row.frame for row in ROWS}:
        rows = [row for row in ROWS if row.frame == frame]
        assert share(rows, Rules()) >= 0.85, frame


def test_keys_of_unknown_vendors_are_found() -> None:
    """For each vendor its own rule is left out: the next vendor is one that nobody has heard of."""
    vendors = {row.vendor for row in ROWS} - {"password", "pem", "header"}
    left = {vendor: [row for row in ROWS if row.vendor == vendor] for vendor in vendors}
    found = sum(share(rows, Rules(without=frozenset({vendor}))) * len(rows) for vendor, rows in left.items())

    assert found / sum(map(len, left.values())) >= 0.90


def test_text_that_looks_like_secrets_is_unchanged() -> None:
    """Hashes, ids, images, lock files, labels of forms, minified code, placeholders, and code about secrets."""
    others = list(look_alikes())
    spoiled = [text for _, text in others if redact(text) != text]

    assert len(others) >= 500
    assert len(spoiled) <= 0.02 * len(others), spoiled


def test_redacting_the_corpus_twice_changes_nothing_more() -> None:
    for row in ROWS:
        once = redact(row.text)
        assert redact(once) == once


TOKEN = "gh" + "p_" + ALPHANUMERIC[:36]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31m{}\x1b[0m", "\x1b[31m[redacted:github]\x1b[0m"),
        ('{{"log": "line\\n{}\\nline"}}', '{{"log": "line\\n[redacted:github]\\nline"}}'),
        ("x{}", "x[redacted:github]"),
        ("[31m{}[0m", "[31m[redacted:github][0m"),
        ("fix/{}/x", "fix/[redacted:github]/x"),
        ("%3D{}%26", "%3D[redacted:github]%26"),
        ("\u201c{}\u201d", "\u201c[redacted:github]\u201d"),
    ],
)
def test_what_stands_before_a_key_does_not_hide_it(text: str, expected: str) -> None:
    assert redact(text.format(TOKEN)) == expected.replace("{{", "{").replace("}}", "}")


def test_hidden_characters_and_line_breaks_within_a_key_do_not_hide_it() -> None:
    spread = "\u200b".join(TOKEN)
    assert redact(f"see {spread} there") == "see [redacted:github] there"
    assert redact(f"{TOKEN[:9]}\x1b[1m{TOKEN[9:]}") == "[redacted:github]"

    line = f"a line of a terminal that has eighty columns, and then the key is cut {TOKEN}"
    wrapped = "\n".join(line[place : place + 80] for place in range(0, len(line), 80))
    assert redact(wrapped) == f"{line[:70]}[redacted:github]"


@pytest.mark.parametrize("text", ["1 tokens ABC\n" * 9, "a\n" * 3, "", "\n", "x\n\n"])
def test_ordinary_lines_stay(text: str) -> None:
    assert redact_lines(text.split("\n")) == text.split("\n")


def test_lines_keep_their_numbers() -> None:
    """A key of several lines becomes one marker and empty lines."""
    key = pem("", "\n".join([ALPHANUMERIC[:64]] * 3)).split("\n")
    lines = redact_lines(["first", *key, "last"])

    assert lines == ["first", "[redacted:pem]", "", "", "", "", "last"]


def test_random_runs_differ_from_names() -> None:
    chance = random.Random(1)
    assert all(randomness(fill("{w32}", chance)) > 0.5 for _ in range(200))
    names = "create_google_httpx2_client getElementsByClassName maximum_draft3_draft4 test_a_purged_event_is_gone"
    assert all(randomness(name) < 0.42 for name in names.split())


def test_only_values_with_a_weak_name_must_be_random() -> None:
    run = "q7Zk2WmX9sT4vB8nR1cL"
    assert redact_data({"signature_key": run, "auth": run}) == {"signature_key": REDACTED, "auth": REDACTED}
    assert redact_data({"cache_key": run, "key": "cart.title", "commit": "3f9a" * 10}) == {
        "cache_key": run,
        "key": "cart.title",
        "commit": "3f9a" * 10,
    }


def test_a_label_of_a_form_is_no_password() -> None:
    labels = '{"password": "Contraseña", "login.password": "Passwort", "secret": "Geheimnis"}'
    assert redact(labels) == labels
    assert redact_data({"password": "Sun" + "shine"}) == {"password": REDACTED}
