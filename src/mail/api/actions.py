"""Actions: an agent's own tools, defined by a name, a description, a schema and a callable."""

import asyncio
import contextlib
import functools
import inspect
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from typing import Any, Literal, TypeGuard, overload

from pydantic import BaseModel, ValidationError

from mail.api.references import fresh_copy, load_object
from mail.api.schema_models import model_from_json_schema, satisfies_strict_mode
from mail.core.actions import ActionCore, ActionFunction
from mail.core.approvals import Approval
from mail.core.schema import problem_text
from mail.errors import ConfigError, ToolError, WrongReference
from mail.swarms_json.decode import parse_json
from mail.swarms_json.names import check_action_name
from mail.swarms_json.parameters import check_schema, told_problem
from mail.swarms_json.references import TRUSTED, ReferencePolicy
from mail.swarms_json.types import SwarmsJSONAction
from mail.swarms_json.utils import build_action_from_swarms_json


def make_action_function(
    name: str,
    callback: Callable[[Any], Any],
    read: Callable[[dict[str, Any]], Any] | None,
    timeout: float | None,
) -> ActionFunction:
    """Wrap a callable so that it can be awaited, gets checked arguments and must return text.

    Args:
        name: The action's name, for error texts.
        callback: Takes one argument; plain functions run in a thread, so they may block.
        read: Makes of the arguments what the callable takes; the dictionary itself when None.
        timeout: Seconds that one call may take. A plain function that overruns goes on in its
            thread; its result is dropped.

    Returns:
        A coroutine function that raises what ``read`` raises, TimeoutError,
        TypeError for a result that is not text, and whatever the callable raises.
    """

    async def run(args: dict[str, Any]) -> str:
        payload = read(args) if read else args
        timer = asyncio.timeout(timeout)
        try:
            async with timer:
                result = await _invoke(callback, payload)
        except TimeoutError:
            if not timer.expired():
                raise
            raise TimeoutError(f"action '{name}' did not finish within {timeout:g} s") from None
        if not isinstance(result, str):
            raise TypeError(f"Action '{name}' returned {type(result).__name__}, expected str.")
        return result

    # Who judges an action by where its code comes from looks behind this function.
    return functools.update_wrapper(run, callback, assigned=(), updated=())


async def _invoke(callback: Callable[[Any], Any], payload: Any) -> Any:
    if _is_coroutine_function(callback):
        return await callback(payload)
    result = await asyncio.to_thread(_in_thread, callback, payload)
    return await result if inspect.isawaitable(result) else result


def _in_thread(callback: Callable[[Any], Any], payload: Any) -> Any:
    try:
        return callback(payload)
    except StopIteration as error:  # no future carries it: whoever waits would wait for ever
        raise RuntimeError("the function raised StopIteration") from error


def _is_coroutine_function(callback: Callable[..., Any]) -> bool:
    while isinstance(callback, functools.partial):
        callback = callback.func
    called = getattr(type(callback), "__call__", None)  # noqa: B004 - its kind is what we ask for
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called)


_SHOWN = 5


def is_model(value: object) -> TypeGuard[type[BaseModel]]:
    """Tell whether something is the class of a pydantic model."""
    return isinstance(value, type) and issubclass(value, BaseModel)


def check_model(value: object) -> None:
    """Check that something is the class of a pydantic model.

    Raises:
        TypeError: it is not.
    """
    if not is_model(value):
        raise TypeError(f"model must be a subclass of BaseModel, got {value!r}")


class ModelReader:
    """Checks arguments with a pydantic model.

    Args:
        action: The action's name, for error texts.
        model: The model.
        as_dict: Hand over the values as a JSON-like dictionary in place of the instance.
    """

    def __init__(self, action: str, model: type[BaseModel], *, as_dict: bool) -> None:
        self.model = model
        self._action = action
        self._as_dict = as_dict

    def __call__(self, args: dict[str, Any]) -> Any:
        """Return the validated instance, or its values with defaults filled in.

        Raises:
            ToolError: naming each argument that does not fit.
        """
        try:
            payload = self.model.model_validate(args)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
            problems = [told_problem(item["loc"], problem_text(item)) for item in details]
            more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            listing = "; ".join(problems[:_SHOWN])
            raise ToolError(f"invalid arguments for '{self._action}': {listing}{more}") from None
        return payload.model_dump(mode="json", by_alias=True) if self._as_dict else payload


ToolStyle = Literal["completions", "responses"]
ActionCallback = Callable[[Any], Awaitable[str] | str]
"""A user's function: takes the arguments, returns text; plain or ``async``."""


