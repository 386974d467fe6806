"""Secrets leave a text before it is stored; everything else stays.

The samples have the shape of real ones but are put together here, so that no scanner takes them for a leak.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.observe.redact import PATTERNS, redact

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
def test_a_secret_is_replaced_wherever_it_stands(kind: str, secret: str, frame: str) -> None:
    assert redact(frame.format(secret)) == frame.format(f"[redacted:{kind}]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG+" + "bPxRfiCYABCDEFGHIJ",
            "aws_secret_access_key = [redacted:aws]",
        ),
        ("Authorization: Bearer " + HEX, "Authorization: Bearer [redacted:header]"),
        ("'authorization': 'Basic " + "dXNlcjpwYXNzd29yZA=='", "'authorization': 'Basic [redacted:header]'"),
        (
            "postgresql://app:" + "s3cr3t!@db.local:5432/shop",
            "postgresql://app:[redacted:url]@db.local:5432/shop",
        ),
        ("redis://:" + "hunter2@cache", "redis://:[redacted:url]@cache"),
    ],
)
def test_what_surrounds_a_secret_is_kept(text: str, expected: str) -> None:
    assert redact(text) == expected


VALUE = "hunter2" + "hunter2"


@pytest.mark.parametrize(
    "frame",
    [
        'password = "{}"',
        "passwd: '{}'",
        "DB_PASSWORD={}",
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
def test_a_value_is_replaced_when_its_key_says_what_it_is(frame: str) -> None:
    assert redact(frame.format(VALUE)) == frame.format("[redacted:credential]")


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
    ],
)
def test_ordinary_text_is_not_touched(text: str) -> None:
    assert redact(text) == text


FRAGMENTS = st.sampled_from(
    [
        *[secret for _kind, secret in SECRETS],
        *(
            "password",
            "token",
            "secret",
            "api_key",
            "PASSWORD",
            "Authorization: Bearer ",
            "://",
            "[redacted:",
            "]",
        ),
        *"=:@\"'`,;)]} \n\\-_./x1",
        *(": str = ", "hunter22", ALPHANUMERIC[:20], "eyJ", "sk-", "AKIA", DASHES),
    ]
)


@given(text=st.one_of(st.text(), st.lists(FRAGMENTS, max_size=12).map("".join)))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)

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
        f"{DASHES}BEGIN PRIVATE KEY{DASHES}",
        f"{DASHES}BEGIN PRIVATE KEY{DASHES}\n" + ALPHANUMERIC[:24] + " ",
    ],
)
def test_five_megabytes_of_hostile_text_are_done(unit: str) -> None:
    text = unit * (5_000_000 // len(unit))

    assert len(redact(text)) > 0


def test_no_kind_contains_a_key_word() -> None:
    """Else `[redacted:…-token]=value` would be an assignment the second time."""
    for pattern in PATTERNS:
        assert redact(f"{pattern.kind}={VALUE}") == f"{pattern.kind}={VALUE}"


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
        ("DB_PASSWORD={} make run", "Tr0ub4dor&" + "3xyz"),
    ],
)
def test_credentials_typed_on_a_command_line_go(command: str, secret: str) -> None:
    text = redact(command.format(secret))
    assert secret not in text
    assert secret[-4:] not in text
    assert redact(text) == text


@pytest.mark.parametrize(
    "command", ["pg_dump --password $PGPASSWORD", "tool --token --verbose", "curl -u $USER:$PASS x"]
)
def test_names_of_variables_on_a_command_line_stay(command: str) -> None:
    assert redact(command) == command
