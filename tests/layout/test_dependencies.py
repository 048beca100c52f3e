"""Every direct dependency is used and explained, and the lists of versions agree."""

import ast
import gc
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DIRECT = [Requirement(text) for text in PROJECT["dependencies"]]
KEYRING = [Requirement(text) for text in PROJECT["optional-dependencies"]["keyring"]]
S3 = [Requirement(text) for text in PROJECT["optional-dependencies"]["s3"]]
EMAIL = [Requirement(text) for text in PROJECT["optional-dependencies"]["email"]]
GOOGLE = [Requirement(text) for text in PROJECT["optional-dependencies"]["email-google"]]
OTEL = [Requirement(text) for text in PROJECT["optional-dependencies"]["otel"]]
VERTEX = [Requirement(text) for text in PROJECT["optional-dependencies"]["vertex"]]
EXTRAS = {
    "keyring": KEYRING,
    "email": EMAIL,
    "email-google": GOOGLE,
    "otel": OTEL,
    "s3": S3,
    "vertex": VERTEX,
}
LOADED_BY_OTHERS = {"httptools", "uvloop"}
"""uvicorn loads them where they are installed."""


def names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(one.name) for one in requirements}


def imported() -> Iterator[str]:
    gc.collect()  # what it finds may log a traceback, and Python 3.11 parses nothing meanwhile
    for path in (ROOT / "src" / "mail").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0]
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
                yield from (one.value for one in node.args if isinstance(one, ast.Constant))


def pins(name: str) -> dict[str, str]:
    lines = re.findall(r"^([\w.-]+)==([\w.!+-]+)", (ROOT / name).read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in lines}


def test_every_direct_dependency_is_used_by_the_package() -> None:
    known = packages_distributions()
    used = {canonicalize_name(one) for module in imported() for one in known.get(module, ())}
    assert names(DIRECT) - used == LOADED_BY_OTHERS
    assert names([*KEYRING, *EMAIL, *GOOGLE, *OTEL, *S3, *VERTEX]) <= used


def test_the_contributors_page_tells_what_each_is_for() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = page.partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| ([\w-]+)(?: \(extra `([\w-]+)`\))? \| \S", section, re.MULTILINE)
    rows = [(canonicalize_name(name), extra) for name, extra in told if name != "Dependency"]
    extras = {"": DIRECT, **EXTRAS}
    expected = [(name, extra) for extra, those in extras.items() for name in names(those)]
    assert sorted(rows) == sorted(expected)


def test_an_upper_bound_has_its_reason_beside_it() -> None:
    for line in (ROOT / "pyproject.toml").read_text("utf-8").splitlines():
        if re.match(r'    "[\w-]+>=[\d.]+,<', line):
            assert "  # " in line, line


def test_pinned_versions_are_allowed() -> None:
    pinned = pins("constraints.txt")
    extras = PROJECT["optional-dependencies"]["dev"]
    for one in [*DIRECT, *chain(*EXTRAS.values()), *map(Requirement, extras)]:
        if one.name != PROJECT["name"]:
            assert one.specifier.contains(pinned[canonicalize_name(one.name)]), one


def test_the_lock_has_the_same_versions_and_hashes_of_each() -> None:
    text = (ROOT / "requirements.lock").read_text("utf-8")
    locked = pins("requirements.lock")
    assert locked.items() <= pins("constraints.txt").items()
    assert names(DIRECT) <= set(locked)
    assert not names([*chain(*EXTRAS.values())]) & set(locked)
    assert len(re.findall(r"^[\w.-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", text, re.M)) == len(
        locked
    )
    assert "://" not in text
    assert "://" not in (ROOT / "constraints.txt").read_text("utf-8")


def test_langmem_is_installed_and_requirements_that_name_its_earlier_extra_still_hold() -> None:
    assert "langmem" in names(DIRECT)
    assert PROJECT["optional-dependencies"]["memory"] == []