class MAILAction:
    """A tool that agents call, backed by Python code.

    Attributes:
        name: Its name for models.
        description: Its description for models.
        parameters: The JSON Schema of its arguments, shown to models unchanged; its own copy.
        callback: The callable as it was given.
        function: The callable behind a coroutine function that checks the arguments, keeps to the
            timeout, runs plain functions in a thread and insists on a text result.
        parameters_model: The pydantic model of the arguments, when there is one.
        idempotent: Running it twice is harmless; after a crash it is then simply run again.
        timeout: Seconds that one call may take, or None.
        completes: A call that succeeds ends the task; its result is the answer.
        approval: The rules by which its calls wait for a person, or None.
        untrusted: It returns text from outside, which models read labelled as data.
    """

    idempotent: bool
    completes: bool
    timeout: float | None
    approval: Approval | None
    untrusted: bool
    callback: ActionCallback
    function: ActionFunction

    def __init__(  # noqa: PLR0913 - the documented keywords
        self,
        name: str,
        description: str,
        parameters: dict[str, Any],
        function: "str | ActionCallback | MAILAction",
        *,
        idempotent: bool = False,
        timeout: float | None = None,
        reader: ModelReader | None = None,
        completes: bool = False,
        approval: Approval | None = None,
        untrusted: bool = False,
    ) -> None:
        """Define an action whose callable gets a dictionary of arguments.

        Args:
            name: Its name for models.
            description: Its description for models.
            parameters: JSON Schema of the arguments; ``{}`` means any.
            function: A callable, another action, or a ``module:object`` reference to either.
            idempotent: Running it twice with the same arguments is harmless.
            timeout: Seconds that one call may take.
            reader: Checks arguments beyond the schema and may give the callable a model instance.
            completes: A call that succeeds ends the task, with its result as the answer; other
                calls of the same reply are not run.
            approval: Its calls wait for a person.
            untrusted: It returns text from outside (a page, a file, somebody's mail), which models
                read labelled as data.

        Raises:
            ConfigError: name or description is empty, the name is a MAIL tool's, a keyword has a
                value of the wrong type, or the reference cannot be loaded.
            TypeError: the function is not callable with one argument, or the parameters are no
                dictionary.
        """
        self.name, self.description, self.parameters = name, description, parameters
        self.idempotent, self.timeout, self.completes = idempotent, timeout, completes
        self.approval, self.untrusted = approval, untrusted
        self.parameters_model = reader.model if reader else None
        self._reader = reader
        self._checked: dict[str, Any] | None = None
        self._strict = False
        self._validate()
        self.parameters = deepcopy(parameters)
        self.function = self._build_action_function(function)

    def _validate(self) -> None:
        if not isinstance(self.parameters, dict):
            kind = type(self.parameters).__name__
            raise TypeError(f"action parameters must be a dict (JSON Schema), got {kind}")
        for field in ("name", "description"):
            if not isinstance(value := getattr(self, field), str):
                raise ConfigError(f"action {field} must be a string, got {type(value).__name__}")
        check_action_name(self.name)
        if not self.description.strip():
            raise ConfigError("action description must be at least 1 character long, got 0")
        for field in ("idempotent", "completes", "untrusted"):
            if not isinstance(value := getattr(self, field), bool):
                text = f"{field} of action '{self.name}' must be True or False"
                raise ConfigError(f"{text}, got {value!r}")
        if self.approval is not None and not isinstance(self.approval, Approval):
            got = type(self.approval).__name__
            raise ConfigError(
                f"approval of action '{self.name}' must be a mail.Approval, got {got}"
            )
        seconds: Any = 1 if self.timeout is None else self.timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigError(
                f"timeout of action '{self.name}' must be a number of seconds above 0, or None; "
                f"got {self.timeout!r}"
            )

    def _build_action_function(
        self, function: "str | ActionCallback | MAILAction"
    ) -> ActionFunction:
        found: Any = function
        if isinstance(function, str):
            found = load_object(function, f"function of action '{self.name}'")
        if isinstance(found, MAILAction):
            self.idempotent = self.idempotent or found.idempotent
            self.completes = self.completes or found.completes
            self.untrusted = self.untrusted or found.untrusted
            self.timeout = found.timeout if self.timeout is None else self.timeout
            self.approval = found.approval if self.approval is None else self.approval
            found = found.function
        if not callable(found):
            raise TypeError(f"action function must be callable, got {type(found).__name__}")
        _check_arity(self.name, found)
        self.callback = found
        return make_action_function(self.name, found, self._reader, self.timeout)

    @staticmethod
    def from_pydantic_model(  # noqa: PLR0913 - the documented keywords
        model: type[BaseModel],
        function_str: "str | ActionCallback | MAILAction | None" = None,
        name: str | None = None,
        description: str | None = None,
        *,
        function: "str | ActionCallback | MAILAction | None" = None,
        idempotent: bool = False,
        timeout: float | None = None,
        completes: bool = False,
        approval: Approval | None = None,
        untrusted: bool = False,
    ) -> "MAILAction":
        """Define an action by the model of its arguments; the callable gets a dictionary.

        Args:
            model: Validates the arguments; its JSON Schema is shown to models.
            function_str: A callable, another action, or a reference to either.
            function: Another name of ``function_str``.
            name: The model's name by default.
            description: By default the docstring of the model, else of the function, else the name.
            idempotent: As in the constructor.
            timeout: As in the constructor.
            completes: As in the constructor.
            approval: As in the constructor.
            untrusted: As in the constructor.

        Raises:
            ConfigError, TypeError: as the constructor.
        """
        check_model(model)
        called = function_str if function is None else function
        if called is None or None not in (function_str, function):
            raise TypeError("from_pydantic_model() takes one of 'function_str' and 'function'")
        name = model.__name__ if name is None else name
        written = getattr(called, "func", called)  # a partial has a docstring of its own
        told = inspect.getdoc(written) if inspect.isroutine(written) else None
        text = description or model.__doc__ or told or name.replace("_", " ")
        return MAILAction(
            name,
            inspect.cleandoc(text),
            model.model_json_schema(),
            called,
            idempotent=idempotent,
            timeout=timeout,
            reader=ModelReader(name, model, as_dict=True),
            completes=completes,
            approval=approval,
            untrusted=untrusted,
        )

    @staticmethod
    def from_swarms_json(
        action_data: SwarmsJSONAction, *, references: ReferencePolicy = TRUSTED
    ) -> "MAILAction":
        """Build an action from its entry in ``swarms.json`` and check its schema.

        Args:
            action_data: The entry.
            references: The permitted imports of its function.

        Raises:
            ConfigError: the entry, its schema or its reference is wrong.
            WrongReference: the reference names nothing callable; also a TypeError.
        """
        return action_from_entry(build_action_from_swarms_json(action_data), references)

    @staticmethod
    def from_swarm_json(json_str: str, *, references: ReferencePolicy = TRUSTED) -> "MAILAction":
        """Build an action from the JSON text of its entry in ``swarms.json``.

        Raises:
            ConfigError, WrongReference: as `from_swarms_json`.
        """
        return MAILAction.from_swarms_json(parse_json(json_str, "action"), references=references)

    def check(self) -> None:
        """Check what can be checked before the first call.

        Raises:
            ConfigError: the parameters are not a JSON Schema.
        """
        if self._checked != self.parameters:  # an action is part of every caller's swarm
            check_schema(self.name, self.parameters)
            self._strict = satisfies_strict_mode(self.parameters)
            self._checked = deepcopy(self.parameters)

    def to_core(self) -> ActionCore:
        """Return the action as the runtime takes it.

        Raises:
            ConfigError: the parameters are not a JSON Schema.
        """
        self.check()
        return ActionCore(
            function=self.function,
            name=self.name,
            parameters=self.parameters,
            idempotent=self.idempotent,
            completes=self.completes,
            approval=self.approval,
            untrusted=self.untrusted,
        )

    def to_tool_dict(self, style: ToolStyle = "responses") -> dict[str, Any]:
        """Return the tool declaration for a model.

        Args:
            style: ``"responses"`` puts the fields at the top, ``"completions"`` under
                ``"function"``. The schema is the action's own; ``strict`` is true only when
                providers accept it in strict mode.

        Raises:
            ValueError: there is no such style.
            ConfigError: the parameters are not a JSON Schema.
        """
        if style not in ("completions", "responses"):
            raise ValueError(f"tool style must be 'completions' or 'responses', got '{style}'")
        self.check()
        declaration = {
            "name": self.name,
            "description": self.description,
            "parameters": fresh_copy(self.parameters) or {"type": "object", "properties": {}},
            "strict": self._strict,
        }
        if style == "completions":
            return {"type": "function", "function": declaration}
        return {"type": "function", **declaration}

    def to_pydantic_model(self, for_tools: bool = False) -> type[BaseModel]:
        """Return a model of the arguments.

        Args:
            for_tools: Name and describe the model after the action, as tool builders want it.
                The model that the action was defined with is returned as it is either way.

        Raises:
            ConfigError: the parameters are not a JSON Schema.
        """
        if self.parameters_model is not None:
            return self.parameters_model
        self.check()
        name = self.name if for_tools else f"{self.name}_arguments"
        return model_from_json_schema(name, self.description, self.parameters)

    def __repr__(self) -> str:
        return f"MAILAction({self.name!r})"


