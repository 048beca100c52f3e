"""What a definition from elsewhere may import and fetch: nothing happens before it is allowed."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from mail.errors import ConfigError
from mail.swarms_json.references import (
    TRUSTED,
    ReferenceBudget,
    ReferencePolicy,
    read_python_string,
    read_url_string,
    resolve_prefixed_string_references,
)
from tests.stdlib.outside import OTHER, PUBLIC, Outside

CODE = '''
import functools
import os
import subprocess
from os import environ, system
from pathlib import Path

import mail_probe_admin
import mail_probe_tools.inner as inner
from mail import MAILAction
from mail.examples.math_dummy.actions import calculate_expression_action

PROMPT = "Be kind."
SETTINGS = {"a": [1]}
run_it = functools.partial(subprocess.run, ["true"])
greet = functools.partial(lambda name, args: f"Hi {name}", "Ann")
hook = os.system


def act(args):
    """Act."""
    return "done"


class Agent:
    """An agent function."""

    tool = os

    def speak(self):
        return "hi"


class OwnAction(MAILAction):
    """An action of a class of its own."""


action = MAILAction("act", "Act.", {}, act)
partial_action = MAILAction("act", "Act.", {}, greet)
shell = mail_probe_admin.shell
partial_shell = MAILAction("shell", "Run.", {}, functools.partial(mail_probe_admin.run))
second_shell = MAILAction("shell", "Run.", {}, mail_probe_admin.shell)
third_shell = MAILAction("shell", "Run.", {}, second_shell)
own_shell = OwnAction("shell", "Run.", {}, os.system)
foreign_action = mail_probe_admin.ForeignAction("act", "Act.", {}, act)
instance = Agent()
'''

ADMIN = '''
import os

from mail import MAILAction


def run(args):
    return str(os.system(args["command"]))


class ForeignAction(MAILAction):
    """An action of a class that does who knows what."""


shell = MAILAction("shell", "Run.", {}, run)
'''


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReferencePolicy]:
    """A package that may be imported, beside one of a similar name that may not."""
    for name in ("mail_probe_tools", "mail_probe_toolsmith"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(CODE if name.endswith("tools") else "X = 1")
    (tmp_path / "mail_probe_tools" / "inner.py").write_text("VALUE = 7\nimport sys\n")
    (tmp_path / "mail_probe_admin.py").write_text(ADMIN)
    monkeypatch.syspath_prepend(tmp_path)
    yield ReferencePolicy(imports=("mail_probe_tools", "mail.factories"))
    for name in [name for name in sys.modules if name.startswith("mail_probe_")]:
        del sys.modules[name]


# --- python:: -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("mail_probe_tools:PROMPT", str),
        ("python::mail_probe_tools:SETTINGS", dict),
        ("mail_probe_tools:act", object),
        ("mail_probe_tools:greet", object),
        ("mail_probe_tools:Agent", type),
        ("mail_probe_tools:Agent.speak", object),
        ("mail_probe_tools:instance", object),
        ("mail_probe_tools:action", object),
        ("mail_probe_tools:partial_action", object),
        ("mail_probe_tools:calculate_expression_action", object),
        ("mail_probe_tools.inner:VALUE", int),
        ("mail_probe_tools:inner.VALUE", int),
        ("mail.factories:LiteLLMAgentFunction", type),
        ("mail.factories.supervisor:LiteLLMSupervisorFunction", type),
    ],
)
def test_what_is_inside_the_allowed_modules_is_found(
    probe: ReferencePolicy, reference: str, kind: type
) -> None:
    assert isinstance(read_python_string(reference, references=probe), kind)


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("os:system", "module 'os' must not be imported"),
        ("python::subprocess:run", "module 'subprocess' must not be imported"),
        ("builtins:eval", "module 'builtins' must not be imported"),
        ("mail.api:MAILSwarm", "module 'mail.api' must not be imported"),
        ("mail:MAILSwarm", "module 'mail' must not be imported"),
        ("mail.factoriesx:X", "module 'mail.factoriesx' must not be imported"),
        ("mail_probe_toolsmith:X", "module 'mail_probe_toolsmith' must not be imported"),
        ("mail_probe_tools:os.system", "it refers to code from 'os'"),
        ("mail_probe_tools:os", "it refers to code from 'os'"),
        ("mail_probe_tools:system", "it refers to code from 'posix'"),
        ("mail_probe_tools:hook", "it refers to code from 'posix'"),
        ("mail_probe_tools:run_it", "it refers to code from 'subprocess'"),
        ("mail_probe_tools:Path", "it refers to code from 'pathlib'"),
        ("mail_probe_tools:environ", "it refers to code from 'os'"),
        ("mail_probe_tools:Agent.tool.system", "it refers to code from 'os'"),
        ("mail_probe_tools:inner.sys.modules", "it refers to code from 'sys'"),
        ("mail_probe_tools:MAILAction", "it refers to code from 'mail.api.actions'"),
        ("mail_probe_tools:shell", "it refers to code from 'mail_probe_admin'"),
        ("mail_probe_tools:partial_shell", "it refers to code from 'mail_probe_admin'"),
        ("mail_probe_tools:second_shell", "it refers to code from 'mail_probe_admin'"),
        ("mail_probe_tools:third_shell", "it refers to code from 'mail_probe_admin'"),
        ("mail_probe_tools:own_shell", "it refers to code from 'posix'"),
        ("mail_probe_tools:foreign_action", "it refers to code from 'mail_probe_admin'"),
        ("mail_probe_tools:instance.speak", "it goes through an object of type Agent"),
        ("mail_probe_tools:action.function", "it goes through an object of type MAILAction"),
        ("mail_probe_tools:act.__globals__", "'__globals__' is private"),
        ("mail_probe_tools:Agent.speak.__globals__", "'__globals__' is private"),
        ("mail_probe_tools:__builtins__", "'__builtins__' is private"),
        ("mail_probe_tools:Agent.mro", "it refers to code from 'builtins'"),
    ],
)
def test_nothing_leads_out_of_the_allowed_modules(
    probe: ReferencePolicy, reference: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_python_string(reference, references=probe)
    text = str(caught.value)
    assert problem in text
    assert f"'{reference}' is not allowed in an external definition" in text
    assert "allowed modules: mail_probe_tools, mail.factories" in text
    read_python_string(reference.replace("mail.factoriesx:X", "json:loads"))  # trusted: no rule


def test_an_action_is_judged_by_its_code_where_our_own_package_is_allowed(
    probe: ReferencePolicy,
) -> None:
    policy = ReferencePolicy(imports=("mail", "mail_probe_tools"))
    with pytest.raises(ConfigError, match="it refers to code from 'mail_probe_admin'"):
        read_python_string("mail_probe_tools:shell", references=policy)
    read_python_string("mail_probe_tools:action", references=policy)


def test_what_may_not_be_imported_is_not(
    probe: ReferencePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.import_module", _never)
    for reference in ("mail_probe_toolsmith:X", "no_such:thing", "mail_probe_tools:_private"):
        with pytest.raises(ConfigError, match="is not allowed"):
            read_python_string(reference, references=probe)


def _never(name: str) -> ModuleType:
    raise AssertionError(f"{name} was imported")


def test_without_allowed_modules_nothing_is_imported() -> None:
    with pytest.raises(ConfigError, match="allowed modules: none"):
        read_python_string("json:loads", references=ReferencePolicy(imports=()))
    assert TRUSTED.trusted
    assert not ReferencePolicy(imports=()).trusted


# --- url:: --------------------------------------------------------------------------------------


def _document(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"role": "clerk"})


def _remote(world: Outside) -> ReferencePolicy:
    return ReferencePolicy(imports=(), resolve=world.resolve, transport=world.transport)


@pytest.fixture
def world() -> Outside:
    return Outside(
        names={
            "prompts.example": [PUBLIC],
            "inside.example": ["10.0.0.7"],
            "mixed.example": [OTHER, "127.0.0.1"],
        },
        handler=_document,
    )


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://169.254.169.254/latest/meta-data/", "a cloud metadata address"),
        ("http://169.254.169.254/latest/meta-data/", "only full https"),
        ("https://[::1]/", "a loopback address"),
        ("https://[::ffff:127.0.0.1]/", "a loopback address"),
        ("https://127.0.0.1:8000/", "a loopback address"),
        ("https://2130706433/", "not a dotted IPv4 address"),
        ("https://inside.example/", "a private address"),
        ("https://mixed.example/", "a loopback address"),
        ("http://prompts.example/", "only full https"),
        ("ftp://prompts.example/", "only full https"),
        ("file:///etc/passwd", "only full https"),
        ("python::os:system", "only full https"),
        ("/etc/passwd", "only full https"),
    ],
)
def test_an_address_that_is_not_public_is_refused_before_any_connection(
    world: Outside, url: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_prefixed_string_references({"system": [f"url::{url}"]}, references=_remote(world))
    assert problem in str(caught.value)
    assert "a url:: reference to" in str(caught.value)
    assert world.requests == []
    with pytest.raises(RuntimeError, match="error reading URL string: '"):
        read_url_string(url, raise_on_error=True, references=_remote(world))
    assert world.requests == []


@pytest.mark.parametrize("to", ["http://127.0.0.1:8000/", "https://[::1]/", "http://x.example/"])
def test_a_redirect_to_such_an_address_is_not_followed(world: Outside, to: str) -> None:
    world.handler = lambda request: httpx.Response(302, headers={"Location": to})
    with pytest.raises(ConfigError, match=r"a url:: reference to prompts\.example is refused"):
        read_url_string("https://prompts.example/a", references=_remote(world))
    assert world.connected == [PUBLIC]


def test_a_public_https_document_is_fetched(world: Outside) -> None:
    fetched = resolve_prefixed_string_references(
        {"system": "url::https://prompts.example/clerk.json?key=secret", "deep": [{"a": 1}]},
        references=_remote(world),
    )
    assert fetched == {"system": json.dumps({"role": "clerk"}), "deep": [{"a": 1}]}
    assert world.connected == [PUBLIC]


def test_what_a_document_says_is_no_reference(world: Outside) -> None:
    world.handler = lambda request: httpx.Response(200, json="python::os:system")
    fetched = read_url_string("url::https://prompts.example/", references=_remote(world))
    assert fetched == '"python::os:system"'


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.Response(404), "status 404"),
        (httpx.Response(200, text="<html>"), "not JSON: expected value"),
        (httpx.Response(200, text="[" * 100_000), "recursion limit exceeded"),
        (httpx.Response(200, text="[NaN]"), "the document is not JSON"),
        (httpx.Response(200, text="[1e999]"), "not JSON compliant"),
        (httpx.Response(200, content=b"\xff\xff\xff"), "the document is not JSON"),
        (httpx.Response(200, content=b'"' + b"x" * 4 * 1024 * 1024 + b'"'), "larger than"),
    ],
)
@pytest.mark.parametrize("trusted", [True, False])
def test_a_document_that_cannot_be_used_leaves_the_address(
    world: Outside,
    answer: httpx.Response,
    reason: str,
    trusted: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world.handler = lambda request: answer
    policy = ReferencePolicy(None if trusted else (), world.resolve, world.transport)
    url = "https://prompts.example/?key=secret"
    assert read_url_string(f"url::{url}", references=policy) == url
    with pytest.raises(RuntimeError, match="error reading URL string: '") as caught:
        read_url_string(url, raise_on_error=True, references=policy)
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value) + caplog.text
    assert "prompts.example" in caplog.text


def test_a_name_that_is_not_there_leaves_the_address(world: Outside) -> None:
    url = "https://nowhere.example/"
    assert read_url_string(url, references=_remote(world)) == url


# --- what all documents of a definition may take together ----------------------------------------


def _resolve(world: Outside, count: int, policy: ReferencePolicy | None = None) -> object:
    params = {str(number): "url::https://prompts.example/" for number in range(count)}
    return resolve_prefixed_string_references(params, references=policy or _remote(world))


def test_documents_are_counted(world: Outside) -> None:
    _resolve(world, 32)
    assert len(world.requests) == 32
    with pytest.raises(
        ConfigError, match=r"too many .* url:: references .* at most 32 are allowed"
    ):
        _resolve(world, 33)
    assert len(world.requests) == 64
    trusted = ReferencePolicy(None, world.resolve, world.transport)
    _resolve(world, 40, trusted)
    assert len(world.requests) == 104


def test_documents_that_are_not_there_count_too(world: Outside) -> None:
    world.handler = lambda request: httpx.Response(404)
    with pytest.raises(ConfigError, match="at most 32 are allowed"):
        _resolve(world, 33)


@pytest.mark.parametrize("size", [1024 * 1024, 3 * 1024 * 1024, 5 * 1024 * 1024])
def test_the_bytes_of_all_documents_are_counted(world: Outside, size: int) -> None:
    document = b'"' + b"x" * (size - 2) + b'"'
    world.handler = lambda request: httpx.Response(200, content=document)
    with pytest.raises(ConfigError, match="at most 8 MiB in total"):
        _resolve(world, 10)
    assert len(world.requests) <= 9


def test_the_time_of_all_documents_is_counted(world: Outside) -> None:
    now = [100.0]
    budget = ReferenceBudget(clock=lambda: now[0])
    policy = replace(_remote(world), budget=budget)
    _resolve(world, 1, policy)
    now[0] += 25
    assert budget.take() == (5.0, 4 * 1024 * 1024)
    now[0] += 5
    with pytest.raises(ConfigError, match="at most 30 seconds in total"):
        _resolve(world, 1, policy)
    assert len(world.requests) == 1


def test_a_document_that_outlasts_the_time_is_refused(world: Outside) -> None:
    now = [100.0]

    def late(request: httpx.Request) -> httpx.Response:
        now[0] += 40
        raise httpx.ReadTimeout("late", request=request)

    world.handler = late
    policy = replace(_remote(world), budget=ReferenceBudget(clock=lambda: now[0]))
    with pytest.raises(ConfigError, match="at most 30 seconds in total"):
        _resolve(world, 1, policy)


def test_a_policy_is_good_for_many_definitions_with_a_budget_each(world: Outside) -> None:
    policy = _remote(world)
    for _ in range(3):
        _resolve(world, 20, policy)
    one = policy.for_definition()
    assert one == policy
    assert one.for_definition() is one
    assert TRUSTED.for_definition() is TRUSTED
    _resolve(world, 20, one)
    with pytest.raises(ConfigError, match="at most 32 are allowed"):
        _resolve(world, 20, one)
