"""A labelled corpus of made-up secrets and of text that only looks like secrets.

Everything is put together here from a fixed seed, so that no scanner takes a file of the repository for a leak, and the
same rows come out each time.
"""

from __future__ import annotations

import base64
import random
import string
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests import secret_frames as frames
from tests.secret_frames import lines

ALPHABETS = {
    "w": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
    "H": "0123456789ABCDEF",
    "l": string.ascii_lowercase + string.digits,
    "b": string.ascii_letters + string.digits + "-_",
    "s": string.ascii_letters + string.digits + "+/",
    "d": string.digits,
    "v": "bcdfghjkmnpqrstvwxyz23456789",
}


class Shape(NamedTuple):
    """The form of a vendor's keys. In `form`, `{w36}` is 36 letters and digits; `name` is the variable that has one."""

    vendor: str
    name: str
    form: str


class Secret(NamedTuple):
    vendor: str
    frame: str  # the name of the surroundings
    text: str
    secret: str  # what must not be left, without the line breaks and colours within it


# The vendor, the variable, and the form, in which «~» separates pieces so that this file holds no complete prefix.
_SHAPES = """
github GITHUB_TOKEN gh~p_{w36}
github GITHUB_OAUTH_TOKEN gh~o_{w36}
github GH_APP_TOKEN gh~s_{w36}
github GITHUB_PAT github~_pat_{w22}_{w59}
gitlab GITLAB_TOKEN glp~at-{b20}
gitlab RUNNER_TOKEN glr~t-{b20}
gitlab TRIGGER_TOKEN glp~tt-{h40}
gitlab DEPLOY_TOKEN gld~t-{b20}
slack SLACK_BOT_TOKEN xo~xb-{d12}-{d13}-{w24}
slack SLACK_USER_TOKEN xo~xp-{d12}-{d12}-{d12}-{h32}
slack SLACK_APP_TOKEN xa~pp-1-A{u10}-{d13}-{h64}
stripe STRIPE_SECRET_KEY sk~_live_{w24}
stripe STRIPE_TEST_KEY sk~_test_{w99}
stripe STRIPE_RESTRICTED_KEY rk~_live_{w24}
stripe STRIPE_WEBHOOK_SECRET wh~sec_{w32}
digitalocean DIGITALOCEAN_TOKEN do~p_v1_{h64}
shopify SHOPIFY_ACCESS_TOKEN shp~at_{h32}
shopify SHOPIFY_SHARED_SECRET shp~ss_{h32}
groq GROQ_API_KEY gs~k_{w52}
anthropic ANTHROPIC_API_KEY sk~-ant-api03-{b93}AA
openai OPENAI_API_KEY sk~-proj-{b74}
openai OPENAI_KEY sk~-{w48}
openai OPENROUTER_API_KEY sk~-or-v1-{h64}
google GOOGLE_API_KEY AI~za{b35}
google GOOGLE_CLIENT_SECRET GOC~SPX-{b28}
google GOOGLE_ACCESS_TOKEN ya~29.a0{b120}
google GOOGLE_REFRESH_TOKEN 1~//0{b60}
npm NPM_TOKEN npm~_{w36}
pypi PYPI_TOKEN pypi~-AgEIcHlwaS5vcmc{b120}
huggingface HF_TOKEN hf~_{w34}
aws AWS_ACCESS_KEY_ID AKI~A{u16}
aws AWS_SESSION_KEY_ID ASI~A{u16}
aws AWS_SECRET_ACCESS_KEY {s40}
aws AWS_BEDROCK_KEY ABS~K{w120}
hashicorp VAULT_TOKEN hv~s.{b90}
hashicorp TERRAFORM_TOKEN {w14}.atlas~v1.{b60}
linear LINEAR_API_KEY lin~_api_{w40}
notion NOTION_TOKEN nt~n_{d11}{w35}
notion NOTION_SECRET secret~_{w43}
docker DOCKER_TOKEN dckr~_pat_{b27}
databricks DATABRICKS_TOKEN dap~i{h32}
figma FIGMA_TOKEN fig~d_{b40}
replicate REPLICATE_API_TOKEN r8~_{w37}
xai XAI_API_KEY xa~i-{w80}
perplexity PPLX_API_KEY pp~lx-{w48}
nvidia NVIDIA_API_KEY nva~pi-{b64}
atlassian ATLASSIAN_API_TOKEN ATA~TT3xFfGF0{b180}
atlassian BITBUCKET_APP_PASSWORD ATB~B{w32}
postman POSTMAN_API_KEY PMA~K-{h24}-{h34}
sentry SENTRY_AUTH_TOKEN sntry~s_{b80}
sentry SENTRY_USER_TOKEN sntry~u_{h64}
grafana GRAFANA_TOKEN gls~a_{w32}_{h8}
grafana GRAFANA_CLOUD_KEY gl~c_{s80}
newrelic NEW_RELIC_API_KEY NRA~K-{u27}
dynatrace DYNATRACE_TOKEN dt0~c01.{u24}.{u64}
doppler DOPPLER_TOKEN dp~.st.prd.{w43}
planetscale PLANETSCALE_TOKEN pscale~_tkn_{b43}
planetscale PLANETSCALE_PASSWORD pscale~_pw_{b43}
supabase SUPABASE_ACCESS_TOKEN sb~p_{h40}
vercel VERCEL_TOKEN {w24}
netlify NETLIFY_AUTH_TOKEN nf~p_{w36}
fly FLY_API_TOKEN fo1~_{b43}
cloudflare CLOUDFLARE_API_TOKEN {b40}
cloudflare CLOUDFLARE_ORIGIN_CA_KEY v1~.0-{h24}-{h146}
heroku HEROKU_API_KEY HRKU~-AA{b58}
mailgun MAILGUN_API_KEY ke~y-{h32}
mailgun MAILGUN_SIGNING_KEY {h32}
mailchimp MAILCHIMP_API_KEY {h32}-us{d2}
sendinblue BREVO_API_KEY xkey~sib-{h64}-{w16}
sendgrid SENDGRID_API_KEY S~G.{b22}.{b43}
resend RESEND_API_KEY r~e_{w8}_{w24}
postmark POSTMARK_SERVER_TOKEN {h8}-{h4}-{h4}-{h4}-{h12}
twilio TWILIO_API_KEY S~K{h32}
twilio TWILIO_AUTH_TOKEN {h32}
square SQUARE_ACCESS_TOKEN sq0~atp-{b22}
square SQUARE_CLIENT_SECRET sq0~csp-{b43}
paypal PAYPAL_CLIENT_SECRET E{b79}
braintree BRAINTREE_ACCESS_TOKEN access_token~$production${l16}${h32}
plaid PLAID_ACCESS_TOKEN access~-production-{h8}-{h4}-{h4}-{h4}-{h12}
plaid PLAID_SECRET {h30}
adyen ADYEN_API_KEY AQ~E{s120}
easypost EASYPOST_API_KEY EZ~AK{w54}
shippo SHIPPO_TOKEN shippo~_live_{h40}
duffel DUFFEL_TOKEN duffel~_live_{b43}
flutterwave FLUTTERWAVE_SECRET_KEY FLW~SECK-{h32}-X
razorpay RAZORPAY_KEY_SECRET {w24}
razorpay RAZORPAY_KEY rzp~_live_{w14}
facebook FACEBOOK_ACCESS_TOKEN EAA~C{w160}
facebook FACEBOOK_APP_SECRET {h32}
instagram INSTAGRAM_TOKEN IGQ~V{w140}
telegram TELEGRAM_BOT_TOKEN {d10}:~AA{b33}
discord DISCORD_BOT_TOKEN M~T{w22}.G{w5}.{b38}
alibaba ALIBABA_ACCESS_KEY_ID LTA~I{w20}
alibaba ALIBABA_ACCESS_KEY_SECRET {w30}
tencent TENCENT_SECRET_ID AKI~D{w32}
yandex YANDEX_API_KEY AQV~N{b36}
airtable AIRTABLE_TOKEN pa~t{w14}.{h64}
asana ASANA_TOKEN 1/{d16}:{h32}
contentful CONTENTFUL_TOKEN CFP~AT-{b43}
dropbox DROPBOX_TOKEN sl~.B{b130}
elastic ELASTIC_API_KEY {s60}==
fastly FASTLY_API_TOKEN {b32}
hubspot HUBSPOT_TOKEN pa~t-na1-{h8}-{h4}-{h4}-{h4}-{h12}
intercom INTERCOM_TOKEN dG9r~Oj{w52}=
jfrog ARTIFACTORY_API_KEY AKC~p{w69}
launchdarkly LAUNCHDARKLY_SDK_KEY sd~k-{h8}-{h4}-{h4}-{h4}-{h12}
okta OKTA_API_TOKEN 00{b40}
prefect PREFECT_API_KEY pn~u_{l36}
pulumi PULUMI_ACCESS_TOKEN pu~l-{h40}
readme README_API_KEY rdm~e_{l70}
rubygems RUBYGEMS_API_KEY ruby~gems_{h48}
nuget NUGET_API_KEY oy~2{l43}
scaleway SCW_SECRET_KEY {h8}-{h4}-{h4}-{h4}-{h12}
snyk SNYK_TOKEN {h8}-{h4}-{h4}-{h4}-{h12}
sonar SONAR_TOKEN sq~u_{h40}
sourcegraph SRC_ACCESS_TOKEN sg~p_{h40}
tailscale TS_AUTHKEY ts~key-auth-{w17}-{w32}
typeform TYPEFORM_TOKEN tf~p_{w44}_{w14}
buildkite BUILDKITE_TOKEN bku~a_{h40}
circleci CIRCLE_TOKEN CCIPAT~_{w22}_{h40}
langchain LANGSMITH_API_KEY lsv2~_pt_{h32}_{h10}
langfuse LANGFUSE_SECRET_KEY sk~-lf-{h8}-{h4}-{h4}-{h4}-{h12}
cohere COHERE_API_KEY {w40}
fireworks FIREWORKS_API_KEY f~w_{w24}
together TOGETHER_API_KEY tgp~_v1_{b43}
elevenlabs ELEVENLABS_API_KEY sk~_{h48}
pinecone PINECONE_API_KEY pc~sk_{w6}_{w63}
tavily TAVILY_API_KEY tv~ly-{w32}
exa EXA_API_KEY {h8}-{h4}-{h4}-{h4}-{h12}
voyage VOYAGE_API_KEY p~a-{b43}
mistral MISTRAL_API_KEY {w32}
clojars CLOJARS_DEPLOY_TOKEN CLO~JARS_{h60}
mapbox MAPBOX_SECRET_TOKEN sk~.eyJ1{w60}.{b22}
mongodb ATLAS_CLIENT_SECRET mdb~_sa_sk_{b40}
neon NEON_API_KEY nap~i_{l64}
render RENDER_API_KEY rn~d_{w28}
infracost INFRACOST_API_KEY ic~o-{w32}
agilebits OP_SERVICE_ACCOUNT_TOKEN ops~_eyJ{w200}
confluent CONFLUENT_API_SECRET {s64}
cursor CURSOR_API_KEY key~_{h64}
frameio FRAMEIO_TOKEN fio~-u-{b64}
lob LOB_API_KEY liv~e_{h35}
aiven AIVEN_SERVICE_PASSWORD AVN~S_{b20}
azure AZURE_CLIENT_SECRET {w3}8Q~{w34}
azure AZURE_STORAGE_KEY {s86}==
azure AZURE_OPENAI_KEY {h32}
datadog DD_API_KEY {h32}
datadog DD_APP_KEY {h40}
algolia ALGOLIA_ADMIN_KEY {h32}
pagerduty PAGERDUTY_TOKEN u+{b18}
zoom ZOOM_CLIENT_SECRET {w32}
twitter TWITTER_BEARER_TOKEN AAAAAAAAAAAAAAAAAAAAA{w90}
spotify SPOTIFY_CLIENT_SECRET {h32}
trello TRELLO_TOKEN ATTA{h64}
wise WISE_API_TOKEN {h8}-{h4}-{h4}-{h4}-{h12}
coinbase COINBASE_API_SECRET {w32}
binance BINANCE_SECRET_KEY {w64}
age AGE_SECRET_KEY AGE-SECRET~-KEY-1{u58}
wireguard WG_PRIVATE_KEY {s43}=
jwt SESSION_JWT ey~J{w33}.ey~J{w90}.{b43}
django DJANGO_SECRET_KEY {v50}
rails SECRET_KEY_BASE {h128}
quillbird QUILLBIRD_API_KEY qb~k_{w40}
northwave NORTHWAVE_TOKEN nw~-live-{w32}
tessel TESSEL_PAT tess~el_pat_{l40}
orbitly ORBITLY_KEY or~b.{b43}
lumenra LUMENRA_SECRET lmn~1_{h40}
"""


