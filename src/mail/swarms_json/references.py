"""References in configuration: ``python::module:object`` and ``url::https://…``."""

import functools
import importlib
import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pydantic_core import from_json

from mail.config.server import REMOTE_AGENT_PARAMS, REMOTE_PROVIDERS
from mail.core.addresses import parse_agent_address
from mail.core.call_context import ModelRules
from mail.errors import ConfigError

if TYPE_CHECKING:
    import httpx

    from mail.egress.client import Resolve
    from mail.egress.rules import EgressPolicy

TIMEOUT: Final = 10.0
MAX_BYTES: Final = 4 * 1024 * 1024
_DOCUMENTS: Final = 32
_SECONDS: Final = 30.0
_MEBIBYTE: Final = 1024 * 1024
_ALL_BYTES: Final = 8 * _MEBIBYTE


@dataclass(slots=True, eq=False)
class ReferenceBudget:
    """Counts the documents of one definition, their bytes, and the time since the first of them."""

    clock: Callable[[], float] = time.monotonic
    _counted: int = 0
    _received: int = 0
    _end: float | None = None

    def take(self) -> tuple[float, int]:
        """Count one more document; return the seconds and the bytes that it may take.

        Raises:
            ConfigError: it is one too many, or as `check`.
        """
        self._counted += 1
        left = self.check()
        return min(TIMEOUT, left), min(MAX_BYTES, _ALL_BYTES - self._received)

    def receive(self, count: int) -> None:
        """Count the bytes of a document, whole or not."""
        self._received += count

    def check(self) -> float:
        """Return the seconds that are left for further documents.

        Raises:
            ConfigError: there were too many documents or bytes, or the time is up.
        """
        now = self.clock()
        self._end = now + _SECONDS if self._end is None else self._end
        limit = None
        if self._counted > _DOCUMENTS:
            limit = f"{_DOCUMENTS}"
        elif self._received >= _ALL_BYTES:
            limit = f"{_ALL_BYTES // _MEBIBYTE} MiB in total"
        elif self._end <= now:
            limit = f"{_SECONDS:g} seconds in total"
        if limit is not None:
            raise ConfigError(
                "too many or too large url:: references in an external definition: "
                f"at most {limit} are allowed"
            )
        return self._end - now


logger = logging.getLogger(__name__)

PYTHON_PREFIX: Final = "python::"
URL_PREFIX: Final = "url::"
_ANYWHERE: Final = ("0.0.0.0/0", "::/0")
_REFERENCE: Final = re.compile(r"(python::)?[^\s:.]+(\.[^\s:.]+)*:[^\s:.]+(\.[^\s:.]+)*")
_OWN_PACKAGE: Final = __name__.partition(".")[0]
_DATA: Final = (str, bytes, int, float, type(None), list, tuple, dict, set, frozenset)


@dataclass(frozen=True, slots=True)
class RemoteParameters:
    """The ``agent_params`` that a definition from the network may contain.

    Attributes:
        names: The parameters that they may have.
        models: The models that they may name.
    """

    names: tuple[str, ...] = REMOTE_AGENT_PARAMS
    models: ModelRules = field(default_factory=lambda: ModelRules(REMOTE_PROVIDERS))


