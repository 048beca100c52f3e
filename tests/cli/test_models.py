"""``mail models``: a check of a model through the fake provider, and what it says without a key."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mail.cli.commands import main
from mail.llm.script import call, otherwise, say, think, when
from tests.support.provider import FakeProvider, Fault

KEY = "sk-environment-key-0123456789"
CHECKED = [
    when(tool_result="check_word").then(call("task_complete", finish_message="done")),
    otherwise(think("Well."), call("check_word", word="apple")),
]
MODELS = {
    "responses": ["openai/gpt-5-mini"],
    "completions": ["openai/gpt-5-mini", "--tool-format", "completions"],
    "anthropic": ["anthropic/claude-sonnet-4-5", "--effort", "low"],
    "proxy": ["litellm_proxy/openai/gpt-5-mini"],
}


class Running:
    """A fake provider in a thread of its own, since commands have event loops of their own."""

    def __init__(self) -> None:
        self.provider = FakeProvider(CHECKED)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Running":
        self._thread.start()
        self._do(self.provider.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self.provider.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with Running() as one:
        yield one


@pytest.fixture
def provider(
    running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[FakeProvider]:
    provider = running.provider
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
    monkeypatch.setenv("ANTHROPIC_API_BASE", provider.root_url)
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LITELLM_PROXY_API_KEY"):
        monkeypatch.setenv(name, KEY)
    provider.script = CHECKED
    provider.faults.clear()
    provider.requests.clear()
    yield provider


Told = tuple[int, str]


@pytest.fixture
def models(capfd: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """Return a function that runs ``mail models`` and returns its exit code and its output."""

    def run(*words: str) -> Told:
        code = main(["models", *words])
        told = capfd.readouterr()
        assert KEY not in told.out + told.err
        return code, told.out + told.err

    return run


def found(text: str) -> dict[str, tuple[str, str]]:
    """Return the parts of a check's JSON with their status and text."""
    return {one["part"]: (one["status"], one["text"]) for one in json.loads(text)["findings"]}


@pytest.mark.parametrize("wire", MODELS)
def test_a_model_that_works(wire: str, provider: FakeProvider, models: Callable[..., Told]) -> None:
    code, told = models("check", *MODELS[wire], "--json")
    assert code == 0, told
    parts = found(told)
    assert parts["tool call"][1].startswith('called check_word {"word": "apple"}')
    assert parts["forced end"][1].startswith('called task_complete {"finish_message": "done"}')
    assert {status for status, _ in parts.values()} <= {"ok", "adapted"}
    assert parts["streaming"] == ("ok", "replies are streamed")
    assert json.loads(told)["usage"]["calls"] == 2
    assert [seen.status for seen in provider.requests] == [200, 200]
    expected = "responses" if wire == "proxy" else wire
    assert [seen.wire for seen in provider.requests] == [expected] * 2


def test_the_findings_for_people(provider: FakeProvider, models: Callable[..., Told]) -> None:
    code, told = models("check", "openai/gpt-5-mini")
    assert code == 0, told
    lines = told.splitlines()
    assert lines[0] == "openai/gpt-5-mini"
    assert lines[1].startswith("ok       tool call   called check_word")
    assert [line.split()[0] for line in lines[1:]] == ["ok"] * 9
    assert any(line.startswith("ok       cost        $0.0") for line in lines)


def test_the_requests_can_be_shown(provider: FakeProvider, models: Callable[..., Told]) -> None:
    code, told = models("check", "openai/gpt-5-mini", "--show-request")
    assert code == 0, told
    assert told.count(f"POST {provider.base_url}/responses") == 2
    assert "authorization: [redacted]" in told and "HTTP 200 after" in told


def test_a_provider_that_refuses(provider: FakeProvider, models: Callable[..., Told]) -> None:
    provider.faults.append(Fault(status=401, message="that is no key"))
    code, told = models("check", "anthropic/claude-sonnet-4-5")
    assert code == 1
    assert "error    tool call   model call failed (HTTP 401): that is no key" in told
    assert "forced end" not in told and "1 request" in told


def test_a_provider_that_is_busy_for_a_moment(
    provider: FakeProvider, models: Callable[..., Told]
) -> None:
    provider.faults.append(Fault(status=429, retry_after=0.01, message="slow down"))
    code, told = models("check", "openai/gpt-5-mini")
    assert code == 0, told
    assert 'warning  tool call   asked 2 times: HTTP 429, "slow down"' in told