def fill(form: str, chance: random.Random) -> str:
    """Replace `{w36}` in a form by 36 random characters of an alphabet."""
    pieces = []
    for piece in form.replace("~", "").split("{"):
        spec, brace, rest = piece.partition("}")
        if not brace:
            pieces.append(piece)
            continue
        pieces.append("".join(chance.choices(ALPHABETS[spec[0]], k=int(spec[1:]))) + rest)
    return "".join(pieces)


def _shapes() -> list[Shape]:
    # `8Q~` is part of Azure's form, and the only `~` that stays
    return [Shape(*row.replace("8Q~", "8Q\0").split(" ")) for row in _SHAPES.strip().splitlines()]


SHAPES = _shapes()
Frame = Callable[[str, str, random.Random], str]
ESC = "\x1b"


def _wrap(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=False, drop_whitespace=False))


def _hard_wrap(text: str, width: int = 80) -> str:
    return "\n".join(text[place : place + width] for place in range(0, len(text), width))


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _kind(name: str) -> str:
    lower = name.lower()
    return next((each for each in ("password", "secret", "token") if each in lower), "api key")


def _spread(secret: str, mark: str) -> str:
    return mark.join(secret[place : place + 7] for place in range(0, len(secret), 7))


KINDS = {
    "de": {"password": "Passwort", "secret": "Geheimnis", "token": "Token", "api key": "API-Schlüssel"},
    "es": {"password": "La contraseña", "secret": "El secreto", "token": "El token", "api key": "La clave de API"},
    "fr": {"password": "Le mot de passe", "secret": "Le secret", "token": "Le jeton", "api key": "La clé d'API"},
}

