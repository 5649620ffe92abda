"""The store `connect` on real workers behind HTTPS with passwords and certificates.

Workers use Kafka's own BasicAuthSecurityRestExtension and PropertyFileLoginModule.
"""

import base64
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.connect.secure import KEY_PASSWORD, PASSWORD, USER, SecureWorker
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import SOON

pytestmark = [pytest.mark.timeout(600)]
ACT = ("--execute", "--yes")
PAIR = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Iterator[Lab]:
    lab = start_lab(LabSpec(name="connect-secure", settings=SOON))
    yield lab
    lab.down()


@pytest.fixture(scope="module")
def mutual(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureWorker]:
    """A worker that asks for a certificate and a password, and its connector, stopped at 40."""
    folder = tmp_path_factory.mktemp("mutual")
    worker = SecureWorker(lab, folder, "mutual", client_auth=True)
    try:
        yield stopped_at_40(worker.start(), lab)
    finally:
        worker.kill()


def stopped_at_40(worker: SecureWorker, lab: Lab) -> SecureWorker:
    name = worker.group
    assert eoctl("lab", "topic", name, "--name", lab.name).status == 0
    worker.counting("orders", name, records="40")
    worker.until(lambda: at(worker) == 40, "not all was written")
    worker.stop("orders")
    return worker


def at(worker: SecureWorker) -> object:
    """Where the connector stands, as its worker's GET says."""
    told = worker.offsets("orders").values()
    return next((offset["id"] for offset in told), None)


@dataclass
class Secure:
    """An application file of `orders`, with other words in [app.store] where a case says so."""

    lab: Lab
    worker: SecureWorker
    folder: Path
    seen: list[str] = field(default_factory=list)

    @property
    def all_words(self) -> dict[str, str]:
        """With secrets in a file and in the environment; files lie beside the app file."""
        return {
            "url": self.worker.url,
            "user": USER,
            "password": "env:CONNECT_PASSWORD",
            "ca": "ca.pem",
            "certificate": "operator.pem",
            "key": "operator.key",
            "key_password": "file:key.password",
        }

    def plan(self, *without: str, **words: str) -> Ran:
        told = {k: v for k, v in (self.all_words | words).items() if k not in without}
        rows = [{"partition": {"table": "orders", "database": "shop"}, "offset": {"id": 7}}]
        app = self.worker.folder / "app.toml"
        app.write_text(
            '[app]\nname = "orders"\nstrategy = "connect"\n[app.store]\nkind = "connect"\n'
            'connector = "orders"\n'
            f'offsets_topic = "{self.worker.offsets_topic}"\n'
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items())
            + f"[app.source]\noffsets = '{json.dumps({'offsets': rows})}'\n"
        )
        return self.run("plan", str(app), "--out", str(self.folder / "plan.json"))

    def run(self, *words: str) -> Ran:
        ran = eoctl("restart", *words, lab=self.lab)
        self.seen += [ran.stdout, ran.stderr]
        return ran

    def says(self, ran: Ran, status: int, *texts: str) -> None:
        """It ended so, with one sentence."""
        assert ran.status == status, ran.text
        sentences = " ".join(ran.stderr.split())
        assert all(text in sentences for text in texts), sentences
        assert "Traceback" not in sentences
        assert "_ssl.c" not in sentences


