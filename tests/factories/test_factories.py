"""Agent functions: what they offer to the model, what they return, what they leave alone."""

import copy
import inspect
import re
import warnings
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import pytest
from pydantic import BaseModel

from mail.core.agents import AgentOutput, ToolChoice
from mail.core.call_context import CallContext, ConsoleSink, NullSink, StreamSink, enter_call
from mail.core.render import PRIMER
from mail.core.tools.call import AgentToolCall
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.errors import ConfigError
from mail.factories import (
    ActionAgentFunction,
    LiteLLMActionAgentFunction,
    LiteLLMAgentFunction,
    LiteLLMSupervisorFunction,
    MAILAgentFunction,
    SupervisorFunction,
    action_agent_factory,
    base_agent_factory,
    supervisor_factory,
)
from mail.llm.request import CallPiece, Delta, ModelRequest
from mail.services.preferences import Memories
from mail.testing import FakeClock
from tests.support.provider import problems_of

LOOK_UP = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
MAIL_TOOLS = [
    "send_request",
    "send_response",
    "acknowledge_broadcast",
    "ignore_broadcast",
    "await_message",
    "help",
    "search_memory",
]
USER = {"role": "user", "content": "hi"}
FORCED = {"type": "function", "name": "task_complete"}


class Spy:
    """A model that keeps the requests and replies with text."""

    def __init__(self, *deltas: Delta) -> None:
        self.requests: list[ModelRequest] = []
        self._deltas = deltas or (Delta(text="Hello."),)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        for delta in self._deltas:
            yield delta


async def test_memories_of_the_caller_take_their_places_in_the_prompt() -> None:
    store, owner = MemoryStore(), ("office", "user", "alice")
    await Memories(store, Owner(*owner), FakeClock()).write("style", "Be brief.")
    spy = Spy()
    agent = plain(spy, system="A {memory:style} {memory:dates} {memory:none}")
    enter_call(CallContext(owner=owner, store=store, memories={"style": "x", "dates": "Noon."}))
    await agent([USER])
    enter_call(CallContext(owner=("office", "user", "bob"), store=store, memories={"style": "x"}))
    await agent([USER])
    enter_call(CallContext(memories={"style": "y"}))
    await agent([USER])

    def shown(**texts: str) -> str:
        parts = [f'<memory name="{name}">\n{text}\n</memory>' for name, text in texts.items()]
        return f"A {' '.join(parts)}\n\n{PRIMER}"

    assert [request.system for request in spy.requests] == [
        shown(style="Be brief.", dates="Noon.", none=""),
        shown(style="x", dates="", none=""),
        shown(style="y", dates="", none=""),
    ]


def plain(spy: Spy | None = None, **changes: Any) -> LiteLLMAgentFunction:
    values: dict[str, Any] = {
        "name": "worker",
        "comm_targets": ["supervisor"],
        "tools": [LOOK_UP],
        "llm": "openai/fake",
        "use_proxy": False,
        "model": spy or Spy(),
    }
    return LiteLLMAgentFunction(**(values | changes))


def names(specs: Any) -> list[str]:
    return [spec["function"]["name"] for spec in specs]


def test_an_agent_is_offered_the_mail_tools_and_its_own() -> None:
    agent = plain()
    assert names(agent.tool_specs) == [*MAIL_TOOLS, "look_up"]
    assert problems_of({"model": "m", "messages": [USER], "tools": list(agent.tool_specs)}) == []


def test_excluded_tools_and_an_agent_without_targets_get_none() -> None:
    agent = plain(exclude_tools=["help", "search_memory"])
    assert names(agent.tool_specs) == [*MAIL_TOOLS[:-2], "look_up"]
    assert names(plain(comm_targets=[]).tool_specs) == ["look_up"]
    assert names(plain(_debug_include_mail_tools=False).tool_specs) == ["look_up"]


def test_an_agent_without_targets_can_answer_other_swarms() -> None:
    agent = plain(comm_targets=[], enable_interswarm=True)
    assert names(agent.tool_specs) == [*MAIL_TOOLS, "look_up"]
    [answer] = [tool for tool in agent.tool_specs if tool["function"]["name"] == "send_response"]
    target = answer["function"]["parameters"]["properties"]["target"]
    assert "enum" not in target and "agent-name@swarm-name" in target["description"]


