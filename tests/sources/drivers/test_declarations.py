"""Tables of the settings: what is wrong in one is said with its file, table, key, value and remedy."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.sources.scripted_sources import ABOUT, declared

import mica
from mica.errors import InvalidInput, InvalidSettings
from mica.sources import registry
from mica.sources.drivers.declarations import TABLES
from mica.sources.drivers.tables import driver_of
from mica.sources.protocol import OWN, Concept
from mica.sources.registry import SourceRegistry

Declare = Callable[..., SourceRegistry]
PASSWORD = "hunter" + "2"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('driver = "postgre"', r'driver = \'postgre\' is not known; did you mean "postgres"\?'),
        ('driver = "oracle"', r"driver = 'oracle' is not known; use one of postgres, sqlite, json, jsonl, http, mcp"),
        ('path = "x.json"', "has no driver; use one of"),
        ('driver = "json"', r"the key 'path' is missing; give a file"),
        ('driver = "json"\npath = 3', r"path = 3 cannot be used \(Expected `str`, got `int`\); give a file"),
        (
            'driver = "json"\npath = "x"\nrank = "high"',
            r"rank = 'high' cannot be used \(Expected `int \| null`, got `str`\); give a whole number, 0",
        ),
        ('driver = "json"\npath = "x"\nrank = -1', r"rank = -1 cannot be used .*; give a whole number"),
        ('driver = "json"\npath = "x"\npth = "y"', r"there is no key 'pth'; did you mean path\?"),
        ('driver = "json"\npath = "x"\nquery = "y"', r"there is no key 'query'; use .*concepts"),
        ('driver = "json"\npath = "x"\nconcepts = "a"', r"concepts = 'a' cannot be used .*; give patterns of concepts"),
        ('driver = "json"\npath = "x"\nconcepts = []', r"concepts = \[\] cannot be used .*; give patterns of concepts"),
        ('driver = "json"\npath = "x"\nconcepts = ["a:b"]', "'a:b' covers no concept"),
        ('driver = "json"\npath = "x"\ntime_share = 2', r"time_share = 2 cannot be used .*; give a share"),
        (
            'driver = "json"\npath = "x"\nselect = "judgments"',
            r"select = 'judgments' cannot be used .*; give a JSONPath",
        ),
        ('driver = "json"\npath = "x{what}"', r"there is no \{what\} in a concept; use \{domain\}, \{type\}, \{id\}"),
        ('driver = "json"\npath = "x"\nfragment = { tekst = "a" }', r"no key 'fragment.tekst'; did you mean text\?"),
        ('driver = "json"\npath = "x"\nfragment = { text = "{a" }', r"text = '\{a': '\{' at character 1 is unpaired"),
        (
            'driver = "json"\npath = "x"\nfragment = { confidence = true }',
            r"fragment\.confidence = True cannot be used",
        ),
        ('driver = "sqlite"\npath = "x"', "the key 'query' is missing; give one SELECT"),
        ('driver = "postgres"\nquery = "SELECT 1"', 'give either dsn_env = "NAME" of an environment variable, or dsn'),
        ('driver = "http"\nurl = "ftp://x"', r"url = … cannot be used .*; give an address"),
        ('driver = "http"\nurl = "http://{id}.example.org/"', "must name a fixed host"),
        ('driver = "mcp"\ntool = "x"', r'give either command = \["program", …\] or url'),
        ('driver = "mcp"\ncommand = ["x"]', 'give either tool = "name" or resource = "address"'),
        ('driver = "python"\nentry = "nothing"', r"entry = 'nothing' cannot be used .*; give \"module:function\""),
    ],
)
def test_a_mistake_names_file_table_key_value_and_remedy(table: str, reason: str, tmp_path: Path) -> None:
    """keeps: C-01. Sources are declared without code, so the error must explain the correct form."""
    with pytest.raises(InvalidSettings, match=rf"config\.toml: \[sources\.shop\]: .*{reason}"):
        declared(f"[sources.shop]\n{table}\n", folder=tmp_path)


@pytest.mark.parametrize(
    "text", ["[sources.shop", "sources = 3", "[sources]\nshop = 3", "\x00", '[sources.shop]\na = "']
)
def test_malformed_settings_are_named(text: str, tmp_path: Path) -> None:
    """Bad input: malformed TOML."""
    with pytest.raises(InvalidSettings, match=r"config\.toml"):
        declared(text, folder=tmp_path)


@pytest.mark.parametrize(
    "table",
    [
        f'driver = "postgres"\nquery = "SELECT 1"\ndsn = "mysql://me:{PASSWORD}@host/x"',
        f'driver = "postgres"\nquery = 3\ndsn = "postgresql://me:{PASSWORD}@host/x"',
        f'driver = "http"\nurl = "http://me:{PASSWORD}@host/"',
        f'driver = "http"\nurl = "ftp://me:{PASSWORD}@host/"',
        f'driver = "http"\nurl = "http://host/"\nheaders = {{ Authorization = ["{PASSWORD}"] }}',
        f'driver = "http"\nurl = "http://host/"\nheaders = {{ Authorization = "{PASSWORD}é" }}',
        f'driver = "mcp"\ntool = "x"\nurl = "http://me:{PASSWORD}@host/mcp"',
    ],
)
def test_no_error_shows_a_secret(table: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings) as caught:
        declared(f"[sources.shop]\n{table}\n", folder=tmp_path)

    assert PASSWORD not in str(caught.value)


def test_variables_are_read_from_the_environment_and_never_shown(declare: Declare) -> None:
    sources = declare(
        '[sources.a]\ndriver = "postgres"\nquery = "SELECT 1"\ndsn_env = "SHOP_DSN"\n'
        '[sources.b]\ndriver = "http"\nurl = "http://host/{id}?key=1"\n'
        'headers_env = { Authorization = "SHOP_TOKEN" }\n',
        SHOP_DSN=f"postgresql://me:{PASSWORD}@db.example.org:5433/shop?password={PASSWORD}",
        SHOP_TOKEN=f"Bearer {PASSWORD}",
    )

    asked = sources.explain(ABOUT)

    assert [each.place for each in asked] == ["PostgreSQL at db.example.org:5433/shop", "http://host/{id}"]
    assert asked[1].asks == "GET http://host/abc123?key=…"
    assert asked[1].parameters == {"header Authorization": "from $SHOP_TOKEN"}
    assert PASSWORD not in repr(asked)
    assert PASSWORD not in repr([vars(source) for source in sources])


async def test_a_mistake_in_a_source_is_reported_when_memory_opens(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[sources.shop]\ndriver = "json"\n')
    settings = mica.load_settings({"HOME": str(tmp_path), "MICA_CONFIG": str(file)})

    with pytest.raises(InvalidSettings, match="the key 'path' is missing"):
        await mica.open(tmp_path / "space.db", settings=settings)


def test_sources_keep_the_order_of_their_tables(declare: Declare) -> None:
    sources = declare('[sources.z]\ndriver = "memory"\n[sources.a]\ndriver = "memory"\n')

    assert [source.declared.name for source in sources] == ["z", "a"]


@pytest.mark.parametrize("name", OWN)
async def test_a_declared_source_cannot_take_a_built_in_name(name: str, memory: mica.Memory, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=rf"config\.toml: \[sources\.{name}\]: the name '{name}' is reserved"):
        declared(f'[sources.{name}]\ndriver = "json"\npath = "x.json"\n', folder=tmp_path)
    with pytest.raises(InvalidInput, match="is reserved for a source of mica's own"):
        memory.sources.register(name, {})
    assert {*memory.sources.all, "log"} == {*OWN}


async def test_the_modules_of_a_source_can_be_loaded_ahead(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process loads them before the deadline begins, and only those it needs."""
    loaded: list[str] = []
    monkeypatch.setattr(registry, "import_module", loaded.append)
    for module in ("jsonpath", "asyncpg"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    sources = declare(
        '[sources.file]\ndriver = "json"\npath = "x.json"\nselect = "$.*"\n'
        '[sources.other]\ndriver = "postgres"\ndsn_env = "X"\nquery = "SELECT 1"\nconcepts = ["other:*"]\n'
    )

    await sources.prepare([ABOUT])

    assert loaded == ["jsonpath"]


def test_every_table_of_the_docs_page_is_valid(tmp_path: Path) -> None:
    """docs/sources.md shows every driver, and every table in it can be used."""
    page = Path(__file__).parents[3] / "docs" / "sources.md"
    tables = "\n".join(re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))

    sources = declared(tables, folder=tmp_path, SHOP_DSN="postgresql://shop@localhost/shop", TICKETS_TOKEN="x")

    shown = {driver_of(source) for source in sources}
    assert shown == set(TABLES)
    keys = {field.encode_name for table in TABLES.values() for field in msgspec.structs.fields(table)}
    assert {key for key in keys if f"`{key}`" not in page.read_text(encoding="utf-8")} == {"fragment"}


