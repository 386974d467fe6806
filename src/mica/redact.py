"""Replaces secrets in text before it is stored.

A run of characters is a secret by one of three signs:

- its shape: a private key, a web token, the prefix of a vendor (`VENDORS`), or a random body behind a short prefix;
- a name beside it: an assignment, a flag, a header, a cell of a table, or a sentence such as "the password is …";
- its place: the user part of a URL, the last field of `.pgpass`.

The second and the third sign also need a value that looks like a secret. Words, paths, placeholders and code do not.

A text is searched twice: as it is, and as a reader sees it, without colours, invisible characters, escapes and the line
breaks within a run. What is found in the second form is replaced in the original.

The cost is linear in the length of the text: every pattern begins with a literal, and either consumes a whole run of
characters or stops after a few. A replacement, `[redacted:<kind>]`, must not look like a secret itself; therefore no
kind may contain a word such as `password` that _KEY looks for. A replacement can expose a second secret that was joined
to the first, so a text is redacted until it no longer changes. Redacting it again gives the same text.

Hooks load a copy of this file and nothing else of mica, so it imports only the standard library, and little of that.
Patterns are compiled on first use.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property, lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Pattern:
    """The pattern of one kind of secret, compiled on first use.

    Text that matches its group `before` is not replaced.
    """

    def __init__(
        self, kind: str, hints: tuple[str, ...], expression: str, flags: int = 0, *, programs: tuple[str, ...] = ()
    ) -> None:
        self.kind = kind
        self.hints = hints  # lower case; a text without any of them is not searched
        self.programs = programs  # a command line of one of them is searched
        self._expression = expression
        self._flags = flags

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self._expression, self._flags)


class _Lazy:
    """A pattern that is compiled when one of its methods is first used."""

    def __init__(self, expression: str) -> None:
        self._expression = expression

    def __getattr__(self, name: str) -> object:
        method: object = getattr(re.compile(self._expression), name)
        setattr(self, name, method)  # found without this function from now on
        return method


def _lazy(expression: str) -> re.Pattern[str]:
    return _Lazy(expression)  # type: ignore[return-value]  # it has the methods of a pattern


class Vendor:
    """The keys of one vendor: any of `prefixes`, followed by at least `characters` of an alphabet."""

    def __init__(self, kind: str, alphabet: str, characters: int, prefixes: tuple[str, ...]) -> None:
        self.kind = kind
        self.alphabet = alphabet
        self.characters = characters
        self.prefixes = prefixes


_ALPHABETS = {
    "hex": "[0-9a-fA-F]",
    "upper": "[A-Z0-9]",
    "word": "[A-Za-z0-9]",
    "name": "[A-Za-z0-9_]",
    "url": "[A-Za-z0-9_-]",
    "dollar": "[A-Za-z0-9_$-]",
    "dotted": "[A-Za-z0-9_.-]",
    "base64": "[A-Za-z0-9+/_=-]",
}
# Written for mica from what the vendors document: kind, alphabet and least length of the body, prefixes.
_VENDORS = """
github word 20 ghp_ gho_ ghs_ ghu_ ghr_
github name 22 github_pat_
gitlab url 20 glpat- glptt- gldt- glrt- glcbt- glsoat- glft- glimt- glagent- gloas- glffct-
slack url 10 xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- xoxe.xoxp- xoxe.xoxb-
stripe word 10 sk_live_ sk_test_ rk_live_ rk_test_
stripe base64 16 whsec_
digitalocean hex 32 dop_v1_ doo_v1_ dor_v1_
shopify word 20 shpat_ shpca_ shppa_ shpss_
groq word 20 gsk_
age upper 40 AGE-SECRET-KEY-1
anthropic url 20 sk-ant-
openai url 20 sk-proj- sk-svcacct- sk-admin-
openai word 20 sk-or-v1-
google dotted 20 ya29. GOCSPX- 1//0
npm word 36 npm_
pypi url 30 pypi-AgE
huggingface word 30 hf_ api_org_
aws upper 16 AKIA ASIA ABIA ACCA
aws word 32 ABSK
hashicorp dotted 20 hvs. hvb. hvr. atlasv1.
linear word 20 lin_api_ lin_oauth_
notion word 30 ntn_ secret_
docker url 20 dckr_pat_ dckr_oat_
databricks hex 32 dapi dkea dose
figma url 20 figd_ figu_ figo_
replicate word 30 r8_
xai word 30 xai-
perplexity word 30 pplx-
nvidia url 40 nvapi-
atlassian base64 20 ATATT3 ATCTT3 ATBB ATOA
postman url 30 PMAK- PMAT-
sentry base64 20 sntrys_ sntryu_ sntrya_
grafana base64 20 glsa_ glc_ eyJrIjoi
newrelic word 20 NRAK- NRII- NRJS- NRRA-
dynatrace dotted 24 dt0c01. dt0s01. dt0s16.
doppler dotted 20 dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.
planetscale url 20 pscale_tkn_ pscale_pw_ pscale_oauth_
supabase word 20 sbp_ sb_secret_
vercel word 20 vcp_ vci_ vca_ vcr_ vck_
netlify word 20 nfp_ nfc_ nfo_ nfu_
fly base64 20 FlyV1_ fo1_ fm1r_ fm2_
cloudflare url 20 v1.0- cfut_ cfat_
heroku url 20 HRKU-
mailgun hex 32 key-
mailchimp hex 32 mc-
sendinblue url 40 xkeysib- xsmtpsib-
resend name 20 re_
postmark url 20 pmk_
square url 20 sq0atp- sq0csp- sq0idp- EAAAE
braintree dollar 30 access_token$production$ access_token$sandbox$
plaid url 20 access-production- access-sandbox- access-development-
adyen base64 60 AQE
easypost word 40 EZAK EZTK
shippo hex 30 shippo_live_ shippo_test_
duffel url 30 duffel_live_ duffel_test_
flutterwave word 20 FLWSECK- FLWSECK_TEST-
razorpay word 14 rzp_live_ rzp_test_
facebook word 30 EAAC EAAB EAAG EAAJ EAAM
instagram word 30 IGQV IGAA
alibaba word 16 LTAI
tencent word 28 AKID
yandex url 30 AQVN t1.9eu
contentful url 30 CFPAT-
dropbox url 40 sl.B sl.u.
discord url 60 mfa.
elastic base64 30 essu_
fastly url 28 fst_
hubspot url 30 pat-na1- pat-eu1-
jfrog word 50 AKCp cmVmdGtuO
launchdarkly url 36 sdk- mob-
prefect word 30 pnu_ pnb_
pulumi hex 30 pul-
readme hex 40 rdme_
rubygems hex 40 rubygems_
nuget word 40 oy2
scaleway upper 16 SCW
shodan word 30 shodan_
snyk url 30 snyk_
sonar hex 40 sqp_ squ_ sqa_
sourcegraph name 30 sgp_ sgd_
typeform url 40 tfp_
tailscale url 16 tskey-auth- tskey-api- tskey-client- tskey-scim- tskey-webhook-
travis url 20 travis_
buildkite word 20 bkua_ bkaa_ bkct_
circleci word 30 CCIPAT_ CCIPRJ_
codecov word 30 codecov_
langchain name 30 lsv2_pt_ lsv2_sk_ ls__
langfuse url 30 sk-lf-
weights word 30 wandb_v1_
together word 30 tgp_v1_
deepseek word 30 dsk-
elevenlabs hex 48 sk_
pinecone name 30 pcsk_
tavily url 20 tvly-
clerk word 20 clerk_
clojars hex 40 CLOJARS_
mapbox dotted 40 sk.ey
mongodb url 20 mdb_sa_sk_
neon word 30 napi_
render word 20 rnd_
infracost word 30 ico-
agilebits base64 60 ops_ey
frameio url 40 fio-u-
confluent word 40 cflt
cursor hex 40 key_ crsr_
aiven url 16 AVNS_
fireworks word 22 fw_
exa word 30 exa_
"""


def _read_vendors() -> tuple[Vendor, ...]:
    rows = [row.split() for row in _VENDORS.strip().splitlines()]
    return tuple(
        Vendor(kind, alphabet, int(characters), tuple(prefixes)) for kind, alphabet, characters, *prefixes in rows
    )


VENDORS = _read_vendors()

Span = tuple[int, int, str]  # where a secret begins and ends, and its kind

_TYPED_VALUE = (  # on a command line; not the next flag, a variable, a path, a port, or the name of a source
    r"(?(quote)(?![$<{%\[]|-{1,2}[a-z])[^\"'\r\n]{4,128}(?=(?P=quote))"
    r"|(?![-$<{%\[(*\"'/.~@=]|[0-9]{1,5}(?:[\s:]|\Z)|(?:env|file|stdin|fd|prompt):|(?:true|false|null|none)\b)"
    r"[^\s\"'`;|&<>]{4,256})"
)
_QUOTE = r"(?P<quote>[\"'])?"
# Programs, and what stands before a secret on their command lines.
_COMMANDS = r"""
redis-cli|valkey-cli|keydb-cli :: (?:-a|--pass)[ =]{1,2}
ldapsearch|ldapadd|ldapmodify|ldapwhoami|ldapdelete|ldappasswd|ldapmodrdn|ldapcompare :: -(?:w|s) ?(?!base|one|sub)
mongosh|mongo|mongodump|mongorestore|mongoexport|mongoimport|mongotop|mongostat|cqlsh :: -p[ =]?
evil-winrm|crackmapexec|netexec|nxc|rdesktop|psexec|rabbitmqadmin|ncftpput|ncftpget|ncftp|arangosh :: -p ?
twine|youtube-dl|yt-dlp|hydra|mosquitto_rr|influx|impacket-psexec|usermod|useradd :: -p[ =]
sqlcmd|bcp|osql|tsql|isql|mosquitto_pub|mosquitto_sub|ipmitool|zip|unzip|funzip|clickhouse-client :: -P ?
ssh-keygen|ssh-add :: -(?:N|P) ?
7z|7za|7zr|7zz|rar|unrar :: -h?p
sendemail :: -xp[ =]
snmpwalk|snmpget|snmpset|snmpbulkwalk|snmptrap :: -(?:A|X|c) ?(?!public\b|private\b)
plink|pscp|psftp|kitty|winscp :: -pw[ =]
pdftotext|pdftoppm|pdfinfo|pdfimages :: -(?:upw|opw)[ =]
pdftk :: (?:input_pw|user_pw|owner_pw)[ =]
qpdf :: --encrypt[ =](?:\S{1,64} (?=\S))?
security :: -(?:w|p) (?:# ?)?
xfreerdp|wfreerdp|mstsc|sdl-freerdp :: /p:
cmdkey|psexec|runas|net|wmic|schtasks|dism|nltest :: /(?:pass|password|rp|p)[: ]
openssl :: -(?:passin|passout|pass|k|password)[ =](?:pass:)?
apksigner|jarsigner|keytool :: -{1,2}\w{0,12}pass(?:word)?[ =](?:pass:)?
htpasswd :: -\w{0,6}b\w{0,6}\s{1,2}(?:-\w{1,6}\s{1,2}){0,3}(?:[./~]\S{1,100}\s{1,2}|\S{1,64}\s{1,2}(?=\S{1,64}\s{1,2}\S))?\S{1,64}\s{1,2}
wpa_passphrase :: \S{1,64}\s{1,2}
smbclient|rpcclient|net|smbmap|smbget|winexe|wmic :: (?:-U|--user)[ =]?["']?[^\s%"']{1,64}%
sqlplus|sqlldr|impdp|expdp|exp|imp|rman|sqlcl :: (?:-\w{1,2}\s)?["']?[\w$]{2,30}/(?=[^\s/@"']{4,64}@)
impacket-psexec|impacket-wmiexec|impacket-secretsdump|impacket-smbexec|psexec.py|secretsdump.py|wmiexec.py|smbexec.py :: (?:\S{1,40}\s)?[\w.-]{1,40}/[\w.-]{1,40}:
lftp|sftp|ftp|open :: (?:-u|--user)[ =]["']?[\w.@-]{1,64},
etcdctl|http|https|xh|xhs|httpie|wrk|siege|restish|curlie|rustic :: (?:-u|-a|--user|--auth)[ =]["']?[^\s:"']{1,64}:
curl|curlie :: (?:--proxy-user|-U)[ =]["']?[^\s:"']{1,64}:
sonar-scanner|mvn|gradle|gradlew|java :: -[DP][\w.]{0,40}\.(?:login|token|password)=
"""  # noqa: E501 - a row is a line
# The same where the words before the secret are sub-commands: programs, and the pattern of the whole.
_SUBCOMMANDS = r"""
oc helm az nerdctl buildah skopeo heroku podman crane :: (?:oc|helm\s{1,2}(?:registry|repo)|az|nerdctl|buildah|skopeo|heroku|podman|crane\s{1,2}auth)\s{1,2}(?:login|add)\s[^\n|;&]{0,200}?\s-p[ =]
vault cargo bw ngrok surge expo railway :: (?:vault|cargo|bw|ngrok|surge|expo|railway)\s{1,2}(?:login|unlock|authtoken)\s{1,2}(?:[^\s@]{1,60}@\S{1,60}\s{1,2})?(?:token=)?
ngrok cloudflared :: (?:ngrok\s{1,2}config\s{1,2}add-authtoken|cloudflared\s{1,2}(?:service\s{1,2}install|tunnel\s{1,2}run\s{1,2}--token))\s{1,2}
rclone :: rclone\s{1,2}obscure\s{1,2}
rabbitmqctl :: rabbitmqctl\s{1,2}(?:add_user|change_password|authenticate_user)\s{1,2}\S{1,64}\s{1,2}
mysqladmin :: mysqladmin\b[^\n|;&]{0,120}?\spassword\s{1,2}
drush occ kadmin :: (?:drush|occ|kadmin)\s[^\n|;&]{0,80}?(?:user:password|user:resetpassword|-pw)\s{1,2}(?:[^\s"']{1,64}\s{1,2})?
az :: az\s[^\n|;&]{0,40}?secret\s{1,2}set\b[^\n|;&]{0,160}?--value[ =]
aws :: aws\s[^\n|;&]{0,80}?(?:SecureString|secret)[^\n|;&]{0,160}?--(?:value|secret-string)[ =]
gh glab fly flyctl :: (?:gh|glab|flyctl|fly)\s{1,2}secrets?\s{1,2}set\b[^\n|;&]{0,80}?\s(?:-b|--body)[ =]
mc mcli :: (?:mc|mcli)\s{1,2}(?:alias|config\s{1,2}host)\s{1,2}(?:set|add)\s{1,2}\S{1,64}\s{1,2}\S{1,100}\s{1,2}\S{1,64}\s{1,2}
net :: net\s{1,2}(?:use\s[^\n|;&]{0,40}?\\\\\S{1,100}|user\s{1,2}\w{1,64})\s{1,2}
isql :: isql\s{1,2}\w{1,40}\s{1,2}\w{1,40}\s{1,2}
virsh :: virsh\s{1,2}secret-set-value\b[^\n|;&]{0,100}?--base64[ =]
etcdctl :: etcdctl\s{1,2}user\s{1,2}add\s{1,2}[\w.-]{1,40}:
gem :: gem\s{1,2}push\b[^\n|;&]{0,80}?--key[ =]
vercel wrangler netlify :: (?:vercel\s{1,2}env|wrangler\s{1,2}secret|netlify\s{1,2}env:set)\s{1,2}(?:add|put)?\s{0,2}\S{1,64}\s{1,2}(?:<<<\s?)?
config configure config:set secrets user-secrets set setx :: (?:config(?:ure)?|config:set|secrets|user-secrets|setx?)\s{1,2}(?:(?:set|add|put|--?\w{1,8})\s{1,2})?["']?[\w:./-]{0,60}(?:password|passwd|passphrase|token|secret|secret_access_key|token\.[\w.-]{1,40}|_auth|api_?key|_pass)["']?[ =]
cryptsetup pass op bw vault gh docker borg restic secret-tool hdiutil wrangler gopass sudo kinit :: (?:cryptsetup|pass|op|bw|vault|gh|docker|borg|restic|secret-tool|hdiutil|wrangler|gopass|sudo|kinit)\s[^\n|;&]{0,120}?<<<\s?
cryptsetup wg openvpn systemd-creds sshpass kinit vault :: (?:cryptsetup|wg|openvpn|systemd-creds|sshpass|kinit|vault)\b[^\n|;&]{0,120}?<\((?:echo|printf)\s(?:-\w\s)?(?:["']\w{1,32}(?:\\n|\n))?
convertto-securestring :: ConvertTo-SecureString\s(?:-String\s)?
expect :: expect\b[^\n]{0,200}?assword:?["'][^\n]{0,40}?send(?:\s-h)?(?:\s--)?\s
msmtp mbsync :: (?:msmtp|mbsync)\b[^\n|;&]{0,80}?--passwordeval[ =]["']?echo\s
"""  # noqa: E501 - a row is a line


def _commands() -> tuple[Pattern, ...]:
    """Return the patterns of the secrets on command lines, one for each row of the tables."""
    patterns = []
    for row in _COMMANDS.strip().splitlines():
        programs, _, before = row.partition(" :: ")
        expression = rf"(?P<before>(?<![\w-])(?:{programs})\s(?:[^\n|;&]{{0,200}}?\s)?{before}{_QUOTE})"
        names = tuple(programs.replace("\\", "").split("|"))
        patterns.append(Pattern("flag", (), expression + _TYPED_VALUE, programs=names))
    for row in _SUBCOMMANDS.strip().splitlines():
        programs, _, before = row.partition(" :: ")
        expression = rf"(?i)(?P<before>(?<![\w-])(?:{before}){_QUOTE})"
        patterns.append(Pattern("flag", (), expression + _TYPED_VALUE, programs=tuple(programs.split())))
    return tuple(patterns)


_APART = r"(?<![A-Za-z0-9])"

PATTERNS = (
    Pattern(
        "pem",
        ("private key",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{0,60}-----"
        r"|(?:(?:\s|\\[nr]|[0-9>|#*+:│→.,\"'-]){1,24}+(?:[A-Za-z0-9+/=]{20,}+|[A-Za-z-]{3,20}: [^\n]{1,60}+))++)",
        # the last form: lines may be numbered or quoted, and the text ends before the key does
    ),
    Pattern(
        "pem",  # a key of PuTTY
        ("private-lines",),
        r"(?i)(?P<before>private-lines:\s{0,4}[0-9]{1,3})(?:(?:\s|\\[nr]|[0-9>|#*+:-]){1,24}+[A-Za-z0-9+/=]{16,}+)++"
        r"(?:\s{1,8}private-mac:\s{0,4}[0-9a-f]{16,128})?",
    ),
    Pattern(
        "aws",
        ("aws_secret",),
        r"(?i:(?P<before>aws_secret_access_key\\{0,3}[\"']?\s{0,4}[=:]\s{0,4}\\{0,3}[\"']?))"
        r"[A-Za-z0-9/+=]{40}(?![A-Za-z0-9/+=])",
    ),
    Pattern(
        "aws",  # the secret after its key id or the word "secret"; a digest has no capitals
        ("akia", "asia", "redacted:aws", "secret"),
        r"(?P<before>(?:(?:\[redacted:aws\]|A(?:KIA|SIA)[A-Z0-9]{16})[^\n]{0,40}?"
        r"|(?<![A-Za-z0-9])(?i:secret)(?:\s{1,4}(?i:access\s{1,4})?(?i:key))?"
        r"(?:\s{1,4}(?i:is|was))?[\s:=]{1,4}[\"'`]?)(?<![A-Za-z0-9/+]))"
        r"(?=[a-z0-9/+]{0,39}[A-Z])(?=[A-Z0-9/+]{0,39}[a-z])(?=[A-Za-z]{0,39}[0-9/+])"
        r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    ),
    Pattern(
        "slack",  # anyone who has the address may post
        ("hooks.slack",),
        r"(?i)(?P<before>hooks\.slack\.com/(?:services|workflows|triggers)/)[A-Za-z0-9/_-]{10,}",
    ),
    Pattern("sendgrid", ("sg.",), _APART + r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}"),
    # CSS classes begin with sk- too; a key is one run with a digit near its beginning.
    Pattern("openai", ("sk-",), _APART + r"sk-(?:or-v1-)?(?=[A-Za-z]{0,19}[0-9])[A-Za-z0-9]{20,}"),
    Pattern("credential", ("sk-live-", "sk-test-"), _APART + r"sk-(?:live|test)-[A-Za-z0-9_-]{8,}"),
    Pattern("google", ("aiza",), _APART + r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
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
        r"[A-Za-z0-9._~+/=:-]{8,}",
    ),
    Pattern(
        "header",  # Bearer VALUE anywhere; a word of prose has no digit
        ("bearer",),
        r"(?i)(?P<before>(?<![A-Za-z0-9_-])bearer\s{1,4}[\"'`]?)"
        r"(?=[A-Za-z._~+/=-]{0,60}[0-9])[A-Za-z0-9._~+/=:-]{12,}",
    ),
    Pattern(
        "credential",  # the password is VALUE: with a digit or a sign, or in quotes; otherwise it is prose
        ("passw", "passphrase"),
        r"(?i)(?P<before>(?<![A-Za-z0-9])(?:passw(?:or)?d|passphrase)\s{1,4}(?:is|was)(?:\s{1,4}now)?:?\s{1,4})"
        r"(?!\w{1,20}-[a-z]{1,12}(?:ed|bit|able|safe)\b)(?:(?P<quote>[\"'`])(?![$<{%\[])[^\"'`\r\n]{6,64}(?P=quote)"
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
    Pattern("twilio", ("sk",), _APART + r"SK[0-9a-f]{32}(?![0-9a-zA-Z])"),
    Pattern("telegram", (":aa",), _APART + r"(?:bot)?[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"),
    Pattern(
        "webhook",  # anyone who has the address may post
        ("webhook", "api.telegram"),
        r"(?i)(?P<before>(?:/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{6,20}/|/webhook(?:b2|s)?/|/bot(?=[0-9]{8})))"
        r"(?=[^\s\"'<>]{0,200}[0-9])[A-Za-z0-9@:/_-]{24,}",
    ),
    Pattern(
        "url",  # the signature of a signed address
        ("sig=", "signature="),
        r"(?i)(?P<before>(?<![a-z0-9])(?:sig|(?:x-(?:amz|goog|ms)-)?signature)=)[a-z0-9%+/_-]{16,}={0,2}",
    ),
    Pattern(
        "azure",
        ("accesskey", "accountkey", "sharedaccesskey"),
        r"(?i)(?P<before>(?:shared)?access(?:_?key)=|accountkey=)[a-z0-9+/=]{20,}",
    ),
    Pattern(
        "url",  # https://VALUE@host
        ("://",),
        r"(?P<before>://)(?=[A-Za-z_-]{0,80}[0-9])(?=[A-Z0-9_-]{0,80}[a-z])[A-Za-z0-9_-]{16,256}(?=@[A-Za-z0-9.-])",
    ),
    Pattern(
        "url",  # the address lets in anyone who has it
        ("://",),
        r"(?i)(?P<before>://[^\s\"'<>]{0,120}?/(?:reset|magic|invit|verify|confirm|activat|token|hook)[a-z-]{0,20}/)"
        r"(?=[a-z_-]{0,80}[0-9])[a-z0-9_-]{20,256}",
    ),
    Pattern(
        "credential",  # .pgpass: host:port:database:user:VALUE
        (":5432:", ":*:", ":6432:", ":5433:"),
        r"(?m)(?P<before>^[^\s:#]{1,100}:(?:[0-9]{2,5}|\*):[^\s:]{1,64}:[^\s:]{1,64}:)(?![$<{%\[*])[^\s:]{4,128}$",
    ),
    Pattern(
        "credential",  # .netrc
        ("login", "machine", "account"),
        r"(?P<before>\b(?:machine\s{1,4}\S{1,100}|default)\s{1,20}(?:login"
        r"|account)\s{1,4}\S{1,100}\s{1,20}password\s{1,4})"
        r"(?![$<{%\[*])[^\s]{4,256}",
    ),
    Pattern(
        "credential",  # SQL
        ("identified", "password '", 'password "'),
        r"(?i)(?P<before>\b(?:identified\s{1,4}(?:with\s{1,4}\w{1,40}\s{1,4})?by|(?:user|role)\s{1,4}\S{1,64}"
        r"\s{1,4}(?:with\s{1,4})?[a-z ]{0,40}password)\s{1,4}(?:password\s{1,4})?[\"'])(?![$<{%\[:?*])"
        r"[^\s\"']{4,128}(?=[\"'])",
    ),
    Pattern(
        "credential",  # the words of a wallet
        ("seed phrase", "seed_phrase", "seed word", "seed:", "mnemonic", "recovery phrase", "recovery_phrase"),
        r"(?i)(?P<before>\b(?:seed|mnemonic|recovery)(?:[ _]?(?:phrase|words?))?[^a-z\n]{1,4}"
        r"(?:(?:is|ist|es|est)[ :]{1,3})?[\"'`]?)(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8}",
    ),
    Pattern(
        "hash",  # of a password: whoever has it can try passwords at home
        (
            "$2",
            "$argon2",
            "$1$",
            "$5$",
            "$6$",
            "$7$",
            "$y$",
            "$apr1$",
            "$p$",
            "$h$",
            "$s$",
            "pbkdf2",
            "scrypt:",
            "{ss",
            "{sha",
            "{sm",
        ),
        r"\$2[abxy]?\$[0-9]{2}\$[./A-Za-z0-9]{50,53}"
        r"|\$argon2(?:id|[id])\$[^\s\"'`:;<>|]{30,}"
        r"|\$(?:[1567y]|gy|apr1|md5|sha1|scrypt|pbkdf2[a-z0-9-]{0,12}|bcrypt-sha256)\$[^\s\"'`:;<>|&(){}]{20,}"
        r"|\$[PHS]\$[./A-Za-z0-9]{30,}"
        r"|\{(?:S?SHA[0-9]{0,3}|S?MD5|PBKDF2[A-Z0-9-]{0,12}|CRYPT|ARGON2)\}[$./A-Za-z0-9+=]{20,}"
        r"|pbkdf2[_:]sha[0-9]{1,3}[$:][0-9]{3,8}\$[^\s$\"']{4,64}\$[A-Za-z0-9+/=]{20,}"
        r"|scrypt:[0-9:]{3,20}\$[^\s$\"']{4,64}\$[0-9a-f]{40,}",
    ),
    Pattern(
        "hash",
        ("aad3b435", "::", "scram-sha", "sha1$", "sha256$", "sha512$", "md5$", "*", "md5"),
        r"(?i)aad3b435b51404eeaad3b435b51404ee:[0-9a-f]{32}"
        r"|(?P<before>::[^\s:]{1,64}:)[0-9a-f]{16}:[0-9a-f]{32}:[0-9a-f]{32,}"
        r"|scram-sha-[0-9]{1,3}\$[0-9]{3,8}:[a-z0-9+/=]{8,64}\$[a-z0-9+/=]{20,100}:[a-z0-9+/=]{20,}"
        r"|(?<![a-z0-9])(?:sha(?:1|256|512)|md5)\$[^\s$\"']{4,64}\$[0-9a-f]{32,}"
        r"|(?<![\w*])\*(?-i:[0-9A-F]{40})(?![0-9A-Za-z])"
        r"|(?<=[\"' ])md5[0-9a-f]{32}(?=[\"'\s]|\Z)",
    ),
    *_commands(),
    Pattern(
        "flag",  # echo user:VALUE | chpasswd, echo VALUE | docker login --password-stdin
        ("echo", "printf"),
        r"(?P<before>\b(?:echo|printf)\s(?:-n\s)?[\"']?(?:[a-z_][a-z0-9_-]{0,31}:)?)(?![-$<{%\[\"'])[^\s\"'|;&]{6,256}"
        r"(?=[\"']?\s{0,2}\|\s{0,2}(?:sudo\s(?:-S)?)?(?:chpasswd|passwd\b|sudo|[^\n|]{0,60}--(?:password-stdin"
        r"|with-token|passphrase-fd)))",
    ),
    Pattern(
        "flag",  # --password VALUE, as typed on a command line
        ("--",),
        r"(?i)(?P<before>(?<![\w-])-{1,2}(?:[a-z]{1,20}-){0,3}(?:passw(?:or)?d|passphrase|passwd|token|secret"
        r"|api-?key|(?:secret|access|account|auth)-key)\s[\"']?)"
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

_PLACEHOLDER = _lazy(
    r"(?i)\[redacted:|\$[A-Za-z_{(]|[<{]|%[(s{]|%[A-Za-z_]\w*%|@[A-Za-z_.]+@$|#\{"
    r"|(?:your|example|placeholder|dummy|changeme|change|insert|replace|enter|sample|fake|mock)[_-]"
    r"|(?:undefined|changeme|placeholder|redacted|:?(?:user|my|your)?_?(?:pass|passwd|password|pwd|secret|token"
    r"|key)[0-9]?)$"
    r"|:[a-z_]{2,30}$",
)
_FILLERS = (
    *("xxxx", "***", "...", "…", "•••", "####", "____", "00000000", "placeholder", "replace_", "replace-"),
    *("replaceme", "changeme", "change_me", "change-me", "your_", "your-", "_here", "-here", "[a-z", "[0-9"),
)
_FILLER_WORD = _lazy(r"(?i)(?<![a-z0-9])(?:example|replace|dummy|todo)(?![a-z0-9])")
_SEQUENCE = _lazy(r"(?i)0?123456(?:7890?|789?|7)?|abcdef(?:g[a-z]*)?|9876543210?|deadbeef|f00d|foobar")
_ADDRESS = _lazy(r"https?://[^=]*|[.~]{0,2}(?:/[a-z0-9_.-]+)+/?")  # a token endpoint, a file with a secret
_WORDS = _lazy(r"[A-Za-z_.:|&?!*/-]+")  # a type, a name, prose
_NAME = _lazy(r"[A-Za-z_][A-Za-z0-9_.]*")
_MIXED = _lazy(r"[A-Za-z][0-9]|[0-9][A-Za-z]")
_TYPED = _lazy(r"(?=[A-Za-z]*[0-9]+[A-Za-z])[A-Za-z0-9]+")  # a digit inside a word, so not a numbered name
_ABOUT = _lazy(  # words of a text about passwords
    r"(?i)\b(?:passw(?:or)?ds?|passphrases?|secrets?|tokens?|keys?|enter|your|must|should|required|invalid"
    r"|wrong|missing"
    r"|please|is|are|for|to)\b"
)

_DESCRIPTION = _lazy(
    r"(?i)true|false|none|null|string|str|text|hidden|masked|empty|optional|expired|changed|reset|unset"
)
_SECRET_NAME = _lazy(
    r"(?P<kind>passw(?:or)?ds?|passphrases?|(?:(?<=_)|^)pass|(?<=_)pwd|^pwd|secrets?|tokens?|credentials?"
    r"|(?:api|private|secret|access|account|encryption|signing|shared|master)_?keys?)(?:_base)?_?[0-9]{0,2}$"
)
_HEADERS = ("authorization", "proxy_authorization", "cookie", "set_cookie")
KEY_CHARACTERS_MAX = 200  # a longer key is data and names no secret

BIGRAMS = (  # the 300 pairs of letters that make up 96 % of words in prose and code
    "abacadafagaiakalamanaparasatauavawaxayazbabebiblbobrbsbucacccechcickclcocrcsctcucydadddedidldodrdsdueaebecedeeef"
    "egeheielemeneoepeqereseteuevewexeyeñfafefffiflfofrfsftfufygageggghgiglgmgngogrgsguhahehihlhohrhthuiaibicidieifig"
    "ikiliminioipirisitivixizjejukakekikslalcldlelilllolplsltlulvlylümambmemimlmmmompmsmunanbncndnenfngninknlnnnonsnt"
    "nunvnwnyoaobocodofogoiokolomonoooporosotouovowpapephpiplpoppprpsptpupyqurarbrcrdrerfrgrirkrlrmrnrorprrrsrtrurvry"
    "rzsascsesfshsiskslsospssstsuswsytatctdtethtitltotptrtstttutwtytzuaubucudueufuguiulumunupurusutvavevivowawewhwiwn"
    "wowrwsxcxexixpxtyiynypysytzazezlzuzyñaüs"
)
RUN_CHARACTERS_MIN = 16  # a shorter run is a secret only if a name or a place says so
JUDGED_CHARACTERS_MAX = 100  # so many characters of a run show whether it is random


@lru_cache(maxsize=1)
def _natural_pairs() -> frozenset[str]:
    pairs = [BIGRAMS[place : place + 2] for place in range(0, len(BIGRAMS), 2)]
    digits = [f"{tens}{ones}" for tens in range(10) for ones in range(10)]
    return frozenset([*pairs, *(each.upper() for each in pairs), *(each.title() for each in pairs), *digits])


def randomness(run: str) -> float:
    """Return the share of neighbouring letters and digits in a run that do not follow each other in words or numbers.

    It is about 0.8 for a random run, 0.6 for a random hexadecimal number, and 0.2 for a name of several words.
    """
    run = run[:JUDGED_CHARACTERS_MAX]
    natural = _natural_pairs()
    pairs = [run[place : place + 2] for place in range(len(run) - 1)]
    pairs = [pair for pair in pairs if pair.isalnum()]
    return sum(pair not in natural for pair in pairs) / len(pairs) if pairs else 0.0


_HEX = _lazy(r"(?:0x)?[0-9a-fA-F]+")
_UUID = _lazy(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_STANDARD_ALPHABET = ("abcdefghij", "ABCDEFGHIJ", "qwertyuiop")  # of a regular expression or a placeholder


def _is_strong(run: str, *, at_least: int = RUN_CHARACTERS_MIN, hexadecimal: bool = False, above: float = 0.42) -> bool:
    """Return True for a run that only a machine would write, such as a key. A digest counts only if `hexadecimal`."""
    if (
        len(run) < at_least
        or _is_placeholder(run)
        or _is_sequence(run)
        or any(each in run for each in _STANDARD_ALPHABET)
    ):
        return False
    if _HEX.fullmatch(run) or _UUID.fullmatch(run):
        return hexadecimal and len(set(run)) > 5 and not run.isdigit()
    has_digit = any("0" <= each <= "9" for each in run)
    if not has_digit and (run.islower() or run.isupper() or len(run) < 20):
        return False
    if _is_wordy(run):
        return False
    return randomness(run) >= (above if has_digit else 0.55) and len(set(run[:JUDGED_CHARACTERS_MAX])) >= 7


def _is_wordy(run: str) -> bool:
    """Return True for a name: a third of its letters are words between separators."""
    parts = _PARTS.split(run[:JUDGED_CHARACTERS_MAX])
    if len(parts) == 1:
        return False
    words = [part for part in parts if len(part) > 2 and _WORD.fullmatch(part) and randomness(part) <= 0.34]
    return 3 * sum(map(len, words)) >= sum(map(len, parts))


_WORD = _lazy(r"(?:[A-Z]?[a-z]+|[A-Z]+)[0-9]{0,2}")
_PARTS = _lazy(r"[_.-]+")


# -- Runs with a prefix

_NO_KEYS = frozenset(  # what stands before the id or the digest of a thing that is no secret
    "sha sha1 sha2 sha224 sha256 sha384 sha512 md5 blake2b blake3 crc crc32 h1 hash digest etag checksum integrity"
    " fingerprint uuid guid urn oid cid did id ids toolu msg wrkspc workspace ws draft rfc req request call"
    " chatcmpl cmpl resp rs fc run step thread asst file org proj project user usr cus customer sub pi pm ch evt"
    " event price prod si seti txn acct account cs"
    " order invoice inv ftjob batch gen wf exec dpl deployment vpc subnet sg ami eni vol snap rtb igw arn commit rev"
    " build image img layer cache chunk asset font icon css js main index vendor bundle styles style module sc svelte"
    " ng trace span job task pod node host ssh rsa ecdsa ed25519 data base64 tx block public pub pk nonce blob object"
    " page session sess ses conv conversation part prompt item row test fixture snapshot backup upload tmp temp"
    " version v www cdn static assets dist app web lib libs pkg package release refs tag branch merge"
    " feature fix git dev prd stg eu us de nix store drv wheel cp manylinux linux darwin win x86 amd64 arm64 ver"
    " log logs report key1 gravatar avatar component button container wrapper header footer nav card form input label"
    " srv svc mica doc docs".split()
)
_MARKS = frozenset("key pat tok token api sk rk sec secret live prod test auth access oauth bot cred ak pwd pw".split())
_RUN = _lazy(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-]))*+")
_LONG = _lazy(rf"(?<!\S)\S{{{RUN_CHARACTERS_MIN},}}+")
_VOWEL = _lazy(r"[aeiouyAEIOUY]")
_TAIL = _lazy(r"[+/=][A-Za-z0-9_+/=-]*+")


def _prefixed(run: str) -> bool:
    """Return True if a run is a short prefix, a separator and a random body, as the keys of most vendors are."""
    if _GLUED.fullmatch(run) is not None:
        return not run.lower().startswith(("sha", "md5", "qm", "bafy")) and _is_strong(run, above=0.3)
    if "." in run and _is_pair(run.split(".")):
        return True
    if _UUID.search(run):
        marked = _PARTS.split(run.lower(), maxsplit=1)[0]
        return marked in _MARKS and not _UUID.match(run)
    prefix: list[str] = []
    place = 0
    for separator in _PARTS.finditer(run, 0, 40):
        part = run[place : separator.start()]
        if len(part) > 14 or (len(part) > 5 and randomness(part) >= 0.5 and any(each.isdigit() for each in part)):
            break
        prefix.append(part if part.isupper() else part.lower())
        place = separator.end()
        body = run[place:]
        if len(prefix) > 4 or len(body) < RUN_CHARACTERS_MIN:
            return False
        first = _PARTS.split(body, maxsplit=1)[0]
        if len(first) < 4 or not prefix[0][:1].isalpha():
            continue
        if _is_body(body, separator=run[separator.start()], prefix=prefix):
            return True
    return False


_GLUED = _lazy(r"(?=[a-fA-F]{0,3}[g-zG-Z])[A-Za-z]{2,5}[0-9a-f]{32,64}")  # dapi0123…, without a separator


def _is_pair(parts: list[str]) -> bool:
    """Return True for two or three random parts with points between them, as in a web token."""
    if not 2 <= len(parts) <= 4 or len(parts[0]) < 14 or len(parts[-1]) < 20:
        return False
    return (_is_strong(parts[0], at_least=14) or randomness(parts[0]) >= 0.5) and _is_strong(
        parts[-1], at_least=20, hexadecimal=True
    )


def _is_bare(text: str, start: int, end: int) -> bool:
    """Return True for a random run of letters of both cases and digits that stands by itself, and not in a list."""
    run = text[start:end]
    if (
        not 30 <= len(run) <= 200
        or run.isupper()
        or run.islower()
        or not run.replace("_", "").replace("-", "").isalnum()
    ):
        return False
    if _PARTS.split(run, maxsplit=1)[0].lower() in _NO_KEYS:
        return False
    before, after = text[max(0, start - 2) : start], text[end : end + 4].lstrip("=")
    if (before and not before[-1].isspace() and before[-1] not in "\"'`(") or before[:1] == "=":
        return False
    if after and not after[0].isspace() and after[0] not in "\"'`).,;!?":
        return False
    digits = sum(each.isdigit() for each in run)
    if digits < 3 or randomness(run) < 0.55 or not _is_strong(run) or run.startswith(("AAAA", "eyJ", "Qm", "iVBOR")):
        return False
    line_before = text[max(0, start - 60) : start].rstrip()
    return (
        _NOT_BARE.search(line_before) is None and _BLOCK.search(line_before) is None and _BLOCK.match(text, end) is None
    )


_NOT_BARE = _lazy(
    r"(?i)ssh-|data:|base64|\bid\b|_id|\bcid|address|wallet|fingerprint|sha-?\d|digest|hash|public|integrity"
    r"|cursor|nonce|\bkey\s*id"
)
_BLOCK = _lazy(r"[\"']?,?\s*\n\s*[\"']?[A-Za-z0-9+/=_-]{30,}(?:\s|$)|[A-Za-z0-9+/]{30,}=*$")


def _is_body(body: str, *, separator: str, prefix: list[str]) -> bool:
    joined = _PARTS.sub("", body[: JUDGED_CHARACTERS_MAX * 2])
    if (
        prefix[-1] in _NO_KEYS
        or (prefix[0] in _NO_KEYS and not _MARKS.intersection(prefix))
        or len(joined) < (14 if _MARKS.intersection(prefix) else RUN_CHARACTERS_MIN)
    ):
        return False
    if _HEX.fullmatch(joined):
        short = sum(map(len, prefix)) <= 10
        marked = bool(_MARKS.intersection(prefix)) or any(each.endswith(("key", "pat", "tok")) for each in prefix)
        coined = len(prefix) == 1 and (len(prefix[0]) < 4 or prefix[0].isupper() or not _VOWEL.search(prefix[0]))
        hexadecimal = len(joined) >= 24 and (marked or (separator == "_" and short))
        return (hexadecimal or (coined and len(joined) >= 32)) and _is_strong(joined, hexadecimal=True)
    if _is_wordy(body):
        return False
    if "." in body and max(map(len, body.split("."))) < 16:
        return False
    return _is_strong(joined, at_least=14) and randomness(_PARTS.split(body)[0] or joined) >= 0.3


def _find_runs(text: str, vendors: dict[str, list[tuple[str, Vendor]]], found: list[Span]) -> None:
    """Find the keys of known vendors, and runs that look like the key of any other."""
    for long in _LONG.finditer(text):
        word = long[0]
        if not _is_odd(word):
            continue
        start = long.start()
        known = _find_vendors(word, vendors)
        found += [(start + begin, start + end, kind) for begin, end, kind in known]
        for run in _RUN.finditer(word):
            if run.end() - run.start() < 20 or any(begin < run.end() and run.start() < end for begin, end, _ in known):
                continue
            if _is_bare(text, start + run.start(), start + run.end()):
                found.append((start + run.start(), start + run.end(), GENERIC))
            elif _prefixed(run[0]):
                tail = _TAIL.match(word, run.end())
                is_part = tail is not None and ("+" in tail[0] or tail[0].strip("=") == "" or _is_strong(tail[0][1:]))
                found.append((start + run.start(), start + (tail.end() if tail and is_part else run.end()), GENERIC))


def _find_vendors(word: str, vendors: dict[str, list[tuple[str, Vendor]]]) -> list[Span]:
    found: list[Span] = []
    end = 0
    for place in range(len(word) - 10):
        if place < end or word[place : place + 3] not in vendors:
            continue
        for prefix, vendor in vendors[word[place : place + 3]]:
            if not word.startswith(prefix, place):
                continue
            body = _alphabet(vendor.alphabet).match(word, place + len(prefix))
            text = body[0].rstrip(".-_") if body else ""
            if text.endswith("="):
                text = text.rstrip("=") + "=" * min(2, len(text) - len(text.rstrip("=")))
            end = max(end, body.end() if body and len(text) >= 200 else 0)  # a long run is read once
            if (
                len(text) < vendor.characters
                or _is_placeholder(text)
                or _is_sequence(text)
                or not _is_apart(word, place, prefix, text)
            ):
                continue
            end = place + len(prefix) + len(text)
            found.append((place, end, vendor.kind))
            break
    return found


def _is_apart(word: str, place: int, prefix: str, body: str) -> bool:
    """Return True unless a prefix is the end of another word, or its body consists of words."""
    if (body.isalpha() and body.islower()) or any(each in body for each in _STANDARD_ALPHABET):
        return False
    before = word[place - 1] if place else ""
    if before.isalnum():  # a separator within the prefix makes it unmistakable, if the body is random
        return len(prefix) > 3 and not prefix.isalnum() and randomness(body) >= 0.4
    if (
        before in {"+", "/"}
        and prefix.isalnum()
        and place > 12
        and randomness(word[max(0, place - 24) : place - 1]) >= 0.45
    ):
        return False  # a part of a longer text in base64
    if prefix.isalnum() or len(prefix) <= 4:
        fixed = _HEX.fullmatch(body) or (body.isupper() and any(each.isdigit() for each in body))
        return randomness(body) >= (0.1 if fixed else 0.35)
    return len(prefix) > 6 or randomness(body) >= 0.15 or any(each.isdigit() for each in body)


@lru_cache(maxsize=len(_ALPHABETS))
def _alphabet(name: str) -> re.Pattern[str]:
    return re.compile(f"{_ALPHABETS[name]}+")


# -- Names and the values beside them

_STEMS = (  # lower case; a name of a secret contains one of them
    *("pass", "pwd", "pw", "secret", "token", "key", "cred", "kennw", "contrase", "clave", "mdp", "jeton", "senha"),
    *("auth", "login"),
    *("wachtw", "geheim", "segret", "hasł", "hasl", "losen", "lösen", "hesl", "парол", "токен", "ключ", "salasan"),
    *(
        "schlüs",
        "schluess",
        "clé",
        "llave",
        "şifre",
        "sifre",
        "parol",
        "kodeord",
        "adgangsk",
        "jelsz",
        "lozink",
        "geslo",
    ),
    *("sleutel", "chiave", "chave", "klucz", "nyckel", "klíč", "κωδικ", "slapta", "psk", "community"),
)
_PLAIN_STEMS = ("pass", "pwd", "pw", "secret", "token", "key", "clave", "kennw", "senha", "mdp")  # beside a word
_WEAK_STEMS = (  # names of secrets that only count beside a random run
    *("log in", "logged in", "sign in", "zugang", "identif", "sig", "psk", "jwt", "dsn", "sas", "pat"),
    *("seed", "salt", "cookie", "session", "webhook", "licen", "anmeld", "bearer", "pin", "clef"),
)
_PASSWORDS = frozenset(
    "password passwd passwort passphrase passcode passwords kennwort contraseña contrasena mdp passe senha"
    " wachtwoord hasło lösenord heslo пароль 密码 密碼 口令 パスワード 비밀번호 pass pwd pw clave"
    " psk wpapsk requirepass masterauth bindpw rootpw passwordhash şifre parola passwörter userpass"
    " userpw userpwd mot_de_passe passin passout wo community".split()
)
_SECRETS = frozenset(
    "secret secrets token tokens apikey api_key authtoken accesstoken secretkey accesskey privatekey authkey jeton"
    " geheimnis secreto secrète credentials cred creds zugangsdaten identifiants credenciales authtok"
    " schlüssel clé clef llave key keys токен ключ 密钥 auth apitoken bottoken pat".split()
)
_PASSING = frozenset("pass pwd pw bypass compass encompass surpass trespass overpass underpass multipass".split())
_FOREIGN_PASSWORDS = (  # with the endings that a sentence gives them
    *("wachtwoord", "hasł", "hasla", "haslo", "lösenord", "losenord", "passord", "adgangskode", "kodeord", "salasan"),
    *("heslo", "hesle", "hesla", "heslu", "jelsz", "parola", "parole", "parool", "şifre", "sifre", "парол", "κωδικ"),
    *("lozink", "geslo", "contraseny", "slaptažod", "senha"),
)
_FOREIGN_KEYS = ("sleutel", "chiav", "chave", "klucz", "nyckel", "klíč", "nøgle", "ключ", "токен", "segret")
_WEAK = frozenset(
    "sig signature sas jwt seed salt dsn cookie session sid sessionid webhook license licence pin bearer authorization"
    " sessid authentication login anmelden authenticate zugang identifier sign logged".split()
)
_KEY_OF = frozenset(  # this key is no secret
    "public pub primary foreign cache sort partition object idempotency translation hash group dict map query index"
    " unique s3 i18n lookup row column composite registry arrow message label react json data config config_map"
    " field dedup routing shard session_cache sha fingerprint host known_hosts".split()
)
_NOT_ITSELF = frozenset(  # `token_count` is no token
    "id ids name names url uri type types count counts length len limit limits hash digest file files path paths dir"
    " field fields label labels title text placeholder hint error errors message msg policy prompt reset required"
    " changed expired expires expiry at ttl format index size input form page usage used max min budget manager store"
    " provider service handler class factory validator checker strength rules regex pattern prefix suffix header"
    " column table version algorithm alg rotation estimate estimator cost board word words pair pairs event events"
    " stroke strokes board press code_point tested present visible enabled disabled valid invalid is has".split()
)
_SUFFIXES = frozenset(
    "value string str raw plain base env prod production staging stage dev test qa current new old default b64 base64"
    " data wo live sandbox main primary secondary backup v1 v2 v3 eu us de admin root user readonly rw ro".split()
)
_CAMEL = _lazy(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME_END = _lazy(r"[\w-]{0,64}")
NAME_CHARACTERS_MAX = 64


@lru_cache(maxsize=4_096)
def _strength(name: str) -> str:
    """Return what a name says about the value beside it: `password`, `secret`, `weak`, or an empty text."""
    lower = _CAMEL.sub("_", name).lower().replace("-", "_").strip("_")
    if lower == "palavra_passe":
        return "password"
    words = [word.rstrip("0123456789") or word for word in lower.split("_") if word]
    while len(words) > 1 and (words[-1] in _SUFFIXES or lower.endswith("_b64")):
        lower = lower.removesuffix("_b64")
        words.pop()
    if words[-2:] in (["key", "id"], ["secret", "id"]):
        return "weak"
    if not words or words[-1] in _NOT_ITSELF:
        return ""
    last = words[-1]
    before = words[-2] if len(words) > 1 else ""
    if last in {"key", "keys"}:
        if before in _KEY_OF:
            return ""
        return "secret" if before else "weak"
    if last in _PASSWORDS or last.endswith(("password", "passwd", "passwort", "passphrase", "passwrd")):
        return "password" if last not in {"pass", "pwd"} or before or name.isupper() or len(name) > 4 else "pass"
    if last.endswith(("pass", "pw", "pwd")) and last not in _PASSING:
        return "password" if before or len(last) > 4 else ""
    if last.startswith(_FOREIGN_PASSWORDS):
        return "password"
    if (
        last in _SECRETS
        or last.startswith(_FOREIGN_KEYS)
        or last.endswith(("token", "secret", "apikey", "accesskey", "secretkey", "authkey", "authtok"))
    ):
        return "secret"
    if (last.startswith(("auth", "anmeld", "zugang")) and not last.startswith("author")) or last in _WEAK:
        return "weak"
    return ""


_LINK = Pattern(
    "credential",
    (),
    r"""(?ix)
    (?:s\b)?["'`*_\])]{0,4}
    (?:\s{1,2}\([^()\n]{0,40}\))?
    (?:
        (?P<pair>[\s,"'>]{0,24}\b(?:value|val|content)["']?\s{0,2}[:=]\s{0,4}
            |["']?\s{0,2}\{[^{}"']{0,160}(?:["'][^"'\n]{0,100}["'][^{}"']{0,60})?\bdefault\s{0,12}=\s{0,4})
        |(?P<call>["'\])]{1,4}\s?(?:,\s?|\)?\.(?:type|fill|send_?keys|send|set_?value|val)\()(?=["']))
        |(?P<xml>[^<>\n]{0,80}>\s{0,8}(?:<value>\s{0,8})?|</key>\s{0,20}<string>\s{0,4}|\((?=["'])|[^()\n]{0,3}\((?=["']))
        |(?P<sign>\s{0,12}(?:=>|:=|->|→|⇒|⟶|=|:|\||,\s{0,2}(?=["'])|\|\||\?\?|\s[-–—]{1,2}\s)[\s>*_]{0,12})
        |(?P<prose>(?:\.(?=\S)|[^.:=|<>\r\n"'`;]|(?<=[a-z])'(?=[A-Za-z])){0,60}?\s(?:is|was|are|now|to|be|ist|war|lautet|lauten|sind|es|era|sea|son|est|était
            |sont|wird|reads|became|becomes|equals|heißt|heisst|è|é|är|er|on|je|jest|brzmi|este|és|είναι|это|là
            |wordt|luidt|şudur|is:|ist:|es:|est:|lautet:|was:|to:)\s{1,4}(?:now\s|still\s|jetzt\s|ahora\s
            |maintenant\s|set\sto\s|auf\s)?
            |[^.:=|<>\r\n"'`;]{1,60}?\s{0,2}(?::|=|→|->)\s{1,4})
        |(?P<space>\s{1,12})
    )
    """,
)
_VALUE = _lazy(
    r"""[*_(\[<]{0,3}(?:(?P<quote>["'`]{1,3})\s?(?P<quoted>[^"'`\r\n]{4,512}?)\s?(?P=quote)|"""
    r"""(?P<bare>[^\s"'`<>|,;]{4,512}))"""
)
_TOKENS = _lazy(r"""[^\s"'`<>|,;()\[\]{}=]{10,512}""")
_TRAILING = ".,;:!?*_)\\]}"
_PLAIN_VALUE = _lazy(  # a version, a number with its unit, a date, an address, a path
    r"v?\d+(?:[._-]\w+)*|[\d.,:/+-]+[a-zA-Z%]{0,4}|\d+(?:st|nd|rd|th)|[a-zA-Z]+-?\d{1,3}(?:\.\d+)*"
    r"|[^@\s]+@[\w-]+(?:\.[\w-]+)+|\w+://.*|[.~]{0,2}/.*|(?:[\w.-]+/)+[\w.-]+|\d{4}-\d\d-\d\d.*|#\d+"
    r"|[A-Za-z_][\w-]*(?:[.:]{1,2}[A-Za-z_][\w-]*)+"
    r"|[A-Za-z]{2,}\d{0,2}(?:[_-](?:[A-Za-z]{2,}\d{0,2}|v?\d{1,3}))+"
)
_HEX_WORDS = _lazy(
    r"(?i)commit|signature|digest|hash|sha-?\d|checksum|md5|revision|etag|integrity|fingerprint|public|uuid"
)


def _is_chosen(value: str, *, linked: bool) -> bool:
    """Return True for a value that a person would choose as a password: with digits or signs, and no ordinary term."""
    if not 6 <= len(value) <= 64 or _is_placeholder(value) or not value.isprintable():
        return False
    if _BRACKET.search(value) is not None and randomness(value) < 0.5:
        return False
    letters = _LETTER.search(value) is not None
    digits = _DIGIT.search(value) is not None
    signs = _SIGN.search(value, 0, len(value) - 1) is not None
    if linked and _CHOSEN.fullmatch(value) and not _NAMED.search(value):
        return True
    if linked and value.isalpha() and len(value) >= 8 and not value.istitle():
        return not value.islower() and not value.isupper() and randomness(value) >= 0.5
    if linked and _LEET.search(value):
        return True
    if linked and digits and value.count("-") > 1 and any(part.isdigit() for part in value.split("-")[1:]):
        return any(part.isalpha() for part in value.split("-"))  # words and a number
    if _PLAIN_VALUE.fullmatch(value) or _UUID.fullmatch(value):
        return False
    if _NAMED.search(value) and randomness(value) < 0.5 and not signs:
        return False
    if linked:
        return (digits and (letters or signs or len(value) >= 8)) or (letters and signs)
    return letters and digits and (signs or (len(value) >= 7 and randomness(value) > 0.3))


_LETTER = _lazy(r"[^\W\d_]")
_BRACKET = _lazy(r"[()\[\]{}\\]")
_SIGN = _lazy(r"[!@#$%^&*+=~?€£§]")
_CHOSEN = _lazy(r"[A-Za-z]{4,}[0-9]{1,6}")  # hunter22
_LEET = _lazy(r"[A-Za-z][0-9]+[A-Za-z][A-Za-z0-9]*[-_!.][A-Za-z0-9]*[A-Za-z][0-9]")  # s3cr3t-Pa55
_NAMED = _lazy(r"(?i)pass(?:w|$)|secret|token|key")
_WORD_CHARACTERS = _lazy(r"[A-Za-z]+")


def _names(text: str, lower: str, stems: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return the places of all names that may be those of a secret."""
    ends: dict[int, int] = {}
    for stem in stems:
        place = lower.find(stem)
        while place >= 0:
            start, first = place, max(0, place - NAME_CHARACTERS_MAX)
            while start > first and (text[start - 1].isalnum() or text[start - 1] in "_-"):
                start -= 1
            ended = _NAME_END.match(text, place)
            end = place if ended is None else ended.end()
            ends[start] = max(end, ends.get(start, 0))
            place = lower.find(stem, max(end, place + len(stem)))
    return sorted(ends.items())


def _find_named(text: str, names: list[tuple[int, int]], odd: list[tuple[int, int]], found: list[Span]) -> None:
    """Find the values beside names of secrets. Weak names count only beside runs."""
    read = {_KEY: 0, _PHRASE: 0}  # so far; what is part of a value is not searched again
    for start, longest in names:
        if longest - start > NAME_CHARACTERS_MAX:
            continue
        end = start + len(text[start:longest].rstrip("-_"))
        if _ASSIGNS.match(text, end) is not None and (key := _KEY_END.search(text, start, end)) is not None:
            for pattern, judge in ((_KEY, _assigned), (_PHRASE, _phrase)):
                match = pattern.regex.match(text, key.start()) if key.start() >= read[pattern] else None
                if match is not None:
                    read[pattern] = match.end()
                    if (span := judge(match)) is not None:
                        found.append(span)
        _find_beside(text, start, end, odd, found)


_ASSIGNS = _lazy(r"\\{0,3}[\"'`]?\]?\s{0,4}[:=]")
_KEY_END = _lazy(
    r"(?i)(?:passw(?:or)?d|passphrase|(?<=_)pass|(?<=_)pwd|secret(?:[_-]?(?:access[_-]?)?key(?:_base)?)?|token"
    r"|api[_-]?key|private[_-]?key)[0-9]{0,2}\Z"
)


def _find_beside(text: str, start: int, end: int, odd: list[tuple[int, int]], found: list[Span]) -> None:
    name = text[start:end]
    strength = _strength(name)
    if name.lower().endswith(("auth", "login", "credential", "credentials")):
        call = _CALL.match(text, end)
        if call is not None and _find_value(text, call, "weak", name, found):
            return
    if not strength:
        return
    if name[:1] == "-" and strength != "weak" and _find_flag(text, end, found):
        return
    if strength != "weak":
        _find_back(text, start, end, strength, found)
    if strength == "weak" and text[end : end + 3].strip()[:1] not in {"(", "="}:
        near = bisect_left(odd, (start - NEAR_CHARACTERS, 0))
        if near == len(odd) or odd[near][0] > end + 2 * NEAR_CHARACTERS:
            return
    lower = name.lower()
    if (
        strength not in {"password", "pass"}
        and not odd
        and _DIGIT.search(text, end, end + VALUE_CHARACTERS_MAX) is None
    ):
        return
    if lower in {"key", "clave", "clé", "pass", "auth", "schlüssel"} and text[
        max(0, start - 8) : start
    ].lower().endswith(("public ", "foreign ", "primary ", "cache ", "ssh ")):
        return
    link = _LINK.regex.match(text, end)
    if link is not None and _find_value(text, link, strength, name, found):
        return
    if link is not None and link.lastgroup == "prose":
        link = _SPACE.match(text, end)
        if link is not None and _find_value(text, link, strength, name, found):
            return
    if odd:
        _find_near(text, start, end, odd, strength, found)


def _find_flag(text: str, end: int, found: list[Span]) -> bool:
    """Find the value of a flag such as `--storepass VALUE`, whose name ends here."""
    match = _FLAG_VALUE.match(text, end)
    if match is None or "[redacted" in match[0] or text[max(0, end - 5) : end].lower() == "-keys":
        return False
    start = match.end("before")
    value = text[start : match.end()]
    if (
        _is_filler(value)
        or (value.isalpha() and (len(value) < 8 or match["before"][0] == " "))
        or _ADDRESS.fullmatch(value)
    ):
        return False
    if _is_expression(value) or (_PLAIN_VALUE.fullmatch(value) and not _MIXED.search(value)):
        return False
    found.append((start, match.end(), GENERIC if "=" in match["before"] else "flag"))
    return True


_FLAG_VALUE = _lazy(rf"(?P<before>[ =]{{1,2}}(?:pass:)?{_QUOTE})" + _TYPED_VALUE)


def _find_back(text: str, start: int, end: int, strength: str, found: list[Span]) -> None:
    """Find the value in `VALUE is the password` and `use VALUE as the password`, where the name begins at `start`."""
    before = text[max(0, start - 110) : start]
    if not before or before[-1] not in " '’":
        return
    after = _FIRST_WORD.match(text, end)
    if after is not None and after["word"].lower() in _NOT_ITSELF_AFTER:
        return
    match = _BACK.search(before)
    if match is None:
        return
    which = "bare" if match["bare"] is not None else "quoted"
    value = match[which].rstrip(".,;:" if which == "bare" else "")
    at = start - len(before) + match.start(which)
    if which == "quoted" and " " in value:
        is_one = strength == "password" and _is_passphrase(value)
    elif _TERM.fullmatch(value) or _is_placeholder(value) or _is_expression(value):
        is_one = False
    else:
        is_one = (
            _is_strong(value, hexadecimal=True, above=0.33, at_least=12)
            or _is_chosen(value, linked=strength == "password" and not _CHOSEN.fullmatch(value))
            or (strength == "password" and _NUMBERED.fullmatch(value) is not None)
        )
    if is_one:
        found.append((at, at + len(value), GENERIC))


_FIRST_WORD = _lazy(r"[\s-]{1,2}(?P<word>[A-Za-z]{2,20})")
_NOT_ITSELF_AFTER = _NOT_ITSELF - {"is", "at", "max", "used"} | {
    "function",
    "scheme",
    "curve",
    "derivation",
    "exchange",
}
_NUMBERED = _lazy(r"[a-z]{6,}[0-9]{2,6}")
_TERM = _lazy(  # an algorithm or a protocol
    r"(?i)(?:sha|md|aes|des|rsa|dsa|ecdsa|utf|iso|oauth|argon|b?s?crypt|pbkdf|ed|x|p|secp|base|http|tls|ssl|ipv"
    r"|hs|rs|es"
    r"|ps|py|web|u|fido|rfc|chacha|blake|crc|curve|user|admin|test|page|step|item"
    r"|form)-?[0-9]{1,5}[a-z]{0,4}(?:[-_/.]\w+)*"
)
_BACK = _lazy(
    r"(?i)(?:(?<=[\"'`“«])(?P<quoted>[^\"'`“”«»\n]{6,64})[\"'`”»]|(?:(?<=\s)|\A)(?P<bare>[^\s\"'`“”«»(\[{]{6,64}))"
    r"\s{1,2}(?:as|is|was|als|ist|war|como|es|era|é|comme|est|c['’]est|come|è|jako|to|som|är|er|jest|on|je|for"
    r"|für|pour|para)"
    r"\s(?:[\w'’-]{1,9}\s){0,3}(?:[ld]['’])?\Z"
)


_CALL = _lazy(r"""(?P<call>\s{0,2}=?\s{0,2}\(\s?["'][^"'\n]{1,64}["'],\s{0,2}(?=["']))""")  # login("ann", "…")
_SPACE = _lazy(r"(?P<space>[\"'`*_]{0,2}\s{1,2})")
_DIGIT = _lazy(r"[0-9]")
VALUE_CHARACTERS_MAX = 200  # a name says nothing about what is farther away


def _find_value(text: str, link: re.Match[str], strength: str, name: str, found: list[Span]) -> bool:
    kind = link.lastgroup or ""
    match = _VALUE.match(text, link.end())
    if match is None:
        return False
    which = "quoted" if match["quoted"] is not None else "bare"
    value = match[which]
    if which == "bare":
        value = value.rstrip(_TRAILING)
        after = text[match.start(which) + len(value) : match.start(which) + len(value) + 1]
        if after in {"(", "["} and value:
            return False
    is_element = kind == "xml" and text.startswith(">", match.start() - 1)
    if is_element:
        value = match[which]
        if not text.startswith("<", match.end()):
            return False
    if not _is_value(value, kind, strength, quoted=which == "quoted", text=text, link=link, name=name):
        return False
    found.append((match.start(which), match.start(which) + len(value), GENERIC))
    return True


def _is_value(value: str, kind: str, strength: str, *, quoted: bool, text: str, link: re.Match[str], name: str) -> bool:
    if len(value) < 4 or (len(value) > 64 and _MIX.search(value, 0, 64) is None):
        return False
    if "[redacted:" in value or _is_placeholder(value) or _ADDRESS.fullmatch(value):
        return False
    if any(each.isspace() for each in value):
        return False
    is_far = kind == "space" and len(value) in {7, 40, 64}  # as long as a digest
    above = 0.42 if kind == "space" or strength == "weak" else 0.33
    hexadecimal = False
    if _HEX.fullmatch(value) or _UUID.fullmatch(value):
        around = text[max(0, link.start() - 60) : link.end() + len(value) + 40].replace(value, "")
        hexadecimal = len(value) >= 20 and not is_far and _HEX_WORDS.search(around) is None
    if _is_strong(value, hexadecimal=hexadecimal, above=above):
        return not (kind == "space" and "/" in value) and not _is_expression(value)
    if kind == "call":
        return _is_chosen(value, linked=True) and randomness(value) > 0.3
    if strength == "weak":
        return False
    if strength == "pass":
        return kind != "space" and not _is_expression(value) and _is_chosen(value, linked=False)
    if _is_expression(value):
        return False
    if strength == "password":
        if kind == "xml" and value.isalpha() and value.islower() and len(value) >= 8 and not _NAMED.search(value):
            return value not in {"required", "optional", "undefined", "password"}
        if kind == "space" and not quoted and name not in _NATIVE:
            is_emphatic = text.startswith("!", link.end() + len(value)) and _MIXED.search(value) is not None
            is_numbered = _NUMBERED.fullmatch(value) is not None and not _TERM.fullmatch(value)
            return is_emphatic or (is_numbered and not _NAMED.search(value)) or _is_chosen(value, linked=False)
        if quoted and kind != "space" and _is_passphrase(value):
            return True
        return _is_chosen(value, linked=True)
    if kind == "space":
        if is_far and _HEX.fullmatch(value):
            return False
        return _is_strong(value, at_least=12) or (len(value) >= 10 and _is_chosen(value, linked=False))
    if not _is_chosen(value, linked=False) or len(value) < 8:
        return False
    signs = any(each in "!#$^&@~" for each in value) and not value.islower()
    return randomness(value) > 0.35 or (signs and not _EXPRESSION.fullmatch(value))


_NATIVE = ("requirepass", "masterauth", "bindpw", "rootpw", "masterpass")  # no words follow these
_EXPRESSION = _lazy(r"(?:[A-Za-z_$][\w$]*[.?!|&:+*/]+)+[A-Za-z_$][\w$]*|[!&|+*/-].*")


def _is_expression(value: str) -> bool:
    """Return True for code: a name with attributes, or operators between names."""
    return (
        bool(_EXPRESSION.fullmatch(value))
        and max(randomness(each) if len(each) > 9 else 0 for each in re.split(r"[^\w$]+", value)) < 0.5
    ) or (any(each in value for each in ("&&", "||", "()", "=>", "::", "==")) and randomness(value) < 0.6)


_AS = _lazy(
    r"(?i)={0,2}[\"'`)*_]{0,3}\s(?:as|als|como|comme|is|ist|es|est|para|pour|for|für)\s(?:[\w'-]+\s){0,3}[\w']{0,3}"
)


def _find_odd(text: str) -> list[tuple[int, int]]:
    """Return the places of all runs that might be a secret if a name is near."""
    odd = []
    for match in _TOKENS.finditer(text):
        value = match[0]
        if _MIX.search(value) is None or "redacted" in value or value.startswith(("http", "/", "eyJ")):
            continue
        value = value.rstrip(_TRAILING)
        if _PARTS.split(value.lower(), maxsplit=1)[0] in _NO_KEYS or _ID_BEFORE.search(
            text, match.start() - 12, match.start()
        ):
            continue
        odd.append((match.start(), match.start() + len(value)))
    return odd


_ID_BEFORE = _lazy(
    r"(?i)(?<!key[_-])(?<!key)(?<!secret[_-])(?:id|ids|hash|digest|sha|uuid|name|path|file"
    r"|rev)[\"'`]?\s?[:=]\s?[\"'`]?\Z"
)
NEAR_CHARACTERS = 80


def _find_near(  # noqa: PLR0917 - the place of the name, and what is around it
    text: str, start: int, end: int, odd: list[tuple[int, int]], strength: str, found: list[Span]
) -> None:
    """Find random runs in the words before and after the name of a secret."""
    for number in range(bisect_left(odd, (start - NEAR_CHARACTERS, 0)), len(odd)):
        begin, last = odd[number]
        if begin > end + NEAR_CHARACTERS:
            break
        value = text[begin:last]
        if last <= start and _AS.fullmatch(text, last, start) is not None:  # VALUE as the password
            if _is_strong(value, hexadecimal=True, above=0.33):
                found.append((begin, last, GENERIC))
        elif (
            not any(each in value for each in "/:@.")
            and (
                (
                    _is_strong(value, at_least=10 if strength == "password" else RUN_CHARACTERS_MIN)
                    and randomness(value) >= 0.5
                )
                or (strength == "password" and _is_striking(value))
            )
            and "\n" not in text[min(begin, end) : max(last, start)]
        ):
            found.append((begin, last, GENERIC))


def _is_striking(value: str) -> bool:
    """Return True for a short run of letters, digits and perhaps signs that is unlike any word, name or version."""
    if not 8 <= len(value) <= 64 or not _MIXED.search(value) or _TERM.fullmatch(value) or _UUID.search(value):
        return False
    if any(each in value for each in "()[]{}<>=\\,;") or _is_placeholder(value) or _PLAIN_VALUE.fullmatch(value):
        return False
    inner = any(each in value[1:-1] for each in "!#$^&~?")
    return (inner and not _HEX.fullmatch(value)) or (
        randomness(value) >= 0.6
        and value.isalnum()
        and not value.islower()
        and not value.isupper()
        and len(value) >= 10
    )


# -- Other words for a password, and pairs of a name and a password


class Form:
    """A pattern whose group `value` is a secret if it was chosen by a person or made by a machine."""

    def __init__(self, hints: tuple[str, ...], expression: str, *, linked: bool) -> None:
        self.hints = hints
        self.linked = linked  # nothing else can be there
        self.regex = _lazy(expression)


_VALUE_HERE = r"(?P<value>[^\s\"'`<>|,;「」“”«»（）]{6,128})"
_FORMS = (
    Form(
        ("密", "口令", "パス", "暗証", "비밀", "암호", "mật kh", "kata sandi", "المرور", "السر", "סיסמ", "पासवर्ड"),
        r"(?:密码|密碼|口令|密钥|パスワード|暗証番号|비밀번호|암호"
        r"|[Mm]ật khẩu|[Kk]ata sandi\w{0,4}|كلمة (?:المرور|السر)|סיסמה|סיסמא|पासवर्ड)"
        r"(?:\s?(?:[是为為はがをのは은는이가:：=]|\b(?:là|adalah|هي|היא|है)\b)){0,3}\s{0,2}[\"'`「“«]?"
        r"(?P<value>[!-&(-~]{6,64})",
        linked=True,
    ),
    Form(
        (
            "access code",
            "code d",
            "digo de ac",
            "codice d",
            "toegangscode",
            "zugangscode",
            "passcode",
            "wifi",
            "wi-fi",
            "wlan",
            "ordine",
            "toegangsc",
        ),
        r"(?i)\b(?:access code|passcode|code d['’]acc[èe]s|c[óo]digo de acc?es+o|codice d['i’ ]{1,3}accesso"
        r"|toegangscode|zugangscode"
        r"|parola d['’]ordine|(?:wi-?fi|wlan)(?:\s(?:key|code))?)(?:\s{0,2}(?:is|ist|est|es|è|é|:|="
        r"|[\w-]{1,20} /)){1,2}\s{1,2}[\"'`“«]?" + _VALUE_HERE,
        linked=True,
    ),
    Form(
        (
            "log in",
            "login",
            "logged in",
            "log on",
            "logge",
            "sign in",
            "signed in",
            "authenticate",
            "unlock",
            "melde",
            "anmeld",
            "connecte",
            "entra",
            "ingres",
            "accedi",
            "inloggen",
        ),
        r"(?i)\b(?:(?:log(?:ged|s)?|sign(?:ed|s)?)[ -]?(?:in|on)|login|authenticate[ds]?|unlock(?:ed"
        r"|s)?(?: [\w ]{1,30}?)?|melden? (?:dich|sich)|anmeld\w{0,4}|anmeldung"
        r"|connecte[rz]?(?:-\w{1,4})?|se connecter|entra[r]?|ingresa[r]?|accedi|inloggen|logge)"
        r"(?: as \S{1,40})?\s(?:with|using|mit|con|avec|met|com)\s(?:[\w.@-]{1,40}(?: (?:and|und|et|y|e|en) "
        r"|[:/]))?[\"'`“«]?" + _VALUE_HERE,
        linked=False,
    ),
    Form(
        ("type", "enter"),
        r"(?i)\b(?:pass(?:word|phrase|code)|pin)\b[^\n.]{0,30}?\s(?:type|enter)(?: in)?:?\s[\"'`“«]?" + _VALUE_HERE,
        linked=True,
    ),
    Form(
        ("type", "enter"),
        r"(?i)\b(?:type|enter)(?: in)?\s[\"'`“«]?"
        + _VALUE_HERE
        + r"(?=[\"'`”»]?\s[^\n.]{0,40}?\b(?:pass(?:word|phrase|code)|pin)\b)",
        linked=True,
    ),
    Form(  # a name and its password
        (
            "cred",
            "login",
            "auth",
            "account:",
            "accounts:",
            "user:",
            "user ",
            "zugang",
            "anmeld",
            "identifiant",
            "static:",
            "smtp",
        ),
        r"(?i)(?<![a-z])(?:cred(?:ential)?s?|log[ -]?in(?: with| is)?|auth(?:_user)?(?:_pass)?|(?:http|proxy"
        r"|rpc)?[_.-]?(?:basic)?[_.-]?auth|user(?:pass)?|accounts?|zugang(?:sdaten)?|anmeldung"
        r"|identifiants|credenciales|static|smtp\.[\w.-]{1,60}\]?:[0-9]{2,5}|rpcauth|accessi|logowanie)"
        r"(?:(?:\s(?:is|are|for|sind|sont|son|für|[\w-]{1,12}))?\s?[:=]|\s(?:is|are|with|sind|sont|son)"
        r"|(?=\s))\s{0,3}[\"'`]?"
        r"[\w.@-]{2,40}(?::|/| / |(?<=auth_user_pass = \w{3}) )(?!//)" + _VALUE_HERE,
        linked=False,
    ),
    Form(
        ('", "', "', '", '","', "','", '("', "('"),
        r"(?i)(?:auth\w{0,20}|login|credentials?|connect(?:ion)?|pdo)\s?[=(][\s(]{0,3}(?:[^()\n\"',]{1,40},\s?"
        r"|[\"'][^\"'\n]{1,40}[\"'],\s?)?"
        r"(?:(?:name|user)\w{0,6}\s?[=:]\s?)?[\"'][^\"'\n]{1,64}[\"'],\s?(?:Some\()?[\"'](?P<value>[^\"'\s]{4,128})[\"']",
        linked=True,
    ),
    Form(
        (" p: ", " pw: ", " pass: "),
        r"\b[Uu](?:ser)?: ?\S{1,40} [Pp](?:w|ass)?: ?" + _VALUE_HERE,
        linked=True,
    ),
    Form(  # Cisco, Redis, the protocols of mail and files
        (
            "enable ",
            "username ",
            "community ",
            "pass ",
            "auth ",
            "login ",
            " on >",
            "-key ",
            " psk ",
            " eap ",
            "password ",
        ),
        r"(?m)^[ \t>+<-]{0,4}(?:enable (?:secret|password)(?: \d)?"
        r"|username \S{1,40} (?:privilege \d{1,2} )?(?:password|secret)(?: \d)?|snmp-server community"
        r"|ppp chap password(?: \d)?"
        r"|neighbor \S{1,40} password(?: \d)?|set password|pre-shared-key|PASS|AUTH|\"AUTH\""
        r"|[A-Z]?:? ?[a-z]\d{1,3} LOGIN \S{1,60}|user \w{1,40} on|wpa-psk|key-string"
        r"|[^\n:]{0,40}: (?:PSK|EAP|XAUTH))\s{1,2}>?[\"']?" + _VALUE_HERE,
        linked=True,
    ),
)


def _find_forms(text: str, lower: str, found: list[Span]) -> None:
    for form in _FORMS:
        if not any(hint in lower for hint in form.hints):
            continue
        for match in form.regex.finditer(text):
            start = match.start("value")
            value = match["value"].rstrip(_TRAILING if not match["value"].endswith("!") else "")
            if (
                _TERM.fullmatch(value)
                or _is_placeholder(value)
                or _is_expression(value)
                or "[redacted:" in value
                or (not form.linked and _CHOSEN.fullmatch(value))
            ):
                continue
            if _is_strong(value, at_least=10, hexadecimal=True) or _is_chosen(value, linked=form.linked):
                found.append((start, start + len(value), "login"))


# -- Phrases


_STOP_WORDS = frozenset(
    "the is are was were be been being not no nor and or but if then than that this these those it its they them their"
    " he she his her you your yours we our ours i me my mine of to in into on onto at by for from with without as about"
    " after before until while when where which who whom whose what why how all any both each few more most other some"
    " such only own same so too very can cannot could may might must shall should will would do does did done has have"
    " had having there here also just now out off over under again once must required invalid wrong missing empty"
    " stored"
    " please enter your password passphrase secret token key phrase seed words word mnemonic recovery wallet changed"
    " der die das und oder nicht ist sind war ein eine einer einem einen mit von für auf aus bei nach wird werden kann"
    " muss darf soll zum zur wenn dass lautet passwort el la los las un una y o no es son del de para por con que se su"
    " al está debe le les des du et ou ne pas est sont une pour par avec dans sur qui que ce cette doit être il elle"
    " un uno gli che non sono per come deve het een en van niet zijn met voor op moet wordt".split()
)
_PHRASE_WORDS = _lazy(r"[a-z]{3,10}(?:(?P<cut>[ .-])[a-z]{3,10}(?:(?P=cut)[a-z]{3,10}){2,7})")
_PHRASE_LINK = _lazy(
    r"[\"'`]?[^.:=|<>\r\n\"'`;]{0,40}?(?:\s?[:=]|\s(?:is|was|lautet|ist|est|es|è|é|är|is:))\s{1,4}[\"'`“«]?"
    r"|=[\"']?|\s[\"']"
)
_RUN_OF_WORDS = _lazy(
    r"(?<![\w-])(?:[0-9]{1,2}[.)] ?)?[a-z]{3,8}(?:(?:[ ,]{1,2}|,?\n)(?:[0-9]{1,2}[.)] ?)?[a-z]{3,8}(?![\w-])){11,}+"
)
_SEED_HINTS = ("seed", "mnemonic", "recovery", "backup words", "wallet")
_SEED = _lazy(r"(?i)seed|mnemonic|recovery.phrase|backup.words|wallet")


def _is_passphrase(value: str) -> bool:
    """Return True for four to ten words that make no sentence."""
    words = re.split(r"[ .-]", value)
    return (
        4 <= len(words) <= 10
        and all(each.isalpha() and each.islower() and 3 <= len(each) <= 12 for each in words)
        and _STOP_WORDS.isdisjoint(words)
    )


def _find_phrases(text: str, lower: str, names: list[tuple[int, int]], found: list[Span]) -> None:
    """Find passwords of several words after their name, and the words of a wallet."""
    for start, end in names:
        name = lower[start:end]
        if not ("passw" in name or "passphrase" in name or "phrase" in name or "kennwort" in name or "passe" in name):
            continue
        link = _PHRASE_LINK.match(text, end)
        phrase = None if link is None else _PHRASE_WORDS.match(text, link.end())
        if phrase is None or not _is_passphrase(phrase[0]):
            continue
        after = text[phrase.end() : phrase.end() + 2]
        ends = (
            not after
            or after[0] in "\n\r\"'`”»,;"
            or after in {".", ". ", ".\n"}
            or (after[0] in ".!?" and after[1:].isspace())
        )
        is_phrase = "phrase" in name or phrase["cut"] != " " or text[phrase.start() - 1] in "\"'`“«"
        if ends and is_phrase:
            found.append((phrase.start(), phrase.end(), GENERIC))
    if any(each in lower for each in _SEED_HINTS):
        for run in _RUN_OF_WORDS.finditer(text):
            words = list(_WORD_CHARACTERS.finditer(run[0]))
            last = max((number for number, word in enumerate(words) if word[0] in _STOP_WORDS), default=-1)
            rest = words[last + 1 :]
            if 12 <= len(rest) <= 25 and _SEED.search(
                lower, max(0, run.start() - 60), run.start() + rest[0].start() + 1
            ):
                found.append((run.start() + rest[0].start(), run.end(), GENERIC))


_SCRAMBLED = _lazy(
    r"[\"']?\s{0,16}(?:[:=]|=>|,)\s{0,16}(?P<cut>[\"'])(?P<value>[^\r\n]{16,200}?)(?P=cut)(?=\s{0,4}(?:[);,\]}#]|\Z|\n))"
)
_SIGNS = _lazy(r"[^A-Za-z0-9\s]")


def _find_scrambled(text: str, names: list[tuple[int, int]], found: list[Span]) -> None:
    """Find quoted values made of all the characters there are, as WordPress and Django make them."""
    for _, end in names:
        match = _SCRAMBLED.match(text, end)
        if match is None:
            continue
        value = match["value"]
        signs = len(set(_SIGNS.findall(value)))
        mixed = any(map(str.isdigit, value)) and any(map(str.isupper, value)) and any(map(str.islower, value))
        if (
            mixed
            and signs >= 4
            and value.count(" ") <= len(value) // 6
            and randomness(value) >= 0.45
            and "[redacted" not in value
        ):
            found.append((match.start("value"), match.end("value"), GENERIC))


_ROWS = _lazy(r"(?i)\((?P<heads>[^()]{1,300})\)\s{0,4}values\s{0,4}\((?P<cells>[^()]{1,500})\)")


def _find_inserted(text: str, found: list[Span]) -> None:
    """Find the values that SQL inserts into columns named like a secret."""
    for match in _ROWS.finditer(text):
        place = match.start("cells")
        for head, cell in zip(match["heads"].split(","), match["cells"].split(","), strict=False):
            value = cell.strip().strip("\"'`")
            if cell.strip()[:1] in {"'", '"'} and _strength(head.strip().strip("\"`[]'")) in {
                "password",
                "secret",
                "pass",
            }:
                begin = place + cell.find(value)
                if len(value) >= 6 and not _is_filler(value) and (_MIXED.search(value) or _SIGNS.search(value)):
                    found.append((begin, begin + len(value), GENERIC))
            place += len(cell) + 1


# -- Tables


def _find_cells(text: str, names: list[int], found: list[Span]) -> None:
    """Find the values in columns whose head has one of the names, in Markdown tables and comma-separated values."""
    done = 0
    for name in names:
        begin = text.rfind("\n", done, name) + 1 if done < name else name + 1
        end = text.find("\n", name)
        if name < done or end < 0:
            continue
        head = text[max(begin, done) : end]
        cut = _cut(head)
        done = end
        if not cut or any(sign in head for sign in "=:{}()"):
            continue
        heads = [cell.strip().strip("`*\"'") for cell in head.split(cut)]
        columns = {
            number: strength for number, each in enumerate(heads) if (strength := _strength(each.replace(" ", "_")))
        }
        is_head = all(len(each) <= 30 for each in heads)
        if columns and is_head and (cut == "|" or all(heads)):
            done = _find_rows(text, end + 1, cut, len(heads), columns, found)


def _cut(line: str) -> str:
    """Return the character between the cells of a line; empty if it has no cells."""
    if len(line) > CELLS_CHARACTERS_MAX:
        return ""
    return "|" if line.count("|") > 1 else next((each for each in ",\t;" if each in line), "")


def _find_rows(  # noqa: PLR0917 - the head of the table in four values
    text: str, place: int, cut: str, cells: int, columns: dict[int, str], found: list[Span]
) -> int:
    """Find the values of these columns in the rows that begin at `place`. Returns where the table ends."""
    while place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        row = text[place:end]
        if len(row) > CELLS_CHARACTERS_MAX or row.count(cut) + 1 != cells:
            break
        at = place
        for number, cell in enumerate(row.split(cut)):
            value = cell.strip().strip("`*\"'")
            if number in columns and value and not any(each.isspace() for each in value):
                chosen = columns[number] != "weak" and _is_chosen(value, linked=True)
                if chosen or _is_strong(value, hexadecimal=True):
                    begin = at + cell.index(value)
                    found.append((begin, begin + len(value), GENERIC))
            at += len(cell) + 1
        place = end + 1
    return place


CELLS_CHARACTERS_MAX = 2_000  # a longer line is no row of a table that a person reads

# -- A text as a reader sees it

_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e01ef"
)
_HIDDEN = Pattern(
    "hidden",
    (),
    rf"""(?x)
    (?P<drop>
        \x1b(?:\[[0-9;:?]{{0,40}}[@-~]|\][^\x07\x1b\n]{{0,400}}(?:\x07|\x1b\\)|[()][0-9A-Z]|)
        |\x9b[0-9;:?]{{0,40}}[@-~]
        |\\{{1,4}}(?:x1[bB]|u001[bB]|u\{{1[bB]\}}|0?33|e)\[[0-9;:?]{{0,40}}[A-Za-z]
        |\[(?:[0-9]{{1,3}};){{0,5}}[0-9]{{1,3}}m
        |[{_INVISIBLE}]+|\\{{1,4}}u(?:200[b-fB-F]|feff|FEFF|00ad|00AD|2060)|[\x00-\x08\x0e-\x1a\x7f]+
        |</?(?:b|i|u|em|strong|code|span|mark|wbr|font|tt|kbd|pre)(?:\s[^<>\n]{{0,100}})?/?>
        |&(?:shy|zwnj|zwj|ZeroWidthSpace|\#8203|\#x200[bB]);
    )
    |(?P<unicode>\\{{1,4}}(?:u00[2-7][0-9a-fA-F]|x[2-7][0-9a-fA-F]))
    |(?P<percent>%(?:2[0-9A-Fa-f]|3[A-Fa-f]|40|5[BDbd]|7[BDbd]|0[AaDd]))
    |(?P<entity>&(?:quot|apos|amp|lt|gt|nbsp|\#3[49]|\#x2[27]|\#6[01]|\#58|equals|colon|\#x3[aAdD]);)
    |(?P<blank>\\{{1,4}}(?:r\\{{1,4}}n|[nrt])|\\\r?\n)
    |(?P<escaped>\\{{1,4}}(?=["'`/$&_*:=@.!\#-]))
    """,
)
_ENTITIES = {
    "&quot;": '"',
    "&apos;": "'",
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
    "&nbsp;": " ",
    "&#34;": '"',
    "&#39;": "'",
    "&#x22;": '"',
    "&#x27;": "'",
    "&#60;": "<",
    "&#61;": "=",
    "&#58;": ":",
    "&equals;": "=",
    "&colon;": ":",
}


@lru_cache(maxsize=1)
def _look_alikes() -> dict[int, str]:
    """Return the characters that a reader takes for an ASCII character."""
    table = dict.fromkeys(map(ord, "“”„‟«»＂″❝❞〝〞「」『』"), '"') | dict.fromkeys(map(ord, "‘’‚‛‹›＇′❛❜´"), "'")
    table |= dict.fromkeys(map(ord, "\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))), " ")
    table |= dict.fromkeys(map(ord, "‐‑﹣"), "-") | {0x2044: "/", 0x2236: ":", 0xFE55: ":", 0xA789: ":"}
    table |= dict.fromkeys(map(ord, "│┃┆┊║"), "|")
    return {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | table


class View:
    """A text as a reader sees it, and where each of its characters is in the original."""

    def __init__(self, text: str) -> None:
        self._views: list[int] = []  # where a piece of the view begins
        self._starts: list[int] = []  # and where in the original
        self._ends: list[int] = []  # -1 for a piece that is unchanged
        self._pieces: list[str] = []
        self._length = 0
        done = 0
        if not text.isascii() and not _look_alikes().keys().isdisjoint(map(ord, set(text))):
            text = text.translate(_look_alikes())
        for start, end, shown in _hidden(text):
            if start < done:
                continue
            self._add(text[done:start], done, -1)
            self._add(shown, start, end)
            done = end
        self._add(text[done:], done, -1)
        self.text = "".join(self._pieces)

    def _add(self, shown: str, start: int, end: int) -> None:
        if shown:
            self._views.append(self._length)
            self._starts.append(start)
            self._ends.append(end)
            self._pieces.append(shown)
            self._length += len(shown)

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the place in the original text of the characters from `start` to `end`."""
        first = bisect_right(self._views, start) - 1
        last = bisect_right(self._views, end - 1) - 1
        begin = self._starts[first] + (start - self._views[first] if self._ends[first] < 0 else 0)
        stop = self._ends[last] if self._ends[last] >= 0 else self._starts[last] + end - self._views[last]
        return begin, stop


def _hidden(text: str) -> list[tuple[int, int, str]]:
    """Return the places of the text that a reader does not see as they are, and what the reader sees."""
    found: list[tuple[int, int, str]] = []
    if not text.isascii() or any(each in text for each in _HIDDEN_BY):
        match = _HIDDEN_FIRST.search(text)
        while match is not None:
            whole = _HIDDEN.regex.match(text, match.start())
            if whole is not None and whole.end() > whole.start():
                found.append((whole.start(), whole.end(), _shown(whole)))
                match = _HIDDEN_FIRST.search(text, whole.end())
            else:
                match = _HIDDEN_FIRST.search(text, match.end())
    if "\n" in text:
        found = sorted(found + _find_wraps(text), key=lambda each: each[:2])
    return found


_HIDDEN_FIRST = _lazy(
    rf"[\x1b\x9b\\\[<&%{_INVISIBLE}\x00-\x08\x0e-\x1a\x7f]"
    r"(?:(?<![\[<&%])|(?<=\[)(?=[0-9])|(?<=<)(?=/?[a-z])|(?<=&)(?=[#a-zA-Z])|(?<=%)(?=[0-7]))"
)
_HIDDEN_BY = ("\\", "\x1b", "</", "%2", "%3", "%4", "&", "[0", "[1", "[3", "[9", "\x9b", "\0", "\x08")


def _shown(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "unicode":
            return chr(int(match[0][-2:], 16))
        case "percent":
            return chr(int(match[0][1:], 16))
        case "entity":
            return _ENTITIES.get(match[0], " ")
        case "blank":
            return " " if match[0].endswith("t") else "\n"
        case _:
            return ""


WRAP_CHARACTERS_MIN = 50  # in a narrower line a run that ends it is whole
_WRAP_HEAD = _lazy(r"[A-Za-z0-9_.+/=~:@%-]+\Z")
_WRAP_TAIL = _lazy(r"(?:\r?\n)(?:[ \t]{0,12}(?:[>|#*+│]|//){0,2}[ \t]{0,12})([A-Za-z0-9_.+/=~-]{1,200})")


def _find_wraps(text: str) -> list[tuple[int, int, str]]:
    """Find the line breaks within a random run: a long line, and the next begins with the rest of its last word."""
    found = []
    before = -1
    place = text.find("\n")
    while place >= 0:
        if place - before > WRAP_CHARACTERS_MIN:
            stop = place - 2 if text[place - 2 : place] == " \\" else place - 1 if text[place - 1] in "\r\\" else place
            head = _WRAP_HEAD.search(text, max(before + 1, stop - 200), stop)
            tail = _WRAP_TAIL.match(text, place)
            if head is not None and tail is not None and _is_split(head[0], tail[1].rstrip(".")):
                found.append((stop, tail.start(1), ""))
        before, place = place, text.find("\n", place + 1)
    return found


def _is_split(head: str, tail: str) -> bool:
    """Return True if the end of a line and the beginning of the next are parts of one random run."""
    head = _AFTER_SIGN.split(head)[-1]
    if tail.isalpha() and (tail.islower() or tail.istitle()) and (len(tail) < 3 or randomness(tail) < 0.4):
        return False
    joined = _PARTS.sub("", head[-60:] + tail[:100]).replace("/", "")
    if not _is_strong(joined, hexadecimal=True, above=0.2):
        return False
    return len(head) < 6 or randomness(head[-40:]) >= 0.25 or randomness(tail) >= 0.4


_AFTER_SIGN = _lazy(r"[=:@~%]")


# -- All rules

GENERIC = "credential"
_HINTS = {  # the numbers of the patterns to try on a text with this hint
    hint: frozenset(number for number, pattern in enumerate(PATTERNS) if hint in pattern.hints)
    for each in PATTERNS
    for hint in each.hints
}
_PLAIN = (  # where the secret may be a word or a number, without any mixture
    *("private key", "private-lines", "passw", "passphrase", "cookie", "authorization", "://", "login", "machine"),
    *(
        "account",
        "identified",
        "password '",
        'password "',
        "echo",
        "printf",
        "--",
        "mysql",
        "mariadb",
        "sshpass",
        "docker",
    ),
    *(
        "podman",
        "curl",
        "password=",
        "passwd=",
        "pass=",
        "pwd=",
        "secret=",
        "token=",
        "key=",
        ":5432:",
        ":*:",
        ":6432:",
    ),
)
_PLAIN_HINTS = {hint: _HINTS[hint] for hint in _PLAIN}
_RARE = (
    *"$*{=_-./:zxjq",
    "pass",
    "ia",
    "ke",
    "w",
    "m",
    "ec",
    "",
)  # most texts lack most of these, so hints that contain one need no check
_HINTS_WITH = {
    rare: [
        (hint, numbers)
        for hint, numbers in _HINTS.items()
        if rare in hint and not any(each in hint for each in _RARE[:place])
    ]
    for place, rare in enumerate(_RARE)
}


_PROGRAMS: dict[str, list[int]] = {}  # the numbers of the patterns for the command lines of a program
for _number, _pattern in enumerate(PATTERNS):
    for _program in _pattern.programs:
        _PROGRAMS.setdefault(_program, []).append(_number)


def _words(lower: str) -> list[str]:
    if "`" in lower or "$(" in lower or "'" in lower or '"' in lower:
        lower = lower.replace("`", " ").replace("$(", " ").replace("'", " ").replace('"', " ")
    return lower.split()


class Rules:
    """The rules for all secrets, or without those of the vendors in `without`."""

    def __init__(self, *, without: frozenset[str] = frozenset()) -> None:
        self._without = without
        self._vendors: dict[str, list[tuple[str, Vendor]]] = {}
        for vendor in VENDORS:
            if vendor.kind not in without:
                for prefix in vendor.prefixes:
                    self._vendors.setdefault(prefix[:3], []).append((prefix, vendor))

    def redact(self, text: str, *, keep_lines: bool = False) -> str:
        """Return the text with every known kind of secret replaced by `[redacted:<kind>]`.

        With `keep_lines`, the line breaks of a secret stay, so that every line of the text keeps its number.
        """
        for _ in range(ROUNDS_MAX):
            spans = self._search(text)
            if not spans:
                break
            before, text = text, _replace(text, spans, keep_lines=keep_lines)
            if text == before:
                break
        return text

    def _search(self, text: str) -> list[Span]:
        lower = text.lower()
        is_ascii = text.isascii()
        has_runs = False
        mixed = _is_mixed(text)
        if mixed:
            words = [word for word in text.split() if len(word) > 5 and not word.isalpha()]
            has_runs = any(len(word) >= RUN_CHARACTERS_MIN and _is_odd(word) for word in words)
            mixed = has_runs or any(map(_may_be_value, words))
        elif not is_ascii:
            has_runs = _has_runs(text)
        if mixed or has_runs:
            if not has_runs and not _has_names(text, lower):
                return []
        elif not _has_words(text, lower) and (is_ascii or not any(each in lower for each in _INVISIBLES)):
            return []
        if len(lower) != len(text):
            lower = _lower(text)
        spans = self._find(text, lower, has_runs=has_runs, mixed=mixed)
        if not is_ascii or (has_runs and "\n" in text) or any(each in text for each in _HIDDEN_BY):
            view = View(text)
            if view.text != text:
                shown = self._find(
                    view.text, _lower(view.text), has_runs=_has_runs(view.text), mixed=_is_mixed(view.text)
                )
                spans += [(*view.original(start, end), kind) for start, end, kind in shown]
        return spans

    def _find(self, text: str, lower: str, *, has_runs: bool, mixed: bool) -> list[Span]:
        found: list[Span] = []
        numbers: set[int] = set()
        if mixed or has_runs:
            for rare, some in _HINTS_WITH.items():
                if rare in lower:
                    for hint, hinted in some:
                        if hint in lower:
                            numbers |= hinted
        else:
            for hint, hinted in _PLAIN_HINTS.items():
                if hint in lower:
                    numbers |= hinted
        if " -" in text or has_runs or " /" in text or "<<<" in text or _DIGIT.search(text) is not None:
            for word in _PROGRAMS.keys() & set(_words(lower)):
                numbers.update(_PROGRAMS[word])
        for number in sorted(numbers):
            pattern = PATTERNS[number]
            if pattern.kind not in self._without:
                places = [(_value_start(match), match.end()) for match in pattern.regex.finditer(text)]
                found += [
                    (start, end, pattern.kind)
                    for start, end in places
                    if pattern.kind in {"pem", "hash"} or not _is_filler(text[start : min(end, start + 200)])
                ]
        if has_runs:
            _find_runs(text, self._vendors, found)
        stems = _STEMS + _WEAK_STEMS if has_runs else _STEMS if mixed or not text.isascii() else _PLAIN_STEMS
        names = _names(text, lower, stems)
        if names:
            odd = _find_odd(text) if has_runs or mixed else []
            _find_named(text, names, odd, found)
            if "\n" in text and (mixed or has_runs):
                _find_cells(text, [start for start, _ in names], found)
            if mixed and ('"' in text or "'" in text):
                _find_scrambled(text, names, found)
                if "alues" in lower:
                    _find_inserted(text, found)
        _find_phrases(text, lower, names, found)
        if mixed or has_runs:
            _find_forms(text, lower, found)
            if " / " in text:
                _find_logins(text, found)
        return found


def _value_start(match: re.Match[str]) -> int:
    return match.end("before") if "before" in match.re.groupindex and match["before"] is not None else match.start()


def _replace(text: str, spans: list[Span], *, keep_lines: bool) -> str:
    """Replace the spans; those that overlap become one."""
    spans = sorted(spans, key=lambda span: span[2] == GENERIC)  # a vendor says more
    merged: list[list[int]] = []
    for number, (start, end, _) in sorted(enumerate(spans), key=lambda each: (each[1][0], -each[1][1])):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
            merged[-1][2] = min(merged[-1][2], number)
        elif end > start:
            merged.append([start, end, number])
    pieces = []
    done = 0
    for start, end, number in merged:
        pieces += [text[done:start], f"[redacted:{spans[number][2]}]"]
        if keep_lines:
            pieces.append("\n" * text.count("\n", start, end))
        done = end
    return "".join([*pieces, text[done:]])


def _lower(text: str) -> str:
    """Return the text in lower case; every character stays where it is."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


def _has_runs(text: str) -> bool:
    """Return True for a text with a long run that does not consist of words."""
    return any(map(_is_odd, [word for word in text.split() if len(word) >= RUN_CHARACTERS_MIN]))


def _is_odd(word: str) -> bool:
    if "@" in word or "\x1b" in word or not word.isascii():
        return True
    return any(_MIX.search(run) for run in _PLAIN_RUN.findall(word))


_PLAIN_RUN = _lazy(r"[A-Za-z0-9_%-]{14,}")
_MIX = _lazy(r"[0-9][A-Za-z]|[A-Za-z][0-9]|[a-z][A-Z]{2}|[A-Z][a-z][A-Z]|[A-Z]{4}[a-z]{4}")


_CLASSES = bytes(
    97
    if chr(code).islower() or code >= 128
    else 65
    if chr(code).isupper()
    else 48
    if 48 <= code <= 57
    else code
    if chr(code) not in "#$&^~+@"
    else 33  # all signs that a password has are one
    for code in range(256)
)


def _may_be_value(word: str) -> bool:
    """Return False for a word without any mixture, a version, a number with its unit, or the name of an algorithm."""
    return _is_mixed(word) and _COMMON.fullmatch(word) is None


_COMMON = _lazy(
    r"[\"'`*_(\[{<]{0,4}(?:v?[0-9]+(?:[.,:_/x-][0-9]+)*[a-zA-Z%]{0,4}|[A-Za-z]{1,4}-?[0-9]{1,4}[a-z]?"
    r"|[0-9]{1,4}(?:-[a-z]+)+"
    r"|[a-z]+(?:[_./][a-z]+)*[0-9]?(?:\([a-z_, ]*\)?)?|(?:[A-Z]{0,3}[a-z]+){1,4}(?:\.[A-Za-z_]+)*(?:\([a-z_, ]*\)?)?)"
    r"(?:['’]s)?[\"'`*_)\]}>.,;:!?—–-]{0,6}"
)


def _is_mixed(text: str) -> bool:
    """Return True for a text with digits beside letters, or capitals within a word: all other runs are words."""
    classes = text.encode("ascii", "replace").translate(_CLASSES)
    return (
        (b"0" in classes and (b"a0" in classes or b"0a" in classes or b"A0" in classes or b"0A" in classes))
        or b"aAA" in classes
        or b"AaA" in classes
        or (b"0" in classes and (b"-0-" in classes or b"a!0" in classes or b"0!a" in classes))
    )


_LOGIN = _lazy(
    r"(?i)(?:log(?:ged)? ?in|sign(?:ed)? in|credential|creds|\buser|account|zugangsdaten|anmelde|identifiants"
    r"|credenciales)"
)
_LOGIN_PAIR = _lazy(
    r"[\w.@-]{2,64} / "
    r"(?P<value>(?=[^\s0-9]{0,64}[0-9])(?=[^\sa-z]{0,64}[a-z])[^\s/]{8,64})(?=\s|\Z)"
)


def _find_logins(text: str, found: list[Span]) -> None:
    """Find the passwords in sentences such as `log in with name / VALUE`."""
    place = text.find(" / ")
    while place >= 0:
        name = text.rfind(" ", max(0, place - 64), place) + 1
        pair = _LOGIN_PAIR.match(text, name) if name else None
        if pair is not None and _LOGIN.search(text, max(0, name - 50), name) is not None:
            value = pair["value"].rstrip(_TRAILING)
            if len(value) >= 8 and not _is_filler(value):
                found.append((pair.start("value"), pair.start("value") + len(value), "login"))
        place = text.find(" / ", place + 3)


def _has_words(text: str, lower: str) -> bool:
    """Return True for a text that may hold a secret that consists of words or numbers alone."""
    return (
        (
            ("pass" in lower or "pw" in lower or "secret" in lower or "token" in lower or "key" in lower)
            and _ASSIGNED.search(lower) is not None
        )
        or "phrase" in lower
        or "mnemonic" in lower
        or "seed" in lower
        or "wallet" in lower
        or "words" in lower
        or (" -" in text and any(each in text for each in _FLAGS))
        or ("://" in text and "@" in text)
        or ("'" in text and "identified" in lower)
        or ("=" in text and ("cookie" in lower or "kennwort" in lower or "clave" in lower))
        or (":" in text and (":5432:" in text or ":*:" in text or "authorization:" in lower))
        or ("|" in text and "echo " in lower)
        or ("-----" in text and "private" in lower)
        or "\x1b" in text
        or ("{" in text and "auth" in lower)
    )


_ASSIGNED = _lazy(
    r"(?:pass|passw(?:or)?d|phrase|pwd?|secret|token|key)s?[0-9]{0,2}(?![a-z])(?:[\"'`)\]\\]{0,4}\s{0,2}[:=,>(]"
    r"|[^\n.]{0,60}?[^\n.\w](?:is|was|now)\b|\s[\"'`][^\s])|--?[a-z-]*pass"
)
_FLAGS = (" -p", " -P", " -a ", " -u", " -w", " -N ", " -U", " -hp", " -k ", " --pass")


def _has_names(text: str, lower: str) -> bool:
    """Return True for a text with a word about secrets, or with characters that may hide one."""
    if not text.isascii() and any(each in lower for each in _FOREIGN):
        return True
    for each in _TELLING:
        if each in lower:
            return True
    return (
        (" / " in lower and _LOGIN.search(lower) is not None)
        or (" -" in text and any(each in text for each in _FLAGS))
        or (":" in text and _AT_COLON.search(lower) is not None)
        or ("::" in text and "redacted" not in lower)
        or (
            "$" in text
            and ("$2" in text or "$1$" in text or "$5$" in text or "$6$" in text or "$y$" in text or "$P$" in text)
        )
        or ("*" in text and _MYSQL.search(text) is not None)
        or not _PROGRAMS.keys().isdisjoint(_words(lower))
    )


_MYSQL = _lazy(r"\*[0-9A-F]{40}")
_TELLING = (
    *(
        "pass",
        "token",
        "secret",
        "key",
        "pw",
        "cred",
        "auth",
        "login",
        "log in",
        "sign in",
        "clave",
        "mdp",
        "kennw",
        "contrase",
    ),
    *(
        "unlock",
        "code",
        "seed",
        "cookie",
        "identified",
        "wachtw",
        "senha",
        "chave",
        "sleutel",
        "hasl",
        "losen",
        "heslo",
    ),
    *("salasan", "kodeord", "adgangsk", "parol", "lozink", "geslo", "sifre", "klucz", "chiav", "nyckel", "kata sandi"),
    *("jeton", "zugang", "identifiant", "connecte", "entra ", "melde ", "anmeld", "echo ", "community", "psk", "salt"),
    *(
        "wifi",
        "wi-fi",
        "wlan",
        "bearer",
        "wallet",
        "mnemonic",
        "phrase",
        "hash",
        "pbkdf2",
        "scrypt",
        "{sha",
        "{ss",
        "\x1b",
    ),
)
_AT_COLON = _lazy(r":(?:\*|5432|5433|6432):|bearer|cookie|mnemonic|jeton|senha")


_INVISIBLES = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
_FOREIGN = (  # invisible characters, and what only other alphabets have
    *_INVISIBLES,
    *(each for each in _STEMS if not each.isascii()),
    *("密", "口令", "パス", "暗証", "비밀", "암호", "mật kh", "المرور", "السر", "סיסמ", "पासवर्ड"),
)
_ALL = Rules()
ROUNDS_MAX = 20  # a command of 200 characters has room for a dozen flags, and each round replaces one


def redact(text: str) -> str:
    """Return the text with every known kind of secret replaced by `[redacted:<kind>]`."""
    return _ALL.redact(text)


def redact_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines of a text with the secrets in them replaced, also those of several lines. Their number stays."""
    return _ALL.redact("\n".join(lines), keep_lines=True).split("\n")


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
        value = redact(value)
        is_named = 0 < len(key) <= NAME_CHARACTERS_MAX and len(value) >= RUN_CHARACTERS_MIN and bool(_strength(key))
        return (
            "[redacted:credential]" if is_named and _is_strong(value, hexadecimal=not _HEX_WORDS.search(key)) else value
        )
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
    if not can_be_one or _is_harmless(value, at_least=4 if is_password else 8, has_labels=False):
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
    """Empty the caches of names from users' data."""
    _secret_kind.cache_clear()
    _strength.cache_clear()


def _assigned(match: re.Match[str]) -> Span | None:
    """Return where the value of an assignment is; None if it cannot be a secret."""
    kind = match.lastgroup or ""
    value = match[kind].rstrip("\\")  # the closing quote was escaped
    if _is_harmless(value, at_least=6 if _is_password(match["key"]) else 8) or _is_working_directory(match, value):
        return None
    if (
        not _is_password(match["key"])
        and not match["key"].isupper()
        and _WORD.fullmatch(value)
        and randomness(value) < 0.34
    ):
        return None  # "importToken": "template"
    if kind == "bare" and not (match["key"].isupper() and match["gap"] == "="):
        if _CONSTANT.fullmatch(value) or (_MEMBER.fullmatch(value) and randomness(value) < 0.4):
            return None
        if not _is_password(match["key"]) and _NUMBERED_NAME.fullmatch(value) and not match["key"].isupper():
            return None
    if kind == "bare" and (
        match.string.startswith(("(", "[", "{"), match.end()) or _is_code(value, key=match["key"], gap=match["gap"])
    ):
        return None
    return match.start(kind), match.start(kind) + len(value), GENERIC


_CONSTANT = _lazy(r"[A-Z]{2,}[0-9]?(?:_[A-Z]{2,}[0-9]?)+")
_MEMBER = _lazy(r"[a-z_]\w*(?:\.[a-z_]\w*){2,}")
_NUMBERED_NAME = _lazy(r"[a-z]+(?:[-.][a-z]+)*-v?[0-9]{1,2}")  # shop-database-2


def _phrase(match: re.Match[str]) -> Span | None:
    """Return where the quoted phrase of an assignment is; None if it is not a password."""
    kind = match.lastgroup or ""
    value = match[kind].rstrip("\\")
    if _is_harmless(value, at_least=8) or "[redacted:" in value or _is_working_directory(match, value):
        return None
    if not _MIXED.search(value) and ("=" not in match["gap"] or _ABOUT.search(value)):
        return None
    return match.start(kind), match.start(kind) + len(value), GENERIC


def _is_password(key: str) -> bool:
    return key.lower().startswith(("pass", "pwd"))


def _is_working_directory(match: re.Match[str], value: str) -> bool:
    return match["key"].lower() == "pwd" and value.startswith(("/", "~", "."))


def _is_filler(value: str) -> bool:
    """Return True for what an example has in place of a secret, such as `<your-token>` or `ghp_xxxx`."""
    if _PLACEHOLDER.match(value):
        return True
    lower = value[:JUDGED_CHARACTERS_MAX].lower()
    for each in _FILLERS:
        if each in lower:
            return True
    return ("example" in lower or "replace" in lower or "dummy" in lower or "todo" in lower) and bool(
        _FILLER_WORD.search(value)
    )


def _is_placeholder(value: str) -> bool:
    return len(set(value)) <= 2 or _is_filler(value)


def _is_sequence(value: str) -> bool:
    """Return True for a run that is little more than the alphabet and the digits in their order."""
    return len(value) >= RUN_CHARACTERS_MIN and len(_SEQUENCE.sub("", value[:JUDGED_CHARACTERS_MAX])) < 8


def _is_harmless(value: str, *, at_least: int, has_labels: bool = True) -> bool:
    if len(value) < at_least or _is_placeholder(value) or _ADDRESS.fullmatch(value):
        return True
    return has_labels and _is_label(value)


def _is_label(value: str) -> bool:
    """Return True for a word that a form shows beside a field, such as `Contraseña`."""
    if value.isalpha():
        return not value.isascii() or value.istitle() or bool(_NAMED.search(value))
    return _SNAKE.fullmatch(value) is not None and _NAMED.search(value) is not None


_SNAKE = _lazy(r"[a-z]+(?:[_-][a-z]+)+")  # expired_token, my-client-secret


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
