"""What the lines of a log can tell of their surroundings, and where that ends."""

import contextvars

from mail.logcontext import bound, current, note


def test_what_is_bound_holds_for_the_block() -> None:
    with bound(task_id="t"):
        note(agent="a")
        assert (current().task_id, current().agent) == ("t", "a")
    assert (current().task_id, current().agent) == ("", "")


def test_a_coroutine_that_is_collected_elsewhere_leaves_other_contexts_alone() -> None:
    async def work() -> None:
        with bound(task_id="abandoned"):
            await Pending()

    class Pending:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield

    coroutine = work()
    contextvars.Context().run(coroutine.send, None)
    with bound(task_id="mine"):
        coroutine.close()
        assert current().task_id == "mine"
