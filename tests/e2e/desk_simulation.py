"""Participants who do anything at any time, on a server that is killed, beside a model.

``python -m tests.e2e.desk_simulation --operations 100000 --kills 12`` does it on SQLite and on
PostgreSQL. One seed is one choice of operations; which of the concurrent ones comes first, and what
a kill lets through, the server decides and the answers tell. The first difference from
`tests.e2e.desk_model` ends the run: its seed is printed, with the operations before it.
"""

import argparse
import asyncio
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from mail.config.server import FilesConfig, TeamsConfig
from mail.db.store import Store
from mail.db.urls import open_store
from mail.server.app import create_app
from tests.e2e.desk_agents import BOSS, CLERK, REQUESTS, make_swarm, mates, targets
from tests.e2e.desk_model import ADMIN, WORDS, Answer, Differs, LetterKey, Model, Op
from tests.e2e.evidence import report
from tests.e2e.processes import Place, warm_up
from tests.server.kit import config, put_tokens, running_server
from tests.support.postgres import Cluster

__all__ = [
    "Figures",
    "Found",
    "Simulation",
    "Wire",
    "beside_model",
    "fresh_server",
    "make_tokens",
    "names_of",
    "on_a_server",
    "token_of",
]

_SECONDS: Final = 30.0
_NEWEST_THREADS: Final = 40
_LONGEST_WAIT: Final = "0.05"
_PATIENCE: Final = 20.0
_MOST_REASONS: Final = 6
_TOLD_EACH: Final = 5000
_MOST_STORED: Final = 24 * 1024 * 1024
_BIG: Final = 15 * 1024 * 1024
_WORDS: Final = sorted(WORDS)
_UNEXPLAINED: Final = "no order explains the answers; in the one that goes furthest"

Sent = tuple[Op, Answer | None]


class Found(Exception):
    """A difference; the text has the seed, what differs, and the operations before it."""


@dataclass
class Figures:
    """What a run did."""

    operations: int = 0
    checks: int = 0
    kills: int = 0
    in_flight: int = 0
    done_unseen: int = 0
    letters: int = 0
    threads: int = 0
    files: int = 0
    turns: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.operations} operations and {self.checks} looks in {self.seconds:.0f} s, "
            f"{self.kills} kills ({self.in_flight} operations lost their answers, "
            f"{self.done_unseen} of them were done), "
            f"{self.letters} letters, {self.threads} threads, {self.files} files, "
            f"{self.turns} turns of agents: no difference"
        )


class Asked(NamedTuple):
    """An operation with what it is over HTTP."""

    op: Op
    request: tuple[str, str, dict[str, str], dict[str, Any] | bytes | None]


# --- the other side -------------------------------------------------------------------------------


def names_of(count: int) -> tuple[str, ...]:
    """Return the names of so many participants."""
    return tuple(f"p{number:02d}" for number in range(count))


def token_of(name: str) -> str:
    """Return a participant's token."""
    return f"mail_{name or 'root'}-of-the-simulation".ljust(40, "x")


async def make_tokens(store: Store, names: Iterable[str]) -> None:
    """Make the tokens of the participants and of an administrator."""
    everybody = ((name, "agent") for name in names)
    people = [
        (token_of(name), role, name or "root") for name, role in (*everybody, (ADMIN, "admin"))
    ]
    await put_tokens(store, *people)


@dataclass
class Wire:
    """The way to a server."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, asked: Asked) -> Answer | None:
        """Return the answer, or None if the connection broke; all pages of a search as one."""
        answer = await self._asked(asked, {})
        if asked.op.verb != "search" or answer is None or answer.status != 200:
            return answer
        found, page = [], answer
        while True:
            found += page.body["messages"]
            if page.body["next_before"] is None:
                return Answer(200, {"messages": found})
            following = await self._asked(asked, {"before": str(page.body["next_before"])})
            if following is None or following.status != 200:
                return following
            page = following

    async def _asked(self, asked: Asked, place: dict[str, str]) -> Answer | None:
        method, path, query, body = asked.request
        headers = {"Authorization": f"Bearer {token_of(asked.op.actor)}"}
        headers |= {name: query[name] for name in ("Idempotency-Key",) if name in query}
        query = {name: value for name, value in query.items() if name not in headers}
        sent: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        try:
            async with self.session.request(
                method, self.url + path, params=query | place, headers=headers, **sent
            ) as answer:
                content = await answer.read()
        except aiohttp.ClientError:
            return None
        if asked.op.verb == "download" and answer.status == 200:
            sha256 = hashlib.sha256(content).hexdigest()
            return Answer(200, {"size": len(content), "sha256": sha256})
        return Answer(answer.status, json.loads(content))


@asynccontextmanager
async def wire_to(url: str) -> AsyncIterator[Wire]:
    """Yield the way to a server."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Wire(url, session)


