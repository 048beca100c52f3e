"""Letters, threads, and what became of them: `mail.db.desk.DeskRecords`."""

import asyncio
from typing import Any, Final

import pytest

from mail.db.desk import (
    PAGES_KEPT,
    AskRow,
    DeskPost,
    LetterFilter,
    LetterRow,
    MemberRow,
    PageRow,
    ReceiptRow,
    ShownRow,
    ThreadRow,
)
from mail.db.records import IdempotencyRow
from mail.db.store import Store
from mail.errors import DeskConflict, KeyTaken, StoreConflict

Rows = Any

SWARM: Final = "example"
ALL: Final = LetterFilter()
UNREAD: Final = LetterFilter(unread=True)


def at(minute: int) -> str:
    return f"2026-01-01T10:{minute:02d}:00.000000+00:00"


def letter(letter_id: str, sender: str = "ann", *recipients: str, **changes: Any) -> LetterRow:
    """Make a letter; without recipients it is for bob."""
    fields: dict[str, Any] = {
        "recipients": recipients or ("bob",),
        "kind": "direct",
        "body": f"body of {letter_id}",
        "created_at": at(0),
    }
    return LetterRow(letter_id, sender, **fields | changes)


def post(*letters: LetterRow, swarm: str = SWARM, **changes: Any) -> DeskPost:
    return DeskPost(swarm=swarm, letters=letters, **changes)


async def discuss(
    store: Store, thread_id: str = "th", *names: str, swarm: str = SWARM
) -> ThreadRow:
    """Make a thread of ann's with some members; bob and cyd if no others are named."""
    thread = ThreadRow(thread_id, f"about {thread_id}", "ann", at(0))
    members = ("ann", *(names or ("bob", "cyd")))
    joined = tuple(MemberRow(thread_id, name, at(0), "ann") for name in members)
    await store.post_letters(post(swarm=swarm, threads=(thread,), joined=joined))
    return thread


async def leave(store: Store, name: str, thread_id: str = "th") -> None:
    await store.post_letters(post(left=((thread_id, name),)))


async def join(store: Store, name: str, thread_id: str = "th") -> None:
    await store.post_letters(post(joined=(MemberRow(thread_id, name, at(1), name),)))


async def ids(
    store: Store, name: str = "bob", which: LetterFilter = ALL, swarm: str = SWARM, **bounds: Any
) -> list[str]:
    """Return the letters that a mailbox has."""
    return [row.letter_id for row, _ in await store.letters(swarm, name, which, **bounds)]


async def receipt(store: Store, letter_id: str, name: str = "bob") -> ReceiptRow:
    ((_, receipts),) = await store.letters_by_id(SWARM, [letter_id])
    (found,) = (row for row in receipts if row.name == name)
    return found


async def show(store: Store, *letter_ids: str, name: str = "bob", minute: int = 5) -> None:
    assert await store.show_letters(SWARM, name, letter_ids, at(minute))


