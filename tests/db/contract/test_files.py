"""What stores know of files: `mail.db.files.FileRecords`."""

import pytest

from mail.db import files
from mail.db.desk import DeskPost, LetterPlace, LetterRow, MemberRow, ThreadRow
from mail.db.files import FileRow
from mail.db.store import Store
from mail.errors import DeskConflict

SWARM = "example"
BLOCK = 4096


def at(day: int) -> str:
    return f"2026-01-{day:02d}T10:00:00.000000+00:00"


def file(file_id: str, owner: str = "ann", content: str = "aa", expires: int = 20) -> FileRow:
    return FileRow(file_id, owner, content, 1000, "é.txt", "text/plain", at(1), at(expires))


def letter(letter_id: str, file_id: str, *recipients: str, thread_id: str = "") -> LetterRow:
    kind = "thread" if thread_id else "direct"
    return LetterRow(
        letter_id,
        "ann",
        recipients,
        kind,
        "here",
        at(1),
        thread_id=thread_id,
        file_id=file_id,
    )


async def carried_to(store: Store, file_id: str) -> set[str]:
    names = ("ann", "bob", "cyd", "dan")
    return {name for name in names if await store.carries(SWARM, name, file_id)}


async def test_a_file_is_found_listed_and_removed_once(store: Store) -> None:
    for each in (file("f2"), file("f1"), file("f3"), file("f4", "bob")):
        await store.add_file(SWARM, each)
    assert await store.find_file(SWARM, "f1") == file("f1")
    assert await store.find_file(SWARM, "f9") is None
    assert await store.find_file("other", "f1") is None
    assert await store.list_files(SWARM, "ann", limit=2) == [file("f1"), file("f2")]
    assert await store.list_files(SWARM, "ann", after="f2") == [file("f3")]
    assert await store.drop_file(SWARM, "f1") == file("f1")
    assert await store.drop_file(SWARM, "f1") is None
    assert await store.list_files(SWARM, "ann") == [file("f2"), file("f3")]


async def test_a_second_file_with_an_id_changes_nothing(store: Store) -> None:
    await store.add_file(SWARM, file("f1"))
    taken = await store.letter_bytes(SWARM, "ann")
    with pytest.raises(DeskConflict, match="the file 'f1' exists"):
        await store.add_file(SWARM, file("f1", content="bb"))
    assert await store.find_file(SWARM, "f1") == file("f1")
    assert await store.letter_bytes(SWARM, "ann") == taken


async def test_a_file_counts_for_its_owner_until_it_is_removed(store: Store) -> None:
    before = await store.letter_bytes(SWARM, "ann")
    await store.add_file(SWARM, file("f1"))
    await store.add_file(SWARM, file("f2"))
    each = BLOCK + 6 + 100
    assert await store.letter_bytes(SWARM, "ann") == before + 2 * each
    await store.drop_file(SWARM, "f1")
    assert await store.letter_bytes(SWARM, "ann") == before + each
    await store.drop_file(SWARM, "f2")
    assert await store.letter_bytes(SWARM, "ann") == before


async def test_no_more_is_given_back_than_counted(
    durable: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # as earlier versions counted
        patch.setattr(files, "file_size", lambda row: row.size)
        await durable.add_file(SWARM, file("f1"))
    await durable.drop_file(SWARM, "f1")
    assert await durable.letter_bytes(SWARM, "ann") == 0


async def test_a_small_file_counts_as_what_a_disk_takes_for_it(store: Store) -> None:
    sizes = (0, 1, BLOCK, BLOCK + 1)
    for number, size in enumerate(sizes):
        await store.add_file(SWARM, file(f"s{number}")._replace(size=size))
    taken = sum(max(size, BLOCK) for size in sizes) + len(sizes) * (6 + 100)
    assert await store.letter_bytes(SWARM, "ann") == taken


async def test_a_letter_carries_its_file_to_those_who_see_it(store: Store) -> None:
    thread = ThreadRow("th", "a thread", "ann", at(1))
    members = tuple(MemberRow("th", name, at(1), "ann") for name in ("ann", "bob"))
    await store.post_letters(DeskPost(swarm=SWARM, threads=(thread,), joined=members))
    posts = (letter("l1", "f1", "bob"), letter("l2", "f2", "bob", thread_id="th"))
    await store.post_letters(DeskPost(swarm=SWARM, letters=(*posts, letter("l3", "", "dan"))))
    assert await carried_to(store, "f1") == {"bob"}
    assert await carried_to(store, "f2") == {"ann", "bob"}
    assert await carried_to(store, "") == set()
    changed = DeskPost(
        swarm=SWARM, joined=(MemberRow("th", "cyd", at(2), "cyd"),), left=(("th", "bob"),)
    )
    await store.post_letters(changed)
    assert await carried_to(store, "f2") == {"ann", "cyd"}
    await store.show_letters(SWARM, "bob", ["l1"], at(3))
    await store.drop_letters(SWARM, at(9), 100, LetterPlace())
    assert await carried_to(store, "f1") == set()


async def test_what_expires_is_named_in_small_parts(store: Store) -> None:
    for number, day in ((1, 5), (2, 3), (3, 4), (4, 9)):
        await store.add_file(SWARM, file(f"f{number}", expires=day))
    found = await store.expired_files(SWARM, at(9), 2)
    assert [row.file_id for row in found] == ["f2", "f3"]
    assert [row.file_id for row in await store.expired_files(SWARM, at(9), 9)] == ["f2", "f3", "f1"]
    assert await store.expired_files("other", at(9), 9) == []


async def test_which_contents_are_known(store: Store) -> None:
    await store.add_file(SWARM, file("f1", content="aa"))
    await store.add_file(SWARM, file("f2", content="aa"))
    await store.add_file("other", file("f3", content="bb"))
    many = {f"{number:064x}" for number in range(1200)}
    assert await store.known_contents(SWARM, {"aa", "bb", *many}) == {"aa"}
    await store.drop_file(SWARM, "f1")
    assert await store.known_contents(SWARM, {"aa"}) == {"aa"}
    await store.drop_file(SWARM, "f2")
    assert await store.known_contents(SWARM, {"aa"}) == set()
    assert await store.known_contents(SWARM, set()) == set()


async def test_a_letter_of_a_task_carries_a_file_in_that_task_only(store: Store) -> None:
    await store.add_file(SWARM, file("f1"))
    in_task = letter("l1", "f1", "bob")._replace(task_owner="agent:ann", task_id="t1")
    await store.post_letters(DeskPost(swarm=SWARM, letters=(in_task,)))
    tasks = (None, ("agent:ann", "t1"), ("agent:ann", "t2"), ("agent:bob", "t1"))
    carried = [await store.carries(SWARM, "bob", "f1", task) for task in tasks]
    assert carried == [True, True, False, False]
    assert not await store.carries(SWARM, "cyd", "f1", ("agent:ann", "t1"))


async def test_a_database_has_an_id_of_its_own(store: Store) -> None:
    known = await store.database_id()
    assert known and known == await store.database_id()
