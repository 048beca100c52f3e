"""The prompt of ``mail client``, as a person at a terminal meets it."""

import json
import stat
from pathlib import Path

import pytest

from tests.cli.terminal import terminal
from tests.server.kit import TOKENS, Script

pytestmark = pytest.mark.e2e

ALICE = TOKENS["alice"]


def arguments(server: str, *more: str) -> list[str]:
    return ["client", server, "--api-key", ALICE, *more]


async def test_a_user_is_greeted_and_may_not_do_all(tmp_path: Path, server: str) -> None:
    """What an administrator may do is in `test_repl_everything`."""
    forbidden = r"invalid role: this requires admin\n"
    async with terminal(tmp_path, arguments(server)) as person:
        await person.see(rf"successfully logged into {server}\n> role: user\n> id: alice\n")
        await person.see(r"MAIL CLIent v1\.3\.6\nEnter `help` for help and `exit` to quit\n=+\n")
        await person.see("mail>")
        await person.ask("help message", r"Usage: mail> message .*--resume-from")
        await person.ask("logout", rf"successfully logged out of {server}\n")
        await person.ask("logout", r"error logging out: not currently logged in\n")
        await person.ask("me", r"error getting whoami: (?!HTTP)")
        await person.ask("login wrong-key", r"error logging in: (?!HTTP)")
        await person.ask(f"login {ALICE}", r"> role: user\n> id: alice\n")
        await person.ask('message "Hi" -tid one', r"You said: Hi\ntask one completed\n")
        await person.ask(
            "message-stream 'look at me' --subject Watch --entrypoint supervisor",
            r"new_message +alice → supervisor request 'Watch': look at me\n.*"
            r"task_complete +You said: look at me\nYou said: look at me\ntask \S+ completed\n",
        )
        person.type('message "please \\')
        await person.see(r"\.\.\.")
        await person.ask('go on"', r"You said: please go on\n")
        await person.ask("tasks-get", r"TASK +OWNER .*\none +user:alice@\S+ +completed .* Hi")
        await person.ask("task-events one --after 1", r"task_complete +You said: Hi")
        await person.ask(
            "task-get nowhere", r"error getting task: (?!HTTP)task 'nowhere' not found"
        )
        await person.ask("health-update busy", rf"error updating health: .*{forbidden}")
        await person.ask("swarm-register b http://b t", rf"error registering swarm: .*{forbidden}")
        await person.ask("swarm-dump", rf"error dumping swarm: .*{forbidden}")
        await person.ask("sl '{}'", rf"error loading swarm from JSON: .*{forbidden}")
        await person.ask("responses '[]' '[]'", r"error posting responses: [^\n]+\n")
        person.type("quit")
        assert await person.end() == 0


async def test_mistakes_are_told_and_forgiven(tmp_path: Path, server: str) -> None:
    async with terminal(tmp_path, arguments(server)) as person:
        await person.see("mail>")
        await person.ask("/sing", r"there is no command '/sing'")
        await person.ask("message", r"missing argument 'BODY'")
        await person.ask("message 'half", r"error parsing command: No closing quotation")
        await person.ask("message hi --kwargs {", r"--kwargs': not valid JSON: ")
        await person.ask("message hi -k '[1]'", r"--kwargs': must be a JSON object")
        await person.ask("message hi -k '{\"body\": 1}'", r"'body' is not an option of the run")
        await person.ask("message hi --msg-type letter", r"'letter' is not one of 'request'")
        await person.ask("message ''", r"error posting message: (?!HTTP).*body must not be empty")
        await person.ask("message hi -e nobody", r"error posting message: (?!HTTP)")
        await person.ask("message 'fail please'", r"error posting message: (?!HTTP).*out of tokens")
        await person.ask("ms 'fail please'", r"task_error +.*out of tokens")
        await person.ask("task-events x -a many", r"'many' is not a valid integer")
        await person.ask("", "")
        await person.ask("ping", "pong")
        person.press("\x04")  # Ctrl-D
        assert await person.end() == 0
        assert "Traceback" not in person.screen


