"""Resolution of Python references in definitions, with errors that say whose reference it is."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mail.core.suggest import attribute_hint
from mail.errors import ConfigError, MAILError, WrongReference
from mail.redaction import redact_foreign
from mail.swarms_json.references import (
    PYTHON_PREFIX,
    TRUSTED,
    URL_PREFIX,
    ReferencePolicy,
    RemoteParameters,
    read_python_string,
    resolve_prefixed_string_references,
)

_DOCUMENT = "{}"
_OPENAI = "openai/"
_TOP_LEVEL = frozenset(
    {
        "name",
        "comm_targets",
        "tools",
        "enable_entrypoint",
        "enable_interswarm",
        "tool_format",
        "can_complete_tasks",
        "exclude_tools",
    }
)
"""Keys of an agent that are ignored among its parameters, with a warning."""
_PROMPT_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+:[^\W\d]\w*")


def load_object(reference: str, what: str, references: ReferencePolicy = TRUSTED) -> Any:
    """Import what a reference names.

    Args:
        reference: ``module:object``, with or without ``python::``.
        what: The owner of the reference, for the error text.
        references: The permitted imports.

    Raises:
        ConfigError: it cannot be imported, or may not be.
    """
    try:
        return read_python_string(reference, references=references)
    except (Exception, SystemExit) as error:
        reason = _reason(error)
        raise ConfigError(f"{what} cannot be loaded from '{reference}': {reason}") from error


def load_callable(
    reference: str, what: str, references: ReferencePolicy = TRUSTED
) -> Callable[..., Any]:
    """Import a callable; see `load_object`.

    Raises:
        ConfigError: it cannot be imported, or may not be.
        WrongReference: it is not callable.
    """
    found: Callable[..., Any] = load_object(reference, what, references)
    if not callable(found):
        raise WrongReference(f"{what} must be callable, got {type(found).__name__}")
    return found


def load_params(
    params: dict[str, Any], what: str, references: ReferencePolicy = TRUSTED
) -> dict[str, Any]:
    """Return parameters with their ``python::`` and ``url::`` strings resolved.

    Raises:
        ConfigError: a reference cannot be imported, or may not be used.
    """
    params = _with_prompt_reference(params)
    try:
        if not references.trusted:
            _check_names(params, references.parameters)
        resolved: dict[str, Any] = resolve_prefixed_string_references(params, references=references)
        if not references.trusted:
            _check_scripts(resolved, what, references)
            _check_models(resolved, references.parameters)
    except (Exception, SystemExit) as error:
        text = _reason(error)
        raise ConfigError(text if text.startswith(what) else f"{what}: {text}") from error
    return resolved


def check_params(params: dict[str, Any], what: str) -> None:
    """Import what the ``python::`` strings of parameters name; documents are not fetched.

    Raises:
        ConfigError: a reference cannot be imported.
    """
    for text in _parts(_with_prompt_reference(params)):
        if isinstance(text, str) and text.startswith(PYTHON_PREFIX):
            load_object(text, what)
    _check_scripts(params, what, TRUSTED)


def _with_prompt_reference(params: dict[str, Any]) -> dict[str, Any]:
    """Prefix a ``system`` that is nothing but ``package.module:NAME`` (agents-and-tools.md)."""
    system = params.get("system")
    if isinstance(system, str) and _PROMPT_NAME.fullmatch(system):
        return {**params, "system": PYTHON_PREFIX + system}
    return params


def without_documents(value: Any) -> Any:
    """Return parameters in which a JSON text stands for each ``url::`` document, fetched by none.

    The other strings, and all that is no dictionary or list, are the given ones.
    """
    if isinstance(value, dict):
        return {key: without_documents(part) for key, part in value.items()}
    if isinstance(value, list):
        return [without_documents(part) for part in value]
    return _DOCUMENT if isinstance(value, str) and value.startswith(URL_PREFIX) else value


def fresh_copy(value: Any) -> Any:
    """Copy the dictionaries and lists that a value is made of; everything else is shared."""
    if type(value) is dict:
        return {key: fresh_copy(part) for key, part in value.items()}
    if type(value) is list:
        return [fresh_copy(part) for part in value]
    return value


def _check_scripts(params: dict[str, Any], what: str, references: ReferencePolicy) -> None:
    """Check models that are scripts: they are imported, too, when the agent is built."""
    from mail.llm.resolve import SCRIPTED_PREFIX

    for text in _parts(params):
        if isinstance(text, str) and text.startswith(SCRIPTED_PREFIX):
            load_object(text.removeprefix(SCRIPTED_PREFIX), what, references)


def _check_names(params: dict[str, Any], allowed: RemoteParameters) -> None:
    """Check which parameters a definition from elsewhere gives."""
    for name in params:
        if name not in allowed.names and name not in _TOP_LEVEL:
            raise ConfigError(
                f"'{name}' is not allowed in an external definition; allowed: "
                f"{', '.join(allowed.names)} ([server.swarm] remote_agent_params)"
            )


def _check_models(params: dict[str, Any], allowed: RemoteParameters) -> None:
    """Check the models that a definition from elsewhere names, however deep."""
    from mail.llm.provider_env import provider_of, proxy_configured
    from mail.llm.remote import check_remote_llm
    from mail.llm.resolve import is_scripted

    def provider_of_bare_name(llm: str) -> str:
        from mail.llm.litellm_model import load_library

        return provider_of(load_library(), llm)

    check = partial(check_remote_llm, rules=allowed.models, provider_of=provider_of_bare_name)
    for holder in (part for part in _parts(params) if isinstance(part, dict)):
        llm, model = holder.get("llm"), holder.get("model")
        if isinstance(llm, str) and llm.strip() and not is_scripted(llm):
            proxied = holder.get("use_proxy")
            check(llm, use_proxy=proxy_configured() if proxied is None else proxied is not False)
        if isinstance(model, str) and model:  # a name at OpenAI's (mail.stdlib.openai)
            check(model if model.startswith(_OPENAI) else _OPENAI + model, use_proxy=False)


def _parts(value: object) -> Iterator[Any]:
    """Yield a value and all that is inside its dictionaries and lists."""
    yield value
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _parts(part)


def _reason(error: BaseException) -> str:
    if isinstance(error, AttributeError) and (hint := attribute_hint(error)):
        return f"{error}.{hint}"
    expected = isinstance(error, ImportError | AttributeError | ValueError)
    text = str(error) if isinstance(error, MAILError) else redact_foreign(str(error))
    return text if expected else f"{type(error).__name__}: {text}"
