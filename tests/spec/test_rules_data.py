"""Rules of the data model that nothing else holds: see the table in spec/SPEC.md."""

import uuid
from datetime import datetime, timedelta

from mail.clock import SystemClock
from mail.core.compose import Composer
from mail.core.message import create_agent_address, create_user_address
from mail.core.tools.convert import convert_call_to_mail_message
from mail.testing import tool_calls
from tests.spec.kit import request


def messages() -> list[dict]:
    composed = Composer("harbour", SystemClock()).message(
        "request", "t", create_user_address("ines"), [create_agent_address("tides")], "s", "b"
    )
    [call] = tool_calls(request("tides"))
    return [dict(composed.to_wire()), dict(convert_call_to_mail_message(call, "lead", "t"))]


def test_ids_are_uuids() -> None:
    for message in messages():
        assert uuid.UUID(message["id"]).version == 4
        assert uuid.UUID(message["message"]["request_id"]).version == 4


def test_timestamps_are_utc() -> None:
    for message in messages():
        assert datetime.fromisoformat(message["timestamp"]).utcoffset() == timedelta(0)