# --- what they do ---------------------------------------------------------------------------------


@dataclass(eq=False)
class _Whims:
    """What comes to the participants' minds, given the state of things."""

    dice: random.Random
    model: Model
    sent: list[Op] = field(default_factory=list)
    paged: list[Op] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        weights: dict[Callable[[str], tuple[str, dict[str, Any]]], float] = {
            self._direct: 14,
            self._post: 14,
            self._broadcast: 4,
            self._read: 22,
            self._read_thread: 8,
            self._read_once: 5,
            self._open: 5,
            self._count: 6,
            self._search: 4,
            self._acknowledge: 7,
            self._owed: 2,
            self._create: 1.5,
            self._list: 2,
            self._look: 3,
            self._join: 3,
            self._add: 4,
            self._remove: 3,
            self._again: 5,
            self._read_again: 3,
            self._nonsense: 2,
            self._tell_agent: 3,
            self._answer_agent: 3,
            self._tell_mate: 2,
            self._tell_team: 0.7,
            self._upload: 2,
            self._transfer: 3,
            self._fetch: 3,
            self._list_files: 1,
            self._delete: 1.5,
        }
        self._whims, self._weights = list(weights), list(weights.values())

    def next(self) -> Op:
        """Return somebody's next operation."""
        actor = self.dice.choice(self.model.names)
        (whim,) = self.dice.choices(self._whims, self._weights)
        verb, args = whim(actor)
        if whim in (self._again, self._read_again, self._delete):
            actor = args.pop("actor", actor)
        return self.op(actor, verb, **args)

    def op(self, actor: str, verb: str, **args: Any) -> Op:
        """Return an operation with a number of its own; remember what can be repeated."""
        self.number += 1
        op = Op(self.number, actor, verb, args)
        if "request_id" in args:
            kept = {"get": self.paged, "send": self.sent}.get(verb, [])
            kept.append(op)
            del kept[:-100]
        return op

    def twin(self, op: Op) -> Op:
        """Return the same once more."""
        return self.op(op.actor, op.verb, **op.args)

    def _chance(self, share: float) -> bool:
        return self.dice.random() < share

    def _other(self, actor: str) -> str:
        return self.dice.choice([name for name in self.model.names if name != actor])

    def _others(self, share: float = 0.0) -> list[str]:
        most = len(self.model.names)
        count = self.dice.choice((0, 1, 2, 3, 5, min(12, most)))
        found = self.dice.choices(self.model.names, k=count)
        return [*found, BOSS] if self._chance(share) else found

    def _thread(self, actor: str, share: float = 0.9) -> int | None:
        """Return a thread: mostly one of the actor's, at times another's, or none at all."""
        known = list(self.model.thread_ids)
        some = known[-_NEWEST_THREADS:] + self.dice.sample(known, min(10, len(known)))
        own = [key for key in some if actor in self.model.members[key]]
        if own and self._chance(share):
            return self.dice.choice(own)
        return self.dice.choice(some) if some and self._chance(0.9) else None

    def _letter(self, actor: str) -> LetterKey | None:
        """Return a letter: mostly a new one of the actor's, at times anybody's, or none."""
        boxes = self.model.newest(actor, 30)
        boxes = [key for key in boxes if key in self.model.ids]
        if boxes and self._chance(0.85):
            return self.dice.choice(boxes)
        some = [key for key in self.model.newest(None, 200) if key in self.model.ids]
        return self.dice.choice(some) if some and self._chance(0.9) else None

    def _content(self, **args: Any) -> dict[str, Any]:
        word = self.dice.choice(_WORDS) if self._chance(0.3) else "é" * self.dice.choice((3, 400))
        made: dict[str, Any] = {"content": f"text {self.number + 1} {word}"}
        if self._chance(0.1):
            made["subject"] = f"subject {self.number + 1}"
        for name, share in (("urgent", 0.1), ("wants_ack", 0.15)):
            if self._chance(share):
                made[name] = True
        if self._chance(0.25):
            made["request_id"] = f"request-{self.number + 1}"
        return {**args, **made}

    def _direct(self, actor: str) -> tuple[str, dict[str, Any]]:
        args = self._content(to=self._other(actor))
        if self._chance(0.15):
            args["reply_to"] = self._letter(actor)
        return "send", args

    def _post(self, actor: str) -> tuple[str, dict[str, Any]]:
        args = self._content(thread=self._thread(actor))
        if self._chance(0.1):
            args["reply_to"] = self._letter(actor)
        return "send", args

    def _broadcast(self, actor: str) -> tuple[str, dict[str, Any]]:
        return "send", self._content(many=self._others(0.05) or [self._other(actor)])

    def _read(self, actor: str) -> tuple[str, dict[str, Any]]:
        args: dict[str, Any] = {}
        if self._chance(0.6):
            args["limit"] = self.dice.choice((1, 2, 5, 20, 100))
        if self._chance(0.3):
            args["unread"] = True
        if self._chance(0.3):
            args["mark"] = False
        if self._chance(0.2):
            seen = [key for key in self.model.newest(actor, 60) if key in self.model.times]
            args |= {"since": self.dice.choice(seen)} if seen else {}
        if self._chance(0.3):
            ends = [key for key in self.model.newest(actor, 60) if key in self.model.cursors]
            args |= {"before": self.dice.choice(ends)} if ends else {}
        return "get", args

    def _read_thread(self, actor: str) -> tuple[str, dict[str, Any]]:
        args = {**self._read(actor)[1], "thread": self._thread(actor)}
        if "before" in args and self.model.letters[args["before"]].thread != args["thread"]:
            # Of what is sent and received at the same time no list tells which came first.
            del args["before"]
        return "get", args

    def _read_once(self, actor: str) -> tuple[str, dict[str, Any]]:
        verb, args = self._read_thread(actor) if self._chance(0.3) else self._read(actor)
        return verb, {**args, "request_id": f"page-{self.number + 1}"}

    def _open(self, actor: str) -> tuple[str, dict[str, Any]]:
        return "message", {"letter": self._letter(actor), "mark": self._chance(0.6)}

    def _count(self, actor: str) -> tuple[str, dict[str, Any]]:
        return "count", {"wait": _LONGEST_WAIT} if self._chance(0.2) else {}

    def _search(self, actor: str) -> tuple[str, dict[str, Any]]:
        args = {"word": self.dice.choice(_WORDS), "limit": self.dice.choice((3, 10, 100))}
        return "search", args | ({"thread": self._thread(actor)} if self._chance(0.3) else {})

    def _acknowledge(self, actor: str) -> tuple[str, dict[str, Any]]:
        wanted = self.model.owed_by(actor, 20)
        letter = self.dice.choice(wanted) if wanted and self._chance(0.6) else self._letter(actor)
        return "ack", {"letter": letter, "note": f"note {self.number + 1}"}

    def _owed(self, actor: str) -> tuple[str, dict[str, Any]]:
        return "overdue", {}

    def _create(self, actor: str) -> tuple[str, dict[str, Any]]:
        args: dict[str, Any] = {"title": f"thread {self.number + 1}", "names": self._others(0.1)}
        if self._chance(0.5):
            args["initial"] = f"first {self.number + 1}"
        return "create", args

    def _list(self, actor: str) -> tuple[str, dict[str, Any]]:
        return "threads", {"limit": self.dice.choice((1, 10, 1000))}

    def _look(self, actor: str) -> tuple[str, dict[str, Any]]:
        return "details", {"thread": self._thread(actor)}

    def _join(self, actor: str) -> tuple[str, dict[str, Any]]:
        return "join", {"thread": self._thread(actor, 0.1)}

    def _add(self, actor: str) -> tuple[str, dict[str, Any]]:
        name = BOSS if self._chance(0.04) else self._other(actor)
        return "add", {"thread": self._thread(actor), "name": name}

    def _remove(self, actor: str) -> tuple[str, dict[str, Any]]:
        thread = self._thread(actor)
        if thread is None or self._chance(0.3):
            return "remove", {"thread": thread, "name": self._other(actor)}
        members = self.model.members[thread]
        own = self.model.threads[thread].creator == actor and self._chance(0.9)
        return "remove", {"thread": thread, "name": self.dice.choice(members) if own else actor}

    def _again(self, actor: str) -> tuple[str, dict[str, Any]]:
        if not self.sent:
            return "count", {}
        first = self.dice.choice(self.sent)
        other = {"content": "another text"} if self._chance(0.1) else {}
        return "send", {**first.args, **other, "actor": first.actor}

    def _read_again(self, actor: str) -> tuple[str, dict[str, Any]]:
        if not self.paged:
            return "count", {}
        first = self.dice.choice(self.paged)
        return "get", {**first.args, "actor": first.actor}

    def _tell_agent(self, actor: str) -> tuple[str, dict[str, Any]]:
        name, number = BOSS if self._chance(0.6) else CLERK, self.number + 1
        made = self._content(to=name)
        if self._chance(0.5):
            made["content"] = f"ask {number} {self._other(actor)}"
        elif name == BOSS and self._chance(0.4):
            seconds = 0.05 if self._chance(0.5) else 3600
            made["content"] = f"wait {number} {self.dice.choice(self.model.mates)} {seconds}"
        if self._chance(0.1):
            made["reply_to"] = self._letter(actor)
        return "send", made

    def _answer_agent(self, actor: str) -> tuple[str, dict[str, Any]]:
        """Answer an open question of an agent's; the oldest ones are left alone."""
        asked = [key for key in self.model.open_asks if key in self.model.ids][-40:]
        mine = [key for key in asked if actor in self.model.letters[key].recipients]
        if not mine or self._chance(0.05):
            return self._tell_agent(actor)
        key = self.dice.choice(mine)
        return "send", self._content(to=self.model.letters[key].sender, reply_to=key)

    def _tell_mate(self, actor: str) -> tuple[str, dict[str, Any]]:
        made = self._content(mate=self.dice.choice((*self.model.mates, "lead", "lead", "p19")))
        for name in ("subject", "wants_ack"):
            made.pop(name, None)
        return "team", made | ({"team": "beta"} if self._chance(0.03) else {})

    def _tell_team(self, actor: str) -> tuple[str, dict[str, Any]]:
        verb, made = self._tell_mate(actor)
        del made["mate"]
        return verb, made | ({"without_me": True} if self._chance(0.5) else {})

    def _file(self, actor: str, share: float = 0.85) -> int | None:
        """Return a file: mostly one of the actor's, at times anybody's, or none."""
        known = [key for key in self.model.files if key in self.model.file_ids]
        own = [key for key in known if self.model.files[key].owner == actor]
        if own and self._chance(share):
            return self.dice.choice(own)
        known = [*self.model.file_ids][-60:]
        return self.dice.choice(known) if known and self._chance(0.95) else None

    def _upload(self, actor: str) -> tuple[str, dict[str, Any]]:
        number = self.number + 1
        size = self.dice.choice((0, 1, 100, 5000, 200_000))
        if actor in self.model.names[-2:] and self._chance(0.2):
            size = _BIG
        args: dict[str, Any] = {"filename": f"f{number}.txt", "seed": number, "size": size}
        if self._chance(0.2):
            args["seed"] = 1  # whose content is stored already
        if self._chance(0.3):
            args["request_id"] = f"upload-{number}"
        return "upload", args

    def _transfer(self, actor: str) -> tuple[str, dict[str, Any]]:
        args: dict[str, Any] = {"file": self._file(actor), "content": f"text {self.number + 1}"}
        if self._chance(0.6):
            args["to"] = self._other(actor)
        else:
            args["thread"] = self._thread(actor)
        return "transfer", args | (
            {"request_id": f"t-{self.number + 1}"} if self._chance(0.3) else {}
        )

    def _fetch(self, actor: str) -> tuple[str, dict[str, Any]]:
        sent = [self.model.letters[key].file for key in self.model.newest(actor, 100)]
        sent = [key for key in sent if key is not None]
        file = self.dice.choice(sent) if sent and self._chance(0.6) else self._file(actor, 0.4)
        return "download" if self._chance(0.6) else "meta", {"file": file}

    def _list_files(self, actor: str) -> tuple[str, dict[str, Any]]:
        return "files", {"limit": self.dice.choice((1, 10, 1000))}

    def _delete(self, actor: str) -> tuple[str, dict[str, Any]]:
        files = self.model.files
        big = [key for key in files if files[key].size == _BIG and key in self.model.file_ids]
        if len(big) > 2 and self._chance(0.7):
            key = self.dice.choice(big)
            return "delete", {"file": key, "actor": files[key].owner}
        return "delete", {"file": self._file(actor, 0.9)}

    def _nonsense(self, actor: str) -> tuple[str, dict[str, Any]]:
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("send", {"to": actor, "content": "to myself"}),
            ("send", {"many": [actor, actor], "content": "to myself"}),
            ("send", {"to": "nobody", "content": "to nobody"}),
            ("send", {"many": [self._other(actor), "nobody"], "content": "to nobody"}),
            ("send", {"to": self._other(actor), "content": "x", "sender_id": "somebody"}),
            ("create", {"title": "nobody's", "names": [self._other(actor), "nobody"]}),
            ("add", {"thread": self._thread(actor), "name": "nobody"}),
            ("remove", {"thread": self._thread(actor), "name": "nobody"}),
        ]
        return self.dice.choice(wrong)