class TestPosting:
    async def test_a_letter_comes_back_as_it_was(self, store: Store) -> None:
        odd = letter(
            "l1",
            "",
            "bob",
            'c"\\ö',
            kind="notice",
            body="ä\0\x1a0 😀\n",
            created_at=at(3),
            subject="S\0",
            reply_to="l0",
            file_id="f1",
            urgent=True,
            wants_ack=True,
            task_owner="user:alice",
            task_id="t1",
        )
        (seq,) = await store.post_letters(post(odd))
        assert seq > 0
        stored = odd._replace(seq=seq)
        empty = ReceiptRow("l1", "bob")
        assert await store.letters(SWARM, "bob", ALL) == [(stored, empty)]
        assert await store.letters_by_id(SWARM, ["l1", "none"]) == [
            (stored, [empty, ReceiptRow("l1", 'c"\\ö')])
        ]
        assert await ids(store, 'c"\\ö') == ["l1"]
        assert await ids(store, "ann") == []

    async def test_places_grow(self, store: Store) -> None:
        first = await store.post_letters(post(letter("a"), letter("b", "ann", "cyd")))
        second = await store.post_letters(post(letter("c"), swarm="other"))
        third = await store.post_letters(post(letter("d")))
        places = [*first, *second, *third]
        assert len(set(places)) == 4
        assert places == sorted(places)
        assert [row.seq for row, _ in await store.letters(SWARM, "bob", ALL)] == [
            places[3],
            places[0],
        ]

    async def test_swarms_know_nothing_of_each_other(self, store: Store) -> None:
        await discuss(store, swarm="other")
        await store.post_letters(post(letter("l1", wants_ack=True), swarm="other"))
        assert await ids(store) == []
        assert await store.letters_by_id(SWARM, ["l1"]) == []
        assert await store.unread_letters(SWARM, "bob") == 0
        assert await store.find_thread(SWARM, "th") is None
        assert await store.list_threads(SWARM, "ann") == []
        assert not await store.acknowledge_letter(SWARM, "bob", "l1", at(1))
        assert await store.overdue_letters(SWARM, "ann", at(9)) == []
        assert await store.letter_bytes(SWARM, "ann") == 0
        await show(store, "l1")
        assert await store.unread_letters("other", "bob") == 1
        assert await store.post_letters(post(letter("l1")))

    @pytest.mark.parametrize(
        "refused",
        [
            {"members": (("th", "dan"),)},
            {"members": (("none", "ann"),)},
            {"strangers": (("th", "bob"),)},
            {"threads": (ThreadRow("th", "again", "dan", at(1)),)},
            {"joined": (MemberRow("th", "bob", at(1), "bob"),)},
            {"joined": (MemberRow("none", "dan", at(1), "dan"),)},
            {"joined": (MemberRow("th", "eve", at(1), "eve"),) * 2},
            {"letters": (letter("old"),)},
            {"letters": (letter("new"), letter("new"))},
        ],
    )
    async def test_what_does_not_fit_leaves_nothing(
        self, store: Store, refused: dict[str, Any]
    ) -> None:
        await discuss(store)
        await store.post_letters(post(letter("old")))
        taken = await store.letter_bytes(SWARM, "ann")
        fields: dict[str, Any] = {
            "threads": (ThreadRow("th2", "more", "dan", at(1)),),
            "joined": (MemberRow("th", "dan", at(1), "dan"),),
            "left": (("th", "cyd"),),
            "letters": (letter("fresh"),),
        }
        for name, rows in refused.items():
            fields[name] = (*fields.get(name, ()), *rows)
        with pytest.raises(DeskConflict):
            await store.post_letters(DeskPost(swarm=SWARM, **fields))
        assert await ids(store) == ["old"]
        assert await store.find_thread(SWARM, "th2") is None
        _, members = await store.find_thread(SWARM, "th") or (None, [])
        assert members == ["ann", "bob", "cyd"]
        assert await store.letter_bytes(SWARM, "ann") == taken

    async def test_demands_are_made_of_what_was_there_before(self, store: Store) -> None:
        await discuss(store)
        await store.post_letters(
            post(
                letter("l1", thread_id="th"),
                members=(("th", "bob"),),
                strangers=(("th", "dan"), ("none", "dan")),
                joined=(MemberRow("th", "dan", at(2), "bob"),),
                left=(("th", "bob"), ("th", "nobody")),
            )
        )
        found = await store.find_thread(SWARM, "th")
        assert found is not None
        assert found.members == ["ann", "cyd", "dan"]


class TestThreads:
    async def test_members_are_in_the_order_in_which_they_joined(self, store: Store) -> None:
        thread = await discuss(store, "th", "zoe", "bob")
        await join(store, "cyd")
        await leave(store, "zoe")
        await join(store, "zoe")
        assert await store.find_thread(SWARM, "th") == (thread, ["ann", "bob", "cyd", "zoe"])

    async def test_a_thread_may_be_without_members(self, store: Store) -> None:
        thread = ThreadRow("th", "t", "ann", at(0))
        await store.post_letters(post(threads=(thread,)))
        assert await store.find_thread(SWARM, "th") == (thread, [])

    async def test_threads_of_a_member_come_in_pages(self, store: Store) -> None:
        for thread_id in ("b", "a", "d", "c", "B"):
            await discuss(store, thread_id, "cyd" if thread_id == "c" else "bob")

        async def page(name: str, **bounds: Any) -> list[str]:
            return [row.thread_id for row in await store.list_threads(SWARM, name, **bounds)]

        assert await page("bob") == ["d", "b", "a", "B"]
        assert await page("bob", limit=2) == ["d", "b"]
        assert await page("bob", limit=2, after=(at(0), "b")) == ["a", "B"]
        assert await page("dan") == []

    async def test_threads_with_the_newest_letters_come_first(self, store: Store) -> None:
        for thread_id in ("a", "b", "c"):
            await discuss(store, thread_id)

        async def page(name: str = "bob", **bounds: Any) -> list[tuple[str, str]]:
            rows = await store.list_threads(SWARM, name, **bounds)
            return [(row.active_at, row.thread_id) for row in rows]

        async def write(letter_id: str, thread_id: str, second: int) -> None:
            row = letter(letter_id, thread_id=thread_id, created_at=at(second))
            await store.post_letters(post(row))

        await write("l1", "b", 5)
        await write("l2", "a", 7)
        await write("l3", "b", 6)
        await write("l4", "b", 2)  # the clock went back
        assert await page() == [(at(7), "a"), (at(6), "b"), (at(0), "c")]
        first = await page(limit=1)
        await write("l5", "c", 9)  # between two pages: it is at the front now
        assert await page(after=first[-1]) == [(at(6), "b")]
        assert await page(limit=1) == [(at(9), "c")]
        await store.drop_letters(SWARM, at(59), 100)
        assert await page("ann", limit=2) == [(at(9), "c"), (at(7), "a")]
        await leave(store, "bob", "c")
        await write("l6", "c", 10)
        await join(store, "bob", "c")  # it counts from the joining on
        assert await page(limit=2) == [(at(7), "a"), (at(6), "b")]


