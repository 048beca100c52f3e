"""The commands of ``mail client`` for participants: their messages, threads, teams and files."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mail.cli.common import DONE, FAILED, one_line, positive
from mail.cli.repl.session import Command, Session, add_json
from mail.errors import MAILError

_WIDEST: Final = 200
_MOST: Final = 100
_LONGEST_NAME: Final = 120


async def _participants(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.get_participants()
    lines = [
        f"{each['name']} ({each['kind']})  {one_line(each['description'])}".rstrip()
        for each in answer["participants"]
    ]
    return session.tell(arguments, answer, *lines)


async def _inbox(session: Session, arguments: argparse.Namespace) -> int:
    page = await session.client.get_desk_messages(
        limit=arguments.limit, before=arguments.before, unread=arguments.unread, mark_read=False
    )
    if session.shows_json(arguments, page):
        return DONE
    for message in page["messages"]:
        _show_line(session, message, message["content"])
    session.screen.note((f"{page['unread']} unread", "dim"))
    if page["next_before"] is not None and len(page["messages"]) == arguments.limit:
        session.screen.note((f"older ones: inbox --before {page['next_before']}", "dim"))
    return DONE


async def _read(session: Session, arguments: argparse.Namespace) -> int:
    found = await session.client.get_desk_message(arguments.message_id)
    if session.shows_json(arguments, found):
        return DONE
    message, screen = found["message"], session.screen
    names = ", ".join(message["recipient_ids"])
    screen.note((f"{_sender(message)} to {names}, {message['created_at']}", "dim"))
    if message["thread_id"]:
        screen.note((f"thread {message['thread_id']}", "dim"))
    if message["subject"]:
        screen.say((message["subject"], "bold"))
    screen.say(message["content"])
    for receipt in found["receipts"] or ():
        told = f": {receipt['note']}" if receipt["note"] else ""
        screen.note((f"{receipt['recipient_id']}: {receipt['state']}{told}", "dim"))
    if message["wants_ack"] and found["receipts"] is None:
        screen.note((f"acknowledge it with: ack {message['id']}", "dim"))
    return DONE


async def _send(session: Session, arguments: argparse.Namespace) -> int:
    names = list(arguments.names.split(","))
    to: dict[str, Any] = {"recipient_id": names[0]} if len(names) == 1 else {"recipient_ids": names}
    return await _sent(session, arguments, **to, subject=arguments.subject)


async def _post(session: Session, arguments: argparse.Namespace) -> int:
    return await _sent(session, arguments, thread_id=arguments.thread_id)


async def _reply(session: Session, arguments: argparse.Namespace) -> int:
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
        session.screen.fail("error replying: it is a notice of the mail desk, which reads nothing")
        return FAILED
    return await _sent(session, arguments, **to, reply_to=message["id"])


async def _sent(session: Session, arguments: argparse.Namespace, **to: Any) -> int:
    sent = await session.client.send_desk_message(
        arguments.text, urgent=arguments.urgent, wants_ack=arguments.wants_ack, **to
    )
    message = sent["message"]
    names = ", ".join(message["recipient_ids"]) or "nobody: you are alone in the thread"
    return session.tell(arguments, sent, f"message {message['id']} sent to {names}")


async def _ack(session: Session, arguments: argparse.Namespace) -> int:
    done = await session.client.acknowledge_message(arguments.message_id, arguments.note)
    said = done["status"].replace("_", " ")
    return session.tell(arguments, done, f"message {arguments.message_id} {said}")


async def _search(session: Session, arguments: argparse.Namespace) -> int:
    page = await session.client.search_messages(
        " ".join(arguments.words),
        thread_id=arguments.thread,
        limit=arguments.limit,
        before=arguments.before,
    )
    if session.shows_json(arguments, page):
        return DONE
    for message in page["messages"]:
        _show_line(session, message, message["snippet"])
    if page["next_before"] is not None:
        session.screen.note((f"older ones: add --before {page['next_before']}", "dim"))
    elif not page["messages"]:
        session.screen.note("no message has that")
    return DONE


async def _threads(session: Session, arguments: argparse.Namespace) -> int:
    page = await session.client.get_threads(arguments.after, arguments.limit)
    lines = [
        (each["id"], each["title"], f"created by {each['creator_id']}, {each['created_at'][:16]}")
        for each in page["threads"]
    ]
    return _show_page(session, arguments, page, lines, "threads")


def _show_page(
    session: Session,
    arguments: argparse.Namespace,
    page: Mapping[str, Any],
    lines: Sequence[tuple[str, str, str]],
    command: str,
) -> int:
    """Show a page of a list, each line as (id, name, what else), and how to see the next one."""
    if session.shows_json(arguments, page):
        return DONE
    for name, title, about in lines:
        session.screen.say(f"{name}  {one_line(title)}", (f"  {about}", "dim"))
    if page["next_after"] is not None:
        session.screen.note((f"more: {command} --after {page['next_after']}", "dim"))
    return DONE


async def _thread(session: Session, arguments: argparse.Namespace) -> int:
    thread = await session.client.get_thread(arguments.thread_id)
    page = await session.client.get_desk_messages(
        thread_id=arguments.thread_id, limit=arguments.limit, mark_read=False
    )
    if session.shows_json(arguments, {"thread": thread, **page}):
        return DONE
    session.screen.say((thread["title"], "bold"))
    session.screen.note((f"in it: {', '.join(thread['participants'])}", "dim"))
    for message in reversed(page["messages"]):
        _show_line(session, message, message["content"])
    return DONE


async def _thread_create(session: Session, arguments: argparse.Namespace) -> int:
    made = await session.client.create_thread(arguments.title, arguments.names)
    return session.tell(arguments, made, f"thread {made['thread']['id']} created")


async def _thread_join(session: Session, arguments: argparse.Namespace) -> int:
    joined = await session.client.join_thread(arguments.thread_id)
    names = ", ".join(joined["thread"]["participants"])
    return session.tell(arguments, joined, f"{joined['status'].replace('_', ' ')}; in it: {names}")


async def _teams(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.get_teams()
    lines = [
        f"{team['id']}  lead {team['lead']}: {', '.join(team['members'])}"
        for team in answer["teams"]
    ]
    return session.tell(arguments, answer, *(lines or ["you are in no team"]))


async def _teammate_message(session: Session, arguments: argparse.Namespace) -> int:
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


async def _teammate_broadcast(session: Session, arguments: argparse.Namespace) -> int:
    sent = await session.client.teammate_broadcast(
        arguments.team_id,
        arguments.text,
        urgent=arguments.urgent,
        exclude_self=arguments.exclude_self,
    )
    names = ", ".join(sent["deliveredTo"]) or "nobody"
    return session.tell(arguments, sent, f"message {sent['messageId']} sent to {names}")


async def _files(session: Session, arguments: argparse.Namespace) -> int:
    page = await session.client.get_files(arguments.after, arguments.limit)
    lines = [
        (each["id"], each["filename"], f"{each['size']:,} bytes, {each['media_type']}")
        for each in page["files"]
    ]
    return _show_page(session, arguments, page, lines, "files")


async def _upload(session: Session, arguments: argparse.Namespace) -> int:
    file = await session.client.upload_file(_path(arguments.path))
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


async def _download(session: Session, arguments: argparse.Namespace) -> int:
    if arguments.path is None:
        known = await session.client.get_file(arguments.file_id)
        target = Path(_harmless_name(known["filename"]))
    else:
        target = _path(arguments.path)
    file = await session.client.download_file(arguments.file_id, target)
    return session.tell(arguments, file, f"{target}: {file['size']:,} bytes")


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _harmless_name(name: str) -> str:
    """Return a name for a file in the current folder from one that somebody else has chosen.

    Raises:
        MAILError: there is nothing in it to call a file.
    """
    last = one_line(re.split(r"[/\\]", name)[-1], _LONGEST_NAME).replace("\\", "_").strip(". ")
    if not last:
        raise MAILError("the file has no name; give a path to write it to")
    return last


def _show_line(session: Session, message: Mapping[str, Any], text: str) -> None:
    """Print a message on one line; an unread one has a star."""
    mark = " " if message["read"] else "*"
    about = f": {message['subject']}" if message["subject"] else ""
    place = f" in {message['thread_id']}" if message["thread_id"] else ""
    session.screen.say(
        (f"{mark} ", "bold yellow"),
        f"{message['id']}  {message['created_at'][:16]}  ",
        (one_line(f"{_sender(message)}{place}{about}", _WIDEST), "cyan"),
        f"  {one_line(text, _WIDEST)}",
    )


def _sender(message: Mapping[str, Any]) -> str:
    return str(message["sender_id"] or "the mail desk")


def _configure_inbox(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-u", "--unread", action="store_true", help="only unread ones")
    _add_page(parser)
    add_json(parser)


def _configure_message(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("message_id", metavar="ID", help="the message, as `inbox` lists it")
    add_json(parser)


def _configure_ack(parser: argparse.ArgumentParser) -> None:
    _configure_message(parser)
    parser.add_argument("note", nargs="?", default="", help="a word to its sender")


def _configure_reply(parser: argparse.ArgumentParser) -> None:
    _configure_message(parser)
    _add_text(parser)


def _configure_send(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", help="a participant, or several: editor,tester")
    _add_text(parser)
    parser.add_argument("-s", "--subject", help="the subject")
    add_json(parser)


def _configure_post(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread_id", metavar="THREAD", help="the thread, as `threads` lists it")
    _add_text(parser)
    add_json(parser)


def _configure_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="+",
        metavar="WORD",
        help="words, or the whole query in quotation marks: 'plan* \"open question\" -draft'",
    )
    parser.add_argument("-th", "--thread", metavar="ID", help="only this thread")
    _add_page(parser)
    add_json(parser)


def _configure_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--after", metavar="PLACE", help="what the page before says")
    _add_limit(parser, _MOST)
    add_json(parser)


def _configure_thread(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread_id", metavar="ID", help="the thread, as `threads` lists it")
    _add_limit(parser, 20)
    add_json(parser)


def _configure_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", help="its title")
    parser.add_argument("names", nargs="*", metavar="NAME", help="who is in it, besides you")
    add_json(parser)


def _configure_join(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread_id", metavar="ID", help="the thread")
    add_json(parser)


def _configure_teammate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("team_id", metavar="TEAM", help="the team, as `teams` lists it")
    parser.add_argument("name", metavar="NAME", help="a member, or `lead`")
    _add_letter(parser)
    told = "wait so many seconds for the reply"
    parser.add_argument("-w", "--wait", metavar="SECONDS", type=positive, help=told)
    add_json(parser)


def _configure_broadcast(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("team_id", metavar="TEAM", help="the team, as `teams` lists it")
    _add_letter(parser)
    parser.add_argument("-x", "--exclude-self", action="store_true", help="no copy for yourself")
    add_json(parser)


def _configure_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--after", metavar="ID", help="only files after this one")
    _add_limit(parser, _MOST)
    add_json(parser)


def _configure_upload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the file")
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument("--to", metavar="NAME", help="a participant who gets it")
    whom.add_argument("-th", "--thread", metavar="ID", help="a thread whose members get it")
    parser.add_argument("-d", "--description", metavar="TEXT", help="what to say about it")
    add_json(parser)


def _configure_download(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file_id", metavar="ID", help="the file, as `files` or a message names it")
    told = "where to write it (default: its name, in the current folder)"
    parser.add_argument("path", metavar="PATH", nargs="?", help=told)
    add_json(parser)


def _add_letter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", help="the text")
    parser.add_argument("-u", "--urgent", action="store_true", help="it wants attention at once")


def _add_text(parser: argparse.ArgumentParser) -> None:
    _add_letter(parser)
    parser.add_argument("-wa", "--wants-ack", action="store_true", help="ask to acknowledge it")


def _add_page(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--before", metavar="N", type=int, help="only older ones")
    _add_limit(parser, 20)


def _add_limit(parser: argparse.ArgumentParser, usual: int) -> None:
    told = f"at most so many (default {usual})"
    parser.add_argument("-l", "--limit", metavar="N", type=int, default=usual, help=told)


DESK: Final = (
    Command(
        "participants",
        ("who",),
        "list who can be written to",
        add_json,
        _participants,
        "getting participants",
    ),
    Command("inbox", ("in",), "list your messages", _configure_inbox, _inbox, "getting messages"),
    Command("read", ("rd",), "read a message", _configure_message, _read, "reading message"),
    Command("reply", ("re",), "answer a message", _configure_reply, _reply, "replying"),
    Command("send", ("se",), "write to a participant", _configure_send, _send, "sending message"),
    Command("ack", ("a",), "acknowledge a message", _configure_ack, _ack, "acknowledging message"),
    Command(
        "search",
        ("find",),
        "find messages by their words",
        _configure_search,
        _search,
        "searching messages",
    ),
    Command(
        "threads", ("ths",), "list your threads", _configure_threads, _threads, "getting threads"
    ),
    Command(
        "thread",
        ("th",),
        "show a thread and its messages",
        _configure_thread,
        _thread,
        "getting thread",
    ),
    Command("post", ("po",), "write in a thread", _configure_post, _post, "posting in thread"),
    Command(
        "thread-create",
        ("thc",),
        "begin a thread",
        _configure_create,
        _thread_create,
        "creating thread",
    ),
    Command(
        "thread-join", ("thj",), "join a thread", _configure_join, _thread_join, "joining thread"
    ),
    Command("teams", ("tm",), "list your teams", add_json, _teams, "getting teams"),
    Command(
        "teammate-message",
        ("tmm",),
        "write to a member of a team",
        _configure_teammate,
        _teammate_message,
        "sending message",
    ),
    Command(
        "teammate-broadcast",
        ("tmb",),
        "write to all members of a team",
        _configure_broadcast,
        _teammate_broadcast,
        "sending message",
    ),
    Command("files", ("fs",), "list your files", _configure_files, _files, "getting files"),
    Command(
        "upload", ("up",), "upload a file, and hand it on", _configure_upload, _upload, "uploading"
    ),
    Command(
        "download", ("down",), "download a file", _configure_download, _download, "downloading"
    ),
)