@dataclass(frozen=True, slots=True)
class ReferencePolicy:
    """The targets that references in a definition may have.

    A definition that somebody wrote into a file on this machine is trusted. One that arrived over
    the network imports only from the modules named here and fetches only from public addresses
    over https; nothing else is imported, and no other connection is made.

    Attributes:
        imports: The modules (with all that is inside them) that may be imported; None for any.
        resolve: Answers what addresses a host has; the system's resolver when None.
        transport: Makes the connections for ``url::``; for tests.
        parameters: The permitted parameters of its agents, unless everything is trusted.
        budget: The limits of all ``url::`` references of one definition together; see
            `for_definition`.
    """

    imports: tuple[str, ...] | None = None
    resolve: "Resolve | None" = field(default=None, repr=False, compare=False)
    transport: "httpx.AsyncBaseTransport | None" = field(default=None, repr=False, compare=False)
    parameters: RemoteParameters = field(default_factory=RemoteParameters)
    budget: ReferenceBudget | None = field(default=None, repr=False, compare=False)

    def for_definition(self) -> "ReferencePolicy":
        """Return the policy to read one definition with: unless trusted, it has a budget."""
        if self.trusted or self.budget is not None:
            return self
        return replace(self, budget=ReferenceBudget())

    @property
    def trusted(self) -> bool:
        """Tell whether everything may be imported and fetched."""
        return self.imports is None

    @property
    def models(self) -> ModelRules | None:
        """The rules for the agents' models; None where everything is trusted."""
        return None if self.trusted else self.parameters.models

    def egress(self) -> "EgressPolicy":
        """Return what ``url::`` may reach."""
        from mail.egress.rules import EgressPolicy

        if self.trusted:
            return EgressPolicy(allow=_ANYWHERE)
        return EgressPolicy(https_only=True)

    def check_path(self, reference: str, module: str, path: Sequence[str]) -> None:
        """Check a reference before anything is imported for it.

        Raises:
            ConfigError: the module is not one of `imports`, or the path has a private name.
        """
        if self.imports is None:
            return
        if not self._allows(module):
            raise self._refusal(reference, f"module '{module}' must not be imported")
        for name in path:
            if name.startswith("_"):
                raise self._refusal(reference, f"'{name}' is private")

    def check_found(self, reference: str, found: Any, *, passed: bool = False) -> None:
        """Check what a reference leads to: code must come from `imports`, data may be plain.

        An allowed module also holds what it imported itself; its own author's choice of modules is
        no permission to hand them on. An action is judged by the code that it runs. Plain data does
        not tell where it comes from.

        Args:
            reference: The reference.
            found: The object.
            passed: Whether the reference goes on from it, as it may from a module or class only.

        Raises:
            ConfigError: it is code from elsewhere.
        """
        if self.imports is None:
            return
        if passed and not isinstance(found, ModuleType | type):
            raise self._refusal(
                reference, f"it goes through an object of type {type(found).__name__}"
            )
        if type(found) in (*_DATA, bool, MappingProxyType):
            return
        while isinstance(found, functools.partial):
            found = found.func
        home = found.__name__ if isinstance(found, ModuleType) else _home(found)
        is_instance = not callable(found) and not isinstance(found, ModuleType)
        homes = [] if is_instance and _is_own(home) else [home]
        # An action of ours, or of a class that somebody derived from it.
        is_ours = any(_is_own(kind.__module__) for kind in type(found).__mro__)
        if is_instance and is_ours and hasattr(found, "callback"):
            code = _home(_behind(found))
            homes += [] if _is_own(code) else [code]
        for each in homes:
            if not self._allows(each):
                raise self._refusal(reference, f"it refers to code from '{each or 'builtins'}'")

    def _allows(self, module: str) -> bool:
        allowed = self.imports or ()
        return any(module == name or module.startswith(f"{name}.") for name in allowed)

    def _refusal(self, reference: str, problem: str) -> ConfigError:
        return ConfigError(
            f"'{reference}' is not allowed in an external definition: {problem}; allowed "
            f"modules: {', '.join(self.imports or ()) or 'none'} ([server.swarm] remote_imports)"
        )


TRUSTED: Final = ReferencePolicy()
"""For files on this machine and for definitions made in code."""


def is_python_reference(value: object) -> bool:
    """Tell whether a value is text of the form ``module:object``, with or without ``python::``."""
    return isinstance(value, str) and value.isprintable() and bool(_REFERENCE.fullmatch(value))


def read_python_string(string: str, *, references: ReferencePolicy = TRUSTED) -> Any:
    """Import what ``module:object`` names; the ``python::`` prefix is optional.

    Args:
        string: For example ``python::mail.examples.math_dummy.prompts:SYSPROMPT``; the part after
            the colon may be dotted.
        references: The permitted imports.

    Raises:
        ValueError: the text is not of that form, or (a `ConfigError`) must not be imported.
        ImportError: there is no such module.
        AttributeError: the module has no such object.
    """
    if not is_python_reference(string):
        raise ValueError(f"Invalid python reference '{string}'. Expected 'module:object' format.")
    module, _, path = string.removeprefix(PYTHON_PREFIX).partition(":")
    names = path.split(".")
    references.check_path(string, module, names)
    found: Any = importlib.import_module(module)
    for name in names:
        references.check_found(string, found, passed=True)
        found = getattr(found, name)
    references.check_found(string, found)
    return found