class TestMailboxes:
    async def test_the_newest_are_first(self, store: Store) -> None:
        for number in range(5):
            await store.post_letters(post(letter(f"l{number}", created_at=at(number))))
        await store.post_letters(post(letter("c", "ann", "cyd")))
        assert await ids(store) == ["l4", "l3", "l2", "l1", "l0"]
        assert await ids(store, limit=2) == ["l4", "l3"]
        (_, (row, _)) = await store.letters(SWARM, "bob", ALL, limit=2)
        assert await ids(store, which=LetterFilter(before=row.seq)) == ["l2", "l1", "l0"]
        assert await ids(store, which=LetterFilter(since=at(2))) == ["l4", "l3"]
        assert await ids(store, which=LetterFilter(since=at(4))) == []
        assert await ids(store, which=LetterFilter(since=at(1), before=row.seq)) == ["l2"]

    async def test_since_holds_when_the_clock_was_set_back(self, store: Store) -> None:
        for letter_id, minute in (("a", 1), ("b", 30), ("c", 2), ("d", 20), ("e", 40)):
            await store.post_letters(post(letter(letter_id, created_at=at(minute))))
        assert await ids(store, which=LetterFilter(since=at(1))) == ["e", "d", "c", "b"]
        assert await ids(store, which=LetterFilter(since=at(2))) == ["e", "d", "b"]
        assert await ids(store, which=LetterFilter(since=at(20))) == ["e", "b"]
        assert await ids(store, which=LetterFilter(since=at(30))) == ["e"]

    async def test_a_page_is_bounded_in_bytes(self, store: Store) -> None:
        """A letter for bob of 100 characters takes 600 and is told to."""
        for number in range(4):
            await store.post_letters(post(letter(f"l{number}", body="x" * 100)))
        assert await ids(store, max_bytes=0) == ["l3"]
        assert await ids(store, max_bytes=1199) == ["l3"]
        assert await ids(store, max_bytes=1200) == ["l3", "l2"]
        assert await ids(store, max_bytes=10_000) == ["l3", "l2", "l1", "l0"]
        assert await ids(store, max_bytes=10_000, limit=3) == ["l3", "l2", "l1"]

    async def test_what_was_not_shown_is_unread(self, store: Store) -> None:
        await store.post_letters(post(letter("a", "ann", "bob", "cyd"), letter("b"), letter("c")))
        assert await store.unread_letters(SWARM, "bob") == 3
        assert await store.unread_letters(SWARM, "bob", 2) == 2
        await show(store, "a", "c", "none")
        assert await ids(store, which=UNREAD) == ["b"]
        assert await ids(store) == ["c", "b", "a"]
        assert await store.unread_letters(SWARM, "bob") == 1
        assert await store.unread_letters(SWARM, "cyd") == 1
        assert await store.unread_letters(SWARM, "ann") == 0
        assert await receipt(store, "a") == ReceiptRow("a", "bob", at(5))
        await show(store, "a", "b", minute=6)
        assert (await receipt(store, "a")).shown_at == at(5)
        assert (await receipt(store, "b")).shown_at == at(6)

    async def test_letters_by_id_are_the_newest_first_too(self, store: Store) -> None:
        letters = [letter(f"l{number}", "ann", "cyd", "bob") for number in range(3)]
        await store.post_letters(post(*letters))
        found = await store.letters_by_id(SWARM, ["l0", "l2", "l0"])
        assert [row.letter_id for row, _ in found] == ["l2", "l0"]
        assert [row.name for row in found[0][1]] == ["cyd", "bob"]
        assert await store.letters_by_id(SWARM, []) == []
        many = [f"x{number}" for number in range(1200)]
        assert len(await store.letters_by_id(SWARM, [*many, "l1"])) == 1


