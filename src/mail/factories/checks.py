"""Checks of what an agent function is made with: a wrong type is told before the first call."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from mail.errors import ConfigError

_CHOICES: Final = ("auto", "required", "none")
_LONGEST_SHOWN: Final = 12


@contextmanager
def of_agent(name: object) -> Generator[None]:
    """Let a `ConfigError` say which agent it is about, unless it does."""
    try:
        yield
    except ConfigError as error:
        if f"agent '{name}'" in str(error):
            raise
        raise ConfigError(f"agent '{name}': {error}") from error


def check_flags(**flags: object) -> None:
    """Refuse what is neither true nor false: the text "false" would count as true.

    Raises:
        ConfigError: naming the parameter.
    """
    for parameter, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{parameter} must be true or false, got {_shown(value)}")


def check_texts(**texts: object) -> None:
    """Refuse what is no text.

    Raises:
        ConfigError: naming the parameter.
    """
    for parameter, value in texts.items():
        if not isinstance(value, str):
            raise ConfigError(f"{parameter} must be a string, got {_shown(value)}")


def check_listed(parameter: str, values: object, of: type, noun: str) -> None:
    """Refuse what is no list of the right things; one text would be taken letter by letter.

    Raises:
        ConfigError: naming the parameter.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"{parameter} must be a list of {noun}, got {_shown(values)}")
    if isinstance(values, Sequence | set | frozenset):  # what can be read only once is left alone
        for value in values:
            if not isinstance(value, of):
                raise ConfigError(
                    f"{parameter} must be a list of {noun}, got {_shown(value)} in it"
                )


def check_tool_choice(choice: object) -> None:
    """Refuse what is no default tool choice.

    Raises:
        ConfigError: it is neither a known word nor a mapping that names a tool.
    """
    if choice is None or choice in _CHOICES or isinstance(choice, Mapping):
        return
    raise ConfigError(
        "default_tool_choice must be 'auto', 'required', 'none' or a tool's "
        f'{{"type": "function", "name": …}}, got {_shown(choice)}'
    )


def check_model(model: object) -> None:
    """Refuse what cannot be asked; the name of a model belongs into ``llm``.

    Raises:
        ConfigError: it has no ``stream`` method.
    """
    if model is None or callable(getattr(model, "stream", None)):
        return
    hint = "; pass the name of a model as llm" if isinstance(model, str) else ""
    raise ConfigError(
        f"model must be an object with a stream method (a ChatModel), got {_shown(model)}{hint}"
    )


def _shown(value: object) -> str:
    """Show a value that is too short for a secret, else its type."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str) and len(value) <= _LONGEST_SHOWN:
        return f"the string '{value}'"
    return type(value).__name__
