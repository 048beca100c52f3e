"""Addresses and contributor strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.core.addresses import (
    Contributor,
    create_address,
    create_admin_address,
    create_agent_address,
    create_system_address,
    create_user_address,
    format_agent_address,
    format_contributor,
    get_address_string,
    get_address_type,
    local_agent_name,
    parse_agent_address,
    parse_task_contributor,
    parse_task_contributors,
)
from mail.errors import AddressError
from tests.support.messages import relaxed

word = st.text(st.characters(exclude_characters="@:"), min_size=1)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (create_admin_address, "admin"),
        (create_agent_address, "agent"),
        (create_system_address, "system"),
        (create_user_address, "user"),
    ],
)
def test_each_kind_of_address_has_its_own_builder(make, kind) -> None:
    address = make("ines")
    assert address == {"address_type": kind, "address": "ines"} == create_address("ines", kind)
    assert (get_address_type(address), get_address_string(address)) == (kind, "ines")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("weather", ("weather", None)),
        ("weather@beta", ("weather", "beta")),
        (" a @ b@c ", ("a", "b@c")),
        ("a@", ("a", "")),
        ("", ("", None)),
    ],
)
def test_an_agent_address_is_split_at_its_first_at_sign(text, parts) -> None:
    assert parse_agent_address(text) == parts


@relaxed
@given(name=word, swarm=st.none() | word)
def test_agent_addresses_survive_formatting_and_parsing(name, swarm) -> None:
    name, swarm = name.strip() or "n", swarm and (swarm.strip() or "s")
    address = format_agent_address(name, swarm)
    assert address["address_type"] == "agent"
    assert parse_agent_address(address["address"]) == (name, swarm)


@pytest.mark.parametrize(
    ("address", "name"),
    [("x", "x"), ("x@here", "x"), ("x@there", "x@there"), (" x @ here ", "x")],
)
def test_the_local_swarm_needs_no_name(address, name) -> None:
    assert local_agent_name(address, "here") == name


@relaxed
@given(role=word, identifier=st.text(min_size=1), swarm=word)
def test_contributors_survive_formatting_and_parsing_whatever_the_id(
    role, identifier, swarm
) -> None:
    text = format_contributor(role, identifier, swarm)
    assert parse_task_contributor(text) == Contributor(role, identifier, swarm)


def test_an_id_with_separators_cannot_pose_as_another_owner() -> None:
    assert parse_task_contributor("user:alice@alpha@beta") == ("user", "alice@alpha", "beta")
    assert parse_task_contributor("user:admin:root@beta") == ("user", "admin:root", "beta")


@pytest.mark.parametrize("text", ["", "user", "user:1", "1@s", ":1@s", "user:@s", "user:1@", "@:"])
def test_a_contributor_with_a_missing_part_is_refused(text) -> None:
    with pytest.raises(AddressError, match="task contributor must be in the format 'role:id@sw"):
        parse_task_contributor(text)
    with pytest.raises(ValueError, match="role:id@swarm"):
        parse_task_contributors(["user:1@s", text])


def test_several_contributors_are_read_in_order() -> None:
    assert parse_task_contributors(["user:1@a", "agent:b@a"]) == [
        ("user", "1", "a"),
        ("agent", "b", "a"),
    ]