@pytest.mark.parametrize("style", ["completions", "responses"])
def test_a_supervisor_is_offered_the_control_tools_too(style: Any) -> None:
    tools = [LOOK_UP]
    agents = [
        LiteLLMSupervisorFunction(
            "boss", ["worker"], tools, "openai/fake", tool_format=style, model=Spy()
        )
        for _ in range(2)
    ]
    for agent in agents:
        assert names(agent.supervisor_fn.tool_specs) == [
            *MAIL_TOOLS,
            "look_up",
            "send_interrupt",
            "send_broadcast",
            "task_complete",
        ]
    assert tools == [LOOK_UP]
    assert agents[0].can_complete_tasks


def test_a_solo_supervisor_can_only_complete_tasks() -> None:
    agent = LiteLLMSupervisorFunction("solo", [], [], "openai/fake", model=Spy())
    assert names(agent.supervisor_fn.tool_specs) == ["task_complete"]


def test_a_supervisor_can_always_complete_tasks() -> None:
    class Mine(SupervisorFunction):
        async def __call__(
            self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
        ) -> AgentOutput:
            return None, []

    agent = Mine("boss", ["worker"], [], can_complete_tasks=False, extra=1)
    assert agent.can_complete_tasks
    assert agent.kwargs == {"extra": 1}


def test_action_agents_take_declarations_and_pydantic_models_or_nothing() -> None:
    class Add(BaseModel):
        """Add two numbers."""

        a: int
        b: int

    agent = LiteLLMActionAgentFunction(
        "adder", ["boss"], [Add, LOOK_UP], "openai/fake", "Add.", model=Spy()
    )
    assert names(agent.action_agent_fn.tool_specs) == [*MAIL_TOOLS, "Add", "look_up"]
    empty = LiteLLMActionAgentFunction("idle", ["boss"], [], "openai/fake", "Idle.", model=Spy())
    assert names(empty.action_agent_fn.tool_specs) == MAIL_TOOLS


