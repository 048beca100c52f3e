"""Actions: definition, the decorator, what models see, what a call does."""

import asyncio
import socket
import threading
import urllib.request
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field

from mail import MAILAction, action
from mail.core.runtime.tool_dispatch import check_action_arguments
from mail.core.tools.call import AgentToolCall
from mail.errors import ConfigError, ToolError

PLAIN: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}


class Point(BaseModel):
    x: int
    y: int = 0


class Shape(BaseModel):
    """A shape on a plane."""

    corners: list[Point] = Field(min_length=1)
    kind: str = Field(pattern="^[a-z]+$", description="What it is")


async def echo(args: dict[str, Any]) -> str:
    """Say it back."""
    return str(args)


def _call(name: str, **args: Any) -> AgentToolCall:
    return AgentToolCall(
        tool_name=name, tool_args=args, tool_call_id="c1", completion={"role": "assistant"}
    )


# --- definition ---------------------------------------------------------------------------------


def test_a_reference_is_imported() -> None:
    made = MAILAction("echo", "Echo.", PLAIN, f"python::{__name__}:echo")
    assert made.callback.__name__ == "echo"


@pytest.mark.parametrize("name", ["", "  ", "send_request", "help"])
def test_a_name_must_be_the_actions_own(name: str) -> None:
    with pytest.raises(ConfigError, match="action name"):
        MAILAction(name, "Echo.", PLAIN, echo)


def test_a_description_is_needed() -> None:
    with pytest.raises(ValueError, match="action description must be at least 1 character long"):
        MAILAction("echo", "", PLAIN, echo)


def test_name_and_description_are_text() -> None:
    with pytest.raises(ConfigError, match="action name must be a string, got int"):
        MAILAction(5, "Echo.", PLAIN, echo)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="action description must be a string, got NoneType"):
        MAILAction("echo", None, PLAIN, echo)  # type: ignore[arg-type]


def test_an_action_shares_its_schema_with_nobody() -> None:
    given = {"type": "object", "properties": {"x": {"type": "integer"}}}
    made = MAILAction("echo", "Echo.", given, echo)
    given["properties"]["x"] = {}  # type: ignore[index]
    made.to_tool_dict()["parameters"]["properties"].clear()
    assert made.to_tool_dict()["parameters"] == PLAIN


@pytest.mark.parametrize("function", [1, None, ["x"]])
def test_what_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="action function must be callable, got"):
        MAILAction("echo", "Echo.", PLAIN, function)


def test_a_reference_to_nothing_names_the_action() -> None:
    with pytest.raises(ConfigError, match="function of action 'echo' cannot be loaded"):
        MAILAction("echo", "Echo.", PLAIN, "no.such.module:thing")


def test_parameters_that_are_no_schema_are_found_before_the_first_call() -> None:
    made = MAILAction("echo", "Echo.", {"type": "thing"}, echo)
    for use in (made.to_core, made.to_tool_dict):
        with pytest.raises(ConfigError, match="parameters of action 'echo' are not a JSON Schema"):
            use()
    with pytest.raises(TypeError, match="action parameters must be a dict"):
        MAILAction("echo", "Echo.", [], echo)  # type: ignore[arg-type]


def test_an_entry_of_swarms_json_becomes_an_action() -> None:
    made = MAILAction.from_swarm_json(
        '{"name": "load", "description": "Load.", "parameters": {"type": "object"}, '
        '"function": "python::json:loads", "idempotent": true, "timeout": 2.5}'
    )
    assert (made.name, made.idempotent, made.timeout) == ("load", True, 2.5)
    assert made.to_core().idempotent
    with pytest.raises(ConfigError, match="action is not valid JSON"):
        MAILAction.from_swarm_json("{")
    with pytest.raises(ConfigError, match="field 'name' of action is missing"):
        MAILAction.from_swarm_json("{}")


# --- what models see ----------------------------------------------------------------------------


def test_the_schema_passes_through_untouched() -> None:
    schema = {
        "type": "object",
        "$defs": {"unit": {"enum": ["m", "km"]}},
        "properties": {
            "unit": {"$ref": "#/$defs/unit"},
            "_odd": {"type": ["string", "null"], "maxLength": 5},
            "model_config": {"type": "integer", "minimum": 1, "maximum": 9},
            "free": {"type": "object", "additionalProperties": True},
            "list": {"type": "array"},
        },
    }
    made = MAILAction("measure", "Measure.", schema, echo)
    assert made.to_tool_dict("responses") == {
        "type": "function",
        "name": "measure",
        "description": "Measure.",
        "parameters": schema,
        "strict": False,
    }
    assert made.to_tool_dict("completions")["function"]["parameters"] == schema


