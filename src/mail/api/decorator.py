"""The ``@action`` decorator."""

import inspect
import typing
from collections.abc import Callable
from typing import Any, overload

from pydantic import BaseModel

from mail.api.actions import ActionCallback, MAILAction, ToolStyle
from mail.api.payload import ModelReader, check_model, is_model
from mail.errors import ConfigError

__all__ = ["action"]


@overload
def action(function: ActionCallback, /) -> MAILAction: ...
@overload
def action(
    *,
    name: str | None = None,
    description: str | None = None,
    model: type[BaseModel] | None = None,
    parameters: dict[str, Any] | None = None,
    style: ToolStyle = "responses",
    idempotent: bool = False,
    timeout: float | None = None,
) -> Callable[[ActionCallback], MAILAction]: ...
def action(  # noqa: PLR0913 - the documented keywords
    function: ActionCallback | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    model: type[BaseModel] | None = None,
    parameters: dict[str, Any] | None = None,
    style: ToolStyle = "responses",
    idempotent: bool = False,
    timeout: float | None = None,
) -> MAILAction | Callable[[ActionCallback], MAILAction]:
    """Turn a function of one argument into a `MAILAction`; plain ``@action`` works, too.

    With a model, given or read from the argument's annotation, the function gets a validated
    instance of it; with ``parameters`` it gets the dictionary.

    Args:
        name: The function's name by default.
        description: The function's docstring by default.
        model: The pydantic model of the arguments.
        parameters: Their JSON Schema, in place of a model.
        style: Accepted for older code: the schema is the same in both styles, and
            ``MAILAction.to_tool_dict`` chooses the style.
        idempotent: Running it twice with the same arguments is harmless.
        timeout: Seconds that one call may take.

    Raises:
        TypeError: the model is no pydantic model, or the function does not take one argument.
        ValueError: there is no description, both or neither of model and parameters, or no such
            style.
    """
    _check_use(function, model, style)

    def decorate(function: ActionCallback) -> MAILAction:
        title = name or function.__name__
        text = description or inspect.getdoc(function)
        if not text:
            raise ConfigError(
                f"Action '{title}' is missing a description. "
                "Give description= or the function a docstring."
            )
        found = _choose_model(title, function, model, parameters)
        schema = found.model_json_schema() if found else parameters or {}
        return MAILAction(
            title,
            text,
            schema,
            function,
            idempotent=idempotent,
            timeout=timeout,
            reader=ModelReader(title, found, as_dict=False) if found else None,
        )

    return decorate if function is None else decorate(function)


def _check_use(function: object, model: object, style: str) -> None:
    if function is not None and not callable(function):
        hint = f"; write @action(name={function!r})" if isinstance(function, str) else ""
        raise TypeError(f"@action takes a function, got {type(function).__name__}{hint}")
    if model is not None:
        check_model(model)
    if style not in ("completions", "responses"):
        raise ValueError(f"style must be 'completions' or 'responses', got '{style}'")


def _choose_model(
    title: str,
    function: ActionCallback,
    model: type[BaseModel] | None,
    parameters: dict[str, Any] | None,
) -> type[BaseModel] | None:
    arguments = list(inspect.signature(function).parameters)
    if len(arguments) != 1:
        raise TypeError(
            f"Action '{title}' must accept exactly one argument (its payload), "
            f"got {len(arguments)}."
        )
    if model is not None and parameters is not None:
        raise ConfigError(f"Action '{title}' cannot specify both model= and parameters=.")
    if parameters is not None:
        return None
    found = model or _annotated_model(function, arguments[0])
    if found is None:
        raise ConfigError(f"Action '{title}' must provide either a model= or parameters=.")
    return found


def _annotated_model(function: ActionCallback, argument: str) -> type[BaseModel] | None:
    try:
        annotation = typing.get_type_hints(function).get(argument)
    except (NameError, TypeError):  # text annotations of names that only exist elsewhere
        return None
    return annotation if is_model(annotation) else None
