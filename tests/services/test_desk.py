"""The rules of the mail desk, one by one, on a store in memory."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mail.db.desk import DeskPost, FoundLetters, ReceiptRow, ThreadRow
from mail.db.desk_search import LetterQuery
from mail.db.memory import MemoryStore
from mail.errors import (
    Forbidden,
    MAILError,
    ProtocolError,
    RequestReused,
    UnknownLetter,
    UnknownThread,
)
from mail.services import desk as desk_module
from mail.services.desk import (
    MAX_MEMBERS,
    Draft,
    FetchedLetter,
    LetterPage,
    MailDesk,
    check_claim,
    thread_place,
)
from mail.testing import FakeClock

NAMES = ("editor", "reviewer", "tester", "visitor")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def desk(clock: FakeClock) -> MailDesk:
    return MailDesk(MemoryStore(), "office", dict.fromkeys(NAMES, ""), clock, max_bytes=1000)


async def send(desk: MailDesk, sender: str, to: str, text: str = "hello", **more: Any) -> str:
    """Send a direct letter; return its id."""
    return (await desk.send_message(sender, Draft(text, **more), to, None)).letter.letter_id


async def post(desk: MailDesk, sender: str, thread: str, text: str = "hello", **more: Any) -> str:
    """Post in a thread; return the letter's id."""
    return (await desk.send_message(sender, Draft(text, **more), None, thread)).letter.letter_id


async def thread(desk: MailDesk, creator: str, *others: str) -> str:
    """Create a thread; return its id. What it makes unread is read."""
    made = await desk.create_thread(creator, "Release", others)
    await seen(desk, *others)
    return made.view.thread.thread_id


async def seen(desk: MailDesk, *names: str) -> None:
    for name in names:
        await desk.get_messages(name, limit=100)


def texts(page: LetterPage) -> list[str]:
    return [each.letter.body for each in page.letters]


async def unread(desk: MailDesk) -> dict[str, int]:
    """Return who has unread letters, and how many."""
    counts = {name: await desk.check_new_messages(name) for name in desk.mailboxes}
    return {name: count for name, count in counts.items() if count}


async def refused(work: Awaitable[object], kind: type[MAILError], *words: str) -> None:
    with pytest.raises(kind) as caught:
        await work
    for word in words:
        assert word in str(caught.value)


# --- sending ----------------------------------------------------------------------------------


async def test_a_letter_goes_to_its_recipient_alone(desk: MailDesk) -> None:
    sent = await desk.send_message(
        "editor", Draft("hello", "Hi", urgent=True, wants_ack=True), "reviewer", None
    )
    assert await unread(desk) == {"reviewer": 1}
    (got,) = (await desk.get_messages("reviewer")).letters
    assert got == FetchedLetter(sent.letter, read=False)
    assert sent.letter.seq > 0
    assert (got.letter.sender, got.letter.recipients) == ("editor", ("reviewer",))
    assert (got.letter.kind, got.letter.subject, got.letter.urgent) == ("direct", "Hi", True)


@pytest.mark.parametrize("both", [(None, None), ("reviewer", "some thread")])
async def test_exactly_one_of_recipient_and_thread(desk: MailDesk, both: tuple[Any, Any]) -> None:
    await refused(desk.send_message("editor", Draft("x"), *both), ProtocolError, "either")
    assert await unread(desk) == {}


async def test_an_unknown_recipient_is_named(desk: MailDesk) -> None:
    await refused(send(desk, "editor", "reviewr"), ProtocolError, "'reviewr'", "'reviewer'?")


async def test_nobody_writes_to_oneself(desk: MailDesk) -> None:
    await refused(send(desk, "editor", "editor"), ProtocolError, "must not be yourself")


@pytest.mark.parametrize(
    ("draft", "problem"),
    [
        (Draft(""), "content: must not be empty"),
        (Draft("ö" * 501), "content: must not be longer than 1000 bytes, got 1002"),
        (Draft("x", subject="x" * 1025), "subject: must be a line"),
        (Draft("x", subject="a\nb"), "subject: must be a line"),
        (Draft("x", request_id="a b"), "request_id: must be 1 to 255"),
        (Draft("x", request_id="x" * 256), "request_id: must be 1 to 255"),
        (Draft("x", reply_to="nothing"), "reply_to: no such message"),
        (Draft("x", reply_to="n" * 300), "reply_to: no such message"),
    ],
)
async def test_a_wrong_draft_is_refused(desk: MailDesk, draft: Draft, problem: str) -> None:
    await refused(desk.send_message("editor", draft, "reviewer", None), ProtocolError, problem)
    await refused(desk.broadcast_message("editor", draft, ["reviewer"]), ProtocolError, problem)
    assert await unread(desk) == {}


