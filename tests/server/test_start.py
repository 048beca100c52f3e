"""A start that cannot succeed says why, at once; one that can leaves nothing to callers."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.config.server import ServerConfig, SwarmConfig
from mail.db.memory import MemoryStore
from mail.errors import ConfigError
from mail.examples.mafia import Game
from mail.factories import LiteLLMAgentFunction
from mail.llm.litellm_model import close_clients
from mail.llm.script import call, otherwise
from mail.server.app import create_app
from mail.server.run import run_server
from mail.server.swarm import SwarmBuilder
from tests.server.kit import Script, Template, bearer, config, serving
from tests.support.provider import FakeProvider

SHIPPED = Path(__file__).parents[2] / "swarms.json"

Change = Callable[[dict[str, Any]], object]


def write_swarm(folder: Path, change: Change) -> ServerConfig:
    """Write the shipped swarm with a change, and return settings that name it."""
    (swarm, *_) = json.loads(SHIPPED.read_text(encoding="utf-8"))
    change(swarm)
    path = folder / "changed.json"
    path.write_text(json.dumps([swarm]), encoding="utf-8")
    chosen = SwarmConfig(name=swarm["name"], source=str(path))
    return config().model_copy(update={"swarm": chosen})


def broken(**_: Any) -> None:
    """Build no agent."""
    raise KeyError("api base\nurl")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s["agents"][1].update(factory="python::mail.nowhere:X"), "factory of agent"),
        (lambda s: s["agents"][1].update(factory=f"{__name__}:broken"), "KeyError: 'api base"),
        (lambda s: s["agents"][1]["agent_params"].update(llm="scripted/no:X"), "not name a script"),
        (lambda s: s["agents"][1]["agent_params"].update(nonsense=1), "nonsense"),
        (lambda s: s.update(breakpoint_tools=["get_wether"]), "breakpoint tool 'get_wether'"),
        (lambda s: s["action_imports"].append(f"{__name__}:broken"), "not resolve to a MAILAction"),
    ],
)
def test_a_swarm_that_cannot_be_built_is_told_to_whoever_runs_the_server(
    tmp_path: Path, change: Change, reason: str
) -> None:
    settings = write_swarm(tmp_path, change)
    with pytest.raises(ConfigError, match=reason):
        run_server(settings, store=MemoryStore())


def test_a_missing_swarms_file_that_was_named_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = config().model_copy(update={"swarm": SwarmConfig(source="mine.json")})
    with pytest.raises(ConfigError, match=r"^SwarmConfig: 'source': .*'mine.json' not found"):
        run_server(named, store=MemoryStore())


async def test_without_a_swarms_file_the_packaged_example_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "mail.server")
    chosen = config().model_copy(update={"swarm": SwarmConfig(name="support")})
    async with serving(create_app(chosen, store=MemoryStore())) as client:
        assert (await client.get("/")).json()["swarm"]["name"] == "support"
    said = [line for line in caplog.messages if "packaged" in line]
    assert said == ["no swarms.json here: serving the packaged example, 'support'"]


QUESTION = {"body": "What will the weather be in Paris tomorrow, and what is 17 * 23?"}


async def ask_example(store: MemoryStore) -> str:
    """Serve the packaged example, and return what its swarm answers."""
    chosen = config().model_copy(update={"swarm": SwarmConfig()})
    async with serving(create_app(chosen, store=store)) as client:
        answer = await client.post("/message", json=QUESTION, headers=bearer("alice"))
    return str(answer.json()["response"])


@pytest.fixture
async def provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[FakeProvider]:
    """A provider whose key is known, in a folder without a swarms file."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "mail.server")
    finish = [otherwise(call("task_complete", finish_message="A model said so."))]
    async with FakeProvider(finish) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        yield running
        await close_clients()


