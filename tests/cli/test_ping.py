"""``mail ping`` against servers of all kinds."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mail.cli import main


class Handler(BaseHTTPRequestHandler):
    """Answers by path, and counts who asks."""

    seen: list[str]

    def do_GET(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        moved = self.path.startswith("/moved")
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", "/health")
        self.end_headers()
        if not moved:
            self.wfile.write(b'{"status": "healthy", "swarm_name": "x"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        made.seen = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_server_is_reported(server: HTTPServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ping", f"http://127.0.0.1:{server.server_port}"]) == 0
    assert capsys.readouterr().out == "✓ x is healthy\n"


def test_a_redirect_is_an_answer_and_is_not_followed(
    server: HTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ping", f"http://127.0.0.1:{server.server_port}/moved"]) == 1
    assert capsys.readouterr().out == "✗ Server returned 302\n"
    assert server.seen == ["/moved/health"]  # type: ignore[attr-defined]
