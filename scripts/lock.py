"""Write constraints.txt and requirements.lock from what is installed here (``make lock``).

``constraints.txt`` pins everything, the developers' tools too, by name and version.
``requirements.lock`` pins what an installation without extras needs, with the hashes of all files
that the package index has of these versions, so that ``pip install --require-hashes`` takes no
others. Neither holds an address: one would tie the project to one machine or one index.
"""

import argparse
import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

_OURS = "mail-protocol"
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_SYSTEMS = (("linux", "Linux"), ("darwin", "Darwin"))
_INDEX = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json"
_UNPINNED = ("pip", "setuptools", "wheel", _OURS)

Installed = Mapping[str, Distribution]


def installed() -> dict[str, Distribution]:
    """Return what is installed, by canonical name."""
    return {canonicalize_name(one.metadata["Name"]): one for one in distributions()}


def needed(found: Installed) -> list[str]:
    """Return the names of what an installation without extras needs on any supported system."""
    names: set[str] = set()
    for python in _PYTHONS:
        for platform, system in _SYSTEMS:
            environment = {
                "python_version": python,
                "python_full_version": f"{python}.0",
                "sys_platform": platform,
                "platform_system": system,
            }
            names |= _closure(found, environment)
    return sorted(names - {_OURS})


def _closure(found: Installed, environment: Mapping[str, str]) -> set[str]:
    seen: set[tuple[str, str]] = set()
    waiting = [(_OURS, "")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name not in found:
            raise SystemExit(f"{name} is needed for {dict(environment)}, but not installed here")
        for text in found[name].requires or ():
            wanted = Requirement(text)
            if wanted.marker and not wanted.marker.evaluate({**environment, "extra": extra}):
                continue
            waiting += [(canonicalize_name(wanted.name), one) for one in ("", *wanted.extras)]
    return {name for name, _ in seen}


def hashes(name: str, version: str, index: str) -> list[str]:
    """Return the hashes of all files that the index has of a version."""
    request = urllib.request.Request(f"{index}/{name}/", headers={"Accept": _ACCEPT})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files: list[dict[str, Any]] = json.load(answer)["files"]
    return sorted({f["hashes"]["sha256"] for f in files if _version(f["filename"]) == version})


def _version(filename: str) -> str | None:
    try:
        if filename.endswith(".whl"):
            return str(parse_wheel_filename(filename)[1])
        if filename.endswith((".tar.gz", ".zip")):
            return str(parse_sdist_filename(filename)[1])
    except (InvalidWheelFilename, ValueError):
        return None  # of a time before there were rules for names
    return None


def checked(found: Mapping[str, list[str]], report: Path) -> None:
    """Make sure that what pip installed here is among the files of the index."""
    for one in json.loads(report.read_text("utf-8"))["install"]:
        name = canonicalize_name(one["metadata"]["name"])
        archive = one["download_info"].get("archive_info", {}).get("hashes", {})
        if name in found and archive.get("sha256") not in found[name]:
            raise SystemExit(f"the index knows another {name} than the one that was installed")


def lines(pins: Mapping[str, str], found: Mapping[str, list[str]]) -> Iterator[str]:
    """Return the lines of requirements.lock."""
    yield "# Written by 'make lock'. What an installation without extras needs on Linux and macOS."
    yield "# pip install --require-hashes -r requirements.lock"
    for name, known in found.items():
        yield " \\\n".join(
            [f"{name}=={pins[name]}", *(f"    --hash=sha256:{one}" for one in known)]
        )


def main(folder: Path, report: Path) -> None:
    """Write both files."""
    index = os.environ.get("PIP_INDEX_URL", _INDEX).rstrip("/")
    there = installed()
    pins = {name: one.version for name, one in there.items()}
    names = needed(there)
    with ThreadPoolExecutor(8) as pool:
        listed = pool.map(lambda name: hashes(name, pins[name], index), names)
    found = dict(zip(names, listed, strict=True))
    if unknown := [name for name, known in found.items() if not known]:
        raise SystemExit(f"the index has no files of {', '.join(unknown)}")
    checked(found, report)
    known = [one for name, one in there.items() if name not in _UNPINNED]
    pinned = sorted((f"{one.metadata['Name']}=={one.version}" for one in known), key=str.casefold)
    text = ["# Written by 'make lock'. Names and versions only.", *pinned, ""]
    (folder / "constraints.txt").write_text("\n".join(text), "utf-8")
    locked = "\n".join([*lines(pins, found), ""])
    (folder / "requirements.lock").write_text(locked, "utf-8")
    print(f"constraints.txt holds {len(pinned)} versions, requirements.lock {len(names)}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=(sys.modules[__name__].__doc__ or "").split("\n")[0]
    )
    parser.add_argument("report", type=Path, help="what pip install --report wrote")
    main(Path(__file__).parents[1], parser.parse_args().report)
