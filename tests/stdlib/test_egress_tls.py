"""Over TLS the certificate must be one for the name in the URL, though the IP is connected to."""

import datetime
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mail.egress import client as egress
from mail.egress.client import guarded_client, guarded_request, opened
from mail.egress.posts import GuardedPosts
from mail.egress.rules import EgressPolicy, FetchError

HERE = EgressPolicy(("127.0.0.1",))
CONNECTIONS: list[object] = []


class Handler(BaseHTTPRequestHandler):
    """Says which host was asked for; keeps connections open, as far as the client lets it."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        CONNECTIONS.append(self.client_address)

    def do_GET(self) -> None:
        body = self.headers["Host"].partition(":")[0].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a self-signed certificate for a host name, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


class QuietServer(ThreadingHTTPServer):
    """A client that breaks off the handshake is what the test wants; it is no news."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A TLS server for tls.example on loopback, whose certificate our real transport trusts."""
    certificate, key = make_certificate(tmp_path, "tls.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = QuietServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


async def ask(client: httpx.AsyncClient, url: str) -> str:
    """Return what a server says."""
    async with opened(client, guarded_request(client, "GET", url)) as response:
        return (await egress.read_body(response, 1000)).data.decode()


async def test_the_certificate_is_checked_against_the_name(served: int) -> None:
    client = guarded_client(HERE, timeout=5, resolve=lambda *_: ["127.0.0.1"])
    async with client:
        assert await ask(client, f"https://tls.example:{served}/") == "tls.example"
        # The same address and port: a kept connection would answer, without a look at the name.
        with pytest.raises(FetchError, match="the connection failed"):
            await ask(client, f"https://other.example:{served}/")
        with pytest.raises(FetchError, match="the connection failed"):
            await ask(client, f"https://127.0.0.1:{served}/")
        assert await ask(client, f"https://tls.example.:{served}/") == "tls.example."


async def test_with_kept_connections_names_would_mix(served: int) -> None:
    """The danger is real: this is what the guard's transport must not do."""
    keeping = httpx.AsyncHTTPTransport()
    client = guarded_client(HERE, timeout=5, resolve=lambda *_: ["127.0.0.1"], transport=keeping)
    async with client:
        assert await ask(client, f"https://tls.example:{served}/") == "tls.example"
        assert await ask(client, f"https://other.example:{served}/") == "other.example"


async def test_posts_go_to_who_has_a_certificate_for_the_name(served: int) -> None:
    CONNECTIONS.clear()
    posts = GuardedPosts(HERE, "Tester/1", lambda *_: ["127.0.0.1"])

    async def post(host: str) -> str:
        url = f"https://{host}:{served}/"
        answer = await posts.post(url, {}, b"{}", seconds=5, max_bytes=1000)
        return answer.body.data.decode()

    for _ in range(3):
        assert await post("tls.example") == "tls.example"
    assert len(CONNECTIONS) == 1
    for other in ("other.example", "127.0.0.1"):  # the same address and port
        with pytest.raises(FetchError, match="the connection failed"):
            await post(other)
    assert await post("TLS.example.") == "tls.example"
    await posts.aclose()