class TestMembership:
    @pytest.fixture(autouse=True)
    async def thread(self, store: Store) -> None:
        """Two letters to a thread of ann, bob and cyd, and two that are in none."""
        await discuss(store)
        for row in (
            letter("t1", "ann", "bob", "cyd", kind="thread", thread_id="th"),
            letter("d1"),
            letter("t2", "bob", "ann", "cyd", kind="thread", thread_id="th", wants_ack=True),
            letter("d2", "cyd", "bob", "ann", kind="broadcast"),
        ):
            await store.post_letters(post(row))

    async def test_a_thread_shows_a_member_all_of_its_letters(self, store: Store) -> None:
        which = LetterFilter(thread_id="th")
        assert await ids(store, "bob", which) == ["t2", "t1"]
        assert await ids(store, "bob") == ["d2", "d1", "t1"]
        found = await store.letters(SWARM, "bob", which)
        assert [row for _, row in found] == [ReceiptRow("t2", "bob"), ReceiptRow("t1", "bob")]
        assert await ids(store, "bob", which._replace(unread=True)) == ["t1"]
        assert await ids(store, "bob", which, limit=1) == ["t2"]
        assert await ids(store, "bob", which._replace(before=found[0][0].seq)) == ["t1"]
        assert await ids(store, "bob", which._replace(since=at(0))) == []
        assert await ids(store, "dan", which) == []
        assert await ids(store, "bob", LetterFilter(thread_id="none")) == []

    async def test_who_left_sees_nothing_of_it(self, store: Store) -> None:
        await leave(store, "cyd")
        assert await ids(store, "cyd", LetterFilter(thread_id="th")) == []
        assert await ids(store, "cyd") == []
        assert await store.unread_letters(SWARM, "cyd") == 0
        assert not await store.acknowledge_letter(SWARM, "cyd", "t2", at(9))
        await join(store, "cyd")
        assert await ids(store, "cyd") == ["t2", "t1"]
        assert await store.unread_letters(SWARM, "cyd") == 2
        assert await store.acknowledge_letter(SWARM, "cyd", "t2", at(9))

    async def test_who_joins_later_sees_what_was_written_before(self, store: Store) -> None:
        await join(store, "dan")
        found = await store.letters(SWARM, "dan", LetterFilter(thread_id="th"))
        assert [row for _, row in found] == [ReceiptRow("t2", "dan"), ReceiptRow("t1", "dan")]
        assert await ids(store, "dan", LetterFilter(thread_id="th", unread=True)) == []
        assert await store.unread_letters(SWARM, "dan") == 0
        await show(store, "t1", name="dan")
        ((_, receipts),) = await store.letters_by_id(SWARM, ["t1"])
        assert receipts == [ReceiptRow("t1", "bob"), ReceiptRow("t1", "cyd")]

    async def test_acknowledgements_are_owed_by_those_who_see_the_letter(
        self, store: Store
    ) -> None:
        assert await owing(store, "bob") == [("t2", "ann"), ("t2", "cyd")]
        await leave(store, "cyd")
        assert await owing(store, "bob") == [("t2", "ann")]


