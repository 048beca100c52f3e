"""The audit of dependencies says clearly when nobody could be asked, and does not wait long."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scripts import audit
from scripts.ports import free_port

ANSWERS = {"/known": b'{"vulnerabilities": []}', "/other": b'{"info": {}}', "/page": b"<html>"}


class _Service(BaseHTTPRequestHandler):
    hold = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.hold.wait()
        body = ANSWERS.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    """An advisory service of our own."""
    _Service.hold = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        _Service.hold.set()
        server.shutdown()
        serving.join()


def test_a_service_that_knows_vulnerabilities_is_used(service: str) -> None:
    assert audit.problem(f"{service}/known", "vulnerabilities") is None


@pytest.mark.parametrize(
    ("path", "why"),
    [("/none", "HTTP 404"), ("/other", "without 'vulnerabilities'"), ("/page", "Expecting value")],
)
def test_any_other_answer_is_a_reason(service: str, path: str, why: str) -> None:
    assert why in (audit.problem(service + path, "vulnerabilities") or "")


def test_what_does_not_answer_is_not_waited_for(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_SECONDS", 0.2)
    assert audit.problem(f"{service}/slow", "vulnerabilities")


def test_without_a_service_the_audit_is_skipped_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = (f"http://127.0.0.1:{free_port()}/", "vulnerabilities")
    monkeypatch.setattr(audit, "_SERVICES", {"pypi": nowhere})
    assert audit.main() == 0
    told = capsys.readouterr().out
    assert told.startswith("audit: SKIPPED, no advisory service answers (127.0.0.1: ")
    assert told.count("\n") == 1
