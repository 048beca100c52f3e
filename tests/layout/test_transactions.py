"""Only one module of the engine changes what the store has of a task: `transaction`."""

import ast

from tests.layout.test_house import modules

# What changes a task, its mail, or the count of attempts on it.
VERBS = {"commit", "delete_task", "count_attempt", "uncount_attempt"}
BESIDE_THE_ENGINE = {
    "mail.cli.stores": "an operator deletes beside a server that may not run",
    "mail.server.retention": "deletes ended tasks by their age",
}


def _is_store(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.lstrip("_") == "store"


def _uses(tree: ast.Module) -> set[str]:
    """Return the verbs that a module takes of a store, called or not."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in VERBS and _is_store(node.value)
    }


def test_no_module_but_the_transaction_commits_anything_of_a_task() -> None:
    users = {
        name: verbs
        for name, (_, tree) in modules().items()
        if not name.startswith(("mail.db.", "mail.testing.")) and (verbs := _uses(tree))
    }
    assert users.pop("mail.core.runtime.transaction") == VERBS
    assert users == {name: {"delete_task"} for name in BESIDE_THE_ENGINE}
