"""From an ``llm`` string to a model: a script, or a model of LiteLLM."""

import importlib
from collections.abc import Sequence
from typing import Any, Final

from mail.config.env import setting
from mail.core.suggest import attribute_hint
from mail.errors import ConfigError
from mail.llm.request import ChatModel

SCRIPTED_PREFIX: Final = "scripted/"
EXAMPLE_MODEL: Final = "MAIL_LLM"
"""The variable with the model that plays the shipped examples in place of their scripts."""

_SCRIPTED: Final = SCRIPTED_PREFIX.rstrip("/")
_EXAMPLES: Final = f"{SCRIPTED_PREFIX}mail.examples."


def is_scripted(llm: str) -> bool:
    """Tell whether an ``llm`` string names a script, which needs no provider."""
    return llm.strip() == _SCRIPTED or llm.startswith(SCRIPTED_PREFIX)


def is_example_script(llm: object) -> bool:
    """Tell whether an ``llm`` names the script of an example that comes with MAIL."""
    return isinstance(llm, str) and llm.startswith(_EXAMPLES)


def played_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return an agent's parameters, with `EXAMPLE_MODEL` in place of a shipped example's script."""
    model = setting(EXAMPLE_MODEL)
    if model is None or not is_example_script(params.get("llm")):
        return params
    return {**params, "llm": model, "use_proxy": model.startswith("litellm_proxy/")}


def model_for(llm: str) -> ChatModel:
    """Return the model behind an ``llm`` string.

    Args:
        llm: ``scripted/<module>:<object>`` for a script (rules, a function, or a
            `ScriptedModel`); anything else is a model name of LiteLLM.

    Raises:
        ConfigError: the string is empty or names no script.
    """
    if not llm.strip():
        raise ConfigError("llm must name a model, for example openai/gpt-5-mini")
    if llm.strip() in (_SCRIPTED, SCRIPTED_PREFIX):
        raise ConfigError(
            f"llm '{llm}' does not name a script: pass `model` (a ScriptedModel), or set llm to "
            f"'{SCRIPTED_PREFIX}<module>:<object>'"
        )
    if llm.startswith(SCRIPTED_PREFIX):
        return _scripted(llm.removeprefix(SCRIPTED_PREFIX))
    from mail.llm.litellm_model import LiteLLMModel

    return LiteLLMModel()


def _scripted(reference: str) -> ChatModel:
    from mail.llm.scripted import ScriptedModel

    script = _read(reference)
    if isinstance(script, ScriptedModel):
        return script
    if not callable(script) and not isinstance(script, Sequence):
        raise ConfigError(
            f"'{SCRIPTED_PREFIX}{reference}' is not a script but {type(script).__name__}"
        )
    try:
        return ScriptedModel(script)
    except ConfigError as error:
        raise ConfigError(f"'{SCRIPTED_PREFIX}{reference}': {error}") from error


def _read(reference: str) -> Any:
    module_name, _, path = reference.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
        for name in path.split("."):
            value = getattr(value, name)
    except (ImportError, ValueError, AttributeError) as error:
        hint = attribute_hint(error) if isinstance(error, AttributeError) else ""
        raise ConfigError(
            f"'{SCRIPTED_PREFIX}{reference}' does not name a script: {error}; "
            f"expected '{SCRIPTED_PREFIX}<module>:<object>'" + (f".{hint}" if hint else "")
        ) from error
    return value
