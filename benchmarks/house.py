"""The measures of the package's shape: ``python -m benchmarks.house [--path-only] [-v]``.

Most are counted in ``src/mail``. Two follow a warm ``POST /message`` whose agent calls
``task_complete`` at once: the files of ours that it enters, and the hops from one
of them to another. With ``PYTHONPATH=/path/to/src`` the path is that of another version.
"""

import ast
import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import httpx

import mail
from benchmarks.crowd_server import make_tokens, token_of
from benchmarks.edge_server import edge_template
from mail.config.server import ServerConfig, SettingsConfig, StoreConfig, SwarmConfig
from mail.server.run import run_server
from mail.utils.logger import init_logger
from scripts.ports import free_port

_SOURCE = Path(mail.__file__).parent
_PREFIX = f"{_SOURCE}/"
_SMALL = 80
_FOLLOWED = 9


class Trail:
    """The files of ours that calls enter in the course of one request, in order."""

    def __init__(self) -> None:
        self.hops = 0
        self.entered: Counter[str] = Counter()
        self._last = ""

    def enter(self, name: str) -> None:
        """Note a call of a function in a file."""
        self.entered[name.removeprefix(_PREFIX)] += 1
        self.hops += name != self._last
        self._last = name


class Trails:
    """The trails of several requests, one after the other."""

    def __init__(self) -> None:
        self.done: list[Trail] = []
        self._current: Trail | None = None

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Follow one request."""
        self._current = trail = Trail()
        yield
        self._current = None
        self.done.append(trail)

    @property
    def usual(self) -> Trail:
        """The one in the middle: a request may come in two pieces, and threads wake as they do."""
        return sorted(self.done, key=lambda trail: trail.hops)[len(self.done) // 2]

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; see `sys.setprofile`."""
        name = frame.f_code.co_filename
        trail = self._current
        if trail is not None and event == "call" and name.startswith(_PREFIX):
            trail.enter(name)


def follow(folder: Path) -> Trail:
    """Serve the swarm in this thread, follow warm requests of another; return the usual one."""
    config = ServerConfig(
        host="127.0.0.1",
        port=free_port(),
        swarm=SwarmConfig(name="edge"),
        store=StoreConfig(url=f"sqlite:///{folder / 'mail.db'}"),
        settings=SettingsConfig(print_llm_streams=False),
    )
    asyncio.run(make_tokens(config.store.url, 1))
    trails = Trails()
    client = threading.Thread(target=_ask, args=(f"http://127.0.0.1:{config.port}", trails))
    with Path(os.devnull).open("w") as stream:
        init_logger(log_dir=folder / "logs", stream=stream, log_format="json")
        client.start()
        threading.setprofile(trails)
        sys.setprofile(trails)
        try:
            run_server(config, template=edge_template())
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]  # None ends it, as for sys
            client.join()
    return trails.usual


def _ask(url: str, trails: Trails) -> None:
    try:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token_of(0)}"}) as http:
            _await_server(http)
            for number in range(20):
                http.post("/message", json={"body": f"warm {number}"}).raise_for_status()
            for number in range(_FOLLOWED):
                time.sleep(0.2)
                with trails.follow():
                    http.post("/message", json={"body": f"go {number}"}).raise_for_status()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _await_server(http: httpx.Client) -> None:
    for _ in range(600):
        try:
            http.get("/health")
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the server did not start")


def _modules() -> dict[str, tuple[Path, ast.Module]]:
    found = {}
    for path in sorted(_SOURCE.rglob("*.py")):
        parts = path.relative_to(_SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = (path, ast.parse(path.read_text("utf-8")))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _code_lines(path: Path, tree: ast.Module) -> tuple[int, int]:
    """Return lines of code without imports, docstrings, comments and blanks; and of imports."""
    skipped: set[int] = set()
    imports: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            imports |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        documented = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if documented and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            skipped |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    lines = path.read_text("utf-8").splitlines()
    full = {n for n, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"}
    return len(full - skipped - imports), len(full & imports)


def shape() -> dict[str, int]:
    """Count what can be counted in the sources."""
    modules = {name: one for name, one in _modules().items() if "examples" not in one[0].parts}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, (_, tree) in modules.items():
        for target in _imported(tree):
            if target != name:
                importers[target].add(name)
    lonely = [
        name
        for name, (path, _) in modules.items()
        if len(importers[name]) == 1
        and not path.name.startswith("__")
        and len(path.read_text("utf-8").splitlines()) < _SMALL
    ]
    counted = [_code_lines(path, tree) for path, tree in modules.values()]
    return {
        "files in src/mail without examples": len(modules),
        "lines of code without imports, docstrings, comments, blanks": sum(c for c, _ in counted),
        "lines of imports and __all__": sum(i for _, i in counted),
        f"modules with one importer and under {_SMALL} lines": len(lonely),
    }


def main() -> None:
    """Print the measures."""
    with TemporaryDirectory() as folder:
        trail = follow(Path(folder))
    figures = {} if "--path-only" in sys.argv else shape()
    figures["files that a warm POST /message enters"] = len(trail.entered)
    figures["hops from file to file of the same"] = trail.hops
    for name, figure in figures.items():
        print(f"{figure:8,}  {name}")
    if "-v" in sys.argv:
        for file, calls in sorted(trail.entered.items()):
            print(f"{calls:8}  {file}")


if __name__ == "__main__":
    main()