# --- finding the order ----------------------------------------------------------------------------


@dataclass
class _Order:
    """Looks for an order of concurrent operations that explains every answer.

    Those without an answer may be done anywhere, or not at all. ``tail`` was asked afterwards.
    """

    model: Model
    tail: Sequence[Sent]
    done: list[Op] = field(default_factory=list)
    best: int = -1
    reasons: dict[str, None] = field(default_factory=dict)
    _older: dict[object, set[object]] = field(default_factory=dict)
    _failed: set[object] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._mark, self._before = self.model.mark(), len(self.model.letters)
        self._members = dict(self.model.members)
        for _, answer in self.tail:
            messages = answer.body.get("messages", ()) if answer else ()
            texts = [each.get("content") for each in messages]
            for newer, older in pairwise(texts):
                self._older.setdefault(newer, set()).add(older)

    def find(self, rest: tuple[Sent, ...]) -> bool:
        """Do them all in such an order, which ``done`` has then; false if there is none."""
        model, mark = self.model, self.model.mark()
        state = frozenset(op.number for op, _ in rest), model.changes(self._mark)
        if state in self._failed:
            return False
        for at, (op, answer) in enumerate(rest):
            model.strict = False
            try:
                model.apply(op, answer)
            except Differs as error:
                self._note(op, error, len(self.done))
            else:
                self.done.append(op)
                if self._is_in_order() and self.find(rest[:at] + rest[at + 1 :]):
                    return True
                self.done.pop()
            model.back(mark)
        for number in list(model.pending):
            for audience in model.audiences(number, self._members):
                model.act(number, audience)
                if self._is_in_order() and self.find(rest):
                    return True
                model.back(mark)
        unseen = all(answer is None for _, answer in rest)
        if unseen and not model.pending and self._fits():
            return True
        model.back(mark)
        self._failed.add(state)
        return False

    def _is_in_order(self) -> bool:
        """Tell whether letters came as the looks at the end show them, as far as that is known."""
        new = self.model.newest(None, len(self.model.letters) - self._before)
        texts = [self.model.letters[key].content for key in new]
        there: set[object] = set()
        for text in texts:
            for older in self._older.get(text, ()):
                if older in texts and older not in there:
                    return False
            there.add(text)
        return True

    def _fits(self) -> bool:
        self.model.strict = True
        for at, (op, answer) in enumerate(self.tail):
            try:
                self.model.apply(op, answer)
            except Differs as error:
                self._note(op, error, len(self.done) + at)
                return False
        return True

    def _note(self, op: Op, error: Differs, depth: int) -> None:
        if depth > self.best:
            self.best, self.reasons = depth, {}
        if depth == self.best and len(self.reasons) < _MOST_REASONS:
            self.reasons[f"{error}\n  in the answer to\n{op}"] = None

    @property
    def reason(self) -> str:
        """What speaks against the orders that go furthest."""
        return "\n  or ".join(self.reasons)