async def test_ctrl_c_cancels_the_request_and_not_the_program(
    tmp_path: Path, server: str, script: Script
) -> None:
    async with terminal(tmp_path, arguments(server)) as person:
        await person.see("mail>")
        person.press("half a line\x03")
        await person.see("mail>")
        for command in ("message 'hang on' -tid slow", "message-stream 'hang on' -tid slower"):
            script.entered.clear()
            person.type(command)
            await script.entered.wait()
            person.press("\x03")
            # a stream knows its task once the first event is there, which this may precede
            await person.see("request cancelled; its task goes on: /tasks|task slower goes on: ")
            await person.see("mail>")
        await person.ask("task-get slow", r"task 'slow' - completed: False, running")
        await person.ask("task-cancel slow", r"task 'slow' cancelled\n")
        script.gate.set()
        await person.ask("task-events slower", r"task_complete +You said: hang on")
        person.type("exit")
        assert await person.end() == 0


async def test_a_paused_task_is_shown_and_resumed(tmp_path: Path, server: str) -> None:
    async with terminal(tmp_path, arguments(server)) as person:
        await person.see("mail>")
        person.type("message-stream 'consult me' --task-id weather-123")
        await person.see(r"send_interrupt\(\{.*\}\)\n")
        call_id = (await person.see(r"call_id: \S+\n")).split()[1]
        await person.see("continue with: message '' --task-id weather-123 --resume-from breakpoint")
        await person.see("mail>")
        await person.ask(
            "message more -tid weather-123",
            r"error posting message: (?!HTTP).*is paused on breakpoint",
        )
        await person.ask(
            "message '' -tid weather-123 -rf breakpoint_tool_call "
            '-k \'{"breakpoint_tool_call_result": {"call_id": "nonsense", "content": "x"}}\'',
            r"error [a-z ]+: there is no open breakpoint call 'nonsense'",
        )
        result = json.dumps({"call_id": call_id, "content": "Forecast: sunny"})
        kwargs = json.dumps({"breakpoint_tool_call_result": result})
        await person.ask(
            "message-stream 'Continuing after breakpoint' --task-id weather-123 "
            f"--resume-from breakpoint_tool_call --kwargs '{kwargs}'",
            r"the tool said Forecast: sunny\ntask weather-123 completed\n",
        )
        await person.ask(
            "message 'Add a final summary' --task-id weather-123 --resume-from user_response",
            r"You said: Add a final summary\n",
        )


async def test_lines_are_completed_and_remembered_but_keys_are_not(
    tmp_path: Path, server: str
) -> None:
    history = tmp_path / ".mail_history"
    async with terminal(tmp_path, arguments(server)) as person:
        await person.see("mail>")
        person.press("whoa\t")
        await person.see("whoami")
        person.press("\r")
        await person.see("role user with ID alice")
        await person.see("mail>")
        await person.ask(f"login {ALICE}", "> id: alice")
        person.type("login \\")
        await person.see(r"\.\.\.")
        await person.ask(ALICE, "> id: alice")
        await person.ask("message  hello", "You said: hello")
        person.type("exit")
        await person.end()
    kept = history.read_text()
    assert "+whoami\n" in kept
    assert "message  hello" in kept
    assert ALICE not in kept
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    async with terminal(tmp_path, arguments(server)) as person:
        await person.see("mail>")
        person.press("\x1b[A\x1b[A")  # up, over `exit`
        await person.see("message  hello")
        person.press("\r")
        await person.see("You said: hello")


