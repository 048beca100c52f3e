"""What the mail desk's document says, as a model: no server, no database, no code of ours.

A `Model` is told of one operation after the other, each with its answer, and raises `Differs` where
the document says something else. Letters and threads have names of the model's own, so that a
history can be repeated elsewhere; ids, times and places in pages are learnt from the answers. What
an operation changes can be taken back, for whoever looks for the order of concurrent ones.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

__all__ = ["ADMIN", "WORDS", "Answer", "Differs", "LetterKey", "Model", "Op", "content_of"]

ANY: Final = "any subject"
ADMIN: Final = ""
"""The actor that is an administrator, who looks and changes nothing."""
WORDS: Final = frozenset(f"word{number}x" for number in range(200))
"""What is searched for."""
_MOST_COUNTED: Final = 1000
_MOST_OVERDUE: Final = 100
_SOON: Final = 2.0
_LATELY: Final = 1500
"""Operations of somewhat more than ten seconds: how old the server's view of a share may be."""
_BLOCK: Final = 4096
"""What a small file counts as."""

LetterKey = tuple[int, int]
"""The number of the operation that brought a letter, and which of its letters it is."""


class Op(NamedTuple):
    """An operation. Its arguments name letters by `LetterKey`, threads by who created them."""

    number: int
    actor: str
    verb: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.args.items())
        return f"{self.number:6d}  {self.actor or 'administrator'}: {self.verb}({given})"


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: Any


class Differs(Exception):
    """An answer is not what the document says."""


class _Letter(NamedTuple):
    """``content`` is a text, or for a notice the names that it must mention."""

    sender: str
    recipients: tuple[str, ...]
    kind: str
    content: str | tuple[str, ...]
    thread: int | None
    subject: str = ""
    reply_to: LetterKey | None = None
    urgent: bool = False
    wants_ack: bool = False
    file: int | None = None


class _Thread(NamedTuple):
    title: str
    creator: str


class _File(NamedTuple):
    owner: str
    name: str
    size: int
    sha256: str


TaskKey = tuple[str, LetterKey | int]
"""Whose task it is, and the letter or the thread that it is about."""


class _Turn(NamedTuple):
    """What an agent is about to do: to read a letter, or to hear how its wait has ended."""

    agent: str
    task: TaskKey
    letter: LetterKey
    ends: str = ""


class _Wait(NamedTuple):
    """An agent waits for a teammate: for the reply to ``asked``, in the turn on ``letter``."""

    mate: str
    asked: LetterKey
    letter: LetterKey
    timer: int