def action_around(function: object) -> MAILAction | None:
    """Return the action that the module of a function defines around it, if there is one."""
    module = sys.modules.get(getattr(function, "__module__", ""))
    defined = vars(module).values() if module else ()
    actions = (value for value in defined if isinstance(value, MAILAction))
    return next((one for one in actions if one.callback is function), None)


def action_from_entry(data: SwarmsJSONAction, references: ReferencePolicy) -> MAILAction:
    """Build an action from a validated entry.

    Raises:
        ConfigError: the reference cannot be imported, or may not be.
        WrongReference: it names nothing callable.
    """
    found = load_object(data["function"], f"function of action '{data['name']}'", references)
    if not (callable(found) or isinstance(found, MAILAction)):
        raise WrongReference(
            f"action function must be callable, got {type(found).__name__} from "
            f"'{data['function']}' (field 'function' of action '{data['name']}')"
        )
    approval = approval_from_entry(data["approval"], references)
    fields: dict[str, Any] = {**data, "function": found, "approval": approval}
    try:
        return MAILAction(**fields)
    except TypeError as error:
        raise WrongReference(f"{error} (field 'function' of action '{data['name']}')") from error


def approval_from_entry(
    entry: Mapping[str, Any] | None, references: ReferencePolicy
) -> Approval | None:
    """Build an approval from a validated entry; None of none.

    Raises:
        ConfigError: its ``describe`` cannot be imported, or may not be.
        WrongReference: that is nothing callable.
    """
    if entry is None:
        return None
    describe = entry.get("describe")
    if describe is not None:
        described = load_object(describe, "describe of an approval", references)
        if not callable(described):
            raise WrongReference(f"describe of an approval must be callable: '{describe}'")
        describe = described
    return Approval(**{**entry, "describe": describe})