FRAMES: dict[str, Frame] = {
    "env": lambda name, secret, _: f"PORT=8080\n{name}={secret}\nDEBUG=0\n",
    "export": lambda name, secret, _: f"export {name}='{secret}' && make deploy",
    "json": lambda name, secret, _: f'{{"region": "eu", "{name.lower()}": "{secret}", "retries": 3}}',
    "json in json": lambda name, secret, _: f'{{"log": "line one\\n{name}=\\"{secret}\\"\\nline two"}}',
    "yaml": lambda name, secret, _: f"service:\n  {name.lower()}: {secret}\n  retries: 3\n",
    "toml": lambda name, secret, _: f'[service]\n{name.lower()} = "{secret}"\n',
    "ini": lambda name, secret, _: f"[service]\nhost = example.org\n{name.lower()} = {secret}\n",
    "camel": lambda name, secret, _: f"const client = new Client({{ {_camel(name)}: '{secret}' }});",
    "python": lambda name, secret, _: f'client = connect(host="example.org", {name.lower()}="{secret}")',
    "header": lambda name, secret, _: f"curl -H 'Authorization: Bearer {secret}' https://api.example.org/v1",
    "own header": lambda name, secret, _: f"X-{name.title().replace('_', '-')}: {secret}\nAccept: */*",
    "query": lambda name, secret, _: f"GET https://api.example.org/v1/items?limit=5&{name.lower()}={secret}&page=2",
    "flag": lambda name, secret, _: f"deploy --region eu --{name.lower().replace('_', '-')} {secret} --verbose",
    "flag equals": lambda name, secret, _: f"deploy --{name.lower().replace('_', '-')}={secret} --verbose",
    "coloured": lambda name, secret, _: f"{ESC}[1m{name}{ESC}[0m={ESC}[31m{secret}{ESC}[0m",
    "colours escaped": lambda name, secret, _: f"{name}: \\u001b[33m{secret}\\u001b[0m done",
    "colour codes without escape": lambda name, secret, _: f"{name} = [32m{secret}[0m",
    "zero width": lambda name, secret, _: f"{name}: {_spread(secret, chr(0x200B))}",
    "zero width in prose": lambda name, secret, _: f"the {_kind(name)} is \u2060{_spread(secret, chr(0xFEFF))} ok?",
    "curly quotes": lambda name, secret, _: f"Please set {name} to \u201c{secret}\u201d before you start.",
    "guillemets": lambda name, secret, _: f"{name} : «\u00a0{secret}\u00a0»",
    "wrapped": lambda name, secret, _: _hard_wrap(
        f"The deploy of the staging host failed again, then I set {name}={secret} and it worked"
    ),
    "wrapped late": lambda name, secret, _: _hard_wrap(
        f"2026-03-01 12:00:01 INFO the worker has read its settings {name}: {secret}"
    ),
    "prose": lambda name, secret, _: f"By the way, the {_kind(name)} for staging is {secret}. Do not share it.",
    "prose use": lambda name, secret, _: f"You can use {secret} as the {_kind(name)} until Friday.",
    "prose bare": lambda name, secret, _: f"I tried it with the {_kind(name)} {secret} and got a 403.",
    "german": lambda name, secret, _: (
        f"{KINDS['de'][_kind(name)]} für den Testserver lautet {secret}, bitte nicht weitergeben."
    ),
    "spanish": lambda name, secret, _: f"{KINDS['es'][_kind(name)]} del servidor es {secret} y caduca mañana.",
    "french": lambda name, secret, _: f"{KINDS['fr'][_kind(name)]} du serveur est {secret}, à ne pas diffuser.",
    "markdown table": lambda name, secret, _: f"| name | value |\n| --- | --- |\n| {name} | `{secret}` |\n",
    "table head": lambda name, secret, _: (
        f"| user | {_words(name)} | note |\n|---|---|---|\n| ann | {secret} | old |\n"
    ),
    "csv": lambda name, secret, _: f"user,{name.lower()},note\nann,{secret},old\n",
    "xml": lambda name, secret, _: f"<server><id>main</id><{_camel(name)}>{secret}</{_camel(name)}></server>",
    "xml attribute": lambda name, secret, _: f'<add key="{name}" value="{secret}" />',
    "kubernetes": lambda name, secret, _: f"env:\n  - name: {name}\n    value: {secret}\n",
    "dockerfile": lambda name, secret, _: f"FROM alpine\nENV {name} {secret}\nRUN true\n",
    "diff": lambda name, secret, _: f"-{name.lower()} = None\n+{name.lower()} = '{secret}'\n",
    "percent": lambda name, secret, _: (
        f"redirect=https%3A%2F%2Fexample.org%2Fcb%3F{name.lower()}%3D{secret}%26page%3D2"
    ),
    "html": lambda name, secret, _: f"<p>{name} = &quot;<b>{secret}</b>&quot;</p>",
    "log": lambda name, secret, _: f"12:00:01 WARN config: {name.lower()}={secret}, retries=3",
    "url user": lambda name, secret, _: f"git clone https://{secret}@git.example.org/shop.git",
    "url password": lambda name, secret, _: f"remote = https://deploy:{secret}@git.example.org/shop.git",
}
# Surroundings that say nothing: only a shape with a prefix can be found in them.
SHAPE_FRAMES: dict[str, Frame] = {
    "plain": lambda name, secret, _: f"{secret}",
    "sentence": lambda name, secret, _: f"see {secret}, then go on",
    "path": lambda name, secret, _: f"cat /tmp/backups/{secret}/notes.txt",
    "branch": lambda name, secret, _: f"git checkout -b fix/{secret}",
    "escaped newline": lambda name, secret, _: f'{{"text": "first line\\n{secret}\\nlast line"}}',
    "colour before": lambda name, secret, _: f"{ESC}[31m{secret}{ESC}[0m",
    "backticks": lambda name, secret, _: f"Paste `{secret}` there.",
}


