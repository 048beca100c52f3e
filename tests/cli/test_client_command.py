"""``mail client URL COMMAND`` as scripts use it, each in a process of its own."""

import asyncio
import json
import random
import shlex
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mail.cli import client
from mail.cli.commands import main
from mail.cli.credentials import connected
from mail.cli.repl.parsing import split
from mail.cli.repl.terminal import PipedLines
from mail.errors import ConfigError
from tests.cli import terminal
from tests.cli.terminal import Done
from tests.server.kit import TOKENS, Script

pytestmark = pytest.mark.e2e


async def test_bytes_that_are_no_text_are_a_mistake_of_their_line(
    tmp_path: Path, server: str
) -> None:
    process = await start(tmp_path, server, "-ak", TOKENS["alice"], PYTHONUTF8="1")
    out, err = await process.communicate(b"message '\xff'\nping\n")
    assert (process.returncode, out.startswith(b"pong")) == (2, True)
    assert b"the line is not UTF-8 text" in err


async def start(home: Path, *words: str, **environ: str) -> asyncio.subprocess.Process:
    return await terminal.start(home, "client", *words, **environ)


async def mail(home: Path, *words: str, typed: str = "", **environ: str) -> Done:
    return await terminal.run(home, "client", *words, typed=typed, **environ)


async def test_an_answer_is_all_there_is_on_stdout(tmp_path: Path, server: str) -> None:
    who = {"MAIL_API_KEY": TOKENS["alice"]}
    done = await mail(tmp_path, server, "message", "Hi", "-tid", "one", **who)
    assert (done.code, done.out, done.err) == (0, "You said: Hi\n", "task one completed\n")


async def test_a_command_can_be_repeated_under_a_key(tmp_path: Path, server: str) -> None:
    who = {"MAIL_URL": server, "MAIL_API_KEY": TOKENS["alice"]}
    first = await mail(tmp_path, "message", "Hi", "--idempotency-key", "cli-1", **who)
    again = await mail(tmp_path, "message", "Hi", "-ik", "cli-1", **who)
    assert (first.code, first.out) == (0, "You said: Hi\n")
    assert again == first  # the task's id, too, which the server made up
    other = await mail(tmp_path, "message", "Ho", "-ik", "cli-1", **who)
    assert other.code == 1
    assert "409" in other.err


async def test_scripts_get_json(tmp_path: Path, server: str) -> None:
    who = {"MAIL_URL": server, "MAIL_API_KEY": TOKENS["alice"]}
    done = await mail(tmp_path, "message", "Grüße \x9b", "--json", "-tid", "one", **who)
    answer = json.loads(done.out)
    assert (answer["response"], answer["status"]) == ("You said: Grüße \x9b", "completed")
    assert "\x9b" not in done.out
    odd = {"PYTHONIOENCODING": "latin-1", **who}
    done = await mail(tmp_path, "message", "é😀", "--json", "-tid", "one", **odd)
    assert json.loads(done.out)["response"] == "You said: é😀"
    done = await mail(tmp_path, server, "--json", "ms", "again", "-tid", "one", **who)
    events = [json.loads(line) for line in done.out.splitlines()]
    assert events[-1]["event"] == "task_complete"
    assert events[-1]["data"]["response"] == "You said: again"
    assert [int(event["id"]) for event in events if event["id"]]
    done = await mail(tmp_path, "--json", "task-get", "nowhere", **who)
    assert done.code == 1
    assert json.loads(done.out)["error"]["status"] == 404
    tasks = json.loads((await mail(tmp_path, "tasks-get", "-v", **who)).out)
    assert set(tasks) == {"one"}


async def test_exit_codes_tell_what_became_of_it(tmp_path: Path, server: str) -> None:
    who = {"MAIL_API_KEY": TOKENS["alice"]}
    cases = {
        ("message", "fail"): 1,
        ("message-stream", "fail"): 1,
        ("health-update", "busy"): 1,
        ("message",): 2,
        ("sing",): 2,
        ("message", "waste"): 5,
        ("ms", "waste"): 5,
        ("message", "consult"): 3,
        ("ms", "consult"): 3,
        ("help",): 0,
        ("ping", "--help"): 0,
    }
    done = await asyncio.gather(*(mail(tmp_path, server, *case, **who) for case in cases))
    assert [each.code for each in done] == list(cases.values()), done
    assert (await mail(tmp_path, "http://127.0.0.1:1", "ping")).code == 4


async def test_an_answer_of_a_run_that_the_step_limit_ended_says_so(
    tmp_path: Path, server: str
) -> None:
    who = {"MAIL_API_KEY": TOKENS["alice"]}
    done = await mail(tmp_path, server, "message", "waste", "-tid", "one", **who)
    told = "ended by its step limit (task_message_limit): the answer may be incomplete\n"
    assert (done.code, done.err) == (5, f"task one completed\n{told}")
    done = await mail(tmp_path, server, "--json", "message", "waste", **who)
    assert (done.code, json.loads(done.out)["ended_by"]) == (5, "step_limit")


