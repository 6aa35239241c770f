"""Long texts that are no attack pass as short ones do: the length is no feature by accident."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import inspect
import json
import logging
import random
import smtplib
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.core.guarding import Text
from gateway.guards.injection import InjectionEngine
from tests.guards.corpus import evaluation

ROOT = Path(__file__).parents[4]
CUTS = 60
# What quotes attacks is left out: that is what the guard is for.
ABOUT_ATTACKS = ("guardrails", "injection", "content", "security", "threat", "policies")
MODULES = (argparse, asyncio, http.client, json, logging, random, smtplib, subprocess, urllib.request)
ENGINE = InjectionEngine()


def unhurried() -> None:
    """Nobody waits."""


def is_flagged(text: str) -> bool:
    """Whether a finding in *text*, said by a user, counts."""
    return any(one.score >= ENGINE.threshold for one in ENGINE.scan(Text(text, "user"), unhurried))


def licence() -> list[str]:
    """The text of this project's licence."""
    return [(ROOT / "LICENSE").read_text(encoding="utf-8")]


def manuals() -> list[str]:
    """This project's documentation and changes."""
    paths = [path for path in sorted((ROOT / "docs").glob("*.md")) if not path.stem.startswith(ABOUT_ATTACKS)]
    return [path.read_text(encoding="utf-8") for path in paths]


def docstrings() -> list[str]:
    """What modules of Python's library say of themselves, one after the other."""
    return ["\n\n".join(said(module)) for module in MODULES]


def said(module: object) -> Iterator[str]:
    """The docstrings of *module* and of what it has."""
    for _, member in [("", module), *inspect.getmembers(module)]:
        if inspect.ismodule(member) or inspect.isroutine(member) or inspect.isclass(member):
            yield inspect.getdoc(member) or ""


@pytest.mark.parametrize("length", [500, 2_000, 8_000])
@pytest.mark.parametrize("texts", [licence, manuals, docstrings], ids=lambda texts: texts.__name__)
def test_long_texts_pass(texts: object, length: int) -> None:
    """Of random cuts of licences, manuals and docstrings next to none is flagged, at any length."""
    assert callable(texts)
    chance = random.Random(length)
    long = [text for text in texts() if len(text) > length]

    flagged = 0
    for _ in range(CUTS):
        text = chance.choice(long)
        at = chance.randrange(len(text) - length)
        flagged += is_flagged(text[at : at + length])

    assert flagged <= 0.02 * CUTS


def test_attacks_in_long_texts_are_found() -> None:
    """Of the direct attacks that are found alone, four of five are found in the middle of a licence too."""
    around = licence()[0].split("\n\n")
    front, behind = "\n\n".join(around[:12]), "\n\n".join(around[12:])
    attacks = [sample.text for sample in evaluation() if sample.kind == "direct"]

    alone = [attack for attack in attacks if is_flagged(attack)]
    found = [attack for attack in alone if is_flagged(f"{front}\n\n{attack}\n\n{behind[:8_000]}")]

    assert len(front) + len(behind) > 8_000
    assert len(found) >= 0.8 * len(alone) > 0