@dataclass(eq=False)
class Simulation:
    """Participants and the model beside them.

    Attributes:
        seed: Of all choices.
        wire: To the server.
        model: What should be.
        requests: The file with what stood in requests to models.
        kill: Kills the server, after so many seconds.
        restart: Starts it again.
    """

    seed: int
    wire: Wire
    model: Model
    requests: Path
    kill: Callable[[float], Awaitable[None]] | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    history: list[Op] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.whims = _Whims(self.dice, self.model)

    async def run(self, operations: int, kills: int) -> Figures:
        """Do so many operations, with so many kills at random moments between them.

        Raises:
            Differs: something differs; ``history`` has all operations that lead there.
        """
        began = time.monotonic()
        moments = sorted(self.dice.sample(range(operations), kills), reverse=True)
        told = 0
        while self.figures.operations < operations:
            if self.figures.operations - told >= _TOLD_EACH:
                told = self.figures.operations
                self._compare_shown()
                report(f"{told} operations, {self.figures.kills} kills so far")
                sys.stdout.flush()
            if moments and self.figures.operations >= moments[-1]:
                moments.pop()
                await self._killed()
            elif self.dice.random() < 0.75:
                await self._alone(self.whims.next())
            else:
                await self._together(self._batch(self.dice.randint(2, 5)))
        for name in self.model.names:
            await self._look(name, "count")
            await self._look(name, "overdue")
            await self._look(name, "files", limit=1000)
        self._compare_shown()
        self.figures.files, self.figures.turns = len(self.model.file_ids), len(self.model.turns)
        self.figures.seconds = time.monotonic() - began
        self.figures.letters, self.figures.threads = (
            len(self.model.letters),
            len(self.model.threads),
        )
        return self.figures

    def _batch(self, size: int, *, killed: bool = False) -> list[Op]:
        """Return operations of different actors, some of them twice at the same time.

        Those for agents can be repeated if the server is killed; there are few of them.
        """
        batch: dict[str, list[Op]] = {}
        for_agents = 0
        while len(batch) < len(self.model.names) and sum(map(len, batch.values())) < size:
            op = self.whims.next()
            if self._is_for_agents(op):
                for_agents += 1
                if for_agents > 2 or (killed and "request_id" not in op.args):
                    continue
            if op.actor not in batch and op.verb != "search":  # whose pages are several requests
                again = "request_id" in op.args and self.dice.random() < 0.3
                batch[op.actor] = [op, self.whims.twin(op)] if again else [op]
        return [op for ops in batch.values() for op in ops]

    def _is_for_agents(self, op: Op) -> bool:
        """Tell whether agents may get something of it."""
        args, agents = op.args, self.model.agents
        names = {args.get("to"), *args.get("many", ()), *args.get("names", ())}
        members = self.model.members.get(args.get("thread") or 0, ())
        in_thread = op.verb in ("send", "transfer", "add") and {*members} & {*agents}
        return bool(names & {*agents} or in_thread) or (
            op.verb == "team" and args.get("mate", "lead") == "lead"
        )

    async def _alone(self, op: Op) -> None:
        self.figures.operations += 1
        await self._do(op)
        self.history.append(op)

    async def _look(self, actor: str, verb: str, **args: Any) -> None:
        self.figures.checks += 1
        await self._do(self.whims.op(actor, verb, **args))

    async def _do(self, op: Op) -> None:
        """Do one operation while nothing else happens."""
        answer = await self.wire.ask(Asked(op, self.model.request(op)))
        if answer is None:
            raise Differs(f"the connection broke in\n{op}")
        self.model.strict = True
        try:
            self.model.apply(op, answer)
        except Differs as error:
            self.history.append(op)
            raise Differs(f"{error}\n  in the answer to\n{op}") from None
        await self._quiet()
        self.model.keep()

    async def _quiet(self) -> None:
        """Wait until agents have done what they must, and look at what they have read."""
        agents = {turn.agent for turn in self.model.pending.values()}
        if agents:
            await quiet(self.wire, self.model)
            # Nobody is told the ids of notices.
            known = [letter for letter, _ in self.model.turns if letter in self.model.ids]
            if known:
                await self._look(ADMIN, "message", letter=known[-1])

    def _compare_shown(self) -> None:
        """Compare which letters agents have been shown with those in requests to their models."""
        asked: set[tuple[str, str, str]] = set()
        if self.requests.exists():
            for line in self.requests.read_text(encoding="utf-8").splitlines():
                agent, found = json.loads(line)
                asked |= {(agent, who, text) for who, text in found}
        shown = set()
        for letter, agent in self.model.shown:
            notice = self.model.letters[letter].kind == "notice"  # of the desk, by nobody
            if agent in self.model.agents and not notice:
                text = " ".join(self.model.text(letter).split()[:2])
                shown.add((agent, self.model.letters[letter].sender, text))
        asked &= {
            (agent, letter.sender, " ".join(self.model.text(key).split()[:2]))
            for key, letter in self.model.letters.items()
            for agent in {*letter.recipients} & {*self.model.agents}
        }  # an agent also reads what was written in a thread before it came
        if asked != shown:
            raise Differs(
                f"shown, but in no request: {sorted(shown - asked)[:5]}; "
                f"in requests, but not shown: {sorted(asked - shown)[:5]}"
            )

    async def _asked(self, batch: Iterable[Op]) -> list[Sent]:
        asked = [Asked(op, self.model.request(op)) for op in batch]
        answers = await asyncio.gather(*map(self.wire.ask, asked))
        return [(each.op, answer) for each, answer in zip(asked, answers, strict=True)]

    async def _together(self, batch: list[Op]) -> None:
        self.figures.operations += len(batch)
        sent = await self._asked(batch)
        for op, answer in sent:
            if answer is None:
                raise Differs(f"the connection broke in\n{op}")
        await self._settle(sent)

    async def _killed(self) -> None:
        """Kill the server while operations are on their way, and see which of them were done."""
        assert self.kill is not None and self.restart is not None
        batch = self._batch(self.dice.randint(4, 7), killed=True)
        self.figures.operations += len(batch)
        self.figures.kills += 1
        work = self.kill(self.dice.uniform(0.001, 0.012))
        sent, _ = await asyncio.gather(self._asked(batch), work)
        await self.restart()
        lost = {op.number for op, answer in sent if answer is None}
        self.figures.in_flight += len(lost)
        again = [
            self.whims.twin(op)
            for op, answer in sent
            if answer is None and self._is_for_agents(op) and "request_id" in op.args
        ]
        sent += await self._asked(again)
        done = await self._settle(sent)
        self.figures.done_unseen += sum(op.number in lost for op in done)
        for op in done:
            if op.number in lost and op.verb == "create" and op.number in self.model.threads:
                await self._look(ADMIN, "details", thread=op.number)

    async def _settle(self, sent: list[Sent]) -> list[Op]:
        """Find an order of what was asked at the same time, after a look at what it changed."""
        mark, before = self.model.mark(), len(self.model.letters)
        first = _Order(self.model, ())
        if not first.find(tuple(sent)):
            self.history.extend(op for op, _ in sent)
            raise Differs(f"{_UNEXPLAINED} {first.reason}")
        new = self.model.newest(None, len(self.model.letters) - before)
        await written(self.wire, self.model, new)
        if any(answer is None for _, answer in sent):
            looks = list(self._at_all(sent, new))
        else:
            looks = list(self._at_order(new))
        asked = [Asked(op, self.model.request(op)) for op in looks]
        self.model.back(mark)
        tail = [each async for each in self._tail(asked)]
        self.figures.checks += len(tail)
        order = _Order(self.model, tail)
        found = order.find(tuple(sent))
        self.history.extend(order.done if found else (op for op, _ in sent))
        if not found:
            self.history.extend(op for op, _ in tail)
            asked = "\n".join(f"{op} -> {answer and answer.status}" for op, answer in sent)
            raise Differs(f"{_UNEXPLAINED} {order.reason}\n  after\n{asked}")
        self.model.keep()
        return order.done

    async def _tail(self, looks: Iterable[Asked]) -> AsyncIterator[Sent]:
        """Ask one after the other; lists of unread letters and of threads to their ends."""
        for look in looks:
            asked = look
            while True:
                answer = await self.wire.ask(asked)
                if answer is None:
                    raise Differs(f"the connection broke in\n{asked.op}")
                yield asked.op, answer
                body = answer.body
                if _goes_on(asked.op) and body["messages"]:
                    args = {**asked.op.args, "place": body["next_before"]}
                elif asked.op.verb == "threads" and body["next_after"]:
                    listed = [each["id"] for each in body["threads"]]
                    seen = (*asked.op.args.get("seen", ()), *listed)
                    args = {**asked.op.args, "place": body["next_after"], "seen": seen}
                else:
                    break
                op = self.whims.op(asked.op.actor, asked.op.verb, **args)
                asked = Asked(op, self.model.request(op))

    def _at_order(self, new: list[LetterKey]) -> Iterator[Op]:
        """Yield looks that tell in which order letters came to the same place."""
        boxes: dict[str, list[LetterKey]] = {}
        threads: dict[int, list[LetterKey]] = {}
        for key in new:
            letter = self.model.letters[key]
            for name in letter.recipients:
                boxes.setdefault(name, []).append(key)
            if letter.thread is not None:
                threads.setdefault(letter.thread, []).append(key)
        for name, keys in boxes.items():
            if name in self.model.names and len({number for number, _ in keys}) > 1:
                yield self._listing(name, len(keys))
        for thread, keys in threads.items():
            if len({number for number, _ in keys}) > 1 and thread in self.model.thread_ids:
                yield self._listing(self.model.threads[thread].creator, len(keys), thread=thread)

    def _listing(self, name: str, count: int, **args: Any) -> Op:
        return self.whims.op(name, "get", limit=min(count + 2, 100), mark=False, **args)

    def _at_all(self, sent: list[Sent], new: list[LetterKey]) -> Iterator[Op]:
        """Yield looks at whatever the operations may have changed."""
        model = self.model
        lost = [op for op, answer in sent if answer is None]
        for op in lost:
            if op.verb == "get" and "request_id" in op.args:
                yield self.whims.twin(op)
        threads = {op.args["thread"] for op, _ in sent if op.args.get("thread")}
        names = {op.actor for op, _ in sent}
        for op, _ in sent:
            names |= {op.args[each] for each in ("to", "name") if each in op.args}
            names |= {*op.args.get("many", ()), *op.args.get("names", ())}
        for key in new:
            names |= {*model.letters[key].recipients}
        for thread in threads:
            yield self.whims.op(ADMIN, "details", thread=thread)
            yield self._listing(model.threads[thread].creator, 40, thread=thread)
            names |= {*model.members[thread]}
        for op in lost:
            yield from self._at_lost(op)
        for name in sorted(names & {*model.names}):
            yield self._listing(name, 40)
            yield self.whims.op(name, "get", unread=True, limit=100, mark=False)
            yield self.whims.op(name, "count")

    def _at_lost(self, op: Op) -> Iterator[Op]:
        """Yield looks that tell whether an operation was done which leaves no letter."""
        if op.verb == "upload":
            yield self.whims.op(op.actor, "files", limit=1000)
        elif op.verb == "delete" and op.args["file"]:
            yield self.whims.op(ADMIN, "meta", file=op.args["file"])
        elif op.verb == "create":
            yield self.whims.op(op.actor, "threads", limit=1000)
        elif op.args.get("letter"):
            yield self.whims.op(ADMIN, "message", letter=op.args["letter"])