async def test_mail_llm_turns_the_example_into_a_real_swarm(
    provider: FakeProvider,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MAIL_LLM", "openai/gpt-5-mini")
    assert await ask_example(store) == "A model said so."
    assert [seen.status for seen in provider.requests] == [200]
    said = "MAIL_LLM: the agents of 'example-no-proxy' ask openai/gpt-5-mini"
    assert caplog.messages.count(said) == 1


async def test_a_key_alone_spends_nothing_and_one_line_says_how_it_would(
    provider: FakeProvider, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    assert "17 * 23 = 391." in await ask_example(store)
    assert provider.requests == []
    [said] = [line for line in caplog.messages if "OPENAI_API_KEY" in line]
    assert said.endswith("; start with MAIL_LLM=openai/gpt-5-mini to let that model play them")
    assert "sk-test" not in caplog.text


async def test_the_agents_of_a_swarm_of_ones_own_keep_their_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAIL_LLM", "openai/gpt-5-mini")
    own = MAILAgentTemplate.from_example("math", [], llm="scripted/my_own:SCRIPT")
    shipped = MAILAgentTemplate.from_example("math", [])
    assert own.agent_params["llm"] == "scripted/my_own:SCRIPT"
    assert shipped.agent_params["llm"] == "openai/gpt-5-mini"
    async with Game.create(4) as game:
        assert {player.llm for player in game.players} == {"openai/gpt-5-mini"}


async def test_a_swarm_that_the_packaged_example_lacks_is_told_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = config().model_copy(update={"swarm": SwarmConfig(name="suport")})
    with pytest.raises(ConfigError, match=r"there is no swarms\.json in .* mean 'support'"):
        await SwarmBuilder(config=chosen, store=MemoryStore()).open()


async def test_the_agents_are_tried_without_being_started(
    store: MemoryStore, template: Template
) -> None:
    made: list[str] = []
    make = template.instantiate

    def instantiate(*args: Any, **more: Any) -> Any:
        made.append(args[1])
        return make(*args, **more)

    template.instantiate = instantiate  # type: ignore[method-assign]
    async with serving(create_app(config(), template=template, store=store)):  # type: ignore[arg-type]
        assert made == ["nobody"]
        assert template.started == []


@pytest.mark.parametrize(
    ("said", "configured", "proxied"),
    [(True, False, True), (False, True, False), (None, True, True), (None, False, False)],
)
async def test_agents_use_a_proxy_in_the_callers_name_if_one_is_configured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: bool | None,
    configured: bool,
    proxied: bool,
) -> None:
    if configured:
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", "http://127.0.0.1:1/v1")

    def change(swarm: dict[str, Any]) -> None:
        for agent in swarm["agents"]:
            agent["agent_params"].pop("use_proxy", None)
            agent["agent_params"].update({} if said is None else {"use_proxy": said})
        swarm["agents"][0]["agent_params"]["llm"] = "openai/gpt-5-mini"

    served = await SwarmBuilder(config=write_swarm(tmp_path, change), store=MemoryStore()).open()
    assert served.needs_token is proxied
    assert [use.agent for use in served.uses] == ["supervisor"]


async def test_others_are_served_while_a_large_swarm_is_made_for_a_caller(
    store: MemoryStore, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.server.swarm._SLICE_SECONDS", 0.0)
    served_at: list[
        int
    ] = []  # for each agent that was made, how many requests of bob's were served
    answers: list[int] = []

    def factory(**_: Any) -> Script:
        served_at.append(len(answers))
        return script

    agents = [
        MAILAgentTemplate(
            name=f"agent-{number}",
            factory=factory,
            comm_targets=["agent-0"],
            actions=[],
            agent_params={},
            enable_entrypoint=number == 0,
            can_complete_tasks=number == 0,
        )
        for number in range(400)
    ]
    large = MAILSwarmTemplate("large", "1.0", agents, [], "agent-0")
    app = create_app(config(), template=large, store=store)
    async with serving(app) as client:
        served_at.clear()  # the server has tried the agents
        body, headers = {"body": "Hello"}, bearer("alice")
        posted = asyncio.create_task(client.post("/message", json=body, headers=headers))
        while not posted.done():
            answer = await client.get("/whoami", headers=bearer("bob"))
            answers.append(answer.status_code)
        assert (await posted).status_code == 200
    assert set(answers) == {200}
    assert len(served_at) == 400
    assert served_at[-1] - served_at[0] >= 3


async def test_a_scripted_model_needs_nobodys_name(tmp_path: Path) -> None:
    def change(swarm: dict[str, Any]) -> None:
        for agent in swarm["agents"]:
            agent["agent_params"]["use_proxy"] = True

    served = await SwarmBuilder(config=write_swarm(tmp_path, change), store=MemoryStore()).open()
    assert (served.needs_token, served.uses) == (False, ())


async def test_a_template_is_loaded_beside_the_event_loop(tmp_path: Path) -> None:
    async def prompt(request: web.Request) -> web.StreamResponse:
        return web.json_response("You lead.")

    runner = web.AppRunner(web.Application())
    runner.app.router.add_get("/prompt", prompt)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]

    def change(swarm: dict[str, Any]) -> None:
        swarm["agents"][0]["agent_params"]["system"] = f"url::http://127.0.0.1:{port}/prompt"

    app = create_app(write_swarm(tmp_path, change), store=MemoryStore())
    try:
        async with asyncio.timeout(20), serving(app):  # this loop itself serves the document
            agent = app.state.mail.template.agents[0]
            assert agent.agent_params["system"] == '"You lead."'
    finally:
        await runner.cleanup()


async def test_before_the_start_there_is_no_swarm_to_ask_for(
    store: MemoryStore, template: Template
) -> None:
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="not open yet"):
        _ = app.state.mail.pool


