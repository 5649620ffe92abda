"""A worker of Kafka Connect behind HTTPS, with Kafka's own basic authentication.

Its certificate is for `localhost` alone. It is a test's own: no key leaves the folder.
"""

import base64
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from eoctl.lab.certificates import Authority, write_certificate, write_key
from eoctl.lab.cluster import Lab
from tests.connect.worker import Worker

USER = "operator"
PASSWORD = "s3cret:für uns"
STORE_PASSWORD = "changeit"
KEY_PASSWORD = "kéy-secret"
_EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension"


class SecureWorker(Worker):
    """client_auth: whether clients must show a certificate (mutual TLS)."""

    scheme = "https"

    def __init__(self, lab: Lab, folder: Path, group: str, *, client_auth: bool) -> None:
        self.authority = Authority.make("authority")
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = write_certificate(folder / "ca.pem", self.authority.certificate)
        for name in ("operator", "stranger"):
            authority = self.authority if name == "operator" else Authority.make("another")
            certificate, key = authority.issue(name)
            write_certificate(folder / f"{name}.pem", certificate)
            write_key(folder / f"{name}.key", key, KEY_PASSWORD)
        (folder / "users.properties").write_text(f"{USER}={PASSWORD}\n", encoding="latin-1")
        (folder / "jaas.conf").write_text(
            f"KafkaConnect {{ {_EXTENSION}.PropertyFileLoginModule required "
            f'file="{folder}/users.properties"; }};\n'
        )
        self.flags = (f"-Djava.security.auth.login.config={folder}/jaas.conf",)
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self.headers = {"Authorization": f"Basic {pair}"}
        self.context = ssl.create_default_context(cafile=str(self.ca))
        self.context.load_cert_chain(folder / "operator.pem", folder / "operator.key", KEY_PASSWORD)
        super().__init__(lab, folder, group, self._settings(folder, client_auth=client_auth))
        self.by_address = self.url
        self.url = f"https://localhost:{self.port}"

    def _settings(self, folder: Path, *, client_auth: bool) -> dict[str, str]:
        protection = BestAvailableEncryption(STORE_PASSWORD.encode())
        certificate, key = self.authority.issue("worker", hosts=["localhost"])
        (folder / "worker.p12").write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"worker", key, certificate, [self.authority.certificate], protection
            )
        )
        (folder / "trust.p12").write_bytes(
            pkcs12.serialize_java_truststore(
                [pkcs12.PKCS12Certificate(self.authority.certificate, b"authority")], protection
            )
        )
        told = {
            "keystore.location": f"{folder}/worker.p12",
            "keystore.type": "PKCS12",
            "keystore.password": STORE_PASSWORD,
            "key.password": STORE_PASSWORD,
            "truststore.location": f"{folder}/trust.p12",
            "truststore.type": "PKCS12",
            "truststore.password": STORE_PASSWORD,
            "client.auth": "required" if client_auth else "none",
        }
        return {
            "rest.extension.classes": f"{_EXTENSION}.BasicAuthSecurityRestExtension",
            "rest.advertised.listener": "https",
            "rest.advertised.host.name": "localhost",
            **{f"listeners.https.ssl.{name}": value for name, value in told.items()},
        }
