"""The prompt of ``mail client`` where nothing is missing: an administrator, debug mode."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mail.cli.repl.commands import COMMANDS
from mail.cli.repl.parsing import LEAVE
from mail.db.memory import MemoryStore
from mail.net.peers import PeerAccess
from mail.server.app import create_app
from tests.cli.terminal import terminal
from tests.net.test_registry import town
from tests.server.kit import TOKENS, serving
from tests.support.till import definition, settings, till

pytestmark = pytest.mark.e2e

ASKED = """'[{"role":"user","content":"Summarise the plan"}]' '[]'"""
PRICE = '[{"type": "function", "name": "price", "parameters": {"type": "object"}}]'
PEER = "http://beta"
"""The address of another server, of the swarm 'beta'."""


@pytest.fixture
async def place(store: MemoryStore) -> AsyncIterator[str]:
    app, world = create_app(settings(debug=True), template=till(), store=store), town("beta")
    async with serving(app) as client:
        registry = app.state.mail.registry
        policy = registry.access.policy
        registry.access = PeerAccess(policy, None, world.resolve, world.transport)
        yield str(client.base_url).rstrip("/")


EVERY: dict[str, list[tuple[str, str]]] = {
    "ping": [
        ("ping", r"pong: mail 1\.3\.6 \(protocol 1\.3\), swarm test-swarm 1\.3\.6\n"),
        ("ping --json", r'"protocol_version": "1\.3"'),
    ],
    "health": [
        ("health", r"health: healthy\n"),
        ("health -v", r'"swarm_name": "test-swarm"'),
        ("h --verbose", r'"status": "healthy"'),
    ],
    "health-update": [
        ("health-update 'very busy'", r"successfully updated health to very busy\n"),
        ("health", r"health: very busy\n"),
        ("hu healthy -v", r'"status": "healthy"'),
    ],
    "whoami": [("whoami", r"role admin with ID root\n"), ("me -v", r'"username": "root"')],
    "status": [
        (
            "status",
            r"user MAIL IS ready\nuser task IS NOT running\nstorage: [\d,]+ of .* open tasks\n",
        ),
        ("s --json", r'"active_users": 0'),
    ],
    "logout": [("logout", r"successfully logged out of http")],
    "login": [(f"login {TOKENS['admin']}", r"> role: admin\n> id: root\n")],
    "message": [
        (
            "message 'Forecast for tomorrow' --entrypoint supervisor",
            r"said: Forecast for tomorrow\n",
        ),
        (
            "m again --task-id one --subject Hi --msg-type request --show-events",
            r"new_message +root → supervisor request 'Hi': again.*said: again\ntask one comp",
        ),
        ("msg 'Add a summary' -tid one --resume-from user_response", r"You said: Add a summary\n"),
        (
            'message hi --kwargs \'{"max_steps": 5, "timeout": 30}\' --json',
            r'"status": "completed"',
        ),
    ],
    "message-stream": [
        (
            "message-stream 'Need live updates' --task-id two --kwargs '{\"max_steps\": 5}'",
            r"new_message +root → supervisor .*task_complete +You said: Need live updates\n",
        ),
        ("ms more -tid two -rf user_response -st --json", r'"event": "task_complete".*said: more'),
    ],
    "message-interswarm": [
        (
            f"message-interswarm hi '[\"a@b\"]' {TOKENS['alice']}",
            r"error posting interswarm message: (?!HTTP).*is a token of this server",
        ),
        ("mi hi supervisor ''", r"You said: hi\n"),
        ("msg-i hi supervisor@test-swarm '' --stream -tid here", r"task_complete +You said: hi\n"),
    ],
    "outbox": [
        ("outbox", r"no mail for other swarms\n"),
        ("ob --peer beta --json", r'"mail": \[\]'),
    ],
    "outbox-retry": [("outbox-retry 7", r"error retrying mail: (?!HTTP)no mail 7 waits")],
    "outbox-discard": [("outbox-discard 7", r"error discarding mail: (?!HTTP)no mail 7 ")],
    "set-aside": [
        ("/set-aside one", r"no mail of this task is set aside\n"),
        ("/sas one --json", r'"mail": \[\]'),
        ("/set-aside none", r"error getting mail: (?!HTTP)"),
    ],
    "set-aside-retry": [("/set-aside-retry one 7", r"error retrying mail: (?!HTTP)")],
    "set-aside-discard": [("/sad one 7", r"error discarding mail: (?!HTTP)")],
    "webhook": [
        ("/webhook", r"there is no webhook\nnothing waits for the webhook\n"),
        ("/wh --json", r'"messages": \[\]'),
    ],
    "webhook-retry": [("/webhook-retry 7", r"error retrying message: (?!HTTP)")],
    "webhook-discard": [("/webhook-discard 7", r"error discarding message: (?!HTTP)")],
    "tasks-get": [
        ("tasks-get", r"TASK +OWNER +STATE .*\none +admin:root@test-swarm +completed "),
        ("tsg --json", r'"task_owner": "admin:root@test-swarm"'),
    ],
    "task-get": [
        ("task-get one", r"task 'one' - completed: True, completed\n.*started .* by admin:root@"),
        ("tg one -v", r'"task_id": "one"'),
    ],
    "task-events": [
        ("task-events two --after 2", r"task_complete +You said: more\n"),
        ("te two --json", r'"event": "new_message", "id": "1"'),
    ],
    "task-cancel": [
        ("message 'ask the cashier' -tid three", r"ask_cashier\(\{.*\}\)\n.*task three paused\n"),
        ("task-cancel three", r"task 'three' cancelled\n"),
        ("tc three --json", r'"status": "cancelled"'),
    ],
    "task-delete": [
        ("task-delete three", r"task 'three' deleted\n"),
        ("td two --cancel --json", r'"deleted": true'),
        ("td two", r"error deleting task: (?!HTTP)task 'two' not found"),
    ],
    "swarm-register": [
        (f"swarm-register beta {PEER} token --volatile", r"swarm beta registered\n"),
        ("swarm-remove beta", r"swarm beta removed\n"),
        (
            f"sr beta {PEER} token",
            r"swarm beta registered\nthe server does not store the token: set "
            r"SWARM_AUTH_TOKEN_BETA in its environment\n",
        ),
        (f"sr gamma {PEER}", r"error registering swarm: (?!HTTP).*serves the swarm 'beta'"),
    ],
    "swarms-get": [
        ("swarms-get", r"found 1 swarms:\nbeta@http://beta\n"),
        ("sg --json", r'"swarm_name": "beta"'),
    ],
    "swarms-registry": [("swarms-registry", r"test-swarm@.*\nbeta@http://beta[^\n]*\n")],
    "swarm-remove": [
        ("swarm-remove beta", r"swarm beta removed\n"),
        ("srm beta", r"error removing swarm: (?!HTTP)no swarm 'beta' is registered or proposed"),
    ],
    "swarms-discover": [
        (
            f"swarms-discover {PEER} http://127.0.0.1:1",
            r"swarm beta is proposed\nhttp://127.0.0.1:1: ",
        ),
        ("sgr", r"beta@http://beta +\(proposed by http://beta\)"),
    ],
    "swarm-accept": [
        ("swarm-accept beta", r"swarm beta registered\n"),
        ("sa beta", r"error accepting swarm: (?!HTTP)no swarm 'beta' is proposed"),
    ],
    "swarm-dump": [
        ("swarm-dump", r"swarm 'test-swarm' dumped\n"),
        ("sd --json", r'"status": "dumped"'),
    ],
    "swarm-load-from-json": [
        ("swarm-load-from-json '{}'", r"error loading swarm from JSON: (?!HTTP)"),
        (f"sl '{definition()}'", r"swarm 'test-swarm' loaded\n"),
    ],
    "responses": [
        (f"responses {ASKED}", r"You said: Summarise the plan\n"),
        (
            f"responses {ASKED} --instructions 'System prompt' --tool-choice auto "
            '--parallel-tool-calls --kwargs \'{"metadata": {"a": "b"}}\' --json',
            r'"instructions": "System prompt".*"a": "b"',
        ),
        (
            f"r {ASKED} --previous-response-id nothing",
            r"error posting responses: (?!HTTP).*not found",
        ),
        ("responses '{' '[]'", r"not valid JSON: "),
    ],
    "approvals": [
        ("/approvals", r"nothing waits for you\n"),
        ("/ap --json --limit 5", r'"approvals": \[\]'),
    ],
    "memory": [
        ("/memory", r"no memories\nlearning is off: no model is configured"),
        ("/mem style", r"error getting memory: (?!HTTP)no such memory"),
    ],
    "memory-edit": [
        ("/memory-edit style Don't be long.", r"memory style: version 1: Don't be long\.\n"),
        ("/med style", r"error editing memory: a text is needed, or --file\n"),
        ("/med --file=no-such-file style", r"error editing memory: cannot read no-such-file"),
        ("/memory", r"style \(version 1\)  Don't be long\.\n"),
    ],
    "memory-undo": [
        ("/med style Be brief.", r"memory style: version 2: Be brief\.\n"),
        ("/memory-undo style", r"memory style: version 3: Don't be long\.\n"),
        ("/mu style", r"version 0 is not kept; those that are: 1, 2, 3"),  # and not 2 again
        ("/mu style 2 --json", r'"version": 4'),
        ("/mem style", r"version 4\nBe brief\.\nversion 4, \S+ restored: Be brief\.\n"),
        ("/mu style 9", r"version 9 is not kept; those that are: 1, 2, 3, 4"),
    ],
    "memory-delete": [
        ("/memory-delete style", r"memory style deleted\n"),
        ("/md style", r"error deleting memory: (?!HTTP)"),
    ],
    "approve": [("/approve none", r"error approving: there is no open call 'none'")],
    "edit": [("/edit none {}", r"error editing: there is no open call 'none'")],
    "reject": [("/reject none", r"error rejecting: there is no open call 'none'")],
    "answer": [("/answer none it's fine", r"error answering: there is no open call 'none'")],
    "inbox": [
        ("inbox", r"error getting messages: (?!HTTP).*participant"),
        (f"login {TOKENS['editor']}", r"> id: editor\n"),
        ("inbox --json", r'"unread": 0'),
        ("in --unread --limit 5 --before 9", r"0 unread\n"),
    ],
    "participants": [
        ("participants", r"editor \(participant\)"),
        ("who --json", r'"kind": "participant"'),
    ],
    "send": [
        ("send reviewer 'Please look' --subject Plan", r"message \S+ sent to reviewer\n"),
        ("se reviewer,editor All -u -wa --json", r'"recipient_ids": \[\s*"reviewer"\s*\]'),
        ("send nobody hi", r"error sending message: (?!HTTP).*no mailbox of this swarm is named"),
    ],
    "search": [
        ("search please plan", r"20\d\d-.*editor: Plan +Please look\n"),
        ("find 'plea* \"please look\" -draft' --limit 1 --json", r'"snippet": "Please look"'),
        ("search 'please -plan'", r"no message has that\n"),
    ],
    "read": [("read none", r"error reading message: (?!HTTP)no such message")],
    "reply": [("reply none hi", r"error replying: (?!HTTP)no such message")],
    "ack": [("ack none 'on it'", r"error acknowledging message: (?!HTTP)no such message")],
    "thread-create": [("thread-create 'Release 2' reviewer", r"thread \S+ created\n")],
    "threads": [
        ("threads", r"\S+  Release 2  created by editor, \d{4}-"),
        ("ths --limit 1 --json", r'"title": "Release 2"'),
    ],
    "thread": [("thread none", r"error getting thread: (?!HTTP)no such thread")],
    "post": [("post none hi", r"error posting in thread: (?!HTTP)no such thread")],
    "thread-join": [
        ("thread-join none", r"error joining thread: (?!HTTP)no such thread"),
    ],
    "teams": [
        ("teams", r"alpha +lead editor: reviewer\n"),
        ("/tm --json", r'"lead": "editor"'),
    ],
    "teammate-message": [
        ("teammate-message alpha reviewer 'Ready?'", r"message \S+ sent to reviewer\n"),
        ("tmm alpha reviewer 'Still?' -u --wait 0.01", r"no reply yet; it will be"),
        ("tmm beta reviewer hi", r"error sending message: (?!HTTP)"),
    ],
    "teammate-broadcast": [
        ("teammate-broadcast alpha 'Friday it is'", r"message \S+ sent to reviewer\n"),
        ("tmb alpha again -x -u --json", r'"deliveredTo": \[\s*"reviewer"\s*\]'),
    ],
    "upload": [
        ("upload .mail_history --to reviewer -d 'to read'", r"file \S+ sent to reviewer with mes"),
        ("up .mail_history --json", r'"filename": "mail_history"'),
        ("up nowhere", r"error uploading: FileNotFoundError"),
    ],
    "files": [
        ("files", r"\S+  mail_history  [\d,]+ bytes, \S+\n"),
        ("fs --limit 1 --json", r'"files": \['),
    ],
    "download": [
        ("download none", r"error downloading: (?!HTTP)"),
        (f"login {TOKENS['admin']}", r"> id: root\n"),
    ],
    "help": [
        ("help", r"The server and you:.*exit, quit: leave"),
        ("? ms", r"Usage: mail> message-stream"),
    ],
}


def test_every_command_stands_here() -> None:
    assert EVERY.keys() - {"help"} == {command.name for command in COMMANDS}
    assert LEAVE == ("exit", "quit")


async def test_an_administrator_gives_each_command(tmp_path: Path, place: str) -> None:
    async with terminal(tmp_path, ["client", place, "-ak", TOKENS["admin"]]) as person:
        await person.see("mail>")
        for lines in EVERY.values():
            for line, shown in lines:
                await person.ask(line, shown)
        person.type("exit")
        assert await person.end() == 0
        assert "Traceback" not in person.screen


async def test_participants_write_to_each_other(tmp_path: Path, place: str) -> None:
    async with terminal(tmp_path, ["client", place, "-ak", TOKENS["editor"]]) as person:
        await person.see("mail>")

        async def ask(line: str, shown: str) -> str:
            """Ask, and return the id that comes with what is shown."""
            await person.ask(line, shown)
            return re.findall(shown, person.screen)[-1]

        async def become(who: str) -> None:
            await person.ask(f"login {TOKENS[who]}", rf"> id: {who}\n")

        sent = await ask("send reviewer 'Ready?' -wa", r"message (\S+) sent to reviewer\n")
        await become("reviewer")
        await person.ask("inbox", rf"\* {sent}  \S+  editor  Ready\?\n1 unread\n")
        await person.ask(f"read {sent}", rf"editor to reviewer, .*Ready\?\n.*ack {sent}\n")
        await person.ask("inbox", rf"  {sent}  \S+  editor  Ready\?\n0 unread\n")
        await person.ask(f"ack {sent} 'on it'", rf"message {sent} acknowledged\n")
        answer = await ask(f"reply {sent} Yes --urgent", r"message (\S+) sent to editor\n")
        await become("editor")
        await person.ask(f"rd {sent}", r"Ready\?\nreviewer: answered: on it\n")
        await person.ask(f"re {sent} 'Still?'", r"message \S+ sent to reviewer\n")
        await person.ask(f"rd {answer} --json", rf'"reply_to": "{sent}"')
        thread = await ask("thc 'Release 2'", r"thread (\S+) created\n")
        await person.ask(f"post {thread} alone", r"sent to nobody: you are alone in the thread\n")
        await become("reviewer")
        await person.ask(f"thj {thread}", r"joined; in it: editor, reviewer\n")
        post = await ask(f"po {thread} 'Which branch?'", r"message (\S+) sent to editor\n")
        await become("editor")
        await person.ask(f"reply {post} main", r"message \S+ sent to reviewer\n")
        shown = r"Release 2\nin it: editor, reviewer\n.*alone.*Which branch\?\n.*  main\n"
        await person.ask(f"th {thread}", shown)
        await person.ask(f"find branch -th {thread}", rf"{post}  \S+  reviewer in {thread}  Which")
        (tmp_path / "draft.txt").write_text("x")
        file = await ask("upload draft.txt --to reviewer", r"file (\S+) sent to reviewer")
        await person.ask(f"download {file} copy.txt", r"copy\.txt: 1 bytes\n")
        await person.ask(f"down {file}", r"error downloading: FileExistsError")
        notice = await ask("in -l 2", r"\* (\S{36})  \S+  the mail desk in")
        await person.ask(f"re {notice} hi", r"message \S+ sent to reviewer\n")
        assert "Traceback" not in person.screen


async def test_odd_keys_are_forgiven(tmp_path: Path, place: str) -> None:
    async with terminal(tmp_path, ["client", place, "-ak", TOKENS["admin"]]) as person:
        await person.see("mail>")
        told = r"there is no command '/mesage'\. Did you mean '/message'\? /help lists them"
        await person.ask("/mesage hi", told)
        await person.ask("help sing", r"there is no command '/sing'")
        await person.ask(
            "ms hi --resume-form user_response",
            r"no such option '--resume-form'.*[Dd]id you mean '--resume-from'\?",
        )
        await person.ask(
            "message hello there",
            r"unexpected extra argument \(there\)\. A text of several words needs quotation marks",
        )
        await person.ask("message hi --resume-from user", r"'user' is not one of 'user_response'")
        await person.ask("\x01\x0b\x07\x02\x06ping", r"pong: mail")
        await person.paste("message 'a\x1b[2Jb\x07' -tid odd")
        await person.see(r"You said: a\[2Jb\n")
        await person.see("mail>")
        await person.paste("message '" + "x" * 20_000 + "'")
        await person.see(r"You said: x{20000}\n")
        await person.see("mail>")
        await person.paste("message 'two\nlines' --json")
        await person.see(r'"response": "You said: two\\nlines"')
        await person.see("mail>")
        person.type("message 'half \\")
        await person.see(r"\.\.\.")
        person.press("\x03")
        await person.see("mail>")
        await person.ask("ping", "pong")
        person.type("message 'half \\")
        await person.see(r"\.\.\.")
        person.press("\x04")  # the end of input, in the middle of a command
        assert await person.end() == 0
        assert "Traceback" not in person.screen


async def test_a_terminal_that_goes_away_ends_the_program(tmp_path: Path, place: str) -> None:
    async with terminal(tmp_path, ["client", place, "-ak", TOKENS["admin"]]) as person:
        await person.see("mail>")
        person.close()
        await person.end()
