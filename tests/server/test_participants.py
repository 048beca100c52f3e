"""A token of the role `agent` is a peer's or a participant's, never both."""

import logging

import httpx
import pytest

from tests.server.kit import Template, bearer


@pytest.mark.parametrize("route", ["forward", "back"])
async def test_a_participant_delivers_no_mail_of_other_swarms(
    client: httpx.AsyncClient,
    template: Template,
    route: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    template.participants = [{"name": "editor", "description": ""}]
    with caplog.at_level(logging.WARNING, "mail.server.audit"):
        answer = await client.post(f"/interswarm/{route}", json={}, headers=bearer("editor"))
    assert answer.status_code == 403
    assert answer.json()["detail"] == (
        "'editor' is a participant of the swarm: its token is for the mail desk, not for mail "
        "between swarms"
    )
    line = caplog.messages[-1]
    assert line.startswith(f"refused POST /interswarm/{route} of agent 'editor': 403 ")


async def test_a_participant_is_told_who_it_is(
    client: httpx.AsyncClient, template: Template
) -> None:
    refused = await client.get("/whoami", headers=bearer("editor"))
    assert refused.status_code == 403
    assert "'editor' is no participant of the swarm" in refused.json()["detail"]
    template.participants = [{"name": "editor", "description": ""}]
    answer = await client.get("/whoami", headers=bearer("editor"))
    assert answer.status_code == 200
    assert answer.json() == {
        "id": "editor",
        "role": "agent",
        "username": "editor",
        "participant": True,
    }


async def test_without_its_declaration_it_is_an_unknown_peer(
    client: httpx.AsyncClient, template: Template
) -> None:
    template.options["enable_interswarm"] = template.enable_interswarm = True
    answer = await client.post("/interswarm/forward", json={}, headers=bearer("editor"))
    assert answer.status_code == 403
    assert "no registered swarm has the principal 'editor'" in answer.json()["detail"]