def test_a_nested_model_reaches_the_tool_in_full() -> None:
    made = MAILAction.from_pydantic_model(Shape, echo)
    parameters = made.to_tool_dict()["parameters"]
    assert parameters == Shape.model_json_schema()
    assert parameters["$defs"]["Point"]["properties"]["x"] == {"title": "X", "type": "integer"}


def test_no_parameters_are_an_empty_object() -> None:
    made = MAILAction("now", "Tell the time.", {}, echo)
    assert made.to_tool_dict()["parameters"] == {"type": "object", "properties": {}}


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="tool style must be"):
        MAILAction("echo", "Echo.", {}, echo).to_tool_dict("anthropic")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {}, "required": [], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
          "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"],
          "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"],
          "additionalProperties": False, "$defs": {"A": {"type": "integer", "enum": [1]}}}, True),
        ({"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
          "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "integer", "default": 1}},
          "required": ["a"], "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "string", "format": "uuid"}},
          "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {"type": "string", "format": "uri"}},
          "required": ["a"], "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"$ref": "https://x.example/a"}},
          "required": ["a"], "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, False),
        ({"type": "object", "properties": {"a": {"type": "string"}},
          "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"],
          "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"],
          "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"],
          "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "string", "optional": True}},
          "required": ["a"], "additionalProperties": False}, False),
        ({"anyOf": [{"type": "object"}]}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_strict_is_said_only_of_schemas_that_are(schema: dict[str, Any], strict: bool) -> None:
    made = MAILAction("a", "A.", schema, echo)
    assert made.to_tool_dict("completions")["function"]["strict"] is strict


# --- calls --------------------------------------------------------------------------------------


async def test_a_coroutine_function_gets_the_arguments() -> None:
    assert await MAILAction("echo", "Echo.", PLAIN, echo).function({"x": 1}) == "{'x': 1}"


async def test_a_plain_function_runs_in_a_thread() -> None:
    def where(args: dict[str, Any]) -> str:
        return threading.current_thread().name

    made = MAILAction("where", "Where.", PLAIN, where)
    assert await made.function({}) != threading.current_thread().name


async def test_a_blocking_function_leaves_the_loop_free() -> None:
    release = threading.Event()

    def block(args: dict[str, Any]) -> str:
        return str(release.wait(10))

    running = asyncio.create_task(MAILAction("block", "Block.", {}, block).function({}))
    await asyncio.sleep(0)
    release.set()
    assert await running == "True"


class _Callable:
    async def __call__(self, args: dict[str, Any]) -> str:
        return threading.current_thread().name


@pytest.mark.parametrize(
    "function",
    [
        partial(echo),
        lambda args: echo(args),
        _Callable(),
        MAILAction("inner", "Inner.", {}, echo),
    ],
)
async def test_callables_of_any_kind_are_awaited(function: Any) -> None:
    assert await MAILAction("any", "Any.", {}, function).function({}) in ("{}", "MainThread")


@pytest.mark.parametrize("result", [None, 1, {"content": "x"}, b"x"])
async def test_a_result_that_is_no_text_is_an_error(result: object) -> None:
    made = MAILAction("bad", "Bad.", {}, lambda args: result)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match=r"Action 'bad' returned \w+, expected str\."):
        await made.function({})


async def test_a_call_that_overruns_is_an_error() -> None:
    async def slow(args: dict[str, Any]) -> str:
        await asyncio.Event().wait()
        return "never"

    core = MAILAction("slow", "Slow.", {}, slow, timeout=0.01).to_core()
    status, result = await core.execute(_call("slow"))
    assert status == "error"
    assert "action 'slow' did not finish within 0.01 s" in result["content"]


async def test_a_timeout_of_the_functions_own_stays_its_own() -> None:
    async def fails(args: dict[str, Any]) -> str:
        raise TimeoutError("the server is slow")

    made = MAILAction("fails", "Fails.", {}, fails, timeout=60)
    with pytest.raises(TimeoutError, match="the server is slow"):
        await made.function({})


async def test_an_action_around_an_action_keeps_its_traits() -> None:
    inner = MAILAction("inner", "Inner.", {}, echo, idempotent=True, timeout=5)
    outer = MAILAction("outer", "Outer.", PLAIN, inner)
    assert (outer.idempotent, outer.timeout) == (True, 5)
    assert await outer.function({"x": 1}) == "{'x': 1}"


# --- pydantic models ----------------------------------------------------------------------------