async def test_the_longest_letter_fits(desk: MailDesk) -> None:
    await send(desk, "editor", "reviewer", "ö" * 500)
    assert await unread(desk) == {"reviewer": 1}


async def test_a_reply_is_to_a_letter_that_one_sees(desk: MailDesk) -> None:
    first = await send(desk, "editor", "reviewer")
    reply = await send(desk, "reviewer", "editor", reply_to=first)
    assert (await desk.get_message("editor", reply)).letter.reply_to == first
    await refused(send(desk, "tester", "editor", reply_to=first), ProtocolError, "no such message")


async def test_a_post_goes_to_the_other_members(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer", "tester")
    await post(desk, "reviewer", there, "done?")
    assert await unread(desk) == {"editor": 1, "tester": 1}
    assert texts(await desk.get_messages("editor")) == ["done?"]


async def test_a_thread_one_is_not_in_looks_like_none(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer")
    tries: list[Callable[[str], Awaitable[object]]] = [
        lambda at: desk.send_message("visitor", Draft("x"), None, at),
        lambda at: desk.get_messages("visitor", thread_id=at),
        lambda at: desk.get_thread("visitor", at),
        lambda at: desk.add_participant("visitor", at, "tester"),
        lambda at: desk.add_participant("visitor", at, "nobody"),
        lambda at: desk.remove_participant("visitor", at, "reviewer"),
    ]
    for attempt in tries:
        said = []
        for place in (there, "no-such-thread", "x" * 300, "a\0b"):
            with pytest.raises(UnknownThread) as caught:
                await attempt(place)
            said.append(str(caught.value))
        assert set(said) == {"no such thread"}
    assert await unread(desk) == {}


async def test_a_request_id_sends_once(desk: MailDesk) -> None:
    first = await desk.send_message("editor", Draft("x", request_id="r1"), "reviewer", None)
    again = await desk.send_message("editor", Draft("x", request_id="r1"), "reviewer", None)
    assert again == (first.letter, True)
    assert await unread(desk) == {"reviewer": 1}
    for other in (Draft("y", request_id="r1"), Draft("x", urgent=True, request_id="r1")):
        await refused(desk.send_message("editor", other, "reviewer", None), RequestReused)
    draft = Draft("x", request_id="r1")
    await refused(desk.send_message("editor", draft, "tester", None), RequestReused)
    await refused(desk.broadcast_message("editor", draft, ["reviewer"]), RequestReused)
    theirs = await desk.send_message("tester", draft, "reviewer", None)
    assert not theirs.repeated


async def test_a_repeated_post_is_the_first_one_whoever_joined_since(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer")
    first = await post(desk, "editor", there, request_id="r")
    await desk.join_thread("tester", there)
    assert await post(desk, "editor", there, request_id="r") == first


async def test_repeats_at_the_same_time_send_once(desk: MailDesk) -> None:
    draft = Draft("x", request_id="r")
    sent = await asyncio.gather(
        *(desk.send_message("editor", draft, "reviewer", None) for _ in range(5))
    )
    assert [each.repeated for each in sent].count(False) == 1
    assert await unread(desk) == {"reviewer": 1}


async def test_a_broadcast_is_one_letter_to_all(desk: MailDesk) -> None:
    to = ["tester", "reviewer", "tester", "editor"]
    sent = await desk.broadcast_message("editor", Draft("lunch"), to)
    assert sent.letter.recipients == ("tester", "reviewer")
    assert sent.letter.kind == "broadcast"
    assert await unread(desk) == {"tester": 1, "reviewer": 1}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "somebody other than yourself"),
        (["editor"], "somebody other than yourself"),
        (["reviewer", "nobody", "noone"], "recipient_ids: no mailbox of this swarm is named 'no"),
        ([f"n{number}" for number in range(257)], "must not name more than 256"),
        ([f"n{number}" for number in range(12)], "'n9' and 2 more"),
    ],
)
async def test_a_broadcast_reaches_all_or_nobody(
    desk: MailDesk, names: list[str], problem: str
) -> None:
    await refused(desk.broadcast_message("editor", Draft("x"), names), ProtocolError, problem)
    assert await unread(desk) == {}


