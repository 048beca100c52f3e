"""A subject of the engine is a module that registers itself: no step of a message names one."""

import ast

from tests.layout.test_house import imports, modules

RUNTIME = "mail.core.runtime."
REGISTERED = {"federation", "letters", "manual", "pauses", "teams"}
# Each door needs what stands behind it.
DOORS = {("peer_mail", "federation")}


def _subjects() -> set[str]:
    """Return the modules with a class that derives from `TaskSubject`."""
    return {
        name.removeprefix(RUNTIME)
        for name, (_, tree) in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "TaskSubject" for base in node.bases)
    }


def test_the_subjects_are_known() -> None:
    assert _subjects() == REGISTERED


def test_only_the_runtime_knows_the_subjects() -> None:
    users = {
        (name.removeprefix(RUNTIME), target.removeprefix(RUNTIME))
        for name, targets in imports().items()
        for target in targets
        if name.startswith(RUNTIME) and target.removeprefix(RUNTIME) in REGISTERED
    }
    assert users - DOORS == {("runtime", subject) for subject in REGISTERED}
