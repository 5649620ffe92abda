"""Create a secure lab's certificates: an authority, brokers, users, and some wrong ones."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.errors import UsageError
from recovery.values import Value

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAY = dt.timedelta(days=1)


class Authority(Value):
    """A certificate authority that is its own root. Its key stays in memory."""

    certificate: "x509.Certificate"
    key: "EllipticCurvePrivateKey"

    @classmethod
    def make(cls, name: str) -> "Authority":
        """Return a new authority. Raises UsageError without the extra `lab`."""
        try:
            from cryptography import x509
        except ModuleNotFoundError:
            raise UsageError(
                "a secure lab needs the package cryptography", remedy="pip install 'eoctl[lab]'"
            ) from None
        from cryptography.hazmat.primitives.hashes import SHA256

        key, subject = _new_key(), _name(name)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            _builder(subject, subject, key, expired=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, SHA256())
        )
        return cls(certificate, key)

    def issue(
        self, name: str, *, hosts: Sequence[str] = (), expired: bool = False
    ) -> tuple["x509.Certificate", "EllipticCurvePrivateKey"]:
        """Return a certificate for CN=name, valid for these hosts and addresses, with its key."""
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256

        key = _new_key()
        builder = _builder(_name(name), self.certificate.subject, key, expired=expired)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.key, SHA256()), key


def write_certificate(path: Path, certificate: "x509.Certificate") -> Path:
    """Write a certificate as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding

    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    return path


def write_key(path: Path, key: "EllipticCurvePrivateKey", password: str | None = None) -> Path:
    """Write a key: PEM, PKCS#8, encrypted if there is a password; readable only by its owner."""
    write_private(path, _key_pem(key, password))
    return path


def write_keystore(
    path: Path, certificate: "x509.Certificate", key: "EllipticCurvePrivateKey"
) -> Path:
    """Write one PEM file with key and certificate: Java's ssl.keystore.type=PEM (KIP-651)."""
    from cryptography.hazmat.primitives.serialization import Encoding

    write_private(path, _key_pem(key, None) + certificate.public_bytes(Encoding.PEM))
    return path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def _key_pem(key: "EllipticCurvePrivateKey", password: str | None) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    protection: s.KeySerializationEncryption = s.NoEncryption()
    if password is not None:
        protection = s.BestAvailableEncryption(password.encode())
    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, protection)


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey", *, expired: bool
) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * DAY)
        .not_valid_after(now - DAY if expired else now + 3650 * DAY)
    )
