"""Scripts that are none say so when the model is made."""

import re
from typing import Any

import pytest

from mail.core.call_context import NullSink
from mail.errors import ConfigError
from mail.llm import ScriptedModel, call, otherwise, say, think, when
from mail.llm.ask import collect
from mail.llm.request import ModelRequest
from mail.llm.resolve import model_for

UNFINISHED = [when(body="x")]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (None, "a script is a list of rules, or a function, got None"),
        (3, "a script is a list of rules, or a function, got 3"),
        ("hello", "a script is a list of rules, or a function, got str"),
        (otherwise(say("x")), "a list of rules, or a function, got Rule"),
        (call("help"), "a list of rules, or a function, got Call"),
        (when(body="x"), "when(…) without .then(…)"),
        ([when(body="x")], "rule 1 of the script is a when(…) without .then(…)"),
        ([otherwise("x"), say("y")], "rule 2 of the script is Say; a rule is when(…).then(…)"),
        ([otherwise(3)], "rule 1 of the script has 3 as a step; a step is call(…)"),
        ([otherwise(None)], "rule 1 of the script has None as a step"),
        ([otherwise(when(body="x"))], "rule 1 of the script has another rule as a step"),
        ([otherwise([say("x"), 3])], "rule 1 of the script has 3 as a step"),
    ],
)
def test_what_is_no_script_is_refused_at_once(script: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        ScriptedModel(script)


@pytest.mark.parametrize(
    "script",
    [
        [],
        (otherwise("x"),),
        lambda view: "x",
        [otherwise([think("a"), "b"])],
        [otherwise("x", lambda view: say("y"))],
    ],
)
def test_what_is_one_is_taken(script: Any) -> None:
    assert ScriptedModel(script) is not None


@pytest.mark.parametrize("field", ["subject", "body", "result", "system", "model"])
@pytest.mark.parametrize("pattern", ["(", "[a", 3])
def test_a_pattern_must_be_one(field: str, pattern: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{field} of when\(…\)"):
        when(**{field: pattern})


def test_names_are_no_patterns_and_types_of_senders_are_known() -> None:
    assert when(mail_from="(", tool_result="[", forced="(").then("x")
    with pytest.raises(ConfigError, match=r"not one of user, agent.* Did you mean 'user'"):
        when(sender_type="usr")


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (None, "'answer' of the script returned None in place of steps"),
        (3, "'answer' of the script returned int in place of steps"),
        ([3], "the script replies with 3; a step is"),
    ],
)
async def test_a_function_must_return_steps(reply: Any, text: str) -> None:
    def answer(view: Any) -> Any:
        return reply

    request = ModelRequest(model="scripted", messages=[{"role": "user", "content": "x"}])
    for script in (answer, [otherwise(answer)]):
        with pytest.raises(ConfigError, match=re.escape(text)):
            await collect(ScriptedModel(script).stream(request), NullSink())


def test_a_script_that_is_named_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"UNFINISHED': rule 1 of the script is a when"):
        model_for(f"scripted/{__name__}:UNFINISHED")
    with pytest.raises(ConfigError, match="Did you mean 'UNFINISHED'"):
        model_for(f"scripted/{__name__}:UNFINISHD")
