"""The rules of order, on the mailbox itself: see the table in spec/SPEC.md."""

from mail.clock import SystemClock
from mail.core.compose import Composer
from mail.core.message import create_agent_address
from mail.core.runtime.mailbox import LaneKey, Mailbox, QueuedMessage
from mail.core.runtime.turn import Control, ControlKind
from mail.db.records import Delivery

ENVELOPE = Composer("swarm", SystemClock()).message(
    "request", "t", create_agent_address("x"), [create_agent_address("a")], "s", "b"
)
FINISH = Control(ControlKind.FINISH)


def letter(
    seq: int,
    tier: int = 5,
    *,
    task: str = "t",
    interrupt: bool = False,
    control: Control | None = None,
) -> QueuedMessage:
    delivery = Delivery(task_id=task, recipient="a", tier=tier, interrupt=interrupt, payload="")
    return QueuedMessage(delivery, ENVELOPE, control, seq=seq)


def taken(*letters: QueuedMessage) -> list[int]:
    """Return the numbers of letters in the order in which they are taken."""
    mailbox = Mailbox()
    for each in letters:
        mailbox.put(each)
    order = []
    while (found := mailbox.claim()) is not None:
        order.append(found.seq)
        mailbox.release(LaneKey(found.delivery.task_id, found.delivery.recipient))
    return order


def test_waiting_mail_is_taken_by_tier() -> None:
    assert taken(letter(1, 5), letter(2, 4), letter(3, 3), letter(4, 2), letter(5, 1)) == [
        5,
        4,
        3,
        2,
        1,
    ]


def test_a_tier_is_first_come_first_served() -> None:
    assert taken(letter(3), letter(1), letter(12), letter(2)) == [1, 2, 3, 12]


def test_an_interrupt_goes_before_every_tier() -> None:
    assert taken(letter(1, 1), letter(2, 2), letter(3, 3, interrupt=True)) == [3, 1, 2]


def test_the_request_to_finish_goes_before_interrupts() -> None:
    assert taken(letter(1, 3, interrupt=True), letter(2, 1, control=FINISH)) == [2, 1]


def test_the_oldest_of_the_lowest_tier_goes_first_among_tasks() -> None:
    letters = [letter(1, 5, task="u"), letter(2, 2, task="v"), letter(3, 2, task="w")]
    assert taken(*letters) == [2, 3, 1]
    assert taken(*reversed(letters)) == [2, 3, 1]
