"""Whether an action's parameters are a JSON Schema that arguments can be checked against."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mail.errors import ConfigError

_WIDTH: Final = 200
_ANNOTATIONS: Final = frozenset(
    {
        "additionalItems",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "description",
        "else",
        "example",
        "then",
        "title",
    }
)
"""Keywords, beside those that a validator checks, with a type or an object as their value."""

_TYPES: Final = frozenset(
    {"array", "bool", "boolean", "float", "int", "integer", "number", "object", "str", "string"}
)
"""The shorthand of a parameter: its type as a string."""

_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose content is data, in which ``$ref`` means nothing."""


def check_schema(action: str, schema: dict[str, Any]) -> None:
    """Check that an action's parameters are a JSON Schema.

    Raises:
        ConfigError: they are not.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    wrong = f"parameters of action '{action}' are not a JSON Schema"
    if not isinstance(schema.get("$schema", ""), str):
        raise ConfigError(f"{wrong}: $schema: it must be the URI of a dialect")
    dialect = validator_for(schema, default=Draft202012Validator)
    try:
        dialect.check_schema(schema)
    except SchemaError as error:
        problem = told_problem(error.absolute_path, error.message)
        raise ConfigError(f"{wrong}: {problem}") from None
    except RecursionError:
        raise ConfigError(f"{wrong}: they are nested too deeply") from None
    if "properties" not in schema:
        _check_keywords(action, schema, {*dialect.VALIDATORS, *_ANNOTATIONS})


def check_parameters(action: str, schema: dict[str, Any]) -> None:
    """Check that parameters are a JSON Schema of an object whose references lead somewhere.

    Raises:
        ConfigError: they are not.
    """
    check_schema(action, schema)
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise ConfigError(
            f"parameters of action '{action}' must describe an object: 'type' must be 'object', "
            f"actually got {kinds!r}"
        )
    _check_references(action, schema)


def _check_keywords(action: str, schema: dict[str, Any], known: set[str]) -> None:
    """Refuse arguments that stand where keywords belong: to a validator they mean nothing."""
    for name, part in schema.items():
        kind = part.get("type") if isinstance(part, dict) else None
        describes = isinstance(kind, str | list) or (isinstance(part, str) and part in _TYPES)
        if describes and name not in known and not name.startswith(("$", "x-")):
            raise ConfigError(
                f"parameters of action '{action}' describe '{name}' outside 'properties'; "
                f'write {{"type": "object", "properties": {{"{name}": …}}}}'
            )


def _check_references(action: str, schema: dict[str, Any]) -> None:
    from jsonschema_specifications import REGISTRY
    from referencing import Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = REGISTRY.resolver_with_root(root)
    for reference in _references(schema):
        passed: set[str] = set()
        step: object = reference
        while isinstance(step, str):
            if step in passed:
                raise ConfigError(
                    f"parameters of action '{action}' refer to '{step}', which refers to itself"
                )
            passed.add(step)
            try:
                target = resolver.lookup(step).contents
            except (Unresolvable, ValueError, TypeError):
                raise ConfigError(
                    f"parameters of action '{action}' refer to '{step}', which they do not contain"
                ) from None
            step = target.get("$ref") if isinstance(target, Mapping) else None


def _references(schema: object, inside: bool = False) -> Iterator[str]:
    """Yield the references of a schema; a part with an ``$id`` counts from that and is left out."""
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part, inside=True)
    if not isinstance(schema, dict) or (inside and "$id" in schema):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield reference
    for keyword, part in schema.items():
        if keyword not in _VALUES:
            yield from _references(part, inside=True)


def told_problem(path: Iterable[str | int], text: str) -> str:
    """Return a problem with its place in the arguments, or in their schema, cut to a width."""
    place = ".".join(str(part) for part in path) or "arguments"
    return f"{place}: {text if len(text) <= _WIDTH else text[:_WIDTH] + '…'}"