def test_a_model_that_writes_in_place_of_calls(
    provider: FakeProvider, models: Callable[..., Told]
) -> None:
    provider.script = [otherwise(say("I would rather talk."))]
    code, told = models("check", "openai/gpt-5-mini")
    assert code == 0, told
    assert "warning  tool call   answered in text in place of a call of check_word" in told
    assert "adapted  forced end  answered in text, which completes a task as well" in told


def test_texts_of_a_provider_cannot_command_the_terminal(
    provider: FakeProvider, models: Callable[..., Told]
) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\u202e gnp.exe\r\nok       time        fine"
    provider.faults.append(Fault(status=400, message=nasty))
    code, told = models("check", "openai/gpt-5-mini", "--show-request")
    assert code == 1
    assert not [sign for sign in ("\x1b", "\x07", "\u202e", "\r") if sign in told]
    assert "\nok       time        fine" not in told
    provider.script = [otherwise(call("check_word", word=nasty))]
    _, told = models("check", "openai/gpt-5-mini", "--show-request")
    assert not [sign for sign in ("\x1b", "\x07", "\u202e", "\r") if sign in told]


@pytest.mark.parametrize(
    ("model", "variable", "place"),
    [
        ("openai/gpt-5-mini", "OPENAI_API_KEY", "/responses"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY", "/v1/messages"),
        ("litellm_proxy/openai/gpt-5-mini", "LITELLM_PROXY_API_BASE", "/responses"),
        ("mistral/mistral-large-latest", "MISTRAL_API_KEY", "/chat/completions"),
    ],
)
def test_without_a_key_it_says_what_it_would_send(
    model: str,
    variable: str,
    place: str,
    provider: FakeProvider,
    models: Callable[..., Told],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(variable, raising=False)
    code, told = models("check", model, "--json")
    assert code == 2
    said = json.loads(told)
    assert variable in said["problem"] and variable in said["missing"]
    assert [one["url"].endswith(place) for one in said["requests"]] == [True, True]
    first, second = (one["body"] for one in said["requests"])
    assert "check_word" in json.dumps(first["tools"])
    assert "task_complete" in json.dumps(second["tools"])
    assert "spelt correctly" in json.dumps(second) and "spelt correctly" not in json.dumps(first)
    assert provider.requests == []
    code, told = models("check", model)
    assert code == 2 and f"{variable} is not set" in told and "nothing was sent" in told
    assert "--- request 2 ---" in told


def test_nothing_is_sent_if_that_is_asked_for(
    provider: FakeProvider, models: Callable[..., Told]
) -> None:
    code, told = models("check", "openai/gpt-5-mini", "--dry-run", "--json")
    assert code == 0 and provider.requests == []
    said = json.loads(told)
    assert (said["ok"], said["problem"], len(said["requests"])) == (True, None, 2)


SWARMS = [
    {
        "name": "shop",
        "version": "1.0.0",
        "entrypoint": "boss",
        "agents": [
            {
                "name": "boss",
                "factory": "python::mail.factories:LiteLLMSupervisorFunction",
                "comm_targets": ["clerk"],
                "enable_entrypoint": True,
                "can_complete_tasks": True,
                "agent_params": {
                    "llm": "anthropic/claude-sonnet-4-5",
                    "system": "You run the shop.",
                    "use_proxy": False,
                    "reasoning_effort": "high",
                },
            },
            {
                "name": "clerk",
                "factory": "python::mail.factories:LiteLLMAgentFunction",
                "comm_targets": ["boss"],
                "agent_params": {
                    "llm": "scripted/mail.examples.scripts:MATH",
                    "system": "You count.",
                    "use_proxy": False,
                },
            },
        ],
        "actions": [],
    }
]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "swarms.json").write_text(json.dumps(SWARMS))
    (tmp_path / "mail.toml").write_text('[server.swarm]\nname = "shop"\n')
    return tmp_path


def test_an_agent_is_checked_with_its_model_tools_and_settings(
    shop: Path, provider: FakeProvider, models: Callable[..., Told]
) -> None:
    code, told = models("check", "--agent", "boss")
    assert code == 0, told
    assert told.startswith("anthropic/claude-sonnet-4-5, as boss of shop (swarms.json) asks it")
    first = provider.requests[0]
    assert first.wire == "anthropic" and "You run the shop." in first.system
    assert {"send_request", "task_complete", "check_word"} <= set(first.tool_names)
    assert first.body["thinking"]["type"] == "enabled"


def test_an_agent_that_cannot_end_tasks_is_checked_with_another_model(
    shop: Path, provider: FakeProvider, models: Callable[..., Told]
) -> None:
    provider.script = [otherwise(call("check_word", word="apple"))]
    words = ("check", "openai/gpt-5-mini", "--agent", "clerk", "--swarm", "swarms.json", "--json")
    code, told = models(*words)
    assert code == 0, told
    parts = found(told)
    assert parts["forced call"][1].startswith("called check_word")
    assert json.loads(told)["agent"] == "clerk"
    assert "You count." in provider.requests[0].system


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--agent", "clerk"], "asks no provider's model"),
        (["--agent", "bos"], "Did you mean"),
        (["--agent", "boss", "--swarm", "shops"], "not found"),
        (["--agent", "boss", "--swarm", "nowhere.json/shop"], "not found"),
        (["--agent", "boss", "--effort", "low"], "without --agent"),
        (["openai/gpt-5-mini", "--effort", "utmost"], "reasoning_effort"),
        (["scripted/a:b"], "is a script"),
        (["nobody/knows"], "no such provider"),
        ([], "name a model"),
    ],
)
def test_what_cannot_be_checked(
    words: list[str], said: str, shop: Path, provider: FakeProvider, models: Callable[..., Told]
) -> None:
    code, told = models("check", *words)
    assert code == 2
    assert said in told and len(told.strip().splitlines()) == 1
    assert provider.requests == []