def _goes_on(op: Op) -> bool:
    return op.args.get("unread", False) and "request_id" not in op.args


async def quiet(wire: Wire, model: Model) -> None:
    """Let agents have their turns, and wait until what they write is there.

    Raises:
        Differs: it does not come.
    """
    before = len(model.letters)
    while model.pending:
        model.act(next(iter(model.pending)))
    late = await written(wire, model, model.newest(None, len(model.letters) - before))
    if late:
        raise Differs(f"agents have not written {[model.letters[key] for key in late]}")


async def written(wire: Wire, model: Model, letters: Iterable[LetterKey]) -> list[LetterKey]:
    """Wait until letters of agents are there, as far as somebody can see them and none is known.

    Returns:
        Those that have not come.
    """
    late = []
    for key in letters:
        letter = model.letters[key]
        if letter.sender not in model.agents or key in model.ids:
            continue
        to = [name for name in letter.recipients if model.visible(key, name)]
        to = [name for name in to if name not in model.agents]
        until = time.monotonic() + _PATIENCE
        args = {} if letter.thread is None else {"thread": letter.thread}
        while to and time.monotonic() < until:
            op = Op(0, to[0], "get", {"limit": 30, "mark": False, **args})
            answer = await wire.ask(Asked(op, model.request(op)))
            found = answer.body.get("messages", ()) if answer else ()
            if any(each["content"] == letter.content for each in found):
                break
            await asyncio.sleep(0.004)
        else:
            late += [key] if to else []
    return late


