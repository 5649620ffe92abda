"""Processes of Spark on this machine: a standalone cluster of two workers, ended together."""

import importlib.util
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.started import started


def home() -> Path:
    """The folder of pyspark, which is a whole Spark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.3)
    raise AssertionError(f"nothing listens on {port}")


@contextmanager
def running(folder: Path, *commands: list[str], env: dict[str, str]) -> Iterator[None]:
    """Processes of Spark, started in turn, the last ended first; their output below `folder`."""
    with ExitStack() as stack:
        for number, words in enumerate(commands):
            with (folder / f"process-{number}.log").open("wb") as log:
                process = started(words, env=env, stdout=log, stderr=log, cwd=folder)
                stack.enter_context(process)
            time.sleep(3)
        yield


# a speculative attempt never starts on the host of the first one, so they are on two
HOSTS = ("127.0.0.1", "127.0.0.2")
START = str(home() / "bin" / "spark-class")
DEPLOY = "org.apache.spark.deploy"


def of_cluster(environ: Mapping[str, str] | None) -> dict[str, str]:
    """The variables of a cluster's processes, with some more."""
    return {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        **(environ or {}),
    }


def worker(folder: Path, host: str, url: str) -> list[str]:
    """The command of a Worker with a core."""
    return [
        *(START, f"{DEPLOY}.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g"),
        *("--webui-port", "0", "--work-dir", str(folder / "work" / host), url),
    ]


@contextmanager
def standalone_cluster(folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a Master with two Workers, a core each, started by spark-class.

    environ: further variables of theirs, which executors have too.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    master = [START, f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    master += ["--webui-port", "0"]
    workers = [worker(folder, host, url) for host in HOSTS]
    with running(folder, master, *workers, env=of_cluster(environ)):
        wait_for(port)
        yield url
