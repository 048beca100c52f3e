"""Checks of what an agent function is made with: a wrong type is told before the first call."""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from mail.errors import ConfigError
from mail.llm.settings import SAMPLING

_CHOICES: Final = ("auto", "required", "none")
_LONGEST_SHOWN: Final = 12
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_HOTTEST: Final = 2


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


def check_endpoint(api_base: object, api_key: object, *, use_proxy: bool) -> None:
    """Refuse an address that is none, and a key where the name of its variable belongs.

    Raises:
        ConfigError: naming the parameter, and never showing a key.
    """
    check_texts(api_base=api_base)
    if not isinstance(api_key, str) or (api_key and not _VARIABLE.fullmatch(api_key)):
        raise ConfigError(
            "api_key must be the name of the environment variable with the key, such as "
            "OPENROUTER_API_KEY; the key itself does not belong in a definition"
        )
    if not api_base:
        return
    try:
        parts = urlsplit(str(api_base))
        good = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            "api_base must be an address such as https://openrouter.ai/api/v1, without credentials"
        )
    if use_proxy:
        raise ConfigError("use_proxy and api_base exclude each other: the proxy has an address")


def checked_sampling(values: Sequence[object]) -> dict[str, object]:
    """Return what is given of `SAMPLING` (`mail.llm.settings`), once the types are right.

    Raises:
        ConfigError: naming the parameter.
    """
    given = zip(SAMPLING, values, strict=True)
    set_ones = {name: value for name, value in given if value is not None}
    for name, value in set_ones.items():
        whole = SAMPLING[name] is int
        if name == "stop":
            check_listed(name, value, str, "texts")
        elif isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            noun = "a whole number" if whole else "a number"
            raise ConfigError(f"{name} must be {noun}, got {_shown(value)}")
    if not 0 <= _number(set_ones, "temperature") <= _HOTTEST:
        raise ConfigError(f"temperature must be between 0 and {_HOTTEST}")
    if not 0 <= _number(set_ones, "top_p") <= 1:
        raise ConfigError("top_p must be between 0 and 1")
    return set_ones


def _number(given: Mapping[str, object], name: str) -> float:
    value = given.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _shown(value: object) -> str:
    """Show a value that is too short for a secret, else its type."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str) and len(value) <= _LONGEST_SHOWN:
        return f"the string '{value}'"
    return type(value).__name__