def make_model(names: tuple[str, ...]) -> Model:
    """Return the model of the swarm that is simulated."""
    return Model(names, targets(names), mates(names), _MOST_STORED)


@asynccontextmanager
async def fresh_server(names: tuple[str, ...], store: Store) -> AsyncIterator[tuple[Wire, Path]]:
    """Run a server in this process; yield it, and where its models write down their requests."""
    await store.open()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        template = make_swarm("test-swarm", folder, names)
        chosen = config(max_stored_bytes=_MOST_STORED, body_rate=0.0)
        more = {"teams": TeamsConfig(enabled=True), "files": FilesConfig(root=f"{folder}/files")}
        app = create_app(chosen.model_copy(update=more), template=template, store=store)
        try:
            await make_tokens(store, names)
            async with running_server(app) as server, wire_to(server.url) as wire:
                yield wire, folder / REQUESTS
        finally:
            await store.close()


async def beside_model(simulation: Simulation, operations: int, kills: int) -> Figures:
    """Run a simulation of so many operations and kills.

    Raises:
        Found: there is a difference.
    """
    try:
        return await simulation.run(operations, kills)
    except Differs as error:
        last = "\n".join(str(op)[:200] for op in simulation.history[-40:])
        where = f"seed {simulation.seed}, after {len(simulation.history)} operations"
        raise Found(f"{where}: {error}\nThe last ones were\n{last}") from None


