"""Settings: one frozen value, and a bad file gets the exact key and the reason."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from mica.errors import InvalidSettings
from mica.settings import FROM_ENVIRONMENT, Settings, load_settings


def written(folder: Path, text: str) -> dict[str, str]:
    (folder / "config.toml").write_text(text, encoding="utf-8")
    return {"HOME": str(folder), "MICA_CONFIG": str(folder / "config.toml")}


def test_without_a_file_the_defaults_apply(tmp_path: Path) -> None:
    """keeps: U-05. A brief takes 100 ms at most."""
    settings = load_settings({"HOME": str(tmp_path)})
    assert settings.brief.budget_tokens == 2_000
    assert settings.brief.deadline_s == 0.1
    assert settings.home.is_relative_to(tmp_path)
    assert settings.transcripts is None


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    variables = written(tmp_path, 'home = "~/elsewhere"\n[brief]\nbudget_tokens = 5\ndeadline_s = 1\n')
    settings = load_settings({**variables, "MICA_BRIEF_BUDGET_TOKENS": "7"})
    assert (settings.brief.budget_tokens, settings.brief.deadline_s) == (7, 1.0)
    assert load_settings({**variables, "MICA_HOME": str(tmp_path / "third")}).home == tmp_path / "third"


def test_folders_follow_the_desktop_standard(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "XDG_DATA_HOME": "/data"}
    settings = load_settings(variables)
    assert settings.home == Path("/data/mica")


def test_the_file_and_the_environment_set_the_transcript_folder_of_a_client(tmp_path: Path) -> None:
    variables = written(tmp_path, '[clients]\ncodex = "/elsewhere"\ncopilot = "/there"\n')

    settings = load_settings({**variables, "MICA_CLIENTS_COPILOT": "/mine", "MICA_CLIENTS_CLAUDE_CODE": "/c"})

    assert settings.clients == {"codex": Path("/elsewhere"), "copilot": Path("/mine"), "claude-code": Path("/c")}
    assert load_settings({"HOME": str(tmp_path)}).clients == {}


def test_trace_fields_of_the_parent_process_are_used(tmp_path: Path) -> None:
    settings = load_settings({"HOME": str(tmp_path), "TRACEPARENT": "00-x", "BAGGAGE": "a=b", "PATH": "/bin"})
    assert settings.carrier == {"TRACEPARENT": "00-x", "BAGGAGE": "a=b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[brief]\nbudget_tokens = 'many'", r"\$\.brief\.budget_tokens"),
        ("[brief]\nbudget_tokens = -1", r"config\.toml: .*>= 1 - at `\$\.brief\.budget_tokens`, not -1$"),
        ("time_zone = 'Mars/Base'", r"config\.toml: time_zone is 'Mars/Base'; name one such as Europe/Berlin"),
        ("[brief]\ndeadline_s = 0", r"\$\.brief\.deadline_s"),
        ("[brief]\nbudgt = 1", r"unknown field `budgt` - at `\$\.brief`"),
        ("brief = 3", r"\$\.brief"),
        ("home = 3", r"\$\.home"),
        ("home = ''", r"\$\.home"),
        ("colour = 'red'", "unknown field `colour`"),
        ("[servr]\nport = 1", r"`servr`; did you mean `server`\?$"),
        ("[server]\nprot = 1", r"`\$\.server`; did you mean `port`\?$"),
        ("port = 1", r"`port`; it belongs under \[server\]$"),
        ("[server]\ncolour = 1", r"`\$\.server`; the known names are host, port, names, mcp_sse$"),
        ("semantic = 'onn'", r"`\$\.semantic`; write 'auto' or 'on' or 'off'$"),
        ("[models.providers.local]\nbase_urll = 'x'", r"did you mean `base_url`\?$"),
        ("[[models.budgets]]\nper = 'week'", r"write 'day' or 'month' or 'ever'$"),
        ("[brief\n", "line 1"),
        (b"home = '\xff'", "config.toml"),
    ],
)
def test_an_invalid_file_is_reported_with_the_key_and_the_reason(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    (tmp_path / "config.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    variables = {"HOME": str(tmp_path), "MICA_CONFIG": str(tmp_path / "config.toml")}
    with pytest.raises(InvalidSettings, match=message):
        load_settings(variables)


def test_an_invalid_variable_names_its_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"MICA_BRIEF_DEADLINE_S='soon': .*\$\.brief\.deadline_s"):
        load_settings({"HOME": str(tmp_path), "MICA_BRIEF_DEADLINE_S": "soon"})


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="does not exist"):
        load_settings({"HOME": str(tmp_path), "MICA_CONFIG": str(tmp_path / "nope.toml")})


def test_sources_are_named_tables_that_their_drivers_parse(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, '[sources.reviews]\ndriver = "json"\npath = "reviews.json"\n'))

    assert settings.sources == {"reviews": {"driver": "json", "path": "reviews.json"}}
    with pytest.raises(InvalidSettings, match=r"\$\.sources"):
        load_settings(written(tmp_path, "sources = 3\n"))


def test_only_variables_that_sources_name_are_read(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[sources.a]\ndsn_env = "A_DSN"\n[sources.b]\nheaders_env = { X = "B_TOKEN" }\n'
        '[sources.c]\nenv = ["C", "UNSET"]\n'
    )
    environment = {"A_DSN": "a", "B_TOKEN": "b", "C": "c", "OTHER": "o", "HOME": "/h", "MICA_CONFIG": str(file)}

    settings = load_settings(environment)

    assert {name: each.reveal() for name, each in settings.variables.items()} == {
        "A_DSN": "a",
        "B_TOKEN": "b",
        "C": "c",
    }
    assert settings.file == file
    for key in ("variables", "file"):
        file.write_text(f'{key} = "x"\n')
        with pytest.raises(InvalidSettings, match=f"`{key}` cannot be set in a file"):
            load_settings(environment)


@pytest.mark.parametrize("concept", ["nonsense", "judgment:code_review", "a:b:", ":b:c"])
def test_an_invalid_concept_is_refused_when_settings_are_read(tmp_path: Path, concept: str) -> None:
    """A mistake in a file must never raise into an agent's turn."""
    environment = written(tmp_path, f'[brief]\nconcepts = ["{concept}"]\n')

    with pytest.raises(InvalidSettings, match=r"config\.toml.*brief\.concepts"):
        load_settings(environment)


def test_concepts_of_every_brief_are_set_by_name(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, '[brief]\nconcepts = ["a:b:c", "judgment:code_review:a:1 b"]\n'))

    assert settings.brief.concepts == ("a:b:c", "judgment:code_review:a:1 b")


def test_every_key_of_the_file_is_on_the_page_of_settings() -> None:
    page = (Path(__file__).parent.parent / "docs" / "quickstart.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    listed: set[str] = set()
    for row in rows:
        section = ""
        for name in re.findall(r"`([a-z_.]+)`", row.split("|")[1]):
            section = section if name.startswith(".") else name.rpartition(".")[0]
            listed.add(section + name if name.startswith(".") else name)

    missing = []
    for field in msgspec.structs.fields(Settings):
        if field.name in FROM_ENVIRONMENT:
            continue
        inner = field.type if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct) else None
        keys = [f"{field.name}.{each.name}" for each in msgspec.structs.fields(inner)] if inner else [field.name]
        missing += [key for key in keys if not any(name == key or name.startswith(f"{key}.") for name in listed)]
    assert missing == []
