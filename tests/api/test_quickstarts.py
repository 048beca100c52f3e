"""Whole programs as a newcomer writes them, each in an interpreter of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SOLO = """
import asyncio
from mail import MAILAgentTemplate, MAILSwarmTemplate
from mail.factories import LiteLLMSupervisorFunction

supervisor = MAILAgentTemplate(
    name="supervisor",
    factory=LiteLLMSupervisorFunction,
    comm_targets=[],
    actions=[],
    agent_params={
        "llm": "scripted/mail.examples.scripts:SUPERVISOR",
        "system": "You are a helpful assistant.",
        "use_proxy": False,
    },
    enable_entrypoint=True,
    can_complete_tasks=True,
    tool_format="completions",
)
template = MAILSwarmTemplate(
    name="my_swarm", version="1.0.0", agents=[supervisor], actions=[], entrypoint="supervisor"
)

async def main():
    swarm = template.instantiate(instance_params={"user_token": "dummy"}, user_id="local_user")
    response, _events = await swarm.post_message_and_run(body="Hello!", subject="Greeting")
    print(response["message"]["body"])

asyncio.run(main())
"""

TEAM = """
import asyncio
from pydantic import BaseModel, Field
from mail import MAILAgentTemplate, MAILSwarmTemplate, action
from mail.factories import LiteLLMActionAgentFunction, LiteLLMSupervisorFunction
from mail.llm import call, when

class AddArgs(BaseModel):
    a: int = Field(description="First number")
    b: int = Field(description="Second number")

@action(name="add", description="Add two numbers")
async def add(args: AddArgs) -> str:
    return str(args.a + args.b)

BOSS = [
    when(sender_type="user").then(
        call("send_request", target="worker", subject="Sum", body="2 and 3")
    ),
    when(mail_from="worker").then(lambda v: call("task_complete", finish_message=v.body)),
]
WORKER = [
    when(mail_from="boss").then(call("add", a=2, b=3)),
    when(tool_result="add").then(
        lambda v: call("send_response", target="boss", subject="Sum", body=v.result_of("add"))
    ),
]

async def main():
    template = MAILSwarmTemplate(
        name="team",
        version="1.0.0",
        agents=[
            MAILAgentTemplate(
                name="boss",
                factory=LiteLLMSupervisorFunction,
                comm_targets=["worker"],
                actions=[],
                agent_params={"llm": "scripted/__main__:BOSS"},
                enable_entrypoint=True,
                can_complete_tasks=True,
                tool_format="completions",
            ),
            MAILAgentTemplate(
                name="worker",
                factory=LiteLLMActionAgentFunction,
                comm_targets=["boss"],
                actions=[add],
                agent_params={"llm": "scripted/__main__:WORKER", "system": "Add."},
                tool_format="completions",
            ),
        ],
        actions=[add],
        entrypoint="boss",
    )
    swarm = template.instantiate({"user_token": "dummy"}, "user_123", print_llm_streams=False)
    runtime_task = asyncio.create_task(swarm.run_continuous())
    response, events = await swarm.post_message(body="Add!", show_events=True)
    print(response["message"]["body"], [event.event for event in events][-1])
    await swarm.shutdown()
    await runtime_task

asyncio.run(main())
"""

EXAMPLES = """
import asyncio
from mail import MAILAgentTemplate, MAILSwarmTemplate
from mail.examples import weather_dummy

supervisor = MAILAgentTemplate.from_example("supervisor", comm_targets=["weather"])
weather = MAILAgentTemplate.from_example("weather", comm_targets=["supervisor"])
demo_template = MAILSwarmTemplate(
    name="demo-swarm",
    agents=[supervisor, weather],
    actions=[*supervisor.actions, *weather.actions],
    entrypoint="supervisor",
)

async def main() -> None:
    swarm = demo_template.instantiate(instance_params={}, user_id="demo-user")
    response, events = await swarm.post_message(
        subject="Forecast check",
        body="What's the outlook for tomorrow in New York?",
        show_events=True,
    )
    print(response["message"]["body"])
    await swarm.shutdown()

asyncio.run(main())
"""

LIGHT = """
import sys
from mail import MAILSwarmTemplate
from mail.swarms_json.references import read_url_string
MAILSwarmTemplate.from_swarm_json_file("example-no-proxy").instantiate({"user_token": "x"})
heavy = {"litellm", "openai", "langmem", "langgraph", "fastapi", "uvicorn", "aiohttp", "httpx"}
print(sorted(heavy & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (SOLO, "I can look up the weather and calculate."),
        (TEAM, "5 task_complete"),
        (EXAMPLES, "Weather in New York, tomorrow"),
        (LIGHT, "[]"),
    ],
)
def test_a_program_works_and_leaves_nothing_behind(program: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
    assert done.stderr == ""