@pytest.mark.parametrize("tool", ["add", 3, {"type": "function"}])
def test_an_action_tool_that_is_no_declaration_is_refused(tool: Any) -> None:
    with pytest.raises(ConfigError, match="'adder'"):
        LiteLLMActionAgentFunction("adder", [], [tool], "openai/fake", "Add.", model=Spy())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"tool_format": "xml"}, "tool_format must be"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"thinking_budget": 5000, "max_tokens": 100}, "max_tokens"),
        ({"llm": "", "model": None}, "llm"),
        ({"llm": 42}, "llm must be a string, got int"),
        ({"system": 12}, "system must be a string, got int"),
        ({"user_token": None}, "user_token must be a string"),
        ({"use_proxy": "false"}, "use_proxy must be true or false, got the string 'false'"),
        ({"stream_tokens": "no"}, "stream_tokens must be true or false"),
        ({"print_llm_streams": 0}, "print_llm_streams must be true or false, got int"),
        ({"enable_interswarm": "false"}, "enable_interswarm must be true or false"),
        ({"max_tokens": "5000"}, "max_tokens must be a whole number"),
        ({"timeout": "30"}, "timeout must be a number of seconds"),
        ({"default_tool_choice": 5}, "default_tool_choice must be 'auto', 'required', 'none'"),
        ({"default_tool_choice": "sometimes"}, "got the string 'sometimes'"),
        ({"model": "openai/gpt-5"}, "pass the name of a model as llm"),
        ({"comm_targets": "boss"}, "comm_targets must be a list of names, got the string 'boss'"),
        ({"comm_targets": [1]}, "comm_targets must be a list of names, got int in it"),
        ({"exclude_tools": "send_response"}, "exclude_tools must be a list of names"),
        ({"tools": [5]}, "tools must be a list of declarations, got int in it"),
        ({"tools": "x"}, "tools must be a list of declarations"),
        ({"llm": "scripted/no.such:THING", "model": None}, "does not name a script"),
    ],
)
def test_wrong_settings_are_told_when_the_agent_is_made(values: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^agent 'worker': .*{re.escape(text)}"):
        plain(**values)


MODEL_CLASSES = [LiteLLMAgentFunction, LiteLLMActionAgentFunction, LiteLLMSupervisorFunction]


@pytest.mark.parametrize("kind", MODEL_CLASSES)
def test_unknown_and_missing_parameters_are_named(kind: Any) -> None:
    values: dict[str, Any] = {"name": "a", "comm_targets": [], "tools": [], "system": "s"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'lmm'"):
        kind(**values, llm="openai/fake", model=Spy(), lmm="openai/fake")
    with pytest.raises(TypeError, match=r"missing .* argument: 'llm'"):
        kind(**values, model=Spy())


@pytest.mark.parametrize("kind", MODEL_CLASSES)
def test_positions_are_those_of_the_signature(kind: Any) -> None:
    parameters = inspect.signature(kind).parameters.values()
    values: dict[str, Any] = {"tool_format": "completions", "max_tokens": 90}
    flags = [one.name for one in parameters if isinstance(one.default, bool)]
    for chosen in flags:
        given = {**dict.fromkeys(flags, False), **values, chosen: True}
        given |= {"name": "a", "comm_targets": ["b"], "tools": [], "llm": "openai/fake"}
        ordered = [
            given.get(one.name, None if one.default is None else "")
            for one in parameters
            if one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        agent = kind(*ordered, model=Spy())
        for name in set(flags) - {"can_complete_tasks", "_debug_include_mail_tools"}:
            assert getattr(agent, name) is (name == chosen), name
        assert agent.can_complete_tasks is (
            kind is LiteLLMSupervisorFunction or chosen == "can_complete_tasks"
        )
        offered = names(agent.tool_specs)
        assert ("send_request" in offered) is (chosen == "_debug_include_mail_tools")


def test_the_classes_that_ask_a_model_share_their_parameters() -> None:
    plain_names, *others = (set(inspect.signature(kind).parameters) for kind in MODEL_CLASSES)
    assert others == [plain_names, plain_names]


async def test_the_history_is_not_touched_and_the_system_prompt_travels_apart() -> None:
    spy = Spy()
    history: list[dict[str, Any]] = [USER]
    before = copy.deepcopy(history)
    text, (call,) = await plain(spy, system="Be kind.")(history, "required")
    assert history == before
    assert spy.requests[0].system == f"Be kind.\n\n{PRIMER}"
    assert spy.requests[0].messages == before
    assert text == "Hello."
    assert (call.tool_name, call.tool_args) == ("text_output", {"content": "Hello."})
    assert call.completion == {"role": "assistant", "content": "Hello."}


async def test_the_declarations_are_the_same_objects_in_every_call() -> None:
    spy = Spy()
    agent = plain(spy)
    for _ in range(2):
        await agent([USER])
    assert spy.requests[0].tools is spy.requests[1].tools


@pytest.mark.parametrize(
    ("default", "asked", "sent"),
    [
        (None, "required", "required"),
        (None, "auto", "auto"),
        ("auto", "required", "auto"),
        ("auto", FORCED, FORCED),
        (None, FORCED, FORCED),
    ],
)
async def test_the_default_tool_choice_never_overrides_a_forced_one(
    default: Any, asked: Any, sent: Any
) -> None:
    spy = Spy()
    await plain(spy, default_tool_choice=default)([USER], asked)
    assert spy.requests[0].tool_choice == sent


@pytest.mark.parametrize("kind", ["plain", "action", "supervisor"])
async def test_every_agent_sends_the_callers_token(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", "http://127.0.0.1:1/v1")
    spy = Spy()
    agent: MAILAgentFunction
    values: dict[str, Any] = {"llm": "openai/fake", "user_token": "token-1", "model": spy}
    if kind == "plain":
        agent = LiteLLMAgentFunction("a", ["b"], [], **values)
    elif kind == "action":
        agent = LiteLLMActionAgentFunction("a", ["b"], [], system="s", **values)
    else:
        agent = LiteLLMSupervisorFunction("a", ["b"], [], **values)
    await agent([USER])
    assert (spy.requests[0].user_token, spy.requests[0].use_proxy) == ("token-1", True)
    assert "token-1" not in repr(spy.requests[0])


async def test_a_call_may_override_model_and_prompt() -> None:
    spy = Spy()
    agent = plain(spy, system="Be kind.")
    enter_call(CallContext(step="s1", llm=f"scripted/{__name__}:OTHER", system="Be blunt."))
    text, _ = await agent([USER])
    assert text == "No. (Be blunt.)"
    assert spy.requests == []
    enter_call(CallContext(step="s2"))
    await agent([USER])
    assert (spy.requests[0].model, spy.requests[0].step) == ("openai/fake", "s2")


def OTHER(view: Any) -> str:
    return f"No. ({view.system})"


class Composite:
    """A sink of two parts, as the runtime's."""

    def __init__(self, console: StreamSink) -> None:
        self.heard: list[str] = []
        self._console = console

    def text(self, delta: str) -> None:
        self.heard.append(delta)
        self._console.text(delta)

    def reasoning(self, delta: str) -> None:
        self._console.reasoning(delta)

    def restart(self) -> None:
        self.heard.clear()

    def without_console(self) -> StreamSink:
        quiet = Composite(NullSink())
        quiet.heard = self.heard
        return quiet


@pytest.mark.parametrize(
    ("stream_tokens", "print_llm_streams", "printed"),
    [(True, True, "Hello."), (True, False, ""), (False, True, ""), (False, False, "")],
)
@pytest.mark.parametrize("composite", [True, False])
async def test_replies_are_printed_only_if_the_agent_wants_it(
    stream_tokens: bool,
    print_llm_streams: bool,
    printed: str,
    composite: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink: Any = Composite(ConsoleSink()) if composite else ConsoleSink()
    enter_call(CallContext(sink=sink))
    agent = plain(stream_tokens=stream_tokens, print_llm_streams=print_llm_streams)
    await agent([USER])
    assert capsys.readouterr().out == printed
    assert not composite or sink.heard == ["Hello."]


@pytest.mark.parametrize(("stream_tokens", "printed"), [(True, "Hello."), (False, "")])
async def test_an_agent_called_by_hand_streams_to_the_terminal_if_it_streams(
    stream_tokens: bool, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await plain(stream_tokens=stream_tokens, print_llm_streams=True)([USER])
    assert capsys.readouterr().out == printed


async def test_all_calls_of_a_reply_share_the_assistant_message() -> None:
    spy = Spy(Delta(calls=(CallPiece(0, "a", "f", "{}"), CallPiece(1, "b", "g", '{"x": 1}'))))
    text, calls = await plain(spy)([USER])
    assert text is None
    assert [(c.tool_name, c.tool_args, c.tool_call_id) for c in calls] == [
        ("f", {}, "a"),
        ("g", {"x": 1}, "b"),
    ]
    assert calls[0].completion == calls[1].completion
    assert [c["id"] for c in calls[0].completion["tool_calls"]] == ["a", "b"]


async def test_a_subclass_may_delegate_as_documented() -> None:
    class Analyst(LiteLLMAgentFunction):
        def __call__(
            self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
        ) -> Awaitable[tuple[str | None, list[AgentToolCall]]]:
            return super().__call__(messages, tool_choice)

    agent = Analyst(name="analyst", comm_targets=[], tools=[], llm="openai/fake", model=Spy())
    assert (await agent(messages=[USER], tool_choice="auto"))[0] == "Hello."


def test_the_bases_are_abstract() -> None:
    for base in (MAILAgentFunction, ActionAgentFunction, SupervisorFunction):
        with pytest.raises(TypeError, match="abstract"):
            base("a", [], [])


@pytest.mark.parametrize("factory", [base_agent_factory, action_agent_factory, supervisor_factory])
async def test_the_factory_functions_work_and_are_deprecated(factory: Any) -> None:
    spy = Spy()
    with pytest.warns(DeprecationWarning, match=f"{factory.__name__} is deprecated"):
        function = factory(
            comm_targets=["boss"],
            tools=[],
            user_token="token-1",
            llm="openai/fake",
            system="s",
            tool_format="completions",
            model=spy,
        )
    assert (await function([USER], "required"))[0] == "Hello."
    assert spy.requests[0].user_token == "token-1"
    agent = function._mail_agent
    assert agent.name in ("base_agent", "action", "supervisor")


def test_the_warning_points_to_the_caller() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        supervisor_factory([], [], "t", "openai/fake", "s", model=Spy())
    assert caught[0].filename == __file__