async def test_who_has_too_much_stores_nothing(desk: MailDesk) -> None:
    asked: list[tuple[str, int]] = []

    async def admit(name: str, size: int) -> None:
        asked.append((name, size))
        raise MAILError("full")

    desk.admit = admit
    await refused(send(desk, "editor", "reviewer", "x" * 100), MAILError, "full")
    await refused(desk.create_thread("editor", "Title", ["tester"], "hi"), MAILError, "full")
    assert [name for name, _ in asked] == ["editor", "editor"]
    assert min(size for _, size in asked) > 100
    assert await unread(desk) == {}
    assert await desk.list_threads("editor", "", 10) == []


async def test_notices_count_for_who_caused_them(desk: MailDesk) -> None:
    there = await thread(desk, "editor")
    before = await desk.store.letter_bytes("office", "visitor")
    await desk.join_thread("visitor", there)
    assert await desk.store.letter_bytes("office", "visitor") > before


# --- reading ----------------------------------------------------------------------------------


async def test_pages_are_newest_first_and_mark_what_they_have(desk: MailDesk) -> None:
    for number in range(12):
        await send(desk, "editor", "reviewer", str(number))
    page = await desk.get_messages("reviewer")
    assert texts(page) == [str(number) for number in range(11, 1, -1)]
    assert page.unread == 2
    assert not any(each.read for each in page.letters)
    assert texts(await desk.get_messages("reviewer", unread=True)) == ["1", "0"]
    older = await desk.get_messages("reviewer", limit=1, before=page.next_before)
    assert texts(older) == ["1"]
    assert older.letters[0].read
    assert (await desk.get_messages("visitor")) == LetterPage([], 0, None)


async def test_since_is_strictly_after(desk: MailDesk, clock: FakeClock) -> None:
    await send(desk, "editor", "reviewer", "old")
    clock.advance(seconds=1)
    await send(desk, "editor", "reviewer", "new")
    (newest, oldest) = (await desk.get_messages("reviewer")).letters
    since = oldest.letter.created_at
    assert texts(await desk.get_messages("reviewer", since=since)) == ["new"]
    assert texts(await desk.get_messages("reviewer", since=since[:19] + "Z")) == ["new"]
    assert texts(await desk.get_messages("reviewer", since=since[:19].lower() + "z")) == ["new"]
    ahead = newest.letter.created_at.replace("+00:00", "+02:00")
    assert len(texts(await desk.get_messages("reviewer", since=ahead))) == 2


@pytest.mark.parametrize(
    "since", ["2026-01-01T12:00:00", "2026-01-01", "yesterday", "", "0001-01-01T00:00:00+23:00"]
)
async def test_a_time_without_a_zone_is_refused(desk: MailDesk, since: str) -> None:
    await refused(desk.get_messages("editor", since=since), ProtocolError, "since: must")


@pytest.mark.parametrize("limit", [0, -1, 101])
async def test_a_page_has_1_to_100_letters(desk: MailDesk, limit: int) -> None:
    await refused(desk.get_messages("editor", limit=limit), ProtocolError, "1 to 100")


async def test_a_page_is_bounded_in_bytes(desk: MailDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "PAGE_BYTES", 3000)
    for number in range(5):
        await send(desk, "editor", "reviewer", str(number) * 900)
    page = await desk.get_messages("reviewer")
    assert len(page.letters) == 2
    assert page.unread == 3


async def test_reading_without_marking_changes_nothing(desk: MailDesk) -> None:
    await send(desk, "editor", "reviewer")
    assert (await desk.get_messages("reviewer", mark_read=False)).unread == 1
    assert await unread(desk) == {"reviewer": 1}


