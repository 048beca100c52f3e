"""The commands of ``mail client`` for participants: their messages, threads, teams and files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from mail.cli.common import DONE, one_line
from mail.cli.repl.screen import Part
from mail.cli.repl.session import Section, Session
from mail.cli.table import Namespace, argument, flag, option, positive
from mail.errors import MAILError

_MOST: Final = 100
_LONGEST_NAME: Final = 120


section = Section("Messages of participants")


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _limit(usual: int) -> click.Option:
    told = f"at most so many (default {usual})"
    return option("-l", "--limit", metavar="N", type=int, default=usual, told=told)


_PAGE: Final = (
    option("-b", "--before", metavar="N", type=int, told="only older ones"),
    _limit(20),
)
_ID: Final = argument("message_id", "the message, as `inbox` lists it", metavar="ID")
_THREAD: Final = argument("thread_id", "the thread, as `threads` lists it", metavar="ID")
_TEAM: Final = argument("team_id", "the team, as `teams` lists it", metavar="TEAM")
_LETTER: Final = (
    argument("text", "the text"),
    flag("-u", "--urgent", told="it wants attention at once"),
)
_TEXT: Final = (*_LETTER, flag("-wa", "--wants-ack", told="ask to acknowledge it"))


@section("participants who", "list who can be written to", "getting participants")
async def _participants(session: Session, arguments: Namespace) -> int:
    answer = await session.client.get_participants()
    lines = [
        f"{each['name']} ({each['kind']})  {one_line(each['description'])}".rstrip()
        for each in answer["participants"]
    ]
    return session.tell(arguments, answer, *lines)


@section(
    "inbox in",
    "list your messages",
    "getting messages",
    flag("-u", "--unread", told="only unread ones"),
    *_PAGE,
)
async def _inbox(session: Session, arguments: Namespace) -> int:
    page = await session.client.get_desk_messages(
        limit=arguments.limit, before=arguments.before, unread=arguments.unread, mark_read=False
    )
    notes = [f"{page['unread']} unread"]
    if page["next_before"] is not None and len(page["messages"]) == arguments.limit:
        notes.append(f"older ones: inbox --before {page['next_before']}")
    lines = [_line(message, message["content"]) for message in page["messages"]]
    return session.tell(arguments, page, *lines, note="\n".join(notes))


@section("read rd", "read a message", "reading message", _ID)
async def _read(session: Session, arguments: Namespace) -> int:
    found = await session.client.get_desk_message(arguments.message_id)
    if session.shows_json(arguments, found):
        return DONE
    message, screen = found["message"], session.screen
    notes = [
        f"{_sender(message)} to {', '.join(message['recipient_ids'])}, {message['created_at']}"
    ]
    notes += [f"thread {message['thread_id']}"] if message["thread_id"] else []
    screen.note(("\n".join(notes), "dim"))
    if message["subject"]:
        screen.say((message["subject"], "bold"))
    screen.say(message["content"])
    for receipt in found["receipts"] or ():
        told = f": {receipt['note']}" if receipt["note"] else ""
        screen.note((f"{receipt['recipient_id']}: {receipt['state']}{told}", "dim"))
    if message["wants_ack"] and found["receipts"] is None:
        screen.note((f"acknowledge it with: ack {message['id']}", "dim"))
    return DONE


@section(
    "send se",
    "write to a participant",
    "sending message",
    argument("names", "a participant, or several: editor,tester", metavar="NAME"),
    *_TEXT,
    option("-s", "--subject", told="the subject"),
)
async def _send(session: Session, arguments: Namespace) -> int:
    names = list(arguments.names.split(","))
    to: dict[str, Any] = {"recipient_id": names[0]} if len(names) == 1 else {"recipient_ids": names}
    return await _sent(session, arguments, **to, subject=arguments.subject)


@section("post po", "write in a thread", "posting in thread", _THREAD, *_TEXT)
async def _post(session: Session, arguments: Namespace) -> int:
    return await _sent(session, arguments, thread_id=arguments.thread_id)


@section("reply re", "answer a message", "replying", _ID, *_TEXT)
async def _reply(session: Session, arguments: Namespace) -> int:
    found = await session.client.get_desk_message(arguments.message_id)
    message = found["message"]
    to: dict[str, Any]
    if message["thread_id"]:
        to = {"thread_id": message["thread_id"]}
    elif found["receipts"] is not None:  # one's own: to those who got it
        to = {"recipient_ids": message["recipient_ids"]}
    elif message["sender_id"]:
        to = {"recipient_id": message["sender_id"]}
    else:
        raise MAILError("it is a notice of the mail desk, which reads nothing")
    return await _sent(session, arguments, **to, reply_to=message["id"])


async def _sent(session: Session, arguments: Namespace, **to: Any) -> int:
    sent = await session.client.send_desk_message(
        arguments.text, urgent=arguments.urgent, wants_ack=arguments.wants_ack, **to
    )
    message = sent["message"]
    names = ", ".join(message["recipient_ids"]) or "nobody: you are alone in the thread"
    return session.tell(arguments, sent, f"message {message['id']} sent to {names}")


@section(
    "ack a",
    "acknowledge a message",
    "acknowledging message",
    _ID,
    argument("note", "a word to its sender", default=""),
)
async def _ack(session: Session, arguments: Namespace) -> int:
    done = await session.client.acknowledge_message(arguments.message_id, arguments.note)
    said = done["status"].replace("_", " ")
    return session.tell(arguments, done, f"message {arguments.message_id} {said}")


@section(
    "search find",
    "find messages by their words",
    "searching messages",
    argument(
        "words",
        "words, or the whole query in quotation marks: 'plan* \"open question\" -draft'",
        metavar="WORD...",
        nargs=-1,
        required=True,
    ),
    option("-th", "--thread", metavar="ID", told="only this thread"),
    *_PAGE,
)
async def _search(session: Session, arguments: Namespace) -> int:
    page = await session.client.search_messages(
        " ".join(arguments.words),
        thread_id=arguments.thread,
        limit=arguments.limit,
        before=arguments.before,
    )
    note = "" if page["messages"] else "no message has that"
    if page["next_before"] is not None:
        note = f"older ones: add --before {page['next_before']}"
    lines = [_line(message, message["snippet"]) for message in page["messages"]]
    return session.tell(arguments, page, *lines, note=note)


@section(
    "threads ths",
    "list your threads",
    "getting threads",
    option("-a", "--after", metavar="PLACE", told="what the page before says"),
    _limit(_MOST),
)
async def _threads(session: Session, arguments: Namespace) -> int:
    page = await session.client.get_threads(arguments.after, arguments.limit)
    lines = [
        _entry(
            each["id"], each["title"], f"created by {each['creator_id']}, {each['created_at'][:16]}"
        )
        for each in page["threads"]
    ]
    return session.tell(arguments, page, *lines, note=_more("threads", page))


@section("thread th", "show a thread and its messages", "getting thread", _THREAD, _limit(20))
async def _thread(session: Session, arguments: Namespace) -> int:
    thread = await session.client.get_thread(arguments.thread_id)
    page = await session.client.get_desk_messages(
        thread_id=arguments.thread_id, limit=arguments.limit, mark_read=False
    )
    answer = {"thread": thread, **page}
    if not session.wants_json(arguments):
        session.screen.say((thread["title"], "bold"))
        session.screen.note((f"in it: {', '.join(thread['participants'])}", "dim"))
    lines = [_line(message, message["content"]) for message in reversed(page["messages"])]
    return session.tell(arguments, answer, *lines)


@section(
    "thread-create thc",
    "begin a thread",
    "creating thread",
    argument("title", "its title"),
    argument("names", "who is in it, besides you", metavar="[NAME...]", nargs=-1),
)
async def _thread_create(session: Session, arguments: Namespace) -> int:
    made = await session.client.create_thread(arguments.title, arguments.names)
    return session.tell(arguments, made, f"thread {made['thread']['id']} created")


@section("thread-join thj", "join a thread", "joining thread", _THREAD)
async def _thread_join(session: Session, arguments: Namespace) -> int:
    joined = await session.client.join_thread(arguments.thread_id)
    names = ", ".join(joined["thread"]["participants"])
    return session.tell(arguments, joined, f"{joined['status'].replace('_', ' ')}; in it: {names}")


@section("teams tm", "list your teams", "getting teams")
async def _teams(session: Session, arguments: Namespace) -> int:
    answer = await session.client.get_teams()
    lines = [
        f"{team['id']}  lead {team['lead']}: {', '.join(team['members'])}"
        for team in answer["teams"]
    ]
    return session.tell(arguments, answer, *(lines or ["you are in no team"]))


@section(
    "teammate-message tmm",
    "write to a member of a team",
    "sending message",
    _TEAM,
    argument("name", "a member, or `lead`"),
    *_LETTER,
    option(
        *("-w", "--wait"),
        metavar="SECONDS",
        type=positive,
        told="wait so many seconds for the reply",
    ),
)
async def _teammate_message(session: Session, arguments: Namespace) -> int:
    sent = await session.client.teammate_message(
        arguments.team_id,
        arguments.name,
        arguments.text,
        urgent=arguments.urgent,
        wait=arguments.wait,
    )
    lines = [f"message {sent['messageId']} sent to {arguments.name}"]
    if reply := sent.get("reply"):
        lines = [reply["message"]]
    elif arguments.wait is not None:
        lines.append("no reply yet; it will be an ordinary message")
    return session.tell(arguments, sent, *lines)


@section(
    "teammate-broadcast tmb",
    "write to all members of a team",
    "sending message",
    _TEAM,
    *_LETTER,
    flag("-x", "--exclude-self", told="no copy for yourself"),
)
async def _teammate_broadcast(session: Session, arguments: Namespace) -> int:
    sent = await session.client.teammate_broadcast(
        arguments.team_id,
        arguments.text,
        urgent=arguments.urgent,
        exclude_self=arguments.exclude_self,
    )
    names = ", ".join(sent["deliveredTo"]) or "nobody"
    return session.tell(arguments, sent, f"message {sent['messageId']} sent to {names}")


@section(
    "files fs",
    "list your files",
    "getting files",
    option("-a", "--after", metavar="ID", told="only files after this one"),
    _limit(_MOST),
)
async def _files(session: Session, arguments: Namespace) -> int:
    page = await session.client.get_files(arguments.after, arguments.limit)
    lines = [
        _entry(each["id"], each["filename"], f"{each['size']:,} bytes, {each['media_type']}")
        for each in page["files"]
    ]
    return session.tell(arguments, page, *lines, note=_more("files", page))


@section(
    "upload up",
    "upload a file, and hand it on",
    "uploading",
    argument("path", "the file", type=_path),
    option("--to", metavar="NAME", told="a participant who gets it"),
    option("-th", "--thread", metavar="ID", told="a thread whose members get it"),
    option("-d", "--description", metavar="TEXT", told="what to say about it"),
)
async def _upload(session: Session, arguments: Namespace) -> int:
    if arguments.to and arguments.thread:
        raise click.UsageError("give --to or --thread, not both")
    file = await session.client.upload_file(arguments.path)
    if not (arguments.to or arguments.thread):
        return session.tell(arguments, file, f"file {file['id']} uploaded")
    sent = await session.client.transfer_file(
        file["id"],
        recipient_id=arguments.to,
        thread_id=arguments.thread,
        description=arguments.description,
    )
    where = arguments.to or f"thread {arguments.thread}"
    line = f"file {file['id']} sent to {where} with message {sent['message_id']}"
    return session.tell(arguments, sent, line)


@section(
    "download down",
    "download a file",
    "downloading",
    argument("file_id", "the file, as `files` or a message names it", metavar="ID"),
    argument(
        "path",
        "where to write it (default: its name, in the current folder)",
        type=_path,
        required=False,
    ),
)
async def _download(session: Session, arguments: Namespace) -> int:
    target = arguments.path
    if target is None:  # a name in the current folder, of one that somebody else has chosen
        known = await session.client.get_file(arguments.file_id)
        last = one_line(re.split(r"[/\\]", known["filename"])[-1], _LONGEST_NAME)
        target = Path(last.replace("\\", "_").strip(". "))
        if target == Path():
            raise MAILError("the file has no name; give a path to write it to")
    file = await session.client.download_file(arguments.file_id, target)
    return session.tell(arguments, file, f"{target}: {file['size']:,} bytes")


def _entry(name: str, title: str, about: str) -> list[Part]:
    return [f"{name}  {one_line(title)}", (f"  {about}", "dim")]


def _more(command: str, page: Mapping[str, Any]) -> str:
    after = page["next_after"]
    return "" if after is None else f"more: {command} --after {after}"


def _line(message: Mapping[str, Any], text: str) -> list[Part]:
    """Return a message on one line; an unread one has a star."""
    mark = " " if message["read"] else "*"
    about = f": {message['subject']}" if message["subject"] else ""
    place = f" in {message['thread_id']}" if message["thread_id"] else ""
    return [
        (f"{mark} ", "bold yellow"),
        f"{message['id']}  {message['created_at'][:16]}  ",
        (one_line(f"{_sender(message)}{place}{about}"), "cyan"),
        f"  {one_line(text)}",
    ]


def _sender(message: Mapping[str, Any]) -> str:
    return str(message["sender_id"] or "the mail desk")
