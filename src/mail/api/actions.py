"""Actions: an agent's own tools, defined by a name, a description, a schema and a callable."""

import inspect
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any, Literal

from pydantic import BaseModel

from mail.api.calling import make_action_function
from mail.api.payload import ModelReader, check_model
from mail.api.references import load_object, parse_object
from mail.api.schema_models import model_from_json_schema
from mail.api.strictness import satisfies_strict_mode
from mail.core.actions import ActionCore, ActionFunction
from mail.errors import ConfigError, WrongReference
from mail.swarms_json.names import check_action_name
from mail.swarms_json.parameters import check_schema
from mail.swarms_json.references import TRUSTED, ReferencePolicy
from mail.swarms_json.types import SwarmsJSONAction
from mail.swarms_json.utils import build_action_from_swarms_json

__all__ = ["ActionCallback", "MAILAction", "ToolStyle", "action_from_entry"]

ToolStyle = Literal["completions", "responses"]
ActionCallback = Callable[[Any], Awaitable[str] | str]
"""What a user writes: takes the arguments, returns text; plain or ``async``."""


class MAILAction:
    """A tool that agents call, backed by Python code.

    Attributes:
        name: What models call it.
        description: What models read about it.
        parameters: The JSON Schema of its arguments, shown to models unchanged; its own copy.
        callback: The callable as it was given.
        function: The callable behind a coroutine function that checks the arguments, keeps to the
            timeout, runs plain functions in a thread and insists on a text result.
        parameters_model: The pydantic model of the arguments, when there is one.
        idempotent: Running it twice is harmless; after a crash it is then simply run again.
        timeout: Seconds that one call may take, or None.
    """

    idempotent: bool
    timeout: float | None
    callback: ActionCallback
    function: ActionFunction

    def __init__(
        self,
        name: str,
        description: str,
        parameters: dict[str, Any],
        function: "str | ActionCallback | MAILAction",
        *,
        idempotent: bool = False,
        timeout: float | None = None,
        reader: ModelReader | None = None,
    ) -> None:
        """Define an action whose callable gets a dictionary of arguments.

        Args:
            name: What models call it.
            description: What models read about it.
            parameters: JSON Schema of the arguments; ``{}`` means any.
            function: A callable, another action, or a ``module:object`` reference to either.
            idempotent: Running it twice with the same arguments is harmless.
            timeout: Seconds that one call may take.
            reader: Checks arguments beyond the schema and may give the callable a model instance.

        Raises:
            ConfigError: name or description is empty, the name is a MAIL tool's, a keyword has a
                value of the wrong type, or the reference cannot be loaded.
            TypeError: the function is not callable with one argument, or the parameters are no
                dictionary.
        """
        self.name, self.description, self.parameters = name, description, parameters
        self.idempotent, self.timeout = idempotent, timeout
        self.parameters_model = reader.model if reader else None
        self._reader = reader
        self._validate()
        self.parameters = deepcopy(parameters)
        self.function = self._build_action_function(function)

    def _validate(self) -> None:
        if not isinstance(self.parameters, dict):
            kind = type(self.parameters).__name__
            raise TypeError(f"action parameters must be a dict (JSON Schema), got {kind}")
        for field in ("name", "description"):
            if not isinstance(value := getattr(self, field), str):
                raise ConfigError(f"action {field} must be text, got {type(value).__name__}")
        check_action_name(self.name)
        if not self.description.strip():
            raise ConfigError("action description must be at least 1 character long, got 0")
        if not isinstance(self.idempotent, bool):
            text = f"idempotent of action '{self.name}' must be True or False"
            raise ConfigError(f"{text}, got {self.idempotent!r}")
        if not _is_duration(self.timeout):
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
            self.timeout = found.timeout if self.timeout is None else self.timeout
            found = found.function
        if not callable(found):
            raise TypeError(f"action function must be callable, got {type(found).__name__}")
        _check_arity(self.name, found)
        self.callback = found
        return make_action_function(self.name, found, self._reader, self.timeout)

    @staticmethod
    def from_pydantic_model(
        model: type[BaseModel],
        function: "str | ActionCallback | MAILAction",
        name: str | None = None,
        description: str | None = None,
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> "MAILAction":
        """Define an action by the model of its arguments; the callable gets a dictionary.

        Args:
            model: Validates the arguments; its JSON Schema is shown to models.
            function: A callable, another action, or a reference to either.
            name: The model's name by default.
            description: By default the docstring of the model, else of the function, else the name.
            idempotent: As in the constructor.
            timeout: As in the constructor.

        Raises:
            ConfigError, TypeError: as the constructor.
        """
        check_model(model)
        name = model.__name__ if name is None else name
        text = description or model.__doc__ or _docstring(function) or name.replace("_", " ")
        return MAILAction(
            name,
            inspect.cleandoc(text),
            model.model_json_schema(),
            function,
            idempotent=idempotent,
            timeout=timeout,
            reader=ModelReader(name, model, as_dict=True),
        )

    @staticmethod
    def from_swarms_json(
        action_data: SwarmsJSONAction, *, references: ReferencePolicy = TRUSTED
    ) -> "MAILAction":
        """Build an action from its entry in ``swarms.json`` and check its schema.

        Args:
            action_data: The entry.
            references: What its function may be imported from.

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
        return MAILAction.from_swarms_json(parse_object(json_str, "action"), references=references)

    def check(self) -> None:
        """Check what can be checked before the first call.

        Raises:
            ConfigError: the parameters are not a JSON Schema.
        """
        check_schema(self.name, self.parameters)

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
            "parameters": deepcopy(self.parameters) or {"type": "object", "properties": {}},
            "strict": satisfies_strict_mode(self.parameters),
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
            ValueError: the schema has a ``type`` that JSON Schema does not know.
        """
        if self.parameters_model is not None:
            return self.parameters_model
        name = self.name if for_tools else f"{self.name}_arguments"
        return model_from_json_schema(name, self.description, self.parameters)

    def __repr__(self) -> str:
        return f"MAILAction({self.name!r})"


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
    try:
        return MAILAction(
            name=data["name"],
            description=data["description"],
            parameters=data["parameters"],
            function=found,
            idempotent=data["idempotent"],
            timeout=data["timeout"],
        )
    except TypeError as error:
        raise WrongReference(f"{error} (field 'function' of action '{data['name']}')") from error


def _is_duration(seconds: object) -> bool:
    if seconds is None:
        return True
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0


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


def _docstring(function: object) -> str | None:
    target = getattr(function, "func", function)  # functools.partial has a docstring of its own
    return inspect.getdoc(target) if inspect.isroutine(target) else None
