"""Checking the arguments of an action call against the action's JSON Schema."""

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mail.core.tools.call import INVALID_JSON_KEY
from mail.errors import ToolError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = ["check_action_arguments"]


def check_action_arguments(name: str, arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    """Check an action's arguments; null for a property that is not required counts as absent.

    Strict tool formats make every property required, so models send null for what they leave out.
    The null is removed from ``arguments`` when the schema does not accept it.

    Raises:
        ToolError: they do not fit; the text names the argument and the problem.
    """
    raw = arguments.get(INVALID_JSON_KEY)
    if raw is not None:
        raise ToolError(f"the arguments of '{name}' are not valid JSON: {str(raw)[:200]}")
    if not schema:
        return
    from referencing.exceptions import Unresolvable

    try:
        _drop_nulls(arguments, schema)
        problems = sorted(_validator(json.dumps(schema)).iter_errors(arguments), key=str)
    except Unresolvable as error:
        raise ToolError(
            f"'{name}' cannot be called: its schema refers to '{error.ref}', which is not part of "
            "it; use another tool"
        ) from None
    if problems:
        text = "; ".join(
            f"{'.'.join(map(str, problem.absolute_path)) or 'arguments'}: {problem.message[:200]}"
            for problem in problems[:3]
        )
        raise ToolError(f"the arguments of '{name}' do not fit: {text}")


def _drop_nulls(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    properties = schema.get("properties")
    required = schema.get("required", ())
    if not isinstance(properties, dict):
        return
    for name in [name for name, value in arguments.items() if value is None]:
        shape = properties.get(name)
        if name in required or not isinstance(shape, dict):
            continue
        if not _validator(json.dumps({**shape, "$defs": schema.get("$defs", {})})).is_valid(None):
            del arguments[name]


@lru_cache(maxsize=512)
def _validator(schema: str) -> "Validator":
    from jsonschema import validators  # a heavy import, paid by the first action call
    from jsonschema_specifications import REGISTRY

    shape = json.loads(schema)
    make = validators.validator_for(shape, default=validators.Draft202012Validator)
    # With a registry of its own the library does not fetch what a schema refers to.
    return make(shape, registry=REGISTRY)