def _check_arity(name: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # a callable of C, which says nothing about itself
        return
    try:
        signature.bind(object())
    except TypeError as error:
        raise TypeError(
            f"the function of action '{name}' must accept exactly one argument (its payload): "
            f"{error}"
        ) from None


_DESCRIBE = "Give description= or the function a docstring."


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
    completes: bool = False,
    approval: Approval | None = None,
    untrusted: bool = False,
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
    completes: bool = False,
    approval: Approval | None = None,
    untrusted: bool = False,
) -> MAILAction | Callable[[ActionCallback], MAILAction]:
    """Turn a function of one argument into a `MAILAction`; plain ``@action`` works, too.

    With a model, given or read from the argument's annotation, the function gets a validated
    instance of it; with ``parameters`` it gets the dictionary.

    Args:
        name: The function's name by default.
        description: The function's docstring by default.
        model: The pydantic model of the arguments.
        parameters: Their JSON Schema, in place of a model.
        style: Accepted for older code; ``MAILAction.to_tool_dict`` chooses the style.
        idempotent: Running it twice with the same arguments is harmless.
        timeout: Seconds that one call may take.
        completes: A call that succeeds ends the task, with its result as the answer.
        approval: Its calls wait for a person.
        untrusted: It returns text from outside, which models read labelled as data.

    Raises:
        TypeError: the model is no pydantic model, or the function does not take one argument.
        ValueError: there is no description, both or neither of model and parameters, or no such
            style.
    """
    _check_use(function, model, style)

    def decorate(function: ActionCallback) -> MAILAction:
        title, text = name or function.__name__, description or inspect.getdoc(function)
        if not text:
            raise ConfigError(f"Action '{title}' is missing a description. {_DESCRIBE}")
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
            completes=completes,
            approval=approval,
            untrusted=untrusted,
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
    found: object = model
    if found is None:
        # Text annotations may have names that only exist elsewhere.
        with contextlib.suppress(NameError, TypeError):
            found = typing.get_type_hints(function).get(arguments[0])
    if not is_model(found):
        raise ConfigError(f"Action '{title}' must provide either a model= or parameters=.")
    return found