async def test_from_pydantic_model_gives_the_function_a_dictionary() -> None:
    async def draw(board: list[Any], payload: dict[str, Any]) -> str:
        board.append(payload)
        return "drawn"

    board: list[Any] = []
    made = MAILAction.from_pydantic_model(
        model=Shape, function=partial(draw, board), name="draw_shape"
    )
    assert await made.function({"corners": [{"x": 1}], "kind": "dot"}) == "drawn"
    assert board == [{"corners": [{"x": 1, "y": 0}], "kind": "dot"}]
    assert made.parameters_model is Shape


async def test_arguments_that_do_not_fit_the_model_are_named() -> None:
    made = MAILAction.from_pydantic_model(Shape, echo)
    with pytest.raises(ToolError) as caught:
        await made.function({"corners": [{"x": "one"}]})
    text = str(caught.value)
    assert "invalid arguments for 'Shape'" in text
    assert "corners.0.x" in text
    assert "kind: is missing" in text


def test_a_schema_that_refers_elsewhere_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(urllib.request, "urlopen", connect)
    url = "http://127.0.0.1:1/point.json"
    for reference in (url, f"{url}#/$defs/point", "file:///etc/passwd", "#/$defs/nowhere"):
        schema = {"type": "object", "properties": {"at": {"$ref": reference}}}
        for value in ({}, None):
            with pytest.raises(ToolError, match="its schema refers to") as caught:
                check_action_arguments("draw", {"at": value}, schema)
            assert reference.partition("#")[2] in str(caught.value)
            assert "'draw' cannot be called" in str(caught.value)


def test_a_schema_may_refer_to_its_own_parts_and_to_the_drafts() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/point"},
            "shape": {"$ref": "http://json-schema.org/draft-07/schema#"},
        },
        "$defs": {"point": {"type": "integer"}},
    }
    check_action_arguments("draw", {"at": 1, "shape": {"type": "object"}}, schema)
    with pytest.raises(ToolError, match="at: 'x' is not of type"):
        check_action_arguments("draw", {"at": "x"}, schema)


def test_the_description_is_taken_from_what_there_is() -> None:
    async def undocumented(args: dict[str, Any]) -> str:
        return ""

    build = MAILAction.from_pydantic_model
    assert build(Shape, echo, description="Given.").description == "Given."
    assert build(Shape, echo).description == "A shape on a plane."
    assert build(Point, echo).description == "Say it back."
    assert build(Point, undocumented, name="set_point").description == "set point"
    assert build(Point, partial(undocumented)).name == "Point"


# --- the decorator ------------------------------------------------------------------------------


async def test_a_decorated_function_gets_the_model() -> None:
    @action(description="Add two numbers")
    async def add(args: Point) -> str:
        return str(args.x + args.y)

    assert isinstance(add, MAILAction)
    assert (add.name, add.parameters_model) == ("add", Point)
    assert await add.function({"x": 2, "y": 3}) == "5"


async def test_a_decorated_plain_function_with_parameters_gets_the_dictionary() -> None:
    @action(name="double", parameters=PLAIN, idempotent=True, timeout=3)
    def doubled(args: dict[str, Any]) -> str:
        """Double a number."""
        return str(2 * args["x"])

    assert (doubled.name, doubled.description) == ("double", "Double a number.")
    assert (doubled.idempotent, doubled.timeout) == (True, 3)
    assert await doubled.function({"x": 2}) == "4"


def test_empty_parameters_are_parameters() -> None:
    @action(description="Tell the time.", parameters={})
    async def now(args: dict[str, Any]) -> str:
        return "now"

    assert now.parameters == {}


def test_a_model_may_be_given_beside_the_annotation() -> None:
    @action(description="Add.", model=Point)
    async def add(args) -> str:  # type: ignore[no-untyped-def]
        return str(args.x)

    assert add.parameters_model is Point


async def _two(a: Point, b: int) -> str:
    return ""


async def _none() -> str:
    return ""


async def _untyped(args: dict[str, Any]) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "options", "error", "text"),
    [
        (_two, {}, TypeError, "must accept exactly one argument"),
        (_none, {}, TypeError, "must accept exactly one argument"),
        (_untyped, {}, ValueError, "must provide either a model= or parameters="),
        (
            _untyped,
            {"model": Point, "parameters": PLAIN},
            ValueError,
            "cannot specify both model= and parameters=",
        ),
        (_untyped, {"parameters": {}, "description": ""}, ValueError, "is missing a description"),
    ],
)
def test_a_wrong_definition_says_what_to_change(
    function: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        action(**{"description": "Given.", **options})(function)


@pytest.mark.parametrize("model", [dict, Point(x=1), "Point"])
def test_a_model_must_be_a_pydantic_model(model: Any) -> None:
    with pytest.raises(TypeError, match="model must be a subclass of BaseModel"):
        action(model=model)
    with pytest.raises(ValueError, match="style must be"):
        action(style="x")  # type: ignore[arg-type]
