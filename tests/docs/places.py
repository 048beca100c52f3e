"""Where the pages' shell blocks run: a folder like a fresh checkout, on ports of its own.

What a reader would install is not installed again: ``.venv`` holds commands that run the python of
the tests with the checkout's source.
"""

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from scripts.ports import free_port
from tests.docs.pages import ROOT

_COMMANDS = {
    "python": "",
    "python3": "",
    "mail": "-m mail.cli ",
    "pytest": "-m pytest -p no:cacheprovider ",
}
_COPIED = ("mail.toml", "swarms.json", "pyproject.toml", "constraints.txt", "Makefile")
_FOREIGN = ("_API_KEY", "_API_BASE", "_BASE_URL", "_ENDPOINT")
_DROPPED = ("DATABASE_URL", "MAIL_CONFIG_PATH", "MAIL_LOG_LEVEL", "MAIL_URL", "MAKEFLAGS")


def replacements() -> dict[str, str]:
    """Return what pages say that would meet other servers, and what is read in its place."""
    ports = {"8000": str(free_port()), "8001": str(free_port())}
    return {"0.0.0.0": "127.0.0.1"} | ports  # noqa: S104 - it is what is not to be


def settle_in(home: Path) -> None:
    """Let ``curl`` fail in this home where the server refuses."""
    home.mkdir(exist_ok=True)
    (home / ".curlrc").write_text("fail-with-body\n", encoding="utf-8")


def checkout(folder: Path, replaced: Mapping[str, str]) -> None:
    """Fill a folder with what the commands on the pages use of a checkout."""
    settle_in(folder)
    for name in _COPIED:
        shutil.copy(ROOT / name, folder)
    (folder / "scripts").symlink_to(ROOT / "scripts")
    settle(folder, replaced)
    install(folder)


def settle(folder: Path, replaced: Mapping[str, str]) -> None:
    """Let the server of a checkout listen where no other does."""
    settings = folder / "mail.toml"
    text = read_otherwise(settings.read_text(encoding="utf-8"), replaced)
    settings.write_text(text, encoding="utf-8")


def read_otherwise(text: str, replaced: Mapping[str, str]) -> str:
    """Return a text with every occurrence of the keys replaced by their values, in one pass."""
    if not replaced:
        return text
    return re.sub("|".join(map(re.escape, replaced)), lambda found: replaced[found[0]], text)


def install(folder: Path, source: Path = ROOT / "src") -> None:
    """Make ``.venv`` as ``python3 -m venv`` and ``pip install`` would, out of what is there."""
    commands = folder / ".venv" / "bin"
    commands.mkdir(parents=True)
    python = f"PYTHONPATH={source} exec {sys.executable}"
    for name, module in _COMMANDS.items():
        (commands / name).write_text(f'#!/bin/sh\n{python} {module}"$@"\n', encoding="utf-8")
        (commands / name).chmod(0o755)
    (commands / "activate").write_text(f'PATH="{commands}:$PATH"\n', encoding="utf-8")
    built_for = (sys.version.split()[0], sysconfig.get_platform(), sys.base_prefix, "in", folder)
    (commands.parent / ".installed").write_text(" ".join(map(str, built_for)), encoding="utf-8")


def variables(home: Path, **more: str) -> dict[str, str]:
    """Return a reader's environment, from which nothing leads off this machine."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(_FOREIGN) and name not in _DROPPED
    }
    closed = {"HTTPS_PROXY": "http://127.0.0.1:9", "PIP_NO_INDEX": "1", "PIP_DRY_RUN": "1"}
    return kept | closed | {"HOME": str(home)} | more