class TestPages:
    async def test_a_page_is_stored_with_what_it_shows(self, store: Store) -> None:
        await store.post_letters(post(letter("a"), letter("b")))
        page = PageRow("r\0", ("b", "a"), at(1))
        assert await store.find_page(SWARM, "bob", "r\0") is None
        assert await store.show_letters(SWARM, "bob", page.letter_ids, at(1), page)
        assert await store.find_page(SWARM, "bob", "r\0") == page
        assert await store.find_page(SWARM, "cyd", "r\0") is None
        assert await store.find_page("other", "bob", "r\0") is None
        assert await store.unread_letters(SWARM, "bob") == 0

    async def test_a_second_page_of_a_request_changes_nothing(self, store: Store) -> None:
        await store.post_letters(post(letter("a"), letter("b")))
        first = PageRow("r", ("a",), at(1))
        assert await store.show_letters(SWARM, "bob", ["a"], at(1), first)
        assert not await store.show_letters(SWARM, "bob", ["b"], at(2), PageRow("r", (), at(2)))
        assert await store.find_page(SWARM, "bob", "r") == first
        assert await ids(store, which=UNREAD) == ["b"]
        assert await store.show_letters(SWARM, "cyd", [], at(2), PageRow("r", (), at(2)))

    async def test_a_mailbox_keeps_the_newest(self, store: Store) -> None:
        await store.show_letters(SWARM, "cyd", (), at(0), PageRow("r0", (), at(0)))
        pages = [PageRow(f"r{number}", (), at(0)) for number in range(PAGES_KEPT + 2)]
        await asyncio.gather(*(store.show_letters(SWARM, "bob", (), at(0), row) for row in pages))
        found = [await store.find_page(SWARM, "bob", f"r{number}") for number in (0, 1, 2)]
        assert found == [None, None, pages[2]]
        assert await store.find_page(SWARM, "cyd", "r0") is not None

    async def test_old_ones_go(self, store: Store) -> None:
        for minute in (3, 1, 2):
            page = PageRow(f"r{minute}", (), at(minute))
            await store.show_letters(SWARM, "bob", (), at(minute), page)
        await store.show_letters("other", "bob", (), at(1), PageRow("r1", (), at(1)))
        assert await store.drop_aged("desk_pages", at(3), 1) == 1
        assert await store.drop_aged("desk_pages", at(3), 10) == 2
        assert await store.drop_aged("desk_pages", at(3), 10) == 0
        assert await store.find_page(SWARM, "bob", "r3") is not None
        assert await store.find_page(SWARM, "bob", "r2") is None


async def owing(store: Store, sender: str = "ann", minute: int = 30, **bounds: Any) -> list[Any]:
    """Return who owes a mailbox an acknowledgement of which letter."""
    found = await store.overdue_letters(SWARM, sender, at(minute), **bounds)
    assert all(row.letter_id == letter.letter_id for letter, row in found)
    return [(row.letter_id, row.name) for _, row in found]