def content_of(seed: int, size: int) -> bytes:
    """Return the content of a file."""
    line = f"file {seed} ".encode()
    return (line * (size // len(line) + 1))[:size]


@lru_cache(maxsize=1000)
def _sha256(seed: int, size: int) -> str:
    return hashlib.sha256(content_of(seed, size)).hexdigest()


def _same(what: str, told: object, expected: object) -> None:
    if told != expected:
        raise Differs(f"{what}: expected {expected!r}, got {told!r}")


def _mentions(text: str, names: Iterable[str]) -> bool:
    return all(name in text for name in names)


@dataclass(eq=False)
class Model:
    """The desk of one swarm. ``strict`` while nothing else is under way.

    ``agents`` tells which participants each agent may write to; the first one is the entrypoint and
    leads the team, whose other members are ``mates``. Who has files of ``most_stored`` bytes can
    store nothing more.
    """

    names: tuple[str, ...]
    agents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mates: tuple[str, ...] = ()
    most_stored: int = 2**60
    strict: bool = True
    letters: dict[LetterKey, _Letter] = field(default_factory=dict)
    places: dict[LetterKey, int] = field(default_factory=dict)
    threads: dict[int, _Thread] = field(default_factory=dict)
    members: dict[int, tuple[str, ...]] = field(default_factory=dict)
    shown: dict[tuple[LetterKey, str], str] = field(default_factory=dict)
    acked: dict[tuple[LetterKey, str], tuple[str, str]] = field(default_factory=dict)
    answers: dict[tuple[LetterKey, str], LetterKey] = field(default_factory=dict)
    unread: dict[str, dict[LetterKey, None]] = field(default_factory=lambda: defaultdict(dict))
    requests: dict[tuple[str, str], tuple[object, LetterKey]] = field(default_factory=dict)
    pages: dict[tuple[str, str], list[tuple[LetterKey, bool]]] = field(default_factory=dict)
    ids: dict[LetterKey, str] = field(default_factory=dict)
    times: dict[LetterKey, str] = field(default_factory=dict)
    cursors: dict[LetterKey, int] = field(default_factory=dict)
    thread_ids: dict[int, str] = field(default_factory=dict)
    files: dict[int, _File] = field(default_factory=dict)
    file_ids: dict[int, str] = field(default_factory=dict)
    open_asks: dict[LetterKey, TaskKey] = field(default_factory=dict)
    tasks: dict[LetterKey, TaskKey] = field(default_factory=dict)
    pending: dict[int, _Turn] = field(default_factory=dict)
    turns: dict[tuple[LetterKey, str], int] = field(default_factory=dict)
    _uploads: dict[tuple[str, str], tuple[object, int]] = field(default_factory=dict)
    _steps: dict[TaskKey, int] = field(default_factory=dict)
    _owing: dict[TaskKey, tuple[LetterKey, ...]] = field(default_factory=dict)
    _waits: dict[tuple[TaskKey, str], _Wait] = field(default_factory=dict)
    _file_keys: dict[str, int] = field(default_factory=dict)
    _carriers: dict[int, list[LetterKey]] = field(default_factory=lambda: defaultdict(list))
    _keys: dict[str, LetterKey] = field(default_factory=dict)
    _at: dict[int, LetterKey] = field(default_factory=dict)
    _thread_keys: dict[str, int] = field(default_factory=dict)
    _boxes: dict[str, list[LetterKey]] = field(default_factory=lambda: defaultdict(list))
    _posts: dict[int, list[LetterKey]] = field(default_factory=lambda: defaultdict(list))
    _words: dict[str, list[LetterKey]] = field(default_factory=lambda: defaultdict(list))
    _owed: dict[str, dict[LetterKey, None]] = field(default_factory=lambda: defaultdict(dict))
    _undo: list[tuple[Any, Any, bool, Any]] = field(default_factory=list)
    _audience: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    # --- going back -------------------------------------------------------------------------------

    def mark(self) -> int:
        """Return where the model is, for `back`."""
        return len(self._undo)

    def back(self, mark: int) -> None:
        """Take back all since then."""
        while len(self._undo) > mark:
            table, key, there, old = self._undo.pop()
            if there:
                table[key] = old
            else:
                table.pop(key)

    def changes(self, mark: int) -> frozenset[tuple[int, object, str]]:
        """Return what is different since then: the same for the same state, however it came."""
        found = {}
        for table, key, _, _ in self._undo[mark:]:
            if isinstance(table, list):
                found[id(table), key] = repr(table[key])
            else:
                found[id(table), key] = repr(table[key]) if key in table else ""
        return frozenset((*where, value) for where, value in found.items())

    def keep(self) -> None:
        """Forget how to go back."""
        self._undo.clear()

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((table, key, key in table, table.get(key)))
        table[key] = value

    def _drop(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            self._undo.append((table, key, True, table.pop(key)))

    def _push(self, items: list[Any], value: Any) -> None:
        self._undo.append((items, len(items), False, None))
        items.append(value)

    # --- what an operation is over HTTP -----------------------------------------------------------

    def request(self, op: Op) -> tuple[str, str, dict[str, str], dict[str, Any] | bytes | None]:
        """Return method, path, query and body.

        Raises:
            KeyError: it names a letter or thread whose id is not known.
        """
        made: tuple[str, str, dict[str, Any], dict[str, Any] | bytes | None]
        made = getattr(self, f"_ask_{op.verb}")(op)
        method, path, query, body = made
        texts = {name: str(value) for name, value in query.items() if value is not None}
        return method, path, texts, body

    def _thread_id(self, key: int | None) -> str:
        return "no-such-thread" if key is None else self.thread_ids[key]

    def _letter_id(self, key: LetterKey | None) -> str:
        return "no-such-letter" if key is None else self.ids[key]

    def _ask_send(self, op: Op) -> Any:
        to = dict(op.args)
        body: dict[str, Any] = {"content": to["content"]}
        if "thread" in to:
            body["thread_id"] = self._thread_id(to["thread"])
        for ours, theirs in (("to", "recipient_id"), ("many", "recipient_ids")):
            if ours in to:
                body[theirs] = to[ours]
        if "reply_to" in to:
            body["reply_to"] = self._letter_id(to["reply_to"])
        for name in ("subject", "urgent", "wants_ack", "request_id", "sender_id"):
            if name in to:
                body[name] = to[name]
        return "POST", "/messages", {}, body

    def _ask_get(self, op: Op) -> Any:
        args = dict(op.args)
        query = {name: args.get(name) for name in ("limit", "request_id")}
        if "thread" in args:
            query["thread_id"] = self._thread_id(args["thread"])
        if "since" in args:
            query["since"] = self.times[args["since"]]
        if "before" in args:
            query["before"] = self.cursors[args["before"]]
        query["before"] = args.get("place", query.get("before"))
        query["unread"] = "true" if args.get("unread") else None
        query["mark_read"] = None if args.get("mark", True) else "false"
        return "GET", "/messages", query, None

    def _ask_search(self, op: Op) -> Any:
        query = {"q": op.args["word"], "limit": op.args["limit"]}
        if "thread" in op.args:
            query["thread_id"] = self._thread_id(op.args["thread"])
        return "GET", "/messages/search", query, None

    def _ask_message(self, op: Op) -> Any:
        query = {} if op.args.get("mark", True) else {"mark_read": "false"}
        return "GET", f"/messages/{self._letter_id(op.args['letter'])}", query, None

    def _ask_count(self, op: Op) -> Any:
        return "GET", "/messages/unread", {"wait": op.args.get("wait")}, None

    def _ask_overdue(self, op: Op) -> Any:
        return "GET", "/messages/overdue", {}, None

    def _ask_ack(self, op: Op) -> Any:
        body = {"note": op.args["note"]}
        return "POST", f"/messages/{self._letter_id(op.args['letter'])}/ack", {}, body

    def _ask_create(self, op: Op) -> Any:
        body = {"title": op.args["title"], "participants": op.args["names"]}
        if "initial" in op.args:
            body["initial_message"] = op.args["initial"]
        return "POST", "/threads", {}, body

    def _ask_threads(self, op: Op) -> Any:
        query = {"limit": op.args["limit"], "after": op.args.get("place")}
        return "GET", "/threads", query, None

    def _ask_details(self, op: Op) -> Any:
        return "GET", f"/threads/{self._thread_id(op.args['thread'])}", {}, None

    def _ask_join(self, op: Op) -> Any:
        return "POST", f"/threads/{self._thread_id(op.args['thread'])}/join", {}, None

    def _ask_add(self, op: Op) -> Any:
        body = {"agent_id_to_add": op.args["name"]}
        return "POST", f"/threads/{self._thread_id(op.args['thread'])}/participants", {}, body

    def _ask_remove(self, op: Op) -> Any:
        thread = self._thread_id(op.args["thread"])
        return "DELETE", f"/threads/{thread}/participants/{op.args['name']}", {}, None

    def _file_id(self, key: int | None) -> str:
        return "no-such-file" if key is None else self.file_ids[key]

    def _ask_upload(self, op: Op) -> Any:
        query = {"filename": op.args["filename"], "Idempotency-Key": op.args.get("request_id")}
        return "POST", "/files", query, content_of(op.args["seed"], op.args["size"])

    def _ask_download(self, op: Op) -> Any:
        return "GET", f"/files/{self._file_id(op.args['file'])}", {}, None

    def _ask_meta(self, op: Op) -> Any:
        return "GET", f"/files/{self._file_id(op.args['file'])}/meta", {}, None

    def _ask_files(self, op: Op) -> Any:
        after = op.args.get("after")
        query = {"limit": op.args["limit"], "after": self.file_ids[after] if after else None}
        return "GET", "/files", query, None

    def _ask_delete(self, op: Op) -> Any:
        return "DELETE", f"/files/{self._file_id(op.args['file'])}", {}, None

    def _ask_transfer(self, op: Op) -> Any:
        args = op.args
        body = {"description": args["content"]}
        if "thread" in args:
            body["thread_id"] = self._thread_id(args["thread"])
        if "to" in args:
            body["recipient_id"] = args["to"]
        if "request_id" in args:
            body["request_id"] = args["request_id"]
        return "POST", f"/files/{self._file_id(args['file'])}/transfer", {}, body

    def _ask_team(self, op: Op) -> Any:
        args = op.args
        body = {"message": args["content"]}
        for ours, theirs in (("mate", "to"), ("request_id", "requestId")):
            if ours in args:
                body[theirs] = args[ours]
        if args.get("urgent"):
            body["priority"] = "urgent"
        if args.get("without_me"):
            body["excludeSelf"] = True
        if args.get("seconds") is not None:
            body |= {"waitForReply": True, "timeoutSeconds": args["seconds"]}
        where = "messages" if "mate" in args else "broadcasts"
        return "POST", f"/teams/{args.get('team', 'alpha')}/{where}", {}, body

    # --- what it does -----------------------------------------------------------------------------

    def apply(self, op: Op, answer: Answer | None) -> None:
        """Do what an operation does; without an answer, as it is when it is done unseen.

        Raises:
            Differs: the answer is another one. What was done stays, until `back`.
        """
        done = getattr(self, f"_do_{op.verb}")(op, answer)
        status = done if isinstance(done, int) else 200
        if answer is not None:
            _same("status", answer.status, status)

    def _told(self, answer: Answer | None) -> Any:
        """Return the body of an answer that must be good, or None without one."""
        if answer is None:
            return None
        if answer.status != 200:
            raise Differs(f"expected success, got {answer.status} {answer.body}")
        return answer.body

    def _do_send(self, op: Op, answer: Answer | None) -> int | None:
        args, me = op.args, op.actor
        many = tuple(name for name in dict.fromkeys(args.get("many", ())) if name != me)
        if args.get("sender_id", me) != me:
            return 403
        if args.get("to") == me or ("many" in args and not many):
            return 400
        return self._send(op, many, answer)

    def _send(self, op: Op, many: tuple[str, ...], answer: Answer | None) -> int | None:
        args, me = op.args, op.actor
        what = {name: value for name, value in args.items() if name != "sender_id"}
        what |= {"many": many}
        known = self.requests.get((me, args.get("request_id", "")))
        if known is not None:
            if known[0] != what:
                return 409
            self._check_sent(answer, known[1], me)
            return None
        to = many or ((args["to"],) if "to" in args else ())
        return self._refusal(op, to, answer) or self._sent(op, to, what, answer)

    def _refusal(self, op: Op, to: tuple[str, ...], answer: Answer | None) -> int | None:
        """Return the status of what cannot be sent, or None."""
        reply, me = op.args.get("reply_to"), op.actor
        known = reply and self.visible(reply, me) and self.letters[reply].sender
        reached = self.reached_by(me) | ({known} & {*self.agents})
        if any(name not in reached for name in to):
            return 400
        if "thread" in op.args and not self._is_in(op.args["thread"], me):
            return 404
        if "reply_to" in op.args and not (reply and self.visible(reply, me)):
            return 400
        if self._is_full(op, answer):
            return 507
        if "thread" in op.args:
            to = tuple(name for name in self.members[op.args["thread"]] if name != me)
        if reply and known in self.agents and known in to and reply in self.tasks:
            task = self.tasks[reply]
            return 400 if task[0] != me and task not in self._steps else None
        return None

    def reached_by(self, name: str) -> set[str]:
        """Return whom a participant may write to."""
        agents = {
            each for at, each in enumerate(self.agents) if not at or name in self.agents[each]
        }
        return {*self.names, *agents}

    def _is_full(self, op: Op, answer: Answer | None) -> bool:
        """Tell whether the actor stores too much; the server may not have noticed the latest."""
        own = {
            key: max(file.size, _BLOCK)
            for key, file in self.files.items()
            if file.owner == op.actor
        }
        if sum(own.values()) < self.most_stored:
            return False
        counted = sum(size for key, size in own.items() if op.number - key > _LATELY)
        noticed = counted >= self.most_stored
        return noticed or answer is None or answer.status == 507

    def _sent(self, op: Op, to: tuple[str, ...], what: object, answer: Answer | None) -> None:
        args, me, key = op.args, op.actor, (op.number, 0)
        kind = "thread" if "thread" in args else "broadcast" if "many" in args else "direct"
        if kind == "thread":
            to = tuple(name for name in self.members[args["thread"]] if name != me)
        letter = _Letter(
            sender=me,
            recipients=to,
            kind=kind,
            content=args["content"],
            thread=args.get("thread"),
            subject=args.get("subject", ""),
            reply_to=args.get("reply_to"),
            urgent=args.get("urgent", False),
            wants_ack=args.get("wants_ack", False),
            file=args.get("file"),
        )
        self._post(key, letter)
        self._tell_agents(key)
        if "request_id" in args:
            self._put(self.requests, (me, args["request_id"]), (what, key))
        self._check_sent(answer, key, me)

    def _check_sent(self, answer: Answer | None, key: LetterKey, me: str) -> None:
        told = self._told(answer)
        if told is not None and "message" not in told:
            self._learn_id(key, told.get("messageId") or told["message_id"])
        elif told is not None:
            self._check_letter(key, told["message"], me, read=True)
            _same("message_id", told["message_id"], self.ids[key])

    def _do_get(self, op: Op, answer: Answer | None) -> int | None:
        args, me = op.args, op.actor
        if "thread" in args and not self._is_in(args["thread"], me):
            return 404
        told = self._told(answer)
        page = self.pages.get((me, args.get("request_id", "")))
        if page is not None:
            listed = [each for each in page if self.visible(each[0], me)]
        else:
            listed = list(self._listed(op, told))
            if "request_id" in args:
                self._put(self.pages, (me, args["request_id"]), listed)
        if told is not None:
            self._check_listed(listed, told, me)
        if page is None and args.get("mark", True):
            for key, read in listed:
                if not read:
                    self._show(key, me)
        if told is not None and self.strict:
            _same("unread", told["unread"], self.count(me))
        return None

    def _check_listed(self, listed: list[tuple[LetterKey, bool]], told: Any, me: str) -> None:
        got = told["messages"]
        for (key, read), message in zip(listed, got, strict=False):
            self._check_letter(key, message, me, read)
        if len(listed) != len(got):
            extra = [message["content"] for message in got[len(listed) :]]
            missing = [self.letters[key].content for key, _ in listed[len(got) :]]
            raise Differs(f"messages: {missing} are missing, {extra} are too many")
        place = told["next_before"]
        if not listed:
            _same("next_before", place, None)
            return
        last = listed[-1][0]
        _same("next_before", self.cursors.get(last, place), place)
        _same("who has this next_before", self._at.get(place, last), last)
        self._put(self.cursors, last, place)
        self._put(self._at, place, last)

    def _listed(self, op: Op, told: Any) -> Iterator[tuple[LetterKey, bool]]:
        """Yield the letters of a page, and whether they are read."""
        args, me, count = op.args, op.actor, 0
        limit = args.get("limit") or 10
        last = args.get("before") or self._at.get(args.get("place", -1))
        end = self.places[last] if last else None
        since = self.times[args["since"]] if "since" in args else ""
        for key in self._newest_first(me, args):
            if count == limit:
                return
            if end is not None and self.places[key] >= end:
                continue
            if since:
                moment = self.times.get(key) or self._time_in(told, key, count)
                if told is None and not moment:  # of the letters that nobody has seen, the later
                    moment = since + "+" * (self.places[key] > self.places[args["since"]])
                if moment <= since:
                    continue
            yield key, not self._is_unread(key, me)
            count += 1

    def _time_in(self, told: Any, key: LetterKey, at: int) -> str:
        """Return the time of a letter that nobody has seen yet, if it is at that place."""
        messages = told["messages"] if told else []
        content = self.letters[key].content
        if at < len(messages):
            found = messages[at]["content"]
            same = found == content if isinstance(content, str) else _mentions(found, content)
            if same:
                return str(messages[at]["created_at"])
        return ""

    def _newest_first(self, me: str, args: Mapping[str, Any]) -> Iterator[LetterKey]:
        if args.get("unread"):
            mine = sorted(self.unread[me], key=self.places.__getitem__, reverse=True)
        else:
            mine = self._posts[args["thread"]] if "thread" in args else self._boxes[me]
            mine = mine[::-1] if len(mine) < 500 else list(reversed(mine))
        for key in mine:
            if "thread" in args and self.letters[key].thread != args["thread"]:
                continue
            if self.visible(key, me):
                yield key

    def _do_search(self, op: Op, answer: Answer | None) -> int | None:
        args, me = op.args, op.actor
        if "thread" in args and not self._is_in(args["thread"], me):
            return 404
        told = self._told(answer)
        if told is None:
            return None
        found = [key for key in reversed(self._words[args["word"]]) if self.visible(key, me)]
        if "thread" in args:
            found = [key for key in found if self.letters[key].thread == args["thread"]]
        _same("how many are found", len(told["messages"]), len(found))
        for key, each in zip(found, told["messages"], strict=True):
            _same(f"id of {key}", self.ids.get(key, each["id"]), each["id"])
            _same(f"whether {me} had read {key}", each["read"], not self._is_unread(key, me))
        return None

    def _do_message(self, op: Op, answer: Answer | None) -> int | None:
        key, me = op.args["letter"], op.actor
        if key is None or (me != ADMIN and not self.visible(key, me)):
            return 404
        told, letter = self._told(answer), self.letters[key]
        read = not self._is_unread(key, me)
        if told is not None:
            self._check_letter(key, told["message"], me, read)
            if me in (ADMIN, letter.sender):
                names = [each["recipient_id"] for each in told["receipts"]]
                _same("recipients with receipts", names, list(letter.recipients))
                for each in told["receipts"]:
                    self._check_receipt(key, each)
            else:
                _same("receipts", told["receipts"], None)
        if not read and op.args.get("mark", True):
            self._show(key, me)
        return None

    def _do_count(self, op: Op, answer: Answer | None) -> None:
        told = self._told(answer)
        if told is None:
            return
        if not self.strict and op.args.get("wait") and told["unread"] == 0:
            return  # it may have begun to wait, and gone, before the mail came
        _same("unread", told["unread"], self.count(op.actor))

    def _do_overdue(self, op: Op, answer: Answer | None) -> None:
        told, me = self._told(answer), op.actor
        if told is None:
            return
        owed: list[tuple[LetterKey, set[str]]] = []
        for key in sorted(self._owed[me], key=self.places.__getitem__):
            letter = self.letters[key]
            names = {
                name
                for name in letter.recipients
                if (key, name) not in self.acked and (key, name) not in self.answers
            }
            names = {name for name in names if self.visible(key, name)}
            if names and self.visible(key, me):
                owed.append((key, names))
        got: list[tuple[str, set[str]]] = []
        for each in told["overdue"]:
            if not got or got[-1][0] != each["message"]["id"]:
                got.append((each["message"]["id"], set()))
            got[-1][1].add(each["receipt"]["recipient_id"])
            self._check_receipt(self._keys[each["message"]["id"]], each["receipt"])
        whole = sum(len(names) for _, names in owed) <= _MOST_OVERDUE
        if not whole:
            _same("length of a full list", len(told["overdue"]), _MOST_OVERDUE)
            owed = owed[: len(got)]
            if got[-1][1] <= owed[-1][1]:
                got[-1] = got[-1][0], owed[-1][1]
        _same("overdue", got, [(self.ids[key], names) for key, names in owed])

    def _do_ack(self, op: Op, answer: Answer | None) -> int | None:
        key, me = op.args["letter"], op.actor
        if key is None or not self.visible(key, me) or me not in self.letters[key].recipients:
            return 404
        told = self._told(answer)
        again = (key, me) in self.acked
        if not again:
            self._show(key, me)
            self._put(self.acked, (key, me), (op.args["note"], ""))
        if told is not None:
            state = "already_acknowledged" if again else "acknowledged"
            _same("status", told["status"], state)
            self._check_receipt(key, told["receipt"])
        return None

    def _do_create(self, op: Op, answer: Answer | None) -> int | None:
        args, me = op.args, op.actor
        members = tuple(dict.fromkeys((me, *args["names"])))
        if any(name not in self.reached_by(me) for name in members):
            return 400
        if self._is_full(op, answer):
            return 507
        told, others = self._told(answer), members[1:]
        self._put(self.threads, op.number, _Thread(args["title"], me))
        self._put(self.members, op.number, members)
        if others:
            self._post((op.number, 0), _Letter("", others, "notice", (me,), op.number))
        if "initial" in args:
            first = _Letter(me, others, "thread", args["initial"], op.number)
            self._post((op.number, 1), first)
            self._tell_agents((op.number, 1))
        if told is not None:
            self._check_thread(op.number, told["thread"])
            if "initial" not in args:
                _same("message_id", told["message_id"], None)
            else:
                self._learn_id((op.number, 1), told["message_id"])
        return None

    def _do_threads(self, op: Op, answer: Answer | None) -> None:
        told = self._told(answer)
        if told is None:
            return
        mine = {key for key, members in self.members.items() if op.actor in members}
        for each in told["threads"]:  # whose answer was lost shows its id here
            if each["id"] not in self._thread_keys:
                fits = (key for key in mine if self.threads[key].title == each["title"])
                key = next(fits, None)
                if key is None:
                    raise Differs(f"a thread that is not known is listed: {each}")
                self._bind(key, each["id"])
        if any(key not in self.thread_ids for key in mine):
            raise Differs("a thread is missing in the list")
        left = {self.thread_ids[key] for key in mine}.difference(op.args.get("seen", ()))
        listed, limit = [each["id"] for each in told["threads"]], op.args["limit"]
        _same("threads", len(listed), min(limit, len(left)))
        _same("threads that are not in it", {*listed} - left, set())
        _same("the end", told["next_after"] is None, len(left) <= limit)
        times = [self._newest_post(self._thread_keys[each]) for each in listed]
        known = [time for time in times if time]
        _same("the order", known, sorted(known, reverse=True))
        for each in told["threads"]:
            thread = self.threads[self._thread_keys[each["id"]]]
            _same("title", (each["title"], each["creator_id"]), tuple(thread))

    def _newest_post(self, thread: int) -> str:
        """Return the time of a thread's newest letter, if it is known."""
        posts = self._posts[thread]
        return self.times.get(posts[-1], "") if posts else ""

    def _do_details(self, op: Op, answer: Answer | None) -> int | None:
        thread = op.args["thread"]
        if thread is None or (op.actor != ADMIN and not self._is_in(thread, op.actor)):
            return 404
        told = self._told(answer)
        if told is not None:
            self._check_thread(thread, told)
        return None

    def _do_join(self, op: Op, answer: Answer | None) -> int | None:
        thread, me = op.args["thread"], op.actor
        if thread is None:
            return 404
        again = me in self.members[thread]
        if not again and self._is_full(op, answer):
            return 507
        told = self._told(answer)
        if not again:
            members = (*self.members[thread], me)
            self._put(self.members, thread, members)
            self._notice((op.number, 0), members, thread, me)
        self._check_membership(told, thread, "already_participant" if again else "joined")
        return None

    def _do_add(self, op: Op, answer: Answer | None) -> int | None:
        thread, name, me = op.args["thread"], op.args["name"], op.actor
        if not self._is_in(thread, me):
            return 404
        if name not in self.reached_by(me):
            return 400
        before = self.members[thread]
        again = name in before
        if not again and self._is_full(op, answer):
            return 507
        told = self._told(answer)
        if not again:
            self._put(self.members, thread, (*before, name))
            self._post((op.number, 0), _Letter("", (name,), "notice", (me,), thread))
            others = tuple(each for each in before if each != me)
            self._notice((op.number, 1), others, thread, me, name)
        self._check_membership(told, thread, "already_participant" if again else "added")
        return None

    def _do_remove(self, op: Op, answer: Answer | None) -> int | None:
        thread, name, me = op.args["thread"], op.args["name"], op.actor
        if not self._is_in(thread, me):
            return 404
        creator = self.threads[thread].creator
        if name == creator:
            return 400
        if me not in (creator, name):
            return 403
        if name not in self.members[thread]:
            return 400
        if self._is_full(op, answer):
            return 507
        told = self._told(answer)
        left = tuple(each for each in self.members[thread] if each != name)
        self._put(self.members, thread, left)
        self._notice((op.number, 0), tuple(each for each in left if each != me), thread, name)
        if told is not None:
            _same("removed", (told["status"], told["removed_id"]), ("removed", name))
        return None

    # --- files ------------------------------------------------------------------------------------

    def _do_upload(self, op: Op, answer: Answer | None) -> int | None:
        args, me = op.args, op.actor
        what = args["filename"], args["seed"], args["size"]
        known = self._uploads.get((me, args.get("request_id", "")))
        if self._is_full(op, answer):
            return 507
        if known is not None and known[1] in self.files:
            if known[0] != what:
                return 409
            key = known[1]
        else:
            key = op.number
            file = _File(me, args["filename"], args["size"], _sha256(args["seed"], args["size"]))
            self._put(self.files, key, file)
            if "request_id" in args:
                self._put(self._uploads, (me, args["request_id"]), (what, key))
        told = self._told(answer)
        if told is not None:
            self._check_file(key, told)
        return None

    def _check_file(self, key: int, told: Any) -> None:
        file = self.files[key]
        got = told["owner_id"], told["filename"], told["size"], told["sha256"]
        _same(f"file {key}", got, tuple(file))
        _same("uri", told["uri"], f"mail://files/{told['id']}")
        self._learn(self.file_ids, key, told["id"])
        _same("the file with this id", self._file_keys.get(told["id"], key), key)
        self._put(self._file_keys, told["id"], key)

    def _gets(self, name: str, key: int | None) -> bool:
        """Tell whether somebody may have a file."""
        if key is None or key not in self.files:
            return False
        if name in (ADMIN, self.files[key].owner):
            return True
        return any(
            self.visible(each, name)
            and (self.letters[each].thread is not None or name in self.letters[each].recipients)
            for each in self._carriers[key]
        )

    def _do_download(self, op: Op, answer: Answer | None) -> int | None:
        key = op.args["file"]
        if not self._gets(op.actor, key):
            return 404
        told = self._told(answer)
        if told is not None:
            file = self.files[key]
            _same("content", (told["size"], told["sha256"]), (file.size, file.sha256))
        return None

    def _do_meta(self, op: Op, answer: Answer | None) -> int | None:
        if not self._gets(op.actor, op.args["file"]):
            return 404
        told = self._told(answer)
        if told is not None:
            self._check_file(op.args["file"], told)
        return None

    def _do_files(self, op: Op, answer: Answer | None) -> None:
        told = self._told(answer)
        if told is None:
            return
        own = {key for key, file in self.files.items() if file.owner == op.actor}
        for each in told["files"]:  # whose answer was lost shows its id here
            if each["id"] not in self._file_keys:
                fits = (key for key in own if self.files[key].name == each["filename"])
                key = next((key for key in fits if key not in self.file_ids), None)
                if key is None:
                    raise Differs(f"a file that is not known is listed: {each}")
                self._check_file(key, each)
        after = self.file_ids[op.args["after"]] if op.args.get("after") else ""
        limit = op.args["limit"]
        if any(key not in self.file_ids for key in own):
            if len(own) < limit and not after:
                raise Differs("a file is missing in the list")
            return
        expected = sorted(each for each in (self.file_ids[key] for key in own) if each > after)
        _same("files", [each["id"] for each in told["files"]], expected[:limit])
        more = expected[limit - 1] if len(expected) > limit else None
        _same("next_after", told["next_after"], more)
        for each in told["files"]:
            self._check_file(self._file_keys[each["id"]], each)

    def _do_delete(self, op: Op, answer: Answer | None) -> int | None:
        key, me = op.args["file"], op.actor
        if not self._gets(me, key):
            return 404
        if self.files[key].owner != me:
            return 403
        told = self._told(answer)
        if told is not None:
            _same("deleted", told["status"], "deleted")
        self._drop(self.files, key)
        return None

    def _do_transfer(self, op: Op, answer: Answer | None) -> int | None:
        args, me = op.args, op.actor
        file = self.files.get(args["file"])
        if file is None or file.owner != me:
            return 404
        if args.get("to") == me:
            return 400
        content = (args["content"], file.name, file.sha256, self.file_ids[args["file"]])
        return self._send(op._replace(args={**args, "content": content}), (), answer)

    # --- teams ------------------------------------------------------------------------------------

    def _do_team(self, op: Op, answer: Answer | None) -> int | None:
        args, me = op.args, op.actor
        leader = next(iter(self.agents))
        if args.get("team", "alpha") != "alpha":
            return 404
        if me not in self.mates:
            return 403
        made = {**args, "subject": f"Team alpha: from {me}"}
        if "mate" not in args:
            others = [name for name in self.mates if name != me or not args.get("without_me")]
            return self._send(op._replace(args=made | {"many": 1}), (*others, leader), answer)
        to = leader if args["mate"] == "lead" else args["mate"]
        if to == me or to not in (*self.mates, leader) or args["mate"] == leader:
            return 404
        made["to"] = to
        known = self.requests.get((me, args.get("request_id", "")))
        asked = self.letters[known[1]].reply_to if known else self.question(to, me)
        if asked is not None:
            made["reply_to"] = asked
        return self._send(op._replace(args=made), (), answer)

    def question(self, agent: str, name: str) -> LetterKey | None:
        """Return the newest open question of an agent to a participant."""
        mine = [
            key
            for key in self.open_asks
            if self.letters[key].sender == agent and self.letters[key].recipients == (name,)
        ]
        return max(mine, key=self.places.__getitem__, default=None)

    # --- agents -----------------------------------------------------------------------------------

    def _tell_agents(self, key: LetterKey) -> None:
        """Let a participant's letter come into a task, as far as it is for agents."""
        letter = self.letters[key]
        agents = [name for name in letter.recipients if name in self.agents]
        if not agents:
            return
        task: TaskKey = letter.sender, key if letter.thread is None else letter.thread
        reply = letter.reply_to
        if reply and self.letters[reply].sender in agents and reply in self.tasks:
            task, agents = self.tasks[reply], [self.letters[reply].sender]
        self._put(self.tasks, key, task)
        asked = reply is not None and self.open_asks.get(reply) == task
        answers = asked and letter.sender in self.letters[reply].recipients
        if task not in self._steps:
            self._put(self._steps, task, 0)
        if task[0] == letter.sender and not answers:
            self._put(self._owing, task, (*self._owing.get(task, ()), key))
        if answers:
            self._drop(self.open_asks, reply)
        for agent in agents:
            wait = self._waits.get((task, agent))
            if wait is not None and letter.sender == wait.mate:
                self._drop(self._waits, (task, agent))
                self._drop(self.pending, wait.timer)
                self._plan(_Turn(agent, task, key, "heard"))
            else:
                self._plan(_Turn(agent, task, key))

    def _plan(self, turn: _Turn) -> int:
        number = max(self.pending, default=0) + 1
        self._put(self.pending, number, turn)
        return number

    def audiences(
        self, number: int, before: Mapping[int, tuple[str, ...]]
    ) -> list[Mapping[int, tuple[str, ...]]]:
        """Return to whom an agent's answers may go: who is in a thread, or was just before."""
        owing = self._owing.get(self.pending[number].task, ())
        threads = {self.letters[key].thread for key in owing} & self.members.keys()
        now = {each: self.members[each] for each in threads}
        earlier = {each: before.get(each, now[each]) for each in threads}
        return [now] if earlier == now else [now, earlier]

    def act(self, number: int, audience: Mapping[int, tuple[str, ...]] | None = None) -> None:
        """Let an agent have its turn; its answers in threads go to the audience."""
        self._audience = self.members if audience is None else audience
        turn = self.pending[number]
        self._drop(self.pending, number)
        steps = self._steps[turn.task] + 1
        self._put(self._steps, turn.task, steps)
        if turn.ends != "timeout":
            for key in (turn.letter, *self._missed(turn)):
                if key in self.unread[turn.agent]:
                    self._show(key, turn.agent)
                    self._put(self.turns, (key, turn.agent), steps)
        word, name, *rest = [*self.text(turn.letter).split(), "", ""]
        if turn.ends == "timeout":
            wait = self._waits[turn.task, turn.agent]
            self._drop(self._waits, (turn.task, turn.agent))
            self._finish(turn, f"timeout {name}")
        elif turn.ends:
            self._finish(turn, f"heard {name}")
        elif word == "ask" and rest[0] in self.agents[turn.agent]:
            self._ask(turn, rest[0], f"asked {name}")
        elif word == "wait":
            asked = self._ask(turn, rest[0], f"asked {name}")
            timer = -1
            if float(rest[1]) < _SOON:
                timer = self._plan(turn._replace(ends="timeout"))
            wait = _Wait(rest[0], asked, turn.letter, timer)
            self._put(self._waits, (turn.task, turn.agent), wait)
        else:
            self._finish(turn, f"done {name}")

    def _missed(self, turn: _Turn) -> list[LetterKey]:
        """Return the earlier posts of the thread that an agent reads with a new one."""
        letter = self.letters[turn.letter]
        if letter.thread is None:
            return []
        earlier = [
            key for key in self.unread[turn.agent] if self.letters[key].thread == letter.thread
        ]
        return [key for key in earlier if self.places[key] < self.places[turn.letter]]

    def text(self, key: LetterKey) -> str:
        """Return a letter's text, or how it begins."""
        content = self.letters[key].content
        return content if isinstance(content, str) else content[0]

    def _ask(self, turn: _Turn, name: str, text: str) -> LetterKey:
        key = turn.letter[0], 200 + turn.letter[1]
        self._post(key, _Letter(turn.agent, (name,), "direct", text, None, ANY))
        self._put(self.tasks, key, turn.task)
        self._put(self.open_asks, key, turn.task)
        return key

    def _finish(self, turn: _Turn, text: str) -> None:
        """Let a run end: whoever has written gets the answer."""
        task = turn.task
        unread = {each.letter for each in self.pending.values() if each.task == task}
        owing = self._owing.get(task, ())
        for key in owing:
            if key in unread:
                continue
            letter = self.letters[key]
            to: tuple[str, ...] = (letter.sender,)
            if letter.thread is not None:
                to = tuple(each for each in self._audience[letter.thread] if each != turn.agent)
            kind = "direct" if letter.thread is None else "thread"
            made = key[0], 100 + key[1]
            self._post(made, _Letter(turn.agent, to, kind, text, letter.thread, ANY, key))
            self._put(self.tasks, made, task)
        self._put(self._owing, task, tuple(key for key in owing if key in unread))
        if unread:
            self._put(self._steps, task, 0)
            return
        self._drop(self._steps, task)
        for key in [key for key, of in self.open_asks.items() if of == task]:
            self._drop(self.open_asks, key)

    # --- what they share --------------------------------------------------------------------------

    def newest(self, name: str | None, limit: int) -> list[LetterKey]:
        """Return the newest letters to a mailbox, or of all."""
        if name is None:
            return list(islice(reversed(self.letters), limit))[::-1]
        return self._boxes[name][-limit:]

    def owed_by(self, name: str, limit: int) -> list[LetterKey]:
        """Return letters that a mailbox should acknowledge, among its newest."""
        some = self._boxes[name][-5 * limit :]
        owed = [key for key in some if self.letters[key].wants_ack and key in self.ids]
        return [key for key in owed if (key, name) not in self.acked]

    def visible(self, key: LetterKey, name: str) -> bool:
        """Tell whether a letter is for a mailbox's eyes at the moment."""
        letter = self.letters[key]
        if letter.thread is not None:
            return name in self.members[letter.thread]
        return name == letter.sender or name in letter.recipients

    def count(self, name: str) -> int:
        """Return how many unread letters a mailbox has."""
        found = sum(self.visible(key, name) for key in self.unread[name])
        return min(found, _MOST_COUNTED)

    def _is_in(self, thread: int | None, name: str) -> bool:
        return thread is not None and name in self.members[thread]

    def _is_unread(self, key: LetterKey, name: str) -> bool:
        return key in self.unread[name] if name else False

    def _post(self, key: LetterKey, letter: _Letter) -> None:
        self._put(self.letters, key, letter)
        self._put(self.places, key, len(self.places))
        for name in letter.recipients:
            self._push(self._boxes[name], key)
            self._put(self.unread[name], key, None)
        if letter.thread is not None:
            self._push(self._posts[letter.thread], key)
        if letter.file is not None:
            self._push(self._carriers[letter.file], key)
        text = letter.content if isinstance(letter.content, str) else ""
        for word in {*text.split()} & WORDS:
            self._push(self._words[word], key)
        if letter.wants_ack:
            self._put(self._owed[letter.sender], key, None)
        answered = letter.reply_to
        if answered is not None and self.letters[answered].sender in letter.recipients:
            at = answered, letter.sender
            if letter.sender in self.letters[answered].recipients and at not in self.answers:
                self._put(self.answers, at, key)

    def _notice(
        self, key: LetterKey, recipients: tuple[str, ...], thread: int, *mentioned: str
    ) -> None:
        people = tuple(name for name in recipients if name not in self.agents)
        self._post(key, _Letter("", people, "notice", mentioned, thread))

    def _show(self, key: LetterKey, name: str) -> None:
        if key in self.unread[name]:
            self._drop(self.unread[name], key)
            self._put(self.shown, (key, name), "")

    def _learn(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Note what only the server can know; it must not change afterwards."""
        _same(f"what is known of {key}", table.get(key) or value, value)
        if not table.get(key):
            self._put(table, key, value)

    def _learn_id(self, key: LetterKey, letter_id: str) -> None:
        self._learn(self.ids, key, letter_id)
        _same("the letter with this id", self._keys.get(letter_id, key), key)
        self._put(self._keys, letter_id, key)

    def _bind(self, thread: int, thread_id: str) -> None:
        self._learn(self.thread_ids, thread, thread_id)
        _same("the thread with this id", self._thread_keys.get(thread_id, thread), thread)
        self._put(self._thread_keys, thread_id, thread)

    def _check_letter(self, key: LetterKey, told: Any, name: str, read: bool) -> None:
        letter = self.letters[key]
        if letter.reply_to is not None and letter.reply_to not in self.ids and told["reply_to"]:
            self._learn_id(letter.reply_to, told["reply_to"])
        expected: dict[str, Any] = {
            "sender_id": letter.sender or None,
            "recipient_ids": list(letter.recipients),
            "urgent": letter.urgent,
            "kind": letter.kind,
            "subject": letter.subject or None,
            "reply_to": self.ids.get(letter.reply_to, "?") if letter.reply_to else None,
            "wants_ack": letter.wants_ack,
            "file_id": self.file_ids[letter.file] if letter.file is not None else None,
        }
        if letter.subject == ANY:
            del expected["subject"]
        got = {field: told[field] for field in expected}
        if isinstance(letter.content, str):
            expected["content"], got["content"] = letter.content, told["content"]
        elif not _mentions(told["content"], letter.content):
            raise Differs(f"it must mention {letter.content}: {told['content']}")
        _same(f"letter {key}", got, expected)
        _same(f"whether {name} had read {key}", told["read"], read)
        if letter.thread is None:
            _same("thread_id", told["thread_id"], None)
        else:
            self._bind(letter.thread, told["thread_id"])
        self._learn_id(key, told["id"])
        self._learn(self.times, key, told["created_at"])

    def _check_receipt(self, key: LetterKey, told: Any) -> None:
        name = told["recipient_id"]
        at = key, name
        acked, answer = at in self.acked, self.answers.get(at)
        state = "acknowledged" if acked else "shown" if at in self.shown else "stored"
        state = "answered" if answer else state
        if answer is not None:  # nobody else may know its id yet
            self._learn(self.ids, answer, told["answer_id"])
            _same("the letter with this id", self._keys.get(self.ids[answer], answer), answer)
            self._put(self._keys, self.ids[answer], answer)
        _same("whether there is an answer", bool(told["answer_id"]), answer is not None)
        _same("whether there is a time", bool(told["answered_at"]), answer is not None)
        _same(f"receipt of {key} at {name}", told["state"], state)
        note, moment = self.acked.get(at, ("", ""))
        _same("note", told["note"], note)
        _same("turn", told["turn"], self.turns.get(at))
        _same("whether there is a time", bool(told["shown_at"]), at in self.shown)
        _same("whether there is a time", bool(told["acknowledged_at"]), acked)
        if at in self.shown:
            self._learn(self.shown, at, told["shown_at"])
        if acked:
            _same("acknowledged_at", moment or told["acknowledged_at"], told["acknowledged_at"])
            self._put(self.acked, at, (note, told["acknowledged_at"]))

    def _check_thread(self, key: int, told: Any) -> None:
        self._bind(key, told["id"])
        thread = self.threads[key]
        _same("thread", (told["title"], told["creator_id"]), tuple(thread))
        _same("participants", told["participants"], list(self.members[key]))

    def _check_membership(self, told: Any, thread: int, status: str) -> None:
        if told is not None:
            _same("status", told["status"], status)
            self._check_thread(thread, told["thread"])