async def test_without_a_server_or_a_key_one_may_look_around(tmp_path: Path, server: str) -> None:
    async with terminal(tmp_path, ["client", "http://127.0.0.1:1"]) as person:
        await person.see(r"unable to determine identity via /whoami\n> error: .*Cannot connect")
        await person.see(r"NOTE: use `login \{YOUR_API_KEY\}` to log in\n")
        await person.see("mail>")
        await person.ask("ping", "error pinging: MAIL client request failed: Cannot connect")
        person.type("exit")
        assert await person.end() == 0
    async with terminal(tmp_path, ["client"], MAIL_URL=server, MAIL_API_KEY=ALICE) as person:
        await person.see("> id: alice")


async def test_one_talks_to_agents_in_plain_words(tmp_path: Path, server: str) -> None:
    async with terminal(tmp_path, arguments(server)) as person:
        await person.see("mail>")
        await person.ask("It's me, isn't it?", r"You said: It's me, isn't it\?.*task \S+ completed")
        await person.ask("status of it?", r"You said: status of it\?")
        await person.ask("say status", r"You said: status ")
        await person.ask("/tasks", r"\* \S{8} completed +\d\.\d s +It's me, isn't it\?")
        await person.ask("/new don't", r"You said: don't")
        await person.ask("message 'third' -tid third", r"task third completed\n")
        await person.ask("and on", r"You said: and on .*task third completed")
        await person.ask("/task thi", r"\* third +completed .*third")
        person.type("first \\")
        await person.see(r"\.\.\.")
        await person.ask("second", r"You said: first *\n *second")
        person.press("one\x1b\rtwo")
        await person.ask("", r"You said: one *\n *two")
        await person.ask("consult me", r"send_interrupt.* waits for you.*/answer \S+ TEXT")
        await person.ask("and then?", r"error sending message: the task waits for you")
        await person.ask("/approvals", r"\w{8} +third +send_interrupt\(.*\)")
        await person.ask("/answer call- it's fine", r"the tool said it's fine")
        await person.ask("consult me", r"/answer \S+ TEXT")
        await person.ask("/cancel", r"task third cancelled\n")
        await person.ask("/tasks", r"  third +cancelled")
        await person.ask("/task nothing", r"error getting task: there is no task 'nothing'\.\n")
        await person.ask("status report x", r"task \w{8} completed")
        await person.ask(
            "a plan", r"error acknowledging .*it was taken for a command; .*say a plan"
        )
        await person.ask("mail_0123456789abcdefghijklmnop", r"not sent: this looks like a key")
        await person.ask("loginn s3cret-key", r"not sent: this looks like a key")
        await person.ask("/new", r"what you say next begins a new task")
        await person.ask("/watch", r"error watching task: there is no current task")
        await person.ask("/help new", r"Usage: mail> /new \[OPTIONS\] \[TEXT\]")
        person.type("/exit")
        assert await person.end() == 0
        assert "Traceback" not in person.screen
    kept = (tmp_path / ".mail_history").read_text()
    assert "+It's me, isn't it?\n" in kept
    assert "mail_0123456789" not in kept
    assert "s3cret" not in kept


async def test_ctrl_c_leaves_the_task_and_then_the_prompt(
    tmp_path: Path, server: str, script: Script
) -> None:
    async with terminal(tmp_path, arguments(server)) as person:
        await person.see("mail>")
        person.type("hang on")
        await script.entered.wait()
        await person.see(r"supervisor · \d\.\d s")
        person.press("\x03")
        await person.see(r"task (\S{8}) goes on: /watch comes back to it, /cancel stops it\n")
        await person.see(r"Ctrl-C again leaves the prompt\n.*mail>")
        person.press("half a line\x03")
        await person.see("mail>")
        script.gate.set()
        await person.ask("/watch", r"You said: hang on.*task \S{8} completed")
        await person.ask("/watch", r"nothing new; --all shows it from its beginning\n")
        await person.ask("/watch --all", r"alice → supervisor.* hang on.*You said: hang on")
        person.press("\x03")
        await person.see(r"Ctrl-C again leaves the prompt\n.*mail>")
        person.press("\x03")
        assert await person.end() == 130
