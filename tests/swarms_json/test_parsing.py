"""References to Python objects and documents."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mail.swarms_json.references import (
    read_python_string,
    read_url_string,
    resolve_prefixed_string_references,
    target_address_is_interswarm,
)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"text": "hello"}')

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("prefix", ["", "python::"])
def test_a_python_reference_gives_the_object_it_names(prefix: str) -> None:
    assert read_python_string(f"{prefix}json:loads") is json.loads
    assert read_python_string(f"{prefix}json.decoder:JSONDecoder.decode") is (
        json.JSONDecoder.decode
    )


@pytest.mark.parametrize(
    "text",
    ["json", "", ":loads", "json:", "url::http://x", "python::json", ".json:loads", "json:a b"],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expected 'module:object' format"):
        read_python_string(text)


def test_a_reference_to_nothing_says_what_is_missing() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        read_python_string("no_such_module:x")
    with pytest.raises(AttributeError, match="no_such_name"):
        read_python_string("json:no_such_name")


def test_a_document_is_fetched_as_json_text(base_url: str) -> None:
    assert json.loads(read_url_string(f"{base_url}/prompt")) == {"text": "hello"}
    assert json.loads(read_url_string(f"url::{base_url}/prompt")) == {"text": "hello"}


@pytest.mark.parametrize("url", ["nonsense", "http://[bad", "ftp://127.0.0.1/x", ""])
def test_an_address_that_is_none_raises_when_asked_for(url: str) -> None:
    with pytest.raises(RuntimeError, match="error reading URL string"):
        read_url_string(url, raise_on_error=True)


def test_nobody_at_the_address_raises_when_asked_for() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(RuntimeError, match="the connection failed"):
            read_url_string(f"http://127.0.0.1:{free.getsockname()[1]}/", raise_on_error=True)


def test_references_are_resolved_however_deep(base_url: str) -> None:
    given = {
        "llm": "openai/gpt-5-mini",
        "system": f"url::{base_url}/prompt",
        "nested": [{"parser": "python::json:loads"}, 1, None],
    }
    resolved = resolve_prefixed_string_references(given)
    assert resolved == {
        "llm": "openai/gpt-5-mini",
        "system": '{"text": "hello"}',
        "nested": [{"parser": json.loads}, 1, None],
    }
    assert given["nested"][0] == {"parser": "python::json:loads"}


def test_an_address_with_a_swarm_is_interswarm() -> None:
    assert target_address_is_interswarm("weather@beta")
    assert not target_address_is_interswarm("weather")