# --- a server in a process of its own -------------------------------------------------------------


async def on_a_server(
    folder: Path,
    operations: int,
    kills: int,
    *,
    seed: int,
    participants: int = 20,
    dsn: str = "",
) -> Figures:
    """Run a simulation against ``mail server`` in a process that is killed.

    Raises:
        Found: there is a difference.
    """
    names = names_of(participants)
    place = Place(folder, 0, dsn=dsn)
    store = open_store(place.store_url, exclusive=False)
    await store.open()
    await make_tokens(store, names)
    await store.close()

    async def kill(after: float) -> None:
        await asyncio.sleep(after)
        await place.kill()

    async def restart() -> None:
        await place.start(participants=names, desk=_MOST_STORED)

    try:
        await restart()
        async with wire_to(place.url) as wire:
            simulation = Simulation(seed, wire, make_model(names), folder / REQUESTS, kill, restart)
            figures = await beside_model(simulation, operations, kills)
        assert "Traceback" not in place.log, place.log
        return figures
    finally:
        place.clean_up()


async def _main(operations: int, kills: int, seed: int, databases: Sequence[str]) -> None:
    for database in databases:
        with tempfile.TemporaryDirectory() as folder:
            options: dict[str, Any] = {}
            cluster = Cluster() if database == "postgresql" else None
            try:
                if cluster is not None:
                    cluster.start()
                    options["dsn"] = cluster.dsn()
                figures = await on_a_server(Path(folder), operations, kills, seed=seed, **options)
                report(f"{database}, seed {seed}: {figures}")
                sys.stdout.flush()
            finally:
                if cluster is not None:
                    cluster.remove()


def main() -> int:
    """Run it, print the figures or the difference, and return 1 if there is one."""
    parser = argparse.ArgumentParser("python -m tests.e2e.desk_simulation", description=__doc__)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    both = ("sqlite", "postgresql")
    parser.add_argument("--database", choices=both, action="append")
    given = parser.parse_args()
    warm_up()
    try:
        asyncio.run(_main(given.operations, given.kills, given.seed, given.database or both))
    except Found as found:
        report(str(found))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
