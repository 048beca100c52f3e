"""Import each module in a process that has imported nothing it does not need; see test_imports.py.

The modules come as arguments. A module is imported in a fork of the process that imported the
largest module among those that it imports itself, and so on down to one bare interpreter. Nothing
else is there, so that it is as good as a new interpreter for each, which would take minutes. What
other projects ship is loaded once, before the forks.

Prints one line per module that cannot be imported, and exits with 1 if there is one. What needs
such a module is not tried.
"""

import gc
import importlib
import os
import re
import sys
import traceback
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

OTHERS = (
    "pydantic",
    "fastapi",
    "uvicorn",
    "jsonschema",
    "aiohttp",
    "httpx",
    "sse_starlette",
    "mcp",
)
_STATEMENT = re.compile(r"^(?:from (\S+) import (\([^)]*\)|.*)|import (\S+))", re.M)
"""An import that is always executed: it is not indented."""


def imports_of(name: str, known: Iterable[str]) -> set[str]:
    """Return which of the known modules one imports whatever happens, and the packages around."""
    path = Path(os.environ["PYTHONPATH"], *name.split("."))
    files = [file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()]
    found = set()
    for text in (file.read_text("utf-8") for file in files):
        for package, members, module in _STATEMENT.findall(text):
            found |= {module, package} | {f"{package}.{one}" for one in re.findall(r"\w+", members)}
    for one in [*found, name]:
        parts = one.split(".")
        found |= {".".join(parts[:end]) for end in range(1, len(parts))}
    return found.intersection(known) - {name}


def reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Return what a module imports, by way of others too."""
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen


def plan(names: list[str]) -> dict[str, list[str]]:
    """Return, for each module and for none (""), which are to be imported right after it."""
    graph = {name: imports_of(name, names) for name in names}
    needed = {name: reachable(name, graph) for name in names}
    behind = defaultdict(list)
    for name in names:
        before = [one for one in needed[name] if name not in needed[one]]
        behind[max(before, key=lambda one: (len(needed[one]), one), default="")].append(name)
    return behind


def import_each(names: Iterable[str], behind: Mapping[str, list[str]]) -> int:
    """Import each module in a child; return 1 if any of them failed, or any behind them."""
    return max([import_in_child(name, behind) for name in names], default=0)


def import_in_child(name: str, behind: Mapping[str, list[str]]) -> int:
    """Fork a child that imports a module, and has children that import more; return 1 or 0."""
    child = os.fork()
    if child:
        return int(os.waitpid(child, 0)[1] != 0)
    try:
        assert name not in sys.modules, "a module that it imports has imported it"
        importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - whatever stops the import is to be reported
        sys.stdout.write(f"{name}: {traceback.format_exc().splitlines()[-1]}\n")
        sys.stdout.flush()
        os._exit(1)
    os._exit(import_each(behind[name], behind))


def main(names: list[str]) -> int:
    """Import every module; return 1 if any of them failed."""
    for other in OTHERS:
        importlib.import_module(other)
    assert not [name for name in sys.modules if name.partition(".")[0] == "mail"]
    gc.disable()  # else each fork would look through, and so copy, all that is loaded
    behind = plan(names)
    return import_each(behind[""], behind)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