class TestAcknowledgements:
    async def test_it_counts_as_shown(self, store: Store) -> None:
        await store.post_letters(post(letter("a"), letter("b")))
        assert await store.acknowledge_letter(SWARM, "bob", "a", at(7), "wird\0 gemacht")
        assert await receipt(store, "a") == ReceiptRow(
            "a", "bob", at(7), 0, at(7), "wird\0 gemacht"
        )
        assert await store.unread_letters(SWARM, "bob") == 1
        assert not await store.acknowledge_letter(SWARM, "bob", "a", at(8), "again")
        assert (await receipt(store, "a")).acked_at == at(7)
        await show(store, "b")
        assert await store.acknowledge_letter(SWARM, "bob", "b", at(8))
        assert await receipt(store, "b") == ReceiptRow("b", "bob", at(5), 0, at(8))

    async def test_only_recipients_can(self, store: Store) -> None:
        await store.post_letters(post(letter("a")))
        for name in ("ann", "cyd"):
            assert not await store.acknowledge_letter(SWARM, name, "a", at(7))
        assert not await store.acknowledge_letter(SWARM, "bob", "none", at(7))
        assert await receipt(store, "a") == ReceiptRow("a", "bob")

    async def test_those_owed_are_listed_oldest_first(self, store: Store) -> None:
        await store.post_letters(
            post(
                letter("a", "ann", "cyd", "bob", wants_ack=True),
                letter("b"),
                letter("c", "dan", wants_ack=True),
                letter("d", wants_ack=True, created_at=at(10), body="x" * 100),
                letter("e", wants_ack=True, created_at=at(20)),
            )
        )
        assert await owing(store) == [("a", "bob"), ("a", "cyd"), ("d", "bob"), ("e", "bob")]
        assert await owing(store, minute=20) == [("a", "bob"), ("a", "cyd"), ("d", "bob")]
        assert await owing(store, limit=3) == [("a", "bob"), ("a", "cyd"), ("d", "bob")]
        assert await owing(store, max_bytes=0) == [("a", "bob")]
        await show(store, "a")
        await store.acknowledge_letter(SWARM, "bob", "a", at(30))
        assert await owing(store) == [("a", "cyd"), ("d", "bob"), ("e", "bob")]
        assert await owing(store, "dan") == [("c", "bob")]
        assert await owing(store, "bob") == []

    async def test_the_first_answer_that_the_sender_gets_counts(self, store: Store) -> None:
        asked = letter("a", "ann", "bob", "cyd", wants_ack=True)
        await store.post_letters(post(asked))
        others = letter("o", "bob", "cyd", reply_to="a")
        strangers = letter("s", "dan", "ann", reply_to="a")
        await store.post_letters(post(others, strangers, letter("n", "bob", "ann", reply_to="x")))
        assert await receipt(store, "a") == ReceiptRow("a", "bob")
        first = letter("r1", "bob", "ann", "cyd", reply_to="a", created_at=at(2))
        await store.post_letters(post(first, letter("r2", "bob", "ann", reply_to="a")))
        await store.post_letters(post(letter("r3", "bob", "ann", reply_to="a")))
        answered = ReceiptRow("a", "bob", answered_at=at(2), answer_id="r1")
        assert await receipt(store, "a") == answered
        assert await receipt(store, "a", "cyd") == ReceiptRow("a", "cyd")
        assert await owing(store) == [("a", "cyd")]
        unread = await store.letters(SWARM, "bob", UNREAD)
        assert [row for _, row in unread] == [answered]
        acked = await store.acknowledge_letter(SWARM, "bob", "a", at(3), "ok")
        assert acked == ReceiptRow("a", "bob", at(3), 0, at(3), "ok", at(2), "r1")

    async def test_an_agents_letters_of_a_task_are_listed_newest_first(self, store: Store) -> None:
        mine = {"task_owner": "user:alice", "task_id": "t1"}
        await store.post_letters(
            post(
                letter("a", "lead", "bob", "ann", **mine),
                letter("b", "lead", "bob", created_at=at(10), **mine, body="x" * 100),
                letter("c", "lead", "bob", **mine | {"task_id": "t2"}),
                letter("d", "lead", "bob", **mine | {"task_owner": "user:bob"}),
                letter("e", "clerk", "bob", **mine),
                letter("f", "lead", "bob"),
            )
        )
        await store.post_letters(post(letter("r", "ann", "lead", reply_to="a")))

        async def told(task: str = "t1", **which: Any) -> list[tuple[str, str, str]]:
            found = await store.letters_of_task(SWARM, ("user:alice", task), "lead", **which)
            return [(row.letter_id, one.name, one.answer_id) for row, one in found]

        both = [("b", "bob", ""), ("a", "ann", "r"), ("a", "bob", "")]
        assert await told() == both
        assert await told(limit=2) == both[:2]
        assert await told(max_bytes=0) == both[:1]
        assert await told(recipient="ann") == both[1:2]
        assert await told(unsettled_before=at(11)) == [both[0], both[2]]
        assert await told(unsettled_before=at(10), recipient="bob") == both[2:]
        assert await told("t2") == [("c", "bob", "")]
        assert await told("") == []
        await store.acknowledge_letter(SWARM, "bob", "a", at(12))
        assert await told(unsettled_before=at(10)) == []

    async def test_who_has_left_a_thread_is_owed_nothing_of_it(self, store: Store) -> None:
        await discuss(store)
        of_thread = letter("t", "bob", "ann", "cyd", thread_id="th", wants_ack=True)
        await store.post_letters(post(of_thread, letter("a", "bob", "ann", wants_ack=True)))
        assert await owing(store, "bob") == [("t", "ann"), ("t", "cyd"), ("a", "ann")]
        await leave(store, "cyd")
        assert await owing(store, "bob") == [("t", "ann"), ("a", "ann")]
        await leave(store, "bob")
        assert await owing(store, "bob") == [("a", "ann")]
        await join(store, "bob")
        assert await owing(store, "bob") == [("t", "ann"), ("a", "ann")]