async def test_a_failure_names_its_task(tmp_path: Path, server: str) -> None:
    who = {"MAIL_API_KEY": TOKENS["alice"]}
    done = await mail(tmp_path, server, "message", "fail", "-tid", "one", **who)
    assert (done.code, done.err.endswith("the provider is out of tokens (task one)\n")) == (1, True)
    done = await mail(tmp_path, server, "--json", "message", "fail", "-tid", "two", **who)
    error = json.loads(done.out)["error"]
    assert (error["status"], error["task_id"]) == (502, "two")


async def test_errors_say_what_to_do_next(tmp_path: Path, server: str) -> None:
    done = await mail(tmp_path, server, "-ak", "wrong", "message", "Hi")
    assert "401: invalid API key; use `mail login`, MAIL_API_KEY or --api-key-file" in done.err
    done = await mail(tmp_path, "http://127.0.0.1:1", "message", "Hi")
    assert (done.code, "tasks-get" in done.err) == (4, False)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as broken:
        url = f"http://127.0.0.1:{broken.sockets[0].getsockname()[1]}"
        done = await mail(tmp_path, url, "message", "Hi")
    assert (done.code, done.out) == (4, "")
    assert done.err.endswith("; the server may have received the message: see tasks-get\n")


async def test_ctrl_c_ends_a_single_command_and_not_its_task(
    tmp_path: Path, server: str, script: Script
) -> None:
    process = await start(tmp_path, server, "-ak", TOKENS["alice"], "message", "hang", "-tid", "t")
    await script.entered.wait()
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, b"Traceback" in err) == (130, False)
    script.gate.set()
    done = await mail(tmp_path, server, "-ak", TOKENS["alice"], "te", "t")
    assert "You said: hang" in done.out


async def test_a_reader_that_leaves_early_is_no_fault_of_ours(tmp_path: Path, server: str) -> None:
    for command in ("ms", "message"):
        who = {"MAIL_API_KEY": TOKENS["alice"]}
        process = await start(tmp_path, server, "--json", command, "Hi", **who)
        assert process.stdin is not None
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        assert process.stderr is not None
        assert await process.stderr.read() == b""
        assert await process.wait() == 1


async def test_commands_may_come_through_a_pipe(tmp_path: Path, server: str) -> None:
    lines = "ping\n\nmessage 'one \\\nand two'\nquit\nping\n"
    done = await mail(tmp_path, server, "--api-key", TOKENS["alice"], typed=lines)
    pong, answer = done.out.splitlines()
    assert pong.startswith("pong: mail")
    assert (answer, done.code) == ("You said: one and two", 0)
    assert not (tmp_path / ".mail_history").exists()
    done = await mail(tmp_path, server, "-ak", TOKENS["alice"], typed="sing\nmessage 'half\nping")
    assert (done.code, done.out.count("pong")) == (2, 1)


async def test_the_timeout_and_the_log_come_from_the_file_and_from_flags(
    tmp_path: Path, server: str, script: Script
) -> None:
    config = tmp_path / "mine.toml"
    config.write_text("[client]\ntimeout = 0.2\nverbose = true\n")
    who = {"MAIL_API_KEY": TOKENS["alice"]}
    done = await mail(tmp_path, server, "-c", str(config), "message", "hang", **who)
    assert (done.code, done.out) == (4, "")
    assert "no response in time" in done.err
    assert "POST /message" in done.err
    assert TOKENS["alice"] not in done.err
    done = await mail(tmp_path, server, "-c", str(config), "-t", "30", "ping", **who)
    assert done.code == 0
    done = await mail(tmp_path, server, "--timeout", "0.1", "message", "hang", **who)
    assert (done.code, "POST /message" in done.err) == (4, False)
    config.write_text("[client]\ntimeout = 'long'\n")
    done = await mail(tmp_path, server, "-c", str(config), "ping")
    assert (done.code, "[client] 'timeout': must be a number, actually got str" in done.err) == (
        2,
        True,
    )


async def asked(*words: str) -> tuple[str, str | None]:
    """Return the URL and the token that a command line leads to."""
    async with connected(client.run.read(words)) as found:
        return found.base_url, found.api_key


