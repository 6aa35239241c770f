"""When the Makefile makes a new environment, as `make -n` tells it: nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin")


def plan(folder: Path, *arguments: str, **environ: str) -> str:
    """What `make` would run in *folder*; no variable of a make around the tests reaches it."""
    assert MAKE is not None, "make is not installed"
    env = {"PATH": "/usr/bin:/bin", **environ}
    done = subprocess.run([MAKE, "-n", *arguments], cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository in which nothing was made yet."""
    for name in ("Makefile", "requirements.txt", "requirements-test.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def made(clone: Path, python: str) -> None:
    """Leave behind what `make test` with *python* does."""
    (clone / ".venv").mkdir()
    for stamp, text in ((".made", f"{python}\n"), (".run", ""), (".test", "")):
        (clone / ".venv" / stamp).write_text(text)


def test_the_stamp_says_what_made_it(clone: Path) -> None:
    """A first run makes the environment, and notes which interpreter it was asked to take."""
    lines = plan(clone, "run", "PYTHON=python3.12").splitlines()

    assert lines[:2] == ["sh tests/venv.sh python3.12 .venv", "echo python3.12 >.venv/.made"]
    assert any("-m pip" in line and "-r requirements.txt" in line for line in lines)


@pytest.mark.parametrize("target", ["run", "unit"])
def test_another_interpreter_is_taken(clone: Path, target: str) -> None:
    """A PYTHON other than the last makes the environment anew and installs into it, named either way."""
    made(clone, "python3.12")

    for lines in (plan(clone, target, "PYTHON=python3.13"), plan(clone, target, PYTHON="python3.13")):
        assert "sh tests/venv.sh python3.13 .venv\n" in lines
        assert "-m pip" in lines


@pytest.mark.parametrize("named", [[], ["PYTHON=python3.12"]], ids=["none", "the same"])
def test_the_environment_is_kept(clone: Path, named: list[str]) -> None:
    """The interpreter that made it, or none, leaves the environment as it is."""
    made(clone, "python3.12")

    lines = plan(clone, "run", *named)

    assert lines == ".venv/bin/python -m gateway demo \n"