@pytest.fixture
def secure(
    lab: Lab, mutual: SecureWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Secure:
    return made(lab, mutual, tmp_path, monkeypatch)


def made(lab: Lab, worker: SecureWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secure:
    monkeypatch.setenv("CONNECT_PASSWORD", PASSWORD)
    (worker.folder / "key.password").write_text(f"{KEY_PASSWORD}\n")
    return Secure(lab, worker, tmp_path)


@pytest.mark.long
def test_a_real_worker_knows_who_asks(
    lab1: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short path: a worker with no connector yet."""
    worker = SecureWorker(lab1, tmp_path / "worker", "door", client_auth=True)
    try:
        secure = made(lab1, worker.start(), tmp_path, monkeypatch)
        secure.says(secure.plan(), 4, "knows no connector 'orders'")
        secure.says(secure.plan("user", "password"), 5, "wants a user and a password (HTTP 401)")
        secure.says(secure.plan("ca"), 5, "certificate is not signed by a CA that we trust")
        monkeypatch.setenv("CONNECT_PASSWORD", "wr0ng-s3cret")
        secure.says(secure.plan(), 5, "does not accept these credentials (HTTP 401)")
    finally:
        worker.kill()


@pytest.mark.long
def test_passwords_and_certificates(secure: Secure) -> None:
    """There and back with all of them; each that is wrong is one sentence, and changes nothing."""
    worker, plan = secure.worker, str(secure.folder / "plan.json")
    (worker.folder / "password").write_text(f"{PASSWORD}\n")
    planned = secure.plan(password="file:password")
    assert planned.status == 0, planned.text
    planned = secure.plan()
    assert planned.status == 0, planned.text
    assert secure.run("apply", plan, *ACT).status == 0
    assert at(worker) == 7
    assert secure.run("verify", plan, "--pause", "0.2s").status == 0
    assert secure.run("undo", plan, *ACT).status == 0
    assert at(worker) == 40

    (worker.folder / "wrong").write_text("wr0ng-s3cret")
    said = "does not accept these credentials (HTTP 401); check [app.store] user, password"
    secure.says(secure.plan(password="file:wrong"), 5, said)
    secure.says(secure.plan(user="someone"), 5, said)
    said = "wants a user and a password (HTTP 401); set [app.store] user and password"
    secure.says(secure.plan("user", "password"), 5, said)
    said = "certificate is not signed by a CA that we trust"
    secure.says(secure.plan("ca"), 5, said, "set [app.store] ca to the CA's certificate")
    secure.says(secure.plan(ca="stranger.pem"), 5, said)
    said = "the worker's certificate is for localhost, not for 127.0.0.1"
    secure.says(secure.plan(url=worker.by_address), 5, said)
    said = "wants a client certificate that it accepts"
    ran = secure.plan("certificate", "key", "key_password")
    secure.says(ran, 5, said, "set [app.store] certificate and key")
    ran = secure.plan(certificate="stranger.pem", key="stranger.key")
    secure.says(ran, 5, "does not accept our certificate")
    secure.says(secure.plan(url=worker.url.replace("https", "http")), 2, "is for https:// only")
    files = ("ca", "certificate", "key", "key_password")
    secure.says(secure.plan(*files, url=worker.url.replace("https", "http")), 5, "speaks TLS")

    said = "[app.store] key_password: the private key cannot be decrypted with this password"
    secure.says(secure.plan(key_password="file:wrong"), 2, said)
    said = "[app.store] key: the private key is encrypted; set [app.store] key_password"
    secure.says(secure.plan("key_password"), 2, said)
    secure.says(secure.plan("key"), 2, "[app.store] key is missing")
    secure.says(secure.plan(ca="none.pem"), 2, "none.pem cannot be read")
    secure.says(secure.plan(key="stranger.key"), 2, "does not belong to the certificate")
    secure.says(secure.plan(password="env:NO_SUCH"), 2, "variable NO_SUCH is not set")
    secure.says(secure.plan(password=PASSWORD), 2, "would appear in the plan and in the journal")
    assert at(worker) == 40

    worker.resume("orders")
    stop = f"curl -X PUT -u {USER} --cacert {worker.ca} --cert {worker.folder}/operator.pem"
    secure.says(secure.plan(), 4, "is RUNNING", stop, f"{worker.url}/connectors/orders/stop")
    worker.stop("orders")

    state = Path(os.environ["EOCTL_STATE_DIR"])
    kept = [path.read_bytes() for path in state.glob("journal*/**/*") if path.is_file()]
    assert any(b"env:CONNECT_PASSWORD" in text for text in kept), "no journal was looked at"
    kept += [Path(plan).read_bytes(), *(text.encode() for text in secure.seen)]
    for secret in (PASSWORD, KEY_PASSWORD, "wr0ng-s3cret", PAIR):
        assert not [text for text in kept if secret.encode() in text]


@pytest.mark.long
def test_passwords_alone(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without certificates of clients: those that are shown all the same are not looked at."""
    worker = SecureWorker(lab, tmp_path / "worker", "alone", client_auth=False)
    try:
        stopped_at_40(worker.start(), lab)
        secure = made(lab, worker, tmp_path, monkeypatch)
        plan = str(tmp_path / "plan.json")
        mine = ("certificate", "key", "key_password")
        assert secure.plan().status == 0
        assert secure.plan(*mine).status == 0
        monkeypatch.setenv("CONNECT_PASSWORD", "wr0ng-s3cret")
        refused = "does not accept these credentials (HTTP 401)"
        secure.says(secure.run("apply", plan, *ACT), 5, refused)
        assert at(worker) == 40
        monkeypatch.setenv("CONNECT_PASSWORD", PASSWORD)
        assert secure.run("apply", plan, *ACT).status == 0
        assert at(worker) == 7
        secure.says(secure.plan(*mine, "ca"), 5, "not signed by a CA that we trust")
    finally:
        worker.kill()
