"""The built wheel: it contains the package and its licences, installs with pip, pipx and uv, and then works offline."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PROGRAMS = {"km", "mica", "mica-hook"}


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None, stdin: str = "") -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source tree with this environment's hatchling."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
    (built,) = folder.iterdir()
    return built


class Newcomer:
    """A person with an empty home folder, no settings for pip or uv, and no network."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.environment = {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": ":".join(each for each in os.defpath.split(":") if each),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_NO_CONFIG": "1",
        }

    def run(self, *command: str | Path, stdin: str = "") -> str:
        return run(*command, cwd=self.home, env=self.environment, stdin=stdin)

    def install(self, installer: str, wheel: Path, *, source: Sequence[str]) -> Path:
        """Install the wheel from this source of packages; returns the folder of its programs."""
        tool = (sys.executable, "-m", installer)
        if installer == "pip":
            environment = self.home / "environment"
            self.run(sys.executable, "-m", "venv", "--without-pip", environment)
            python = str(environment / "bin" / "python")
            self.run(*tool, "--python", python, "install", "--no-compile", *source, wheel)
            return environment / "bin"
        if installer == "pipx":
            # Its other backend, pip, bootstraps its own pip: slow, and impossible where ensurepip is missing.
            self.run(*tool, "install", "--backend", "uv", "--pip-args", shlex.join(source), wheel)
        else:
            self.run(*tool, "tool", "install", "--offline", "--python", sys.executable, *source, wheel)
        return self.home / ".local" / "bin"


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path)


@pytest.fixture(scope="session")
def source() -> list[str]:
    """Options that make an installer use the wheels of `make setup` only. Without these wheels the run fails."""
    wheels = Path(sys.prefix, "wheels")
    assert any(wheels.glob("*.whl")), "no wheels to install from; `make setup` fetches them (requirements/run.txt)"
    return ["--no-index", "--find-links", str(wheels)]


def test_the_wheel_contains_the_package_and_nothing_else(wheel: Path) -> None:
    package = {path for path in (SOURCE / "mica").rglob("*") if path.is_file() and "__pycache__" not in path.parts}

    with ZipFile(wheel) as archive:
        names = set(archive.namelist())

    metadata = {name.partition(".dist-info/")[2] for name in names if ".dist-info/" in name}
    assert metadata == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    contents = {name for name in names if ".dist-info/" not in name}
    assert contents == {path.relative_to(SOURCE).as_posix() for path in package}
    assert "mica/py.typed" in contents


def test_files_of_other_projects_are_shipped_with_their_licences(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = [PurePosixPath(name) for name in archive.namelist()]
    static = PurePosixPath("mica/web/static")
    foreign = [name for name in names if name.parent == static / "vendor" and name.suffix == ".js"]
    foreign += [name for name in names if name.parent == static / "fonts" and name.suffix == ".woff2"]
    foreign += [name for name in names if name.name == "minilm-vocab.txt"]
    licences = [name for name in names if name.suffix in {".LICENSE", ".NOTICE"}]

    assert len(foreign) >= 6
    for name in foreign:
        assert any(name.parent == each.parent and name.name.startswith(each.stem) for each in licences), name


@pytest.mark.parametrize("installer", ["pip", "pipx", "uv"])
def test_the_wheel_installs_into_an_empty_environment_and_shows_the_first_look(
    installer: str, wheel: Path, source: list[str], newcomer: Newcomer
) -> None:
    """keeps: U-11. Without extras, a network or a home folder that has seen mica."""
    programs = newcomer.install(installer, wheel, source=source)

    assert {path.name for path in programs.iterdir()} >= PROGRAMS
    look = newcomer.run(programs / "mica", "up", "--sample", "--once")
    assert "What happened lately" in look
    assert "What the next agent will receive" in look
    assert "Record an observation" in newcomer.run(programs / "km", "--help")
    newcomer.run(programs / "mica-hook", "SessionStart", stdin="{}")
