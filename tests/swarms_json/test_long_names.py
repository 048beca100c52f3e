"""Names and ids beyond 256 characters are refused where they come in, with a text that says so."""

import pytest

from mail.auth.callers import check_caller_id
from mail.auth.remote import _read_info
from mail.cli import main
from mail.errors import AuthUnavailable, ConfigError, ProtocolError
from mail.swarms_json.names import check_action_name, check_agent_name, check_swarm_name

FITS, LONG = "n" * 256, "n" * 257


@pytest.mark.parametrize("check", [check_agent_name, check_swarm_name, check_action_name])
def test_names_of_agents_swarms_and_actions(check) -> None:
    assert check(FITS) == FITS
    with pytest.raises(ConfigError, match="n…' must have at most 256 characters, got 257"):
        check(LONG)


def test_ids_of_callers(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    assert check_caller_id(FITS) == FITS
    with pytest.raises(ProtocolError, match="1 to 256 characters"):
        check_caller_id(LONG)
    store = f"sqlite:///{tmp_path}/mail.db"
    assert main(["token", "create", "--role", "user", "--id", LONG, "--store", store]) == 2
    assert capsys.readouterr().err == (
        "mail: a caller's id must have 1 to 256 characters and no control characters\n"
    )


def test_ids_of_an_external_service() -> None:
    assert _read_info({"role": "user", "id": FITS}).caller.id == FITS
    with pytest.raises(AuthUnavailable, match="service's answer: a caller's id must have 1 to 256"):
        _read_info({"role": "user", "id": LONG})


def test_the_name_of_a_swarm_that_is_to_be_served() -> None:
    from mail.cli import server

    with pytest.raises(ConfigError, match="at most 256"):
        server.build_config(server.run.read(["--swarm-name", LONG]))