async def test_a_repeated_request_gets_the_same_page(desk: MailDesk, clock: FakeClock) -> None:
    await send(desk, "editor", "reviewer", "first")
    page = await desk.get_messages("reviewer", request_id="p1")
    clock.advance(seconds=1)
    await send(desk, "editor", "reviewer", "second")
    again = await desk.get_messages("reviewer", request_id="p1")
    assert again.letters == page.letters
    assert texts(again) == ["first"]
    assert (page.unread, again.unread) == (0, 1)
    assert texts(await desk.get_messages("reviewer", request_id="p2")) == ["second", "first"]
    assert texts(await desk.get_messages("editor", request_id="p1")) == []


async def test_repeats_of_a_page_at_the_same_time_agree(desk: MailDesk) -> None:
    for number in range(3):
        await send(desk, "editor", "reviewer", str(number))
    pages = await asyncio.gather(
        *(desk.get_messages("reviewer", limit=2, request_id="p") for _ in range(5))
    )
    assert all(page.letters == pages[0].letters for page in pages)
    assert await unread(desk) == {"reviewer": 1}


async def test_own_posts_are_in_threads_only_and_never_unread(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer")
    await post(desk, "editor", there, "mine")
    assert texts(await desk.get_messages("editor")) == []
    page = await desk.get_messages("editor", thread_id=there)
    assert page.letters[0].letter.body == "mine"
    assert all(each.read for each in page.letters)
    assert "editor" not in await unread(desk)


async def test_one_letter_is_for_its_sender_its_recipients_and_operators(desk: MailDesk) -> None:
    letter = await send(desk, "editor", "reviewer")
    for_sender = await desk.get_message("editor", letter)
    assert for_sender.receipts is not None
    assert [each.shown_at for each in for_sender.receipts] == [""]
    operators = await desk.get_message(None, letter)
    assert operators.receipts == for_sender.receipts
    assert await unread(desk) == {"reviewer": 1}
    await desk.get_message("reviewer", letter, mark_read=False)
    assert await unread(desk) == {"reviewer": 1}
    got = await desk.get_message("reviewer", letter)
    assert (got.read, got.receipts) == (False, None)
    assert await unread(desk) == {}
    shown = (await desk.get_message("editor", letter)).receipts
    assert shown is not None
    assert shown[0].shown_at
    for name, which in (("tester", letter), (None, "x"), ("editor", "x" * 300), ("editor", "\0")):
        await refused(desk.get_message(name, which), UnknownLetter, "no such message")


async def test_a_letter_is_acknowledged_once_by_a_recipient(
    desk: MailDesk, clock: FakeClock
) -> None:
    letter = await send(desk, "editor", "reviewer", wants_ack=True)
    receipt, done = await desk.acknowledge("reviewer", letter, "will do")
    assert done
    assert receipt.acked_at
    assert receipt.shown_at
    assert receipt.ack_note == "will do"
    clock.advance(seconds=5)
    assert await desk.acknowledge("reviewer", letter, "later") == (receipt, False)
    told = (await desk.get_message("editor", letter)).receipts
    assert told == [receipt]
    assert await unread(desk) == {}
    for name, which in (("editor", letter), ("tester", letter), ("reviewer", "none")):
        await refused(desk.acknowledge(name, which), UnknownLetter)
    for note in ("x" * 2001, "\0"):
        await refused(desk.acknowledge("reviewer", letter, note), ProtocolError, "note")


class LeavesMeanwhile(MemoryStore):
    """Its recipients are out of the thread as soon as an acknowledgement was tried."""

    stores = True

    async def acknowledge_letter(
        self, swarm: str, name: str, letter_id: str, moment: str, note: str = ""
    ) -> ReceiptRow | None:
        done = None
        if self.stores:
            done = await super().acknowledge_letter(swarm, name, letter_id, moment, note)
        threads = await self.list_threads(swarm, name)
        left = tuple((each.thread_id, name) for each in threads)
        await self.post_letters(DeskPost(swarm=swarm, left=left))
        return done


@pytest.mark.parametrize("stores", [True, False])
async def test_an_acknowledgement_is_told_as_it_was_stored(clock: FakeClock, stores: bool) -> None:
    store = LeavesMeanwhile()
    store.stores = stores
    desk = MailDesk(store, "office", dict.fromkeys(NAMES, ""), clock, max_bytes=1000)
    about = await thread(desk, "editor", "reviewer")
    letter = await post(desk, "editor", about)
    if not stores:
        await refused(desk.acknowledge("reviewer", letter), UnknownLetter)
        return
    receipt, done = await desk.acknowledge("reviewer", letter, "ok")
    assert (done, receipt.ack_note) == (True, "ok")
    assert (await desk.get_message("editor", letter)).receipts == [receipt]


async def test_what_is_answered_is_not_overdue(desk: MailDesk, clock: FakeClock) -> None:
    letter = await send(desk, "editor", "reviewer", wants_ack=True)
    clock.advance(seconds=60)
    await send(desk, "reviewer", "tester", reply_to=letter)
    assert len(await desk.overdue("editor", 30)) == 1
    answer = await send(desk, "reviewer", "editor", reply_to=letter)
    assert await desk.overdue("editor", 30) == []
    (receipt,) = (await desk.get_message("editor", letter)).receipts or ()
    assert (receipt.answer_id, receipt.answered_at, receipt.acked_at) == (answer, clock.now(), "")


# --- waiting ----------------------------------------------------------------------------------


async def test_who_waits_is_woken_by_a_letter(desk: MailDesk) -> None:
    waiting = asyncio.create_task(desk.wait_for_mail("reviewer", 60))
    other = asyncio.create_task(desk.wait_for_mail("tester", 60))
    await asyncio.sleep(0)
    await send(desk, "editor", "reviewer")
    assert await asyncio.wait_for(waiting, 20) == 1
    assert not other.done()
    desk.bell.close()
    assert await asyncio.wait_for(other, 20) == 0
    assert await desk.wait_for_mail("tester", 60) == 0


async def test_waiting_returns_at_once_with_mail_and_ends_without(desk: MailDesk) -> None:
    await send(desk, "editor", "reviewer")
    assert await desk.wait_for_mail("reviewer", 60) == 1
    assert await desk.wait_for_mail("tester", 0.01) == 0
    desk.bell.ring(["tester"])  # nobody listens any more


async def test_a_bell_without_mail_wakes_nobody(desk: MailDesk) -> None:
    waiting = asyncio.create_task(desk.wait_for_mail("reviewer", 60))
    await asyncio.sleep(0)
    desk.bell.ring(["reviewer"])
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await send(desk, "editor", "reviewer")
    assert await asyncio.wait_for(waiting, 20) == 1


class Searches(MemoryStore):
    """Notes the searches that are in progress, and how many there were; finds nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.looks = 0

    async def search_letters(
        self, swarm: str, name: str, query: LetterQuery, **which: Any
    ) -> FoundLetters:
        self.looks += 1
        self.now[name] += 1
        self.now["all"] += 1
        self.most |= self.now
        for _ in range(5):
            await asyncio.sleep(0)
        self.now.subtract((name, "all"))
        return FoundLetters([], 7)


async def test_a_mailbox_searches_one_look_at_a_time_and_looks_five_times(
    clock: FakeClock,
) -> None:
    store = Searches()
    desk = MailDesk(store, "office", dict.fromkeys(NAMES, ""), clock, max_bytes=1000)
    pages = await asyncio.gather(
        *(desk.search_messages(name, "x*") for name in ("editor", "tester") for _ in range(8))
    )
    assert all(page == ([], 7) for page in pages)
    assert store.looks == 16 * 5
    assert store.most == {"editor": 1, "tester": 1, "all": 2}


async def test_a_query_has_at_most_eight_phrases_and_beginnings(desk: MailDesk) -> None:
    await send(desk, "editor", "reviewer", "abc def")
    eight = " ".join(f"-b{number}*" for number in range(7)) + ' "abc def"'
    assert len((await desk.search_messages("reviewer", eight)).letters) == 1
    words = " ".join(f"-b{number}" for number in range(22))
    assert len((await desk.search_messages("reviewer", f"{eight} {words}")).letters) == 1
    for more in ("x*", "-x*", "x.y"):
        work = desk.search_messages("reviewer", f"{eight} {more}")
        await refused(work, ProtocolError, "q: must have", "8 of them phrases or beginnings")


# --- threads ----------------------------------------------------------------------------------


async def test_a_thread_has_its_creator_and_tells_the_others(desk: MailDesk) -> None:
    made = await desk.create_thread("editor", "Release", ["reviewer", "tester", "reviewer"])
    assert made.letter is None
    assert made.view.members == ["editor", "reviewer", "tester"]
    assert await unread(desk) == {"reviewer": 1, "tester": 1}
    (got,) = (await desk.get_messages("reviewer")).letters
    assert (got.letter.kind, got.letter.sender) == ("notice", "")
    assert got.letter.thread_id == made.view.thread.thread_id
    for word in ("editor", "Release", made.view.thread.thread_id):
        assert word in got.letter.body


async def test_a_thread_may_begin_with_a_message(desk: MailDesk) -> None:
    made = await desk.create_thread("editor", "Release", ["editor", "reviewer"], "Ready?")
    assert made.letter is not None
    page = await desk.get_messages("reviewer")
    assert [each.letter.kind for each in page.letters] == ["thread", "notice"]
    assert page.letters[0].letter == made.letter
    assert "editor" not in await unread(desk)


@pytest.mark.parametrize(
    ("title", "names", "first", "problem"),
    [
        ("", [], None, "title: must be a line of 1 to 200 characters"),
        (" ", [], None, "title: must"),
        ("x" * 201, [], None, "title: must"),
        ("a\nb", [], None, "title: must"),
        ("Release", ["reviewer", "nobody", "noone"], None, "'nobody', 'noone'"),
        ("Release", ["reviewer"], "", "initial_message: must not be empty"),
        ("Release", ["reviewer"], "x" * 1001, "initial_message: must not be longer"),
    ],
)
async def test_a_wrong_thread_is_not_created(
    desk: MailDesk, title: str, names: list[str], first: str | None, problem: str
) -> None:
    await refused(desk.create_thread("editor", title, names, first), ProtocolError, problem)
    assert await desk.list_threads("editor", "", 10) == []
    assert await unread(desk) == {}


async def test_a_thread_has_at_most_256_members(desk: MailDesk) -> None:
    crowd = [f"p{number}" for number in range(MAX_MEMBERS)]
    desk.mailboxes = dict.fromkeys((*NAMES, *crowd), "")
    await refused(desk.create_thread("editor", "All", crowd), ProtocolError, "at most 256")
    made = await desk.create_thread("editor", "All", crowd[:-1])
    there = made.view.thread.thread_id
    await refused(desk.join_thread("tester", there), ProtocolError, "full")
    await refused(desk.add_participant("editor", there, "tester"), ProtocolError, "full")


async def test_anybody_joins_and_all_are_told(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer")
    view, status = await desk.join_thread("tester", there)
    assert (view.members, status) == (["editor", "reviewer", "tester"], "joined")
    assert await unread(desk) == {"editor": 1, "reviewer": 1, "tester": 1}
    assert "tester joined" in texts(await desk.get_messages("editor"))[0]
    view, status = await desk.join_thread("tester", there)
    assert (len(view.members), status) == (3, "already_participant")
    assert await unread(desk) == {"reviewer": 1, "tester": 1}
    await refused(desk.join_thread("tester", "nowhere"), UnknownThread)


async def test_who_joins_sees_what_was_posted_before(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer")
    old = await post(desk, "editor", there, "old")
    await desk.join_thread("tester", there)
    assert "old" in texts(await desk.get_messages("tester", thread_id=there))
    assert (await desk.get_message("tester", old)).read
    await refused(desk.acknowledge("tester", old), UnknownLetter)


async def test_members_add_others(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer")
    view, status = await desk.add_participant("reviewer", there, "tester")
    assert (view.members[-1], status) == ("tester", "added")
    assert await unread(desk) == {"editor": 1, "tester": 1}
    assert "reviewer added you" in texts(await desk.get_messages("tester"))[0]
    (told,) = (await desk.get_messages("editor")).letters
    assert told.letter.body.startswith("reviewer added tester")
    assert (told.letter.kind, told.letter.thread_id) == ("notice", there)
    assert (await desk.add_participant("editor", there, "tester"))[1] == "already_participant"
    await refused(desk.add_participant("editor", there, "nobody"), ProtocolError, "'nobody'")
    assert await unread(desk) == {}


async def test_members_who_join_at_the_same_time_get_the_next_post(desk: MailDesk) -> None:
    there = await thread(desk, "editor")
    await asyncio.gather(
        *(desk.join_thread(name, there) for name in ("reviewer", "tester", "reviewer"))
    )
    await seen(desk, *NAMES)
    await post(desk, "editor", there)
    assert await unread(desk) == {"reviewer": 1, "tester": 1}


async def test_who_is_removed_sees_nothing_any_more(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer", "tester")
    theirs = await post(desk, "editor", there, "for members")
    own = await post(desk, "reviewer", there, "my own")
    page = await desk.get_messages("reviewer", thread_id=there, request_id="p")
    assert len(page.letters) == 3
    await post(desk, "editor", there, "unread")
    await seen(desk, "tester")
    view = await desk.remove_participant("editor", there, "reviewer")
    assert view.members == ["editor", "tester"]
    assert "reviewer" not in await unread(desk)
    assert texts(await desk.get_messages("reviewer")) == []
    assert texts(await desk.get_messages("reviewer", request_id="p")) == []
    for letter in (theirs, own):
        await refused(desk.get_message("reviewer", letter), UnknownLetter)
        await refused(desk.acknowledge("reviewer", letter), UnknownLetter)
        reply = Draft("x", reply_to=letter)
        await refused(desk.send_message("reviewer", reply, "editor", None), ProtocolError)
    await refused(desk.get_thread("reviewer", there), UnknownThread)
    assert await desk.list_threads("reviewer", "", 10) == []
    assert texts(await desk.get_messages("tester", limit=1)) == [
        "reviewer was removed by the creator from the thread 'Release'."
    ]


async def test_members_remove_themselves_and_the_creator_others(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer", "tester")
    removal = desk.remove_participant
    await refused(removal("reviewer", there, "tester"), Forbidden, "'editor', who created")
    await refused(removal("editor", there, "editor"), ProtocolError, "creator cannot be removed")
    await refused(removal("reviewer", there, "editor"), ProtocolError, "creator cannot be removed")
    await refused(removal("editor", there, "visitor"), ProtocolError, "'visitor' is not in")
    assert await unread(desk) == {}
    await desk.remove_participant("tester", there, "tester")
    assert await unread(desk) == {"editor": 1, "reviewer": 1}
    assert "tester left" in texts(await desk.get_messages("editor"))[0]
    await refused(removal("tester", there, "tester"), UnknownThread)


async def test_threads_are_read_by_members_and_operators(desk: MailDesk) -> None:
    there = await thread(desk, "editor", "reviewer")
    view = await desk.get_thread("reviewer", there)
    assert view == await desk.get_thread(None, there)
    assert (view.thread.title, view.thread.creator) == ("Release", "editor")
    assert view.members == ["editor", "reviewer"]
    await refused(desk.get_thread(None, "nowhere"), UnknownThread)


async def test_threads_are_listed_from_the_newest_activity_on(
    desk: MailDesk, clock: FakeClock
) -> None:
    async def listed(name: str, after: str = "", limit: int = 10) -> list[ThreadRow]:
        clock.advance(1)
        return await desk.list_threads(name, after, limit)

    there = await thread(desk, "editor", "reviewer")
    assert [row.thread_id for row in await listed("editor")] == [there]
    other = await thread(desk, "editor")
    newest, oldest = await listed("editor")
    assert [newest.thread_id, oldest.thread_id] == [other, there]
    behind = thread_place(newest)
    assert await listed("editor", behind.replace("+", " ")) == [oldest]
    await post(desk, "reviewer", there)
    assert [row.thread_id for row in await listed("editor")] == [there, other]
    assert await listed("editor", behind) == []
    assert [row.thread_id for row in await listed("reviewer")] == [there]
    for wrong in ("x", other, f"{behind}\0", f"yesterday~{other}", "x" * 400):
        await refused(listed("editor", wrong), ProtocolError, "after", "next_after")


def test_a_claimed_id_must_be_ones_own() -> None:
    check_claim("sender_id", None, "editor")
    check_claim("sender_id", "editor", "editor")
    with pytest.raises(Forbidden, match=r"^sender_id must be your own id, 'editor'$"):
        check_claim("sender_id", "reviewer", "editor")
