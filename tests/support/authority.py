"""A certificate authority of a test's own."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]


class Authority:
    """Signs certificates for hosts. ``file`` is its own, which clients may trust."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CA of {folder.name}")])
        self.file = folder / "authority.pem"
        self._own = self._sign(self._key, self._name, x509.BasicConstraints(True, 0), critical=True)
        self.file.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def serving(self, name: str) -> ssl.SSLContext:
        """Return the context of a server that has a certificate for a name or an IP address."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        try:
            named: x509.GeneralName = x509.IPAddress(ip_address(name))
        except ValueError:
            named = x509.DNSName(name)
        names = x509.SubjectAlternativeName([named])
        certificate = self._sign(key, subject, names, critical=False)
        file = self._folder / f"{name}.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _sign(
        self,
        key: ec.EllipticCurvePrivateKey,
        subject: x509.Name,
        extension: x509.ExtensionType,
        *,
        critical: bool,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(extension, critical=critical)
            .sign(self._key, hashes.SHA256())
        )