def test_every_bound_parameter_is_explained(declare: Declare) -> None:
    """This includes the query of an address and the arguments of a function; a key inside them is not shown."""
    sources = declare(
        '[sources.api]\ndriver = "http"\nurl = "http://host/tickets?review={id}&key=k4&of={type}-{id}"\n'
        '[sources.code]\ndriver = "python"\nentry = "some.module:look"\n'
        f'arguments = {{ days = 30, password = "{PASSWORD}", key = "{"ghp_" + "a1B2" * 9}" }}\n'
    )

    api, code = sources.explain(Concept("judgment", "code_review", "a&b=1"))

    assert api.asks == "GET http://host/tickets?review=a%26b%3D1&key=…&of=code_review-a%26b%3D1"
    assert code.asks == "some.module:look(concept, days, password, key)"
    assert (code.parameters["concept"], code.parameters["days"]) == ("judgment:code_review:a&b=1", "30")
    assert "a1B2" not in repr(code)
    assert PASSWORD not in repr(code)


def test_explain_says_why_a_source_would_not_be_queried(declare: Declare) -> None:
    sources = declare(
        '[sources.api]\ndriver = "http"\nurl = "http://host/{id}"\n'
        '[sources.each]\ndriver = "json"\npath = "{id}.json"\n[sources.mine]\ndriver = "memory"\n'
    )

    asked = {each.source: each.asks for each in sources.explain(Concept("a", "b", ".."))}

    assert asked["api"] == "nothing: '..' cannot be part of an address"
    assert asked["each"].startswith("nothing: '..' cannot be part of a file's name")
    assert asked["mine"] == "nothing registered yet"