async def test_url_options_and_command_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAIL_URL", raising=False)
    monkeypatch.setenv("MAIL_API_KEY", "mine")
    words = ["-t", "3", "http://h:1/", "-v", "message", "-v", "hi", "--json"]
    call = client.run.read(words)
    assert (call.url, call.timeout, call.verbose, call.json) == ("http://h:1/", 3.0, True, False)
    assert call.words == ("message", "-v", "hi", "--json")
    assert await asked(*words) == ("http://h:1", "mine")
    assert client.run.read(["http://h", "--json"]).json
    monkeypatch.setenv("MAIL_URL", "https://elsewhere")
    assert (await asked("responses", "[]", "[]"))[0] == "https://elsewhere"
    assert (await asked("http://h"))[0] == "http://h"


async def test_a_link_brings_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_API_KEY", "mine")
    link = "swarm://connect?server=example.com"
    assert await asked(f"{link}&token=theirs") == ("https://example.com", "theirs")
    assert (await asked("swarm://invite?server=example.com"))[1] is None
    assert (await asked("-ak", "k", f"{link}&token=t"))[1] == "k"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["swarm://connect?token=t"], r"swarm:// URL must include a 'server' parameter"),
        (["http://[h"], "invalid URL"),
        (["http://h:port"], "invalid URL"),
        (["swarm://[?server=h"], "invalid URL"),
        (["ftp://h"], "must begin with http://"),
        (["swarm://elsewhere?server=h"], "must begin with http://"),
    ],
)
async def test_a_url_of_no_server_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await asked(*words)


@pytest.mark.parametrize("words", [["-t", "0", "http://h"], ["-t", "x", "http://h"], []])
def test_wrong_options_are_wrong_usage(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAIL_URL", raising=False)
    assert main(["client", *words]) == 2


async def test_ctrl_c_ends_commands_from_a_pipe(
    tmp_path: Path, server: str, script: Script
) -> None:
    process = await start(tmp_path, server, "-ak", TOKENS["alice"])
    assert process.stdin is not None
    process.stdin.write(b"message hang\nping\n")
    await script.entered.wait()
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, out, b"Traceback" in err) == (130, b"", False)


async def test_a_text_may_come_from_standard_input(tmp_path: Path, server: str) -> None:
    who = {"MAIL_API_KEY": TOKENS["alice"], "PYTHONUTF8": "1"}
    text = "Grüße, 'quoted' \\ \n\n" + "x" * 200_000  # more than an argument can have
    for command in ("message", "message-stream"):
        done = await mail(tmp_path, server, command, "-", "--json", typed=f"{text}\n", **who)
        last = done.out.splitlines()[-1] if command == "message-stream" else done.out
        answer = json.loads(last)
        assert done.code == 0
        assert answer.get("data", answer)["response"] == f"You said: {text}"
    process = await start(tmp_path, server, "message", "-", **who)
    _, err = await process.communicate(b"\xff")
    assert (process.returncode, b"standard input is not UTF-8 text" in err) == (2, True)
    done = await mail(tmp_path, server, typed="message -\n", **who)  # there it is a text
    assert (done.code, done.out) == (0, "You said: -\n")


def test_lines_are_split_as_a_shell_does() -> None:
    chance = random.Random(7)
    signs = ["a", "é", "#", "\\", '"', "'", " ", "\t", "\r", "\n", "\x0b", "\xa0", "ab c"]
    for _ in range(5000):
        line = "".join(chance.choices(signs, k=chance.randrange(12)))
        try:
            expected: object = shlex.split(line)
        except ValueError as error:
            expected = str(error)
        try:
            found: object = split(line)
        except ValueError as error:
            found = str(error)
        assert (line, found) == (line, expected)


def processor_time(line: str) -> float:
    """Return the least that splitting a line takes."""
    spent = []
    for _ in range(3):
        begun = time.thread_time()
        with suppress(ValueError):
            split(line)
        spent.append(time.thread_time() - begun)
    return min(spent)


@pytest.mark.parametrize("text", ["a", "'b c' ", '\\"', "a\\ ", "d'e'\"f\"", "message 'x "])
@pytest.mark.parametrize("begins", ["", "'", '"'])
def test_the_time_to_split_a_line_grows_with_its_length_alone(text: str, begins: str) -> None:
    short, long = (begins + text * (size // len(text)) for size in (20_000, 320_000))
    assert processor_time(long) < 2.5 * 16 * max(processor_time(short), 0.001)


def test_a_line_of_many_lines_is_joined_once() -> None:
    class Source:
        def __init__(self, count: int) -> None:
            self.lines = iter(["x" * 1000 + "\\\n"] * count + ["end\n"])

        def readline(self) -> str:
            return next(self.lines)

    def spent(count: int) -> float:
        source = Source(count)
        begun = time.thread_time()
        assert len(PipedLines(source).read()) == 1000 * count + 3  # type: ignore[arg-type]
        return time.thread_time() - begun

    assert min(spent(16_000) for _ in range(3)) < 4 * 16 * max(spent(1000), 0.001)
