"""What every store must do with messages to the webhook: `mail.db.webhooks.WebhookRecords`."""

from typing import Any, Final

import pytest

from mail.core.tasks import TaskState
from mail.db.records import Owner
from mail.db.store import Store
from mail.db.webhooks import WebhookChange, WebhookRow
from mail.errors import StoreConflict

Rows = Any

EARLY: Final = "2026-01-01T10:00:00.000000+00:00"
LATER: Final = "2026-01-01T10:00:30.000000+00:00"
LATEST: Final = "2026-01-01T11:00:00.000000+00:00"
BOB_ELSEWHERE: Final = Owner("other", "user", "bob")


def message(name: str, **changes: Any) -> WebhookRow:
    body = '{"title":"ä\\u0000"}'
    return WebhookRow(name, "ended", "t1", "user:alice@example", body, EARLY)._replace(**changes)


async def listed(store: Store, after: int = 0, limit: int = 100) -> list[WebhookRow]:
    return await store.list_webhooks("example", after, limit)


async def names(store: Store) -> list[str]:
    return [row.message_id for row in await listed(store)]


async def due(store: Store, now: str = EARLY, limit: int = 100) -> list[str]:
    return [row.message_id for row in await store.due_webhooks("example", now, limit)]


class TestWebhooks:
    async def test_a_post_and_a_turn_bring_messages(self, store: Store, rows: Rows) -> None:
        first = rows.post(new=True, deliveries=(rows.mail(),), webhooks=(message("a"),))
        (seq,) = (await store.commit(first)).seqs
        await store.commit(rows.turn(seq, webhooks=(message("b"), message("c"))))
        found = await listed(store)
        assert [row._replace(id=0) for row in found] == [message(name) for name in "abc"]
        assert 0 < found[0].id < found[1].id < found[2].id
        assert await listed(store, after=found[0].id, limit=1) == [found[1]]

    async def test_a_commit_that_fails_brings_none(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post(new=True))
        for again in (
            store.commit(rows.post(new=True, webhooks=(message("a"),))),
            store.commit(rows.turn(7, webhooks=(message("b"),))),
        ):
            with pytest.raises(StoreConflict):
                await again
        assert await listed(store) == []

    async def test_swarms_do_not_meet(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post(webhooks=(message("a"),)))
        await store.commit(rows.post("t2", owner=BOB_ELSEWHERE, webhooks=(message("b"),)))
        (other,) = await store.list_webhooks("other", 0, 10)
        assert await names(store) == ["a"]
        assert not await store.change_webhook("example", WebhookChange(other.id, "done"))
        assert not await store.change_webhook("example", WebhookChange(other.id, "dead"))
        assert not await store.retry_webhook("example", other.id, LATER)
        assert await store.give_up_webhooks("example", LATEST, "old") == 1
        assert await store.list_webhooks("other", 0, 10) == [other]

    async def test_what_is_due_comes_in_order(self, store: Store, rows: Rows) -> None:
        assert await store.next_webhook("example") is None
        await store.commit(rows.post(webhooks=tuple(message(name) for name in "abc")))
        assert await store.next_webhook("example") == ""
        assert await due(store) == ["a", "b", "c"] and await due(store, limit=2) == ["a", "b"]
        first, second, third = await listed(store)
        for row, at in ((first, LATEST), (second, LATER)):
            change = WebhookChange(row.id, "waiting", 1, at, "status 500")
            assert await store.change_webhook("example", change)
        await store.change_webhook("example", WebhookChange(third.id, "done"))
        assert await due(store) == [] and await due(store, LATER) == ["b"]
        assert await store.next_webhook("example") == LATER
        changed = (await listed(store))[0]
        assert (changed.attempts, changed.next_at, changed.last_error) == (1, LATEST, "status 500")
        assert not await store.change_webhook("example", WebhookChange(third.id, "done"))

    async def test_what_was_given_up_waits_until_it_is_retried(
        self, store: Store, rows: Rows
    ) -> None:
        young = message("b", created_at=LATER)
        await store.commit(rows.post(webhooks=(message("a"), young)))
        assert await store.give_up_webhooks("example", LATER, "too old") == 1
        assert await due(store, LATEST) == ["b"]
        dead = (await listed(store))[0]
        assert (dead.state, dead.last_error) == ("dead", "too old")
        assert await store.retry_webhook("example", dead.id, LATEST)
        assert await due(store) == ["a", "b"]
        again = (await listed(store))[0]
        assert (again.created_at, again.attempts, again.next_at) == (LATEST, 0, "")

    async def test_messages_outlive_their_task(self, store: Store, rows: Rows) -> None:
        ended = rows.task(state=TaskState.COMPLETED)
        await store.commit(rows.post(task=ended, webhooks=(message("a"),)))
        await store.delete_task(rows.alice, "t1")
        while await store.purge():
            pass
        assert await due(store) == ["a"]

    async def test_the_oldest_make_room(
        self, store: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.db.webhooks.MOST_WEBHOOKS", 3)
        await store.commit(rows.post(webhooks=tuple(message(name) for name in "ab")))
        await store.commit(rows.post("t2", owner=BOB_ELSEWHERE, webhooks=(message("x"),)))
        await store.commit(rows.post(webhooks=tuple(message(name) for name in "cde")))
        assert await names(store) == ["c", "d", "e"]
        assert len(await store.list_webhooks("other", 0, 10)) == 1

    async def test_who_has_most_makes_room(
        self, store: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.db.webhooks.MOST_WEBHOOKS", 4)
        carol = message("first", owner="user:carol@example")
        await store.commit(rows.post(webhooks=(carol, message("a"), message("b"))))
        for name in "cdef":
            await store.commit(rows.post(webhooks=(message(name),)))
        assert await names(store) == ["first", "d", "e", "f"]
        await store.commit(rows.post(webhooks=(carol._replace(message_id="second"),)))
        assert await names(store) == ["first", "e", "f", "second"]