@pytest.mark.parametrize(
    ("durable", "hint"), [(True, "mail token create"), (False, "cannot create any")]
)
async def test_a_store_without_tokens_gets_a_hint_that_can_be_followed(
    template: Template, durable: bool, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Empty(MemoryStore):
        @property
        def durable(self) -> bool:
            return durable

    async with serving(create_app(config(), template=template, store=Empty())):  # type: ignore[arg-type]
        assert hint in caplog.text
        assert ("token create" in caplog.text) == durable


async def test_connections_to_providers_are_closed_with_the_server(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with FakeProvider() as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        agent = LiteLLMAgentFunction("a", ["b"], [], "openai/fake", use_proxy=False)
        for _ in range(2):  # a second server in the same process makes connections of its own
            async with serving(app):
                await agent([{"role": "user", "content": "Hello"}])
                cache = sys.modules["litellm"].in_memory_llm_clients_cache
                clients = list(cache.cache_dict.values())
                assert clients
            assert all(client.is_closed() for client in clients if hasattr(client, "is_closed"))
            assert not cache.cache_dict
            app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]


LIGHT = """
import asyncio, sys
from mail.server.app import create_app
from tests.server.kit import Template, config
from mail.db.memory import MemoryStore

async def main():
    app = create_app(config(), template=Template(), store=MemoryStore())
    async with app.router.lifespan_context(app):
        pass

asyncio.run(main())
assert "litellm" not in sys.modules
"""


SPARE = """
import gc
from mail.server.run import SpareMemory, _resident

class Request:
    def __init__(self):
        self.body, self.itself = bytearray(100_000), self

gc.disable()
spare, before = SpareMemory(), _resident()
kept = [Request() for _ in range(1_000)]
assert _resident() > before + 60e6
del kept
assert _resident() > before + 60e6
spare._worked -= 100
assert not spare.look()
assert _resident() > before + 60e6
spare._worked += 100
assert spare.look()
assert _resident() < before + 20e6
assert not spare.look()
"""


def _run(program: str) -> None:
    root = str(Path(__file__).parents[2])
    paths = ":".join([root, f"{root}/src", *sys.path])
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": paths})


def test_a_server_whose_agents_ask_no_provider_never_loads_litellm() -> None:
    _run(LIGHT)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is given back on Linux")
def test_what_large_requests_took_is_given_back_when_there_is_little_to_do() -> None:
    _run(SPARE)
