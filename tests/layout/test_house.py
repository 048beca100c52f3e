"""The shape of the package: no cycles, no stray modules, functions that fit on a screen."""

import ast
import gc
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mail
from tests.layout.import_alone import reachable

SOURCE = Path(mail.__file__).parent
LINES_OF_A_FUNCTION = 60
LINES_OF_A_SUBJECT = 80

SMALL_SUBJECTS = {
    "mail.cli.init": "a command",
    "mail.utils.store": "a documented import path",
}
LONG_FUNCTIONS = {
    "factories/base.py:__init__": "the documented parameters of agents that ask a model",
    "api/swarm.py:__init__": "the documented parameters of MAILSwarm, one line each",
}


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Every module with its syntax tree."""
    paths = sorted(SOURCE.rglob("*.py"))
    gc.disable()  # CPython 3.11 may fail to parse while the collector runs what others left behind
    try:
        return {_name(path): (path, ast.parse(path.read_text("utf-8"))) for path in paths}
    finally:
        gc.enable()


def _imported(node: ast.AST) -> Iterator[str]:
    """Yield what an import statement may name: modules, and members of modules."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports() -> dict[str, set[str]]:
    """Return what each module imports, inside functions and for types too."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, (_, tree) in modules().items():
        for node in ast.walk(tree):
            found[name] |= {one for one in _imported(node) if one in modules()} - {name}
    return found


def _is_package(name: str) -> bool:
    return modules()[name][0].name == "__init__.py"


def test_no_module_imports_itself_by_way_of_others() -> None:
    """A package's lazy ``__init__`` is no import; one inside a function, or for types, is."""
    direct = imports()
    graph = {
        name: set() if _is_package(name) else {one for one in direct[name] if not _is_package(one)}
        for name in modules()
    }
    assert {name for name in graph if name in reachable(name, graph)} == set()


def _lonely() -> set[str]:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, targets in imports().items():
        for target in targets:
            importers[target].add(name)
    return {
        name
        for name, (path, _) in modules().items()
        if len(importers[name]) == 1
        and not path.name.startswith("__")
        and "examples" not in path.parts
        and path.read_text("utf-8").count("\n") < LINES_OF_A_SUBJECT
    }


def test_a_small_module_with_one_importer_lives_with_it() -> None:
    assert _lonely() - set(SMALL_SUBJECTS) == set()


OUTSIDE = re.compile(
    r"\brulings? \(?\d|CHECKLIST|reliability\.md|decisions\.md|\bdocument 00\d"
    r"|(?<!db/)\bcontract/|\.\./shared"
)
"""Mentions of documents that a reader of the repository does not have."""


def test_only_documents_of_the_repository_are_cited() -> None:
    root = Path(__file__).parents[2]
    folders = [root / name for name in ("src", "tests", "docs", "spec", "benchmarks", "scripts")]
    texts = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path != Path(__file__)
        and path.suffix in (".py", ".md", ".sql", ".json", ".yaml", ".toml", ".txt", ".sh")
    ]
    assert len(texts) > 500
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if OUTSIDE.search(line)
    ]
    assert found == []


def functions() -> Iterator[tuple[str, int]]:
    for path, tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{path.relative_to(SOURCE).as_posix()}:{node.name}", length


def test_functions_fit_on_a_screen() -> None:
    long = {name for name, lines in functions() if lines > LINES_OF_A_FUNCTION}
    assert long - set(LONG_FUNCTIONS) == set()


def test_the_exceptions_are_still_needed() -> None:
    assert set(SMALL_SUBJECTS) - _lonely() == set()
    long = {name for name, lines in functions() if lines > LINES_OF_A_FUNCTION}
    assert set(LONG_FUNCTIONS) - long == set()


def _own_names(tree: ast.Module) -> set[str]:
    """Return the constants of a module whose names begin with an underscore."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_no_private_constant_is_left_over() -> None:
    unused = {
        (name, constant)
        for name, (_, tree) in modules().items()
        for constant in _own_names(tree)
        - {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
    }
    assert unused == set()