def test_the_table_and_a_profile(models: Callable[..., Told]) -> None:
    code, told = models()
    assert code == 0, told
    assert told.startswith("ROW") and "\nmistral " in told
    code, told = models("list", "--json")
    assert code == 0 and {"id", "models", "fields"} <= set(json.loads(told)[0])
    assert json.loads(models("--json", "list")[1]) == json.loads(told)
    code, told = models("show", "mistral/mistral-large-latest")
    assert code == 0 and "chat, mistral" in told
    code, told = models("show", "mistral/mistral-large-latest", "--json")
    assert json.loads(told)["bridge"] and json.loads(told)["row"] == "chat, mistral"


@pytest.mark.parametrize("model", ["nosuch/model", "gpt-99"])
def test_a_model_of_no_provider_has_no_profile(model: str, models: Callable[..., Told]) -> None:
    code, told = models("show", model)
    assert (code, told.count("\n")) == (2, 1)
    assert f"model '{model}'" in told and "write provider/model" in told


def test_the_time_is_limited(provider: FakeProvider, models: Callable[..., Told]) -> None:
    provider.faults.append(Fault(silence=30.0))
    code, told = models("check", "openai/gpt-5-mini", "--timeout", "0.3")
    assert code == 1 and "no answer within 0.3 s" in told


def test_help_loads_no_library() -> None:
    code = (
        "import sys\nfrom mail.cli.commands import main\nmain(['models', 'check', '--help'])\n"
        "heavy = ('litellm', 'httpx', 'pydantic', 'openai')\n"
        "sys.exit(any(name in sys.modules for name in heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_was_adapted_comes_with_a_remedy(
    provider: FakeProvider, models: Callable[..., Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.root_of('deepseek')}/v1")
    code, told = models("check", "openai/our-own-model")
    assert code == 0, told
    assert 'adapted  forced end  HTTP 400, "Failed to deserialize' in told
    assert "went through with other messages" in told
    assert (
        "adapted  remedy      to spare the refusal, set "
        '[models."openai/our-own-model"] null_content = false in mail.toml'
    ) in told


def test_what_mail_toml_says_of_a_model_counts(
    provider: FakeProvider,
    models: Callable[..., Told],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.root_of('deepseek')}/v1")
    other = tmp_path / "other.toml"
    other.write_text('[models."openai/another-model"]\nnull_content = false\n')
    code, told = models("check", "openai/another-model", "-c", str(other))
    assert code == 0, told
    assert "remedy" not in told and "HTTP 400" not in told
    assert "row chat of" in told and "set by you: null_content" in told
