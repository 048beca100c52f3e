"""Plays a case that a person decides: desk, orders, and billing with its breakpoint tool."""

import re
from collections.abc import Sequence
from typing import Final

from mail.examples.scripts.common import Case, plain, read_case, reply, results_of, wait_for
from mail.llm.script import Call, Script, call
from mail.llm.script_view import ScriptView

_NUMBER = re.compile(r"\bA-\d{4}\b")
_MONEY_BACK = re.compile(r"\brefund\w*|\bmoney back\b|\bmy money\b|\breimburse\w*", re.IGNORECASE)
_PRICE = re.compile(r"\b(\d{1,6}\.\d{2} EUR)\b")
_REFUND = re.compile(r"order (A-\d{4}), (\d{1,6}\.\d{2} EUR), reason: (.+)", re.DOTALL)
_LONGEST = 500
_WHICH = "Which order is it about? Its number looks like A-1001."


def _desk(view: ScriptView) -> Sequence[Call]:
    case = read_case(view)
    order = _NUMBER.search(case.question.body)
    if order is None:
        return [call("task_complete", finish_message=_WHICH)]
    wanted = _wanted(case)
    if not view.forced and not case.stuck(wanted):
        if case.fresh:
            return [_ask("orders", "Order", f"How does order {order.group()} stand?")]
        if case.newest.sender == "orders" and "billing" in wanted:
            return [_ask("billing", "Refund", _refund_text(case, order.group()))]
        if missing := case.missing(wanted):
            return [wait_for(missing)]
    parts = [case.answers.get(name) or case.silence_of(name, wanted) for name in wanted]
    return [call("task_complete", finish_message=" ".join(parts))]


def _wanted(case: Case) -> list[str]:
    """Return who has to answer: billing only for something that was delivered and has a price."""
    found = case.answers.get("orders", "")
    refundable = ", delivered." in found and _PRICE.search(found)
    return [
        "orders",
        *(["billing"] if refundable and _MONEY_BACK.search(case.question.body) else []),
    ]


def _refund_text(case: Case, order: str) -> str:
    price = _PRICE.search(case.answers["orders"])
    amount = price.group(1) if price else ""
    return f"Please refund order {order}, {amount}, reason: {case.question.body[:_LONGEST]}"


def _ask(target: str, subject: str, body: str) -> Call:
    return call("send_request", target=target, subject=subject, body=body)


def _orders(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    results = results_of(view, "look_up_order")
    order = _NUMBER.search(request.body)
    if not results and view.mail.sender_type != "system" and order:
        return [call("look_up_order", order=order.group())]
    return [reply(request, " ".join(results) or "Please send an order number, such as A-1001.")]


def _billing(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    decided = [result.content for result in view.new_results if result.tool == "refund_order"]
    if decided:
        return [reply(request, f"About the refund: {plain(decided[0])}")]
    wanted = _REFUND.search(request.body)
    if wanted is None or view.mail.sender_type == "system":
        return [reply(request, "About the refund: I need order number, amount and reason.")]
    order, amount, reason = wanted.groups()
    return [call("refund_order", order=order, amount=amount, reason=reason[:_LONGEST])]


DESK: Final[Script] = _desk
"""Plays the supervisor of a swarm with workers named ``orders`` and ``billing``."""

ORDERS: Final[Script] = _orders
"""Plays the agent that knows the orders."""

BILLING: Final[Script] = _billing
"""Plays the agent that asks for refunds."""