def read_url_string(
    string: str, raise_on_error: bool = False, *, references: ReferencePolicy = TRUSTED
) -> str:
    """Fetch a JSON document and return it as JSON text. Blocks.

    Args:
        string: The address, with or without ``url::``. The document may take 10 seconds, redirects
            included, and have 4 MiB.
        raise_on_error: Raise instead of returning the address itself when that fails.
        references: The permitted addresses.

    Raises:
        RuntimeError: the document could not be fetched or is not JSON, and errors are asked for.
        ConfigError: the address may not be fetched from, and errors are not asked for: then it is
            no document that happens to be missing. Or the policy's budget is spent.
    """
    from mail.egress.client import fetch
    from mail.egress.rules import RefusedAddress, TooLarge

    url = string.removeprefix(URL_PREFIX)
    budget = references.budget
    timeout, max_bytes = budget.take() if budget else (TIMEOUT, MAX_BYTES)
    try:
        document = fetch(
            url,
            policy=references.egress(),
            timeout=timeout,
            max_bytes=max_bytes,
            resolve=references.resolve,
            transport=references.transport,
        )
        if budget:
            budget.receive(len(document))
        return _json_text(document)
    except ValueError as error:
        if budget:
            budget.receive(max_bytes if isinstance(error, TooLarge) else 0)
            budget.check()
        # The address itself stays out of all texts: it may carry credentials.
        if raise_on_error:
            raise RuntimeError(f"error reading URL string: '{error}'") from None
        if isinstance(error, RefusedAddress) and not references.trusted:
            raise ConfigError(f"a url:: reference to {_host(url)} is refused: {error}") from None
        logger.warning("a url:: reference to %s was not resolved: %s", _host(url), error)
        return url


def resolve_prefixed_string_references(value: Any, *, references: ReferencePolicy = TRUSTED) -> Any:
    """Replace prefixed strings inside dictionaries and lists, however deep.

    ``python::`` strings become the object they name, ``url::`` strings the JSON text found there;
    everything else is returned as it is. The given structure is not changed, and what a reference
    leads to is not looked at for further references. Unless all is trusted, the documents have a
    budget: that of the policy, or one for this call.

    Raises:
        ValueError, ImportError, AttributeError: as `read_python_string`.
        ConfigError: as `read_url_string`.
    """
    return _resolved(value, references.for_definition())


def _resolved(value: Any, references: ReferencePolicy) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(item, references) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, references) for item in value]
    if isinstance(value, str) and value.startswith(PYTHON_PREFIX):
        return read_python_string(value, references=references)
    if isinstance(value, str) and value.startswith(URL_PREFIX):
        return read_url_string(value, references=references)
    return value


def target_address_is_interswarm(address: str) -> bool:
    """Tell whether an address names an agent of another swarm: ``agent@swarm``."""
    return parse_agent_address(address)[1] is not None


def _json_text(document: bytes) -> str:
    try:
        return json.dumps(from_json(document, allow_inf_nan=False), allow_nan=False)
    except ValueError as error:
        raise ValueError(f"the document is not JSON: {error}") from None


def _home(found: Any) -> str:
    """Return the module that an object or the class of an instance is defined in."""
    home = getattr(found, "__module__", None)
    return home if isinstance(home, str) else ""


def _behind(action: Any) -> Any:
    """Return the code that an action runs, behind partials and the wrappers that we make."""
    code = action.callback
    while True:
        if isinstance(code, functools.partial):
            code = code.func
        elif _is_own(_home(code)) and hasattr(code, "__wrapped__"):
            code = code.__wrapped__
        else:
            return code


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == _OWN_PACKAGE


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "an unnamed host"
    except ValueError:
        return "an unreadable host"
