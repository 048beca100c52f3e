"""Modules of one subject and functions of one thing: neither may grow out of hand."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mail

SOURCE = Path(mail.__file__).parent
LINES_OF_A_MODULE = 400
LINES_OF_A_FUNCTION = 60

LONG_MODULES = {
    "core/runtime/runtime.py": "every documented method of MAILRuntime, each handing on to a part",
}
LONG_FUNCTIONS = {
    "api/swarm.py:__init__": "the documented parameters of MAILSwarm, one line each",
}


@cache
def sources() -> dict[str, str]:
    return {
        path.relative_to(SOURCE).as_posix(): path.read_text("utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def functions() -> Iterator[tuple[str, int]]:
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path}:{node.name}", node.end_lineno - node.lineno + 1


def test_no_module_is_too_long() -> None:
    long = {path for path, text in sources().items() if text.count("\n") > LINES_OF_A_MODULE}
    assert long - set(LONG_MODULES) == set()


def test_no_function_is_too_long() -> None:
    long = {name for name, lines in functions() if lines > LINES_OF_A_FUNCTION}
    assert long - set(LONG_FUNCTIONS) == set()


def test_the_exceptions_are_still_needed() -> None:
    lengths = dict(functions())
    for path in LONG_MODULES:
        assert sources()[path].count("\n") > LINES_OF_A_MODULE, f"{path} fits again"
    for name in LONG_FUNCTIONS:
        assert lengths[name] > LINES_OF_A_FUNCTION, f"{name} fits again"
