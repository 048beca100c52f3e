"""The actions of the support example: one looks up, the other waits for a person.

``refund_order`` belongs under the swarm's ``breakpoint_tools``. Its call then pauses the task, and
whoever resumes it makes the refund, or not, and says so.
"""

from typing import Any, Final

from mail.api.actions import MAILAction
from mail.errors import ToolError
from mail.examples.support.orders import ORDERS, Order

_NUMBER: Final = {"type": "string", "pattern": "^A-[0-9]{4}$", "description": "For example A-1001"}
_SHOWN: Final = 40


async def look_up_order(args: dict[str, Any]) -> str:
    """Return what is known of an order as one sentence.

    Args:
        args: ``order`` (its number).

    Raises:
        ToolError: there is no such order.
    """
    order = _order(args.get("order"))
    return f"Order {order.number}: {order.article} for {order.price}, {order.state}."


async def refund_order(args: dict[str, Any]) -> str:
    """Refuse: without the breakpoint nobody has decided about the refund.

    Raises:
        ToolError: always.
    """
    order = _order(args.get("order"))
    raise ToolError(
        f"nothing was refunded for order {order.number}: a person must decide. "
        "List 'refund_order' under the swarm's breakpoint_tools."
    )


def _order(number: object) -> Order:
    order = ORDERS.get(number) if isinstance(number, str) else None
    if order is None:
        raise ToolError(f"there is no order '{str(number)[:_SHOWN]}'")
    return order


look_up_order_action: Final = MAILAction(
    name="look_up_order",
    description="Look up an order by its number: article, price and state",
    parameters={"type": "object", "properties": {"order": _NUMBER}, "required": ["order"]},
    function=look_up_order,
    idempotent=True,
)

refund_order_action: Final = MAILAction(
    name="refund_order",
    description="Ask a person to refund an order; the result is what that person decided",
    parameters={
        "type": "object",
        "properties": {
            "order": _NUMBER,
            "amount": {
                "type": "string",
                "pattern": "^[0-9]{1,6}\\.[0-9]{2} EUR$",
                "description": "For example 49.90 EUR",
            },
            "reason": {
                "type": "string",
                "maxLength": 500,
                "description": "Why, in the customer's words",
            },
        },
        "required": ["order", "amount", "reason"],
    },
    function=refund_order,
)