class TestUse:
    async def test_bodies_subjects_and_recipients_count(self, store: Store) -> None:
        assert await store.letter_bytes(SWARM, "ann") == 0
        await store.post_letters(post(letter("a", body="ä" * 10, subject="ü")))
        assert await store.letter_bytes(SWARM, "ann") == 20 + 2 + 500
        await store.post_letters(post(letter("b", "ann", "bob", "cyd", body="x")))
        assert await store.letter_bytes(SWARM, "ann") == 522 + 751
        assert await store.letter_bytes(SWARM, "bob") == 0
        await discuss(store, "th")
        assert await store.letter_bytes(SWARM, "ann") == 522 + 751 + len("about th") + 100

    async def test_a_recipient_counts_as_the_receipts_that_it_takes(self, store: Store) -> None:
        names = [f"p{number}" for number in range(250)]
        await store.post_letters(post(letter("a", "ann", *names, body="x", wants_ack=True)))
        assert await store.letter_bytes(SWARM, "ann") == 1 + 251 * 250

    async def test_another_may_pay(self, store: Store) -> None:
        notice = letter("n", "", "bob", "cyd", kind="notice", body="x")
        await store.post_letters(post(notice, letter("m", body="y"), payer="dan"))
        assert await store.letter_bytes(SWARM, "dan") == 751 + 501
        assert await store.letter_bytes(SWARM, "ann") == 0
        dropped = await store.drop_letters(SWARM, at(1), 10)
        assert dropped.removed == 0
        for name in ("bob", "cyd"):
            await show(store, "n", "m", name=name)
        await store.drop_letters(SWARM, at(1), 10)
        assert await store.letter_bytes(SWARM, "dan") == 0


class TestDropping:
    async def test_read_letters_of_an_age_go_in_batches(self, store: Store) -> None:
        for number in range(5):
            await store.post_letters(post(letter(f"l{number}", created_at=at(number))))
        await store.post_letters(post(letter("other"), swarm="other"))
        await show(store, "l0", "l1", "l3", "l4")
        first = await store.drop_letters(SWARM, at(4), 3)
        assert first.removed == 2
        assert first.place is not None
        assert await ids(store) == ["l4", "l3", "l2"]
        second = await store.drop_letters(SWARM, at(4), 3, first.place)
        assert second == (1, None)
        assert await ids(store) == ["l4", "l2"]
        assert await store.letters_by_id(SWARM, ["l0"]) == []
        assert not await store.acknowledge_letter(SWARM, "bob", "l0", at(9))
        assert await ids(store, swarm="other") == ["other"]
        await show(store, "l2")
        assert await store.drop_letters(SWARM, at(9), 3) == (2, None)
        assert await ids(store) == []
        assert await store.letter_bytes(SWARM, "ann") == 0

    async def test_one_that_somebody_has_not_seen_stays(self, store: Store) -> None:
        await discuss(store)
        await store.post_letters(
            post(
                letter("a", "ann", "bob", "cyd", wants_ack=True),
                letter("t", "ann", "bob", "cyd", thread_id="th"),
            )
        )
        await show(store, "a", "t")
        assert await store.drop_letters(SWARM, at(9), 10) == (0, None)
        await leave(store, "cyd")
        assert await store.drop_letters(SWARM, at(9), 10) == (1, None)
        assert await ids(store, "bob", LetterFilter(thread_id="th")) == []
        assert await ids(store) == ["a"]
        await show(store, "a", name="cyd")
        assert await store.drop_letters(SWARM, at(9), 10) == (1, None)
        assert await owing(store) == []
        assert await store.find_thread(SWARM, "th") is not None

    async def test_places_are_never_given_out_twice(self, store: Store) -> None:
        (first,) = await store.post_letters(post(letter("a")))
        await show(store, "a")
        assert await store.drop_letters(SWARM, at(9), 10) == (1, None)
        (second,) = await store.post_letters(post(letter("a")))
        assert second > first