def _camel(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(map(str.title, rest))


def _visible(secret: str, frame: str) -> bool:
    """Return True if this frame can hold this secret: a URL's user part has no slash."""
    if frame in {"url user", "url password", "query", "path", "branch"}:
        return not any(each in secret for each in "/+=:$~")
    if frame in {"percent", "csv", "export"}:
        return not any(each in secret for each in "%&+,'$")
    return True


def has_prefix(shape: Shape) -> bool:
    """Return True if the keys of this shape can be recognized without a name beside them."""
    return "~" in shape.form


def secrets(*, seed: int = 17, rounds: int = 1) -> Iterator[Secret]:
    """Yield rows of secrets: every shape in a third of the frames, chosen so that every frame has every kind."""
    chance = random.Random(f"secrets {seed}")
    surroundings = list(FRAMES.items())
    for number, shape in enumerate(SHAPES * rounds):
        choice = surroundings[number % 4 :: 4] + (
            list(SHAPE_FRAMES.items())[number % 2 :: 2] if has_prefix(shape) else []
        )
        for title, frame in choice:
            secret = fill(shape.form, chance).replace("\0", "~")
            if _visible(secret, title):
                yield Secret(shape.vendor, title, frame(shape.name, secret, chance), secret)
    yield from passwords(chance)
    yield from structures(chance)
    yield from framed(chance)


PASSWORDS = (
    *("hunter22", "Tr0ub4dor&3", "Winter2025!", "s3cr3t-Pa55", "x9$Kw!2mQz", "correct-horse-7-staple", "P@ssw0rd123"),
    *("7hG!kq92", "admin123!", "qwe!23rty", "Sommer#2024", "letmein99", "G7vw2kPz"),
)
PASSWORD_FRAMES = {
    "password prose": "The password for the staging database is {}",
    "password colon": "password: {}",
    "password german": "Das Passwort für die Datenbank lautet {} und gilt bis Mai.",
    "password german short": "Kennwort: {}",
    "password spanish": "La contraseña del servidor es {} desde ayer.",
    "password french": "Le mot de passe du serveur est {} depuis hier.",
    "password env": "DB_PASSWORD={}\n",
    "password yaml": "database:\n  user: shop\n  password: {}\n",
    "password xml": "<password>{}</password>",
    "password properties": "spring.datasource.password={}\n",
    "netrc": "machine git.example.org login ann password {}\n",
    "pgpass": "db.example.org:5432:shop:ann:{}\n",
    "redis": "redis-cli -h cache -a {} ping",
    "redis config": "requirepass {}\n",
    "mysql": "mysql -u shop -p{} shop < dump.sql",
    "mongo": "mongosh --host db -u shop -p {} shop",
    "sshpass": "sshpass -p {} ssh ann@example.org",
    "curl": "curl -u ann:{} https://example.org/api",
    "dsn": "postgresql://shop:{}@db.example.org/shop",
    "sql": "ALTER USER shop WITH PASSWORD '{}';",
    "identified": "CREATE USER 'shop'@'%' IDENTIFIED BY '{}';",
    "adonet": "Server=db;Database=shop;User Id=shop;Password={};",
    "ldap": "ldapsearch -x -D cn=admin,dc=example -w {} -b dc=example",
    "openssl": "openssl rsa -in key.pem -passin pass:{} -out plain.pem",
    "my.cnf": "[client]\nuser=shop\npassword={}\n",
    "table": "| user | password |\n|---|---|\n| ann | {} |\n",
    "powershell": '$p = ConvertTo-SecureString -String "x"; Connect -User ann -Password "{}"',
    "coloured": "password: \x1b[32m{}\x1b[0m",
    "curly": "The password is “{}”, write it down.",
    "php": "define('DB_PASSWORD', '{}');",
    "java": 'dataSource.setPassword("{}");',
    "chpasswd": 'echo "ann:{}" | sudo chpasswd',
}


def passwords(chance: random.Random) -> Iterator[Secret]:
    """Yield passwords that people choose, in sentences, native configuration files and command lines."""
    for title, frame in PASSWORD_FRAMES.items():
        for password in chance.sample(PASSWORDS, 5):
            if title in {"dsn", "adonet", "curl", "mysql"} and any(each in password for each in "@;&$!#"):
                continue
            yield Secret("password", title, frame.format(password), password)


def structures(chance: random.Random) -> Iterator[Secret]:
    """Yield secrets whose whole form is the sign: private keys, signed addresses, webhooks, connection strings."""
    dashes = "-" * 5
    for label in ("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "):
        lines = [fill("{s64}", chance) for _ in range(6)]
        begin, end = (f"{dashes}{each} {label}PRIVATE KEY{dashes}" for each in ("BEGIN", "END"))
        forms = {
            "pem": "\n".join([begin, *lines, end]),
            "pem numbered": "\n".join(f"{number:4} | {line}" for number, line in enumerate([begin, *lines, end], 1)),
            "pem numbered, cut": "\n".join(f"{number}: {line}" for number, line in enumerate([begin, *lines], 1)),
            "pem escaped": "\\n".join([begin, *lines, end]),
            "pem quoted, cut": "\n".join(f"> {line}" for line in [begin, *lines]),
            "pem in yaml": "key: |\n" + "\n".join(f"    {line}" for line in [begin, *lines, end]),
            "pem coloured": f"\x1b[32m{begin}\x1b[0m\n" + "\n".join(lines) + f"\n\x1b[32m{end}\x1b[0m",
        }
        for title, text in forms.items():
            yield Secret("pem", title, text, lines[3])
    for _ in range(4):
        body = [fill("{s64}", chance) for _ in range(3)]
        text = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-" + "Lines: 3\n" + "\n".join(body)
        yield Secret("pem", "ppk", text + f"\nPrivate-MAC: {fill('{h64}', chance)}\n", body[1])
        signature = fill("{s43}", chance)
        quoted = signature.replace("+", "%2B").replace("/", "%2F") + "%3D"
        address = "https://shop.blob.core.windows.net/c/x.bin?sv=2022-11-02&se=2026-01-01&sr=b&sp=r&sig="
        yield Secret("azure", "sas", address + quoted, quoted)
        key = fill("{s43}=", chance)
        bus = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccess" + "Key="
        yield Secret("azure", "service bus", bus + key, key)
        hook = fill("{b68}", chance)
        yield Secret("discord", "webhook", f"https://discord.com/api/webhooks/{fill('{d18}', chance)}/{hook}", hook)
        bot = fill("{d10}:AA{b33}", chance)
        yield Secret("telegram", "address", f"curl https://api.telegram.org/bot{bot}/getMe", bot)
        token = fill("{w36}", chance)
        yield Secret("npm", "npmrc", f"//registry.example.org/:_authToken={token}\n", token)
        login = base64.b64encode(f"ann:{fill('{w12}', chance)}".encode()).decode()
        yield Secret("docker", "config.json", f'{{"auths": {{"registry.example.org": {{"auth": "{login}"}}}}}}', login)
        yield Secret("header", "basic", f"Authorization: Basic {login}", login)
        cookie = fill("{w32}", chance)
        yield Secret("header", "cookie", f"Cookie: theme=dark; sessionid={cookie}", cookie)


def framed(chance: random.Random) -> Iterator[Secret]:
    """Yield the rows of `secret_frames`."""
    blocks = {
        "commands": frames.COMMANDS,
        "sentences": frames.PROSE,
        "other languages": frames.LANGUAGES,
        "configuration and code": frames.CONFIGURATION,
        "logs": frames.LOGS,
    }
    for title, block in blocks.items():
        for line in lines(block):
            for secret in (chance.choice(PASSWORDS), fill(chance.choice(("{w12}", "{w20}", "{b24}x")), chance)):
                is_bare = not any(each in secret for each in "@;&$!#%'")
                if is_bare or not any(each in line for each in ("://", "%", "&", "'", "$", "-p{}")):
                    yield Secret("password", title, line.replace("{}", secret), secret)
    for line in lines(frames.HASHES):
        form = line.partition(" ")[2]
        for frame in chance.sample(lines(frames.HASH_FRAMES), 3):
            secret = fill(form, chance).replace("(", "{").replace(")", "}")  # `{SSHA}` is part of a hash
            yield Secret("password", "hashes", frame.replace("{}", secret), secret)
    for title, values, block in (
        ("phrases", frames.PHRASES, frames.PHRASE_FRAMES),
        ("seeds", frames.SEEDS, frames.SEED_FRAMES),
    ):
        for frame in lines(block):
            secret = chance.choice(values)
            yield Secret("password", title, frame.replace("{}", secret), secret)
    for frame in lines(frames.SALTS):
        secret = (
            "".join(chance.choices(string.ascii_letters + string.digits + "!@#$%^&*()-_[]{}<>~`+=,.;:/?| ", k=62))
            + "+z"
        )
        yield Secret("password", "salts", frame.replace("{}", secret), secret)
    for frame in lines(frames.KUBECONFIG):
        secret = base64.b64encode(fill("{w90}", chance).encode()).decode()
        yield Secret("password", "kubeconfig", frame.replace("{}", secret), secret)


# -- Text that only looks like secrets

_WORDS = (
    "account address archive balance basket branch budget button catalog change channel client column context counter"
    " customer default detail device document element entry event export field filter folder format group header"
    " history image import index invoice label layout letter library listing location manager market member message"
    " method module notice number object option order output package parent payment picture planner policy preview"
    " price printer product profile project query queue reader record region release report request result review"
    " route sample schema"
    " search section select server service session setting shipment signal source status storage stream string subject"
    " summary supply support switch system target template thread ticket timeline title total traffic transfer update"
    " upload user value vendor version viewer visitor widget window worker"
).split()

LOOK_ALIKE_FORMS = """
commit {h40}
Merge commit '{h40}' into main
fix: {h7} reverts {h12}
index {h7}..{h7} 100644
id {h8}-{h4}-4{h3}-a{h3}-{h12}
request_id={h8}-{h4}-4{h3}-9{h3}-{h12} status=200
sha256:{h64}
"integrity": "sha512-{s86}==",
    {W}-{W} v1.4.{d2} h1:{s43}=
checksum = "{h64}"
etag: "{h32}"
resolved "https://registry.npmjs.org/{W}/-/{W}-2.{d1}.{d1}.tgz#{h40}"
docker pull registry.example.org/{W}@sha256:{h64}
src="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA{s240}"
url(data:font/woff2;base64,d09GMgABAAAAA{s200})
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{s43} ann@host
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ{s200} ann@host
/assets/index-{w8}.js
/static/js/main.{h20}.chunk.js
{W}.module.{w5}.css
pod/{W}-{W}-{l9}-{l5} Running
s3://{W}-{W}/2026/03/{h32}.parquet
objects/{h2}/{h38}
toolu_01{w22}
msg_01{w22}
call_{w24}
req_{w24}
chatcmpl-{w29}
cus_{w14}
evt_1{w23}
i-0{h17} is running
vpc-0{h17}
https://docs.google.com/document/d/1{b43}/edit
https://www.youtube.com/watch?v={b11}
https://example.org/{W}/{W}?page={d2}&sort={W}
trace_id={h32} span_id={h16}
traceparent: 00-{h32}-{h16}-01
sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjoz{s120}
Fingerprint: SHA256:{s43}
MD5({W}.iso)= {h32}
cache-key: {W}-linux-{h64}
public_key = "{s43}="
primary_key: {W}_{W}_id
nix/store/{v32}-{W}-1.2.{d2}
wheel {W}-2.{d1}-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl
version {d1}.{d2}.{d1}-rc.{d1}+build.{d4}
/home/ann/{W}/{W}_{W}/{W}-{d4}.json
{W}{W2}{W2}Factory.create{W2}({W}, {d3})
self.{W}_{W}_{d2} = {W}.{W}({d3})
2026-03-{d2}T12:00:{d2}.{d6}Z {W} finished in {d3} ms
0x{h8} in {W}_{W} at {W}.c:{d3}
-----BEGIN CERTIFICATE-----
sk-toggleable__label-arrow-{W}
task-{W}-{d8}
feature/{W}-{W}-{d4}
"{W}Token": "{W}",
"forgot_password": "Forgot your {W}?",
"password_placeholder": "Enter your {W}",
"password": "Passwort",
"login.password": "Contraseña",
"token_expired": "Your {W} has expired",
api_key_label: "Clave de {W}"
passwordLabel: "Mot de passe du {W}"
"passwordHint": "Mindestens {d1} Zeichen"
"secret": "Geheimnis"
!function(e,t){{var n=e.token,r=t.{W};return n&&r.secret?n.secret:t.password||null}}
var a=e.password,b=t.apiKey||n.{W}.key,c={{token:a.token,secret:r}};
{{key:"password",value:e.value,label:t("{W}.password")}}
(e.headers.authorization=t.token),e.{W}.send()
const token=await t.getToken({{scope:e.scope}});
o.secretKey=i.{W}.secretKey;o.accessToken=i.accessToken
ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
sk-ant-api03-XXXXXXXXXXXXXXXXXXXXXXXX
GITHUB_TOKEN=REPLACE_ME
{U}_API_KEY=REPLACE_WITH_YOUR_KEY
password = %DB_PASSWORD%
{U}_TOKEN=%{U}_TOKEN%
token: ${{{U}_TOKEN}}
api_key: <your-{W}-key>
{U}_SECRET=changeme
{U}_PASSWORD=********
{U}_TOKEN=your_{W}_token_here
secret: "{{{{ vault_{W}_secret }}}}"
password: !vault |
token = os.environ["{U}_TOKEN"]
api_key = settings.{W}_api_key
const key = process.env.{U}_API_KEY;
password_hash = bcrypt.hashpw(password.encode("utf-8"), bcrypt.gensalt(12))
if len(password) < 12 or password == username:
def test_password_is_at_least_{d2}_characters(password: str) -> None:
token = secrets.token_urlsafe(32)
re.compile(r"ghp_[A-Za-z0-9]{{36}}")
assert token.startswith("ghp_") and len(token) == 40
The {W} token is stored in the keychain and the password must have 12 characters.
The password is required, and the secret was rotated by the {W} team.
Das Passwort ist zu kurz, und der Schlüssel liegt im {W}.
La contraseña es obligatoria y el token ha caducado en {W}.
Le mot de passe est trop court, et la clé est dans le {W}.
Secrets are redacted before the {W} is stored; a token has a scope per {W}.
key={W} value={d4}
max_tokens = {d5}
tokens: {d6} in, {d5} out
KeyError: '{W}_{W}'
keyboard shortcut ctrl+shift+{d1} for {W}
monkey-{W}-{d3}.png
"key": "{W}.{W}.title"
{{"name": "{W}", "key": "{W}-{d3}", "type": "string"}}
author: Ann <ann{d2}@example.org>
GET /api/v2/{W}s/{d6}/tokens 200 {d2}ms
curl -u $USER:$PASSWORD https://example.org/{W}
docker run -p 8080:80 -e TOKEN {W}
mysql -u {W} -p {W}
ssh -p 2222 ann@{W}.example.org
https://ann@example.org/{W}.git
git@github.com:{W}/{W}.git
{d10}:{d6}:{d4}
bc1q{v38}
0x{h40}
CVE-2026-{d5}, ISBN 978-3-16-1484{d2}-0
| token | meaning |
| password | the {W} of the user |
<password>${{{W}.password}}</password>
<label for="password">Password</label><input type="password" name="password" id="{W}-password">
"""


def look_alikes(*, seed: int = 17, rounds: int = 6) -> Iterator[tuple[str, str]]:
    """Yield pairs of a form and a text that holds no secret."""
    chance = random.Random(f"look-alikes {seed}")
    for _ in range(rounds):
        for form in LOOK_ALIKE_FORMS.strip().splitlines():
            yield form, _look_alike(form, chance)
    for line in lines(frames.HARMLESS):
        yield line, line


def _look_alike(form: str, chance: random.Random) -> str:
    text = form.replace("{{", "\1").replace("}}", "\2")
    while "{W2}" in text:
        text = text.replace("{W2}", chance.choice(_WORDS).title(), 1)
    while "{W}" in text:
        text = text.replace("{W}", chance.choice(_WORDS), 1)
    while "{U}" in text:
        text = text.replace("{U}", chance.choice(_WORDS).upper(), 1)
    return fill(text, chance).replace("\1", "{").replace("\2", "}")


def leaks(redacted: str, secret: str) -> bool:
    """Return True if a part of the secret is left that would be of use: half of it, or all of a short one."""
    plain = "".join(redacted.split()).replace("\u200b", "").replace("\ufeff", "")
    part = max(6, min(16, len(secret) // 2))
    tight = "".join(secret.split())
    return any(tight[place : place + part] in plain for place in range(len(tight) - part + 1))
