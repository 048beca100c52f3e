"""``mail swarms``: validate swarms files, and manage the registry of other swarms."""

import argparse
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mail.cli import peers
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.swarms_json.types import SwarmsJSONSwarm

__all__ = ["collected", "configure", "find_code", "run", "stdout_to_stderr"]


_LOADER: Final = "mail.swarms_json"
_STDOUT: Final = 1
_STDERR: Final = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``mail swarms``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    validate = actions.add_parser(
        "validate", help="validate a swarms file", description="Validate a swarms file."
    )
    validate.add_argument("file", type=Path, help="the file, for example swarms.json")
    validate.add_argument("--json", action="store_true", help="print JSON")
    validate.set_defaults(work=_validate)
    peers.configure(actions)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    work: Callable[[argparse.Namespace], int] = arguments.work
    return work(arguments)


def _validate(arguments: argparse.Namespace) -> int:
    """Print the contents of the file and return 0, or print the first error and return 1."""
    warned: list[str] = []
    find_code(Path.cwd(), arguments.file.parent)
    try:
        # Output of imported modules does not belong in the result.
        with collected(warned), stdout_to_stderr():
            swarms = _check(arguments.file)
    except ConfigError as error:
        _print_fault(arguments, _one_line(str(error)), warned)
        return 1
    if arguments.json:
        _print_json(arguments.file, warned, valid=True, swarms=swarms)
    else:
        _print_swarms(arguments.file, swarms, warned)
    return 0


def find_code(*folders: Path) -> None:
    """Add folders to the module search path, the first one first, as `python -m` does.

    Args:
        folders: The current folder and the folder of the swarms file.
    """
    for folder in reversed(folders):
        name = str(folder.resolve())
        if name not in sys.path:
            sys.path.insert(0, name)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect standard output to standard error, at the level of file descriptors."""
    with ExitStack() as stack:
        _flush()
        stack.enter_context(redirect_stdout(sys.stderr))
        with suppress(OSError):  # one of them is closed: nothing to redirect
            kept = os.dup(_STDOUT)
            stack.callback(os.close, kept)
            os.dup2(_STDERR, _STDOUT)
            stack.callback(os.dup2, kept, _STDOUT)
            stack.callback(_flush)
        yield


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None and not stream.closed:
            stream.flush()


def _check(file: Path) -> list[dict[str, Any]]:
    from mail.api.definitions import check_swarms_file

    return [_summary(swarm, actions) for swarm, actions in check_swarms_file(file)]


def _summary(swarm: "SwarmsJSONSwarm", actions: list[str]) -> dict[str, Any]:
    return {
        "name": swarm["name"],
        "version": swarm["version"],
        "entrypoint": swarm["entrypoint"],
        "agents": [agent["name"] for agent in swarm["agents"]],
        "actions": actions,
    }


def _print_swarms(file: Path, swarms: list[dict[str, Any]], warned: list[str]) -> None:
    count = f"{len(swarms)} swarm" + ("" if len(swarms) == 1 else "s")
    print(f"{file}: {count}, no errors found")
    for swarm in swarms:
        print(f"{swarm['name']} (version {_one_line(swarm['version'])})")
        print(f"  entrypoint: {swarm['entrypoint']}")
        print(f"  agents ({len(swarm['agents'])}): {', '.join(swarm['agents'])}")
        print(f"  actions ({len(swarm['actions'])}): {', '.join(swarm['actions']) or 'none'}")
    _print_warnings(warned)


def _print_fault(arguments: argparse.Namespace, problem: str, warned: list[str]) -> None:
    if arguments.json:
        _print_json(arguments.file, warned, valid=False, error=problem)
        return
    _print_warnings(warned)
    print(f"mail: {problem}", file=sys.stderr)


def _print_warnings(warned: list[str]) -> None:
    for text in warned:
        print(f"warning: {_one_line(text)}", file=sys.stderr)


def _print_json(file: Path, warned: list[str], *, valid: bool, **found: Any) -> None:
    print(json.dumps({"file": str(file), "valid": valid, **found, "warnings": warned}, indent=2))


def _one_line(text: str) -> str:
    """Return text from the file without terminal control sequences."""
    words = " ".join(text.split())
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in words)


class _Collector(logging.Handler):
    """Collects the messages of log records."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())


@contextmanager
def collected(texts: list[str]) -> Iterator[None]:
    """Collect the loader's warnings instead of printing them."""
    logger = logging.getLogger(_LOADER)
    collector, propagates = _Collector(texts), logger.propagate
    logger.addHandler(collector)
    logger.propagate = False
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagates
        texts.extend(str(w.message) for w in caught if "agent_params" in str(w.message))
