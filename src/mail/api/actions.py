"""Actions: an agent's own tools, defined by a name, a description, a schema and a callable."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel

from mail.api.calling import make_action_function
from mail.api.payload import ModelReader, check_schema
from mail.api.references import load_object, parse_object
from mail.api.schema_models import model_from_json_schema
from mail.api.strictness import satisfies_strict_mode
from mail.core.actions import ActionCore, ActionFunction
from mail.errors import ConfigError
from mail.swarms_json.names import check_action_name
from mail.swarms_json.types import SwarmsJSONAction
from mail.swarms_json.utils import build_action_from_swarms_json

__all__ = ["ActionCallback", "MAILAction", "ToolStyle"]

ToolStyle = Literal["completions", "responses"]
ActionCallback = Callable[[Any], Awaitable[str] | str]
"""What a user writes: takes the arguments, returns text; plain or ``async``."""


class MAILAction:
    """A tool that agents call, backed by Python code.

    Attributes:
        name: What models call it.
        description: What models read about it.
        parameters: The JSON Schema of its arguments, shown to models unchanged.
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
            ConfigError: name or description is empty, the name is a MAIL tool's, or the
                reference cannot be loaded.
            TypeError: the function is not callable, or the parameters are no dictionary.
        """
        if not isinstance(parameters, dict):
            kind = type(parameters).__name__
            raise TypeError(f"action parameters must be a dict (JSON Schema), got {kind}")
        self.name = check_action_name(name)
        if not description.strip():
            raise ConfigError("action description must be at least 1 character long, got 0")
        self.description = description
        self.parameters = parameters
        self.parameters_model = reader.model if reader else None
        self._reader = reader
        self._bind(function, idempotent, timeout)

    def _bind(
        self,
        function: "str | ActionCallback | MAILAction",
        idempotent: bool,
        timeout: float | None,
    ) -> None:
        found: Any = function
        if isinstance(function, str):
            found = load_object(function, f"function of action '{self.name}'")
        if isinstance(found, MAILAction):
            idempotent = idempotent or found.idempotent
            timeout = found.timeout if timeout is None else timeout
            found = found.function
        if not callable(found):
            raise TypeError(f"action function must be callable, got {type(found).__name__}")
        if timeout is not None and timeout <= 0:
            raise ConfigError(f"timeout of action '{self.name}' must be above 0, got {timeout:g}")
        self.idempotent = idempotent
        self.timeout = timeout
        self.callback = found
        self.function = make_action_function(self.name, found, self._reader, timeout)

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
    def from_swarms_json(action_data: SwarmsJSONAction) -> "MAILAction":
        """Build an action from its entry in ``swarms.json`` and check its schema.

        Raises:
            ConfigError: the entry, its schema or its reference is wrong.
            TypeError: the reference names nothing callable.
        """
        data = build_action_from_swarms_json(action_data)
        action = MAILAction(
            name=data["name"],
            description=data["description"],
            parameters=data["parameters"],
            function=data["function"],
            idempotent=data["idempotent"],
            timeout=data["timeout"],
        )
        action.check()
        return action

    @staticmethod
    def from_swarm_json(json_str: str) -> "MAILAction":
        """Build an action from the JSON text of its entry in ``swarms.json``.

        Raises:
            ConfigError, TypeError: as `from_swarms_json`.
        """
        return MAILAction.from_swarms_json(parse_object(json_str, "action"))

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
        """
        if style not in ("completions", "responses"):
            raise ValueError(f"tool style must be 'completions' or 'responses', got '{style}'")
        declaration = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters or {"type": "object", "properties": {}},
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


def _docstring(function: object) -> str | None:
    target = getattr(function, "func", function)  # functools.partial has a docstring of its own
    return inspect.getdoc(target) if inspect.isroutine(target) else None