class TestInCommits:
    """A `DeskPost` and `ShownRow`s in the commit of a task."""

    async def test_letters_go_with_a_post_and_with_a_turn(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store, desk=post(letter("a")))
        assert await ids(store) == ["a"]
        await store.commit(rows.turn(seq, done=False, desk=post(letter("b"))))
        await store.commit(rows.turn(seq, desk=post(letter("c"))))
        assert await ids(store) == ["c", "b", "a"]

    async def test_a_refused_post_sends_no_letter(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post(once=IdempotencyRow("k", "f", at(0))))
        with pytest.raises(StoreConflict):
            await store.commit(rows.post(new=True, desk=post(letter("a"))))
        with pytest.raises(KeyTaken):
            once = IdempotencyRow("k", "f", at(0))
            await store.commit(rows.post("t2", once=once, desk=post(letter("a"))))
        assert await ids(store) == []

    async def test_a_turn_that_is_too_late_sends_and_shows_nothing(
        self, store: Store, rows: Rows
    ) -> None:
        await store.post_letters(post(letter("a")))
        seq = await rows.begin(store)
        await store.commit(rows.turn(seq))
        shown = (ShownRow("a", "bob", 3, at(4)),)
        with pytest.raises(StoreConflict):
            await store.commit(rows.turn(seq, desk=post(letter("b")), shown=shown))
        assert await ids(store, which=UNREAD) == ["a"]

    @pytest.mark.parametrize("done", [True, False])
    async def test_a_refused_letter_takes_its_turn_back(
        self, store: Store, rows: Rows, *, done: bool
    ) -> None:
        await store.post_letters(post(letter("a")))
        seq = await rows.begin(store)
        shown = (ShownRow("a", "bob", 3, at(4)),)
        with pytest.raises(DeskConflict):
            await store.commit(
                rows.turn(
                    seq,
                    done=done,
                    desk=post(letter("b"), letter("a")),
                    shown=shown,
                    deliveries=(rows.mail(),),
                    events=(rows.event(),),
                )
            )
        assert await ids(store, which=UNREAD) == ["a"]
        assert [row.seq for row in await store.waiting_mail(rows.alice, "t1")] == [seq]
        assert await store.events(rows.alice, "t1") == []
        await store.commit(rows.turn(seq, desk=post(letter("b"))))
        assert await ids(store) == ["b", "a"]

    async def test_a_refused_letter_takes_its_task_back(self, store: Store, rows: Rows) -> None:
        await store.post_letters(post(letter("a")))
        once = IdempotencyRow("k", "f", at(0))
        with pytest.raises(DeskConflict):
            await store.commit(rows.post(new=True, once=once, desk=post(letter("a"))))
        assert await store.load_task(rows.alice, "t1") is None
        assert await store.find_key(rows.alice, "k") is None

    async def test_a_turn_shows_letters(self, store: Store, rows: Rows) -> None:
        await store.post_letters(post(letter("a"), letter("b"), letter("c", "ann", "cyd")))
        await show(store, "a")
        seq = await rows.begin(store)
        shown = tuple(ShownRow(each, "bob", 3, at(8)) for each in ("a", "b", "c", "none"))
        await store.commit(rows.turn(seq, done=False, shown=shown))
        assert await receipt(store, "a") == ReceiptRow("a", "bob", at(5))
        assert await receipt(store, "b") == ReceiptRow("b", "bob", at(8), 3)
        assert await receipt(store, "c", "cyd") == ReceiptRow("c", "cyd")
        again = (ShownRow("b", "bob", 4, at(9)),)
        await store.commit(rows.turn(seq, shown=again))
        assert (await receipt(store, "b")).turn == 3


class TestAsks:
    """Answers that tasks wait for."""

    async def test_they_are_open_until_they_are_settled(self, store: Store) -> None:
        def row(letter_id: str, minute: int, asked: str = "bob", task_id: str = "t") -> AskRow:
            return AskRow(letter_id, asked, "ann", "user:eve", task_id, "", at(minute))

        asks = (row("b", 1), row("a", 2), row("a", 2, "cyd"), row("c", 3, task_id="u"))
        await store.post_letters(post(letter("a", "ann", "bob", "cyd"), letter("b"), asks=asks))
        await store.post_letters(post(asks=asks[:1], swarm="other"))
        await store.post_letters(post(asks=asks[:1]))  # changes nothing
        assert await store.open_asks(SWARM, "user:eve", ["t"]) == list(asks[:3])
        assert await store.open_asks(SWARM, "user:eve", ["u", "v", "t"]) == list(asks)
        assert await store.open_asks(SWARM, "user:bob", ["t"]) == []
        ask = asks[2]
        mine = [one for one in asks if (one.asker, one.asked) == (ask.asker, ask.asked)]
        assert await store.newest_ask(SWARM, ask.asker, ask.asked) == mine[-1]
        assert await store.newest_ask(SWARM, ask.asked, ask.asker) is None
        assert await store.old_asks(SWARM, at(3), 2) == list(asks[:2])
        assert await store.old_asks(SWARM, at(3), 2, asks[1]) == [asks[2]]
        await store.post_letters(post(settled=(("a", "bob"), ("z", "bob"))))
        assert await store.open_asks(SWARM, "user:eve", ["t"]) == [asks[0], asks[2]]
        assert len(await store.old_asks("other", at(9), 9)) == 1
