"""An action's definition of its arguments: is it sound, and do arguments fit its model.

Arguments are checked against the JSON Schema by the runtime, before the action is called
(`mail.core.tools.arguments`); what is here comes on top for actions with a pydantic model.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

from mail.errors import ToolError

__all__ = ["ModelReader", "check_model", "is_model"]

_SHOWN = 5
_WIDTH = 200


def is_model(value: object) -> bool:
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
            details = error.errors(include_url=False, include_context=False, include_input=False)
            problems = [f"{_place(item['loc'])}: {_cut(item['msg'])}" for item in details]
            raise _refusal(self._action, problems) from None
        return payload.model_dump(mode="json", by_alias=True) if self._as_dict else payload


def _refusal(action: str, problems: list[str]) -> ToolError:
    listing = "; ".join(problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return ToolError(f"the arguments of '{action}' do not fit: {listing}{more}")


def _place(path: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in path) or "arguments"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[:_WIDTH] + "…"
