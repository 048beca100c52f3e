"""The scripts, each as a process of its own, as a newcomer runs them."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mail.llm.script import call, otherwise, say, think, when
from tests.support.provider import FakeProvider

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = (
    "demo.py",
    "demo_client.py",
    "multi_swarm_demo.py",
    "single_swarm_demo.py",
    "smoke_test_reasoning.py",
)
FOREIGN = ("_API_KEY", "_API_BASE", "_BASE_URL", "_LLM", "DATABASE_URL", "MAIL_CONFIG_PATH")

PUZZLE = [
    when(tool_result="note").then(
        think("It fits."), call("task_complete", finish_message="The Norwegian.")
    ),
    otherwise(
        think("Milk is in the middle."),
        say("I note it."),
        call("note", house=1, what="water"),
        call("note", house=5, what="zebra"),
    ),
]
HASTY = """
from mail.llm.script import call, otherwise, think

SCRIPT = [
    otherwise(
        call("note", house=1, what="water"),
        think("That came too late."),
        call("task_complete", finish_message="2"),
    )
]
"""


async def run(
    script: str, *arguments: str, folder: Path, more: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a script in a folder; return its exit code and everything it wrote."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(FOREIGN)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "scripts" / script), *arguments),
        cwd=folder,
        env={**kept, "PYTHONIOENCODING": "utf-8", **(more or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode()


@pytest.mark.parametrize("script", SCRIPTS)
async def test_every_script_tells_what_it_does(script: str, tmp_path: Path) -> None:
    code, output = await run(script, "--help", folder=tmp_path)
    assert code == 0, output
    assert output.startswith(f"usage: {script}")
    assert ("MAIL_LLM" if script == "demo.py" else "--timeout") in output


# --- single_swarm_demo -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["supervisor → weather [Forecast]", "17 * 23 = 391."]),
        (["And 6 * 7?"], ["supervisor → math [Calculation]", "6 * 7 = 42."]),
        (
            ["--swarm", "support", "--decision", "declined: too late"],
            ["refund_order {", "About the refund: declined: too late"],
        ),
    ],
)
async def test_a_swarm_is_asked_and_its_events_are_shown(
    arguments: list[str], expected: list[str], tmp_path: Path
) -> None:
    code, output = await run("single_swarm_demo.py", *arguments, folder=tmp_path)
    assert code == 0, output
    for text in [*expected, "task_complete", "== Answer", "stopped with exit code 0"]:
        assert text in output


async def test_a_swarm_can_be_put_on_a_real_model(tmp_path: Path) -> None:
    finish = [otherwise(call("task_complete", finish_message="A model said so."))]
    async with FakeProvider(finish) as provider:
        code, output = await run(
            "single_swarm_demo.py",
            *("--llm", "openai/gpt-5-mini", "--swarm", "research"),
            folder=tmp_path,
            more={"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "sk-demo-0123456789"},
        )
    assert code == 0, output
    assert "A model said so." in output
    assert [seen.status for seen in provider.requests] == [200]


async def test_a_failure_is_told_and_is_the_exit_code(tmp_path: Path) -> None:
    code, output = await run(
        "single_swarm_demo.py", "--llm", "scripted/no.such:SCRIPT", folder=tmp_path
    )
    assert code == 1
    assert "The demo failed: the server did not start" in output
    assert "'scripted/no.such:SCRIPT' does not name a script" in output


# --- multi_swarm_demo --------------------------------------------------------------------------


async def test_three_swarms_solve_a_task_together(tmp_path: Path) -> None:
    code, output = await run("multi_swarm_demo.py", folder=tmp_path)
    assert code == 0, output
    _, _, told = output.partition("== Who wrote to whom")
    lines = [line.split(maxsplit=1)[1] for line in told.splitlines() if line.startswith("  ")]
    order = [
        "shop     newcomer → supervisor",
        "shop     supervisor → consultant@advice  [Advice]",
        "advice   supervisor@shop → consultant  [Advice]",
        "advice   consultant → analyst@figures  [Projection]",
        "figures  consultant@advice → analyst  [Projection]",
        "figures  analyst → consultant@advice  [Re: Projection]",
        "advice   analyst@figures → consultant  [Re: Projection]",
        "shop     consultant@advice → supervisor  [Re: Advice]",
        "shop     done: Plan for 503.6",
    ]
    found = iter(lines)
    for expected in order:
        assert any(line.startswith(expected) for line in found), (expected, told)
    assert "== Answer\nPlan for 503.6 (2.5 times today's 200): add capacity now." in output
    assert output.count("stopped with exit code 0") == 3


async def test_a_wrong_answer_of_three_swarms_is_a_failure(tmp_path: Path) -> None:
    """A copy of the script that expects another answer ends with the exit code 1."""
    text = (ROOT / "scripts" / "multi_swarm_demo.py").read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text.replace('EXPECTED = "Plan for 503.6"', 'EXPECTED = "Plan for 7"'))
    path = {"PYTHONPATH": str(ROOT / "scripts")}
    code, output = await run(str(wrong), folder=tmp_path, more=path)
    assert code == 1
    assert "The demo failed: the answer lacks 'Plan for 7'" in output
    assert output.count("Last lines of the server's log:") == 3


# --- demo_client -------------------------------------------------------------------------------


async def test_every_method_of_the_client_is_shown(tmp_path: Path) -> None:
    code, output = await run("demo_client.py", folder=tmp_path)
    assert code == 0, output
    assert "methods work" in output
    for step in ("== post_message:", "== get_task_events:", "== cancel_task:", "== aclose:"):
        assert step in output


# --- smoke_test_reasoning ----------------------------------------------------------------------


async def test_reasoning_preamble_and_reference_are_printed(tmp_path: Path) -> None:
    code, output = await run("smoke_test_reasoning.py", folder=tmp_path)
    assert code == 0, output
    first, second = output.split("== Streaming")
    assert "== Not streaming" in first
    for part in (first, second):
        assert "answer: The Norwegian drinks water." in part
        assert "reasoning: The Norwegian is in the first" in part
        assert "preamble: I note the houses" in part
        assert "reasoning_ref: call_" in part
        assert "3 tool calls, 3 with reasoning, 0 without" in part
    assert "24 pieces of reasoning arrived while the model thought" in second


@pytest.mark.parametrize("tool_format", ["responses", "completions"])
async def test_the_reasoning_of_a_real_model_is_found(tmp_path: Path, tool_format: str) -> None:
    async with FakeProvider(PUZZLE) as provider:
        code, output = await run(
            "smoke_test_reasoning.py",
            *("--llm", "openai/gpt-5-mini", "--tool-format", tool_format),
            folder=tmp_path,
            more={"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "sk-demo-0123456789"},
        )
    assert code == 0, output
    assert output.count("reasoning: Milk is in the middle.") == 2
    assert output.count("3 tool calls, 3 with reasoning, 0 without") == 2
    assert "who has the zebra?" in str(provider.requests[0].body)
    assert {seen.wire for seen in provider.requests} == {tool_format}


async def test_a_call_that_hides_its_reasoning_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "hasty.py").write_text(HASTY)
    code, output = await run(
        "smoke_test_reasoning.py",
        *("--llm", "scripted/hasty:SCRIPT"),
        folder=tmp_path,
        more={"PYTHONPATH": str(tmp_path)},
    )
    assert code == 1, output
    assert "MISSING: the model reasoned" in output
    assert "2 tool calls, 1 with reasoning, 1 without though it was there" in output


async def test_a_model_that_fails_is_a_failure(tmp_path: Path) -> None:
    code, output = await run(
        "smoke_test_reasoning.py", "--llm", "scripted/no:SCRIPT", folder=tmp_path
    )
    assert code == 1
    assert "The smoke test failed: 'scripted/no:SCRIPT' does not name a script" in output


# --- ports ---------------------------------------------------------------------------------------


async def test_the_port_of_a_demo_is_given_to_nobody_else_before_its_server_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "other.py").write_text(
        f"import socket, sys; sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
        "from ports import free_port\n"
        "socket.socket().bind(('127.0.0.1', free_port()))\n"
    )
    code, output = await run(str(tmp_path / "other.py"), folder=tmp_path)
    assert code == 1
    assert "Address already in use" in output


# --- demo_picture ------------------------------------------------------------------------------


async def test_the_picture_of_the_demo_shows_what_the_demo_prints(tmp_path: Path) -> None:
    code, output = await run("demo_picture.py", "--out", str(tmp_path / "new.svg"), folder=tmp_path)
    assert code == 0, output
    new, kept = (_exchanges(path) for path in (tmp_path / "new.svg", ROOT / "assets" / "demo.svg"))
    assert new == kept, "draw a new picture: python scripts/demo_picture.py"
    assert "supervisor → math   [Calculation]" in kept


def _exchanges(picture: Path) -> set[str]:
    """Return who wrote to whom in a picture, and about what; times and the weather vary."""
    rows = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    lines = ("".join(row.itertext()) for row in rows)
    return {line.partition("s ")[2] for line in lines if "→" in line}
