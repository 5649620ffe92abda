"""Run Kafka's own classes: the settings of a lab's brokers, their storage, start and logs."""

import hashlib
import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path

from eoctl.host.java import Java, find_java
from eoctl.host.processes import Process, spawn
from eoctl.lab.jars import FetchProgress, fetch, nothing, read_lock
from eoctl.lab.record import CONTROLLER, HOST, PLAINTEXT, LabRecord, Node
from eoctl.settings.folders import cache_dir
from recovery.errors import RefusedError, UnreachableError, UsageError
from recovery.values import Value, replace

# Start-up time matters more than peak speed; a laptop runs three brokers.
_JVM = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


# A stopped broker can rejoin once its old session has ended: after 3 s, not 9 s. Not for a single
# broker: on a busy machine it sometimes misses 3 s, and no other can lead.
_SHORT_SESSION = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


# Readers with a rack are sent to its replica (KIP-392); by default Kafka chooses the leader.
_RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}

STORAGE_TOOL = "kafka.tools.StorageTool"


class Runtime(Value):
    """A Java and the jars of one Kafka version."""

    java: Java
    jars: tuple[Path, ...]
    kafka_version: str

    @property
    def classpath(self) -> str:
        return os.pathsep.join(str(jar) for jar in self.jars)

    @property
    def class_archive(self) -> Path:
        """Return the file of the AppCDS archive (JEP 350), once a broker has left one.

        It halves a broker's start-up time. The JVM accepts it only with equal build and jars.
        """
        java = hashlib.sha256(self.java.banner.encode())
        jars = hashlib.sha256()
        for jar in self.jars:
            jars.update(f"{jar} {jar.stat().st_mtime_ns}".encode())
        name = f"kafka-{self.kafka_version}-{java.hexdigest()[:8]}-{jars.hexdigest()[:16]}.jsa"
        return cache_dir().absolute() / "classes" / name

    def argv(self, main_class: str, *args: str | Path, flags: Sequence[str] = ()) -> list[str]:
        """Return the command line of one of Kafka's classes."""
        archive = self.class_archive
        shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        command = [self.java.path, *_JVM, *shared, *flags, "-cp", self.classpath, main_class]
        return [str(word) for word in (*command, *args)]

    def tool_argv(self, main_class: str, *args: str) -> list[str]:
        """Return the command line of one of Kafka's tools, with kafka-run-class.sh's flags.

        For comparisons of speed: a short run of `argv` takes half the processor time.
        """
        command = [self.java.path, "-Xmx256M", "-server", "-XX:+UseG1GC", "-cp", self.classpath]
        return [str(word) for word in (*command, main_class, *args)]


def keep_class_archive(fresh: Path, target: Path) -> None:
    """Move an archive that a stopped broker left into the cache.

    It replaces archives of the same Kafka version and the same Java, whose jars have changed since.
    Archives of another Java stay: its labs would otherwise rebuild theirs each time.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    arriving = target.with_suffix(f".{os.getpid()}")
    shutil.move(fresh, arriving)
    for old in target.parent.glob(f"{target.stem.rpartition('-')[0]}-*.jsa"):
        old.unlink(missing_ok=True)
    arriving.replace(target)


def find_runtime(
    kafka_version: str, ivy_settings: Path | None = None, progress: FetchProgress = nothing
) -> Runtime:
    """Find Java and jars, or fetch jars. Raises UsageError, UnreachableError, RefusedError."""
    jars = read_lock(kafka_version)
    java = find_java()
    paths = fetch(jars, java, ivy_settings=ivy_settings, progress=progress)
    return Runtime(java, tuple(paths), kafka_version)


def choose_ports(count: int, more: int, first: int | None) -> list[int]:
    """Return ports on the loopback address: `count` from `first` on, and `more` free ones.

    first: None = free ones too. Raises UsageError for a given port that is taken.
    """
    given = [] if first is None else list(range(first, first + count))
    for port in given:
        if not _is_free(port):
            raise UsageError(
                f"port {port} is taken", remedy="choose another --port, or none for a free one"
            )
    ports: list[int] = []
    missing = count + more - len(given)
    # Below the range from which systems take ports for outgoing connections.
    for port in random.sample(range(20000, 32000), 12000):
        if len(ports) == missing:
            return given + ports
        if port not in given and _is_free(port):
            ports.append(port)
    raise UsageError("no free ports between 20000 and 32000")


def _is_free(port: int) -> bool:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def settings(node: Node, nodes: Sequence[Node], data: Path) -> dict[str, str]:
    """Return each broker's settings; --secure adds to these, and --set overrides them."""
    copies = str(min(3, len(nodes)))
    least = "2" if len(nodes) == 3 else "1"
    clients = {name: port for name, port in node.ports.items() if name != CONTROLLER}
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "listeners": _urls(node.ports),
        "advertised.listeners": _urls(clients),
        "controller.listener.names": CONTROLLER,
        "controller.quorum.bootstrap.servers": ",".join(
            f"{HOST}:{other.ports[CONTROLLER]}" for other in nodes
        ),
        "inter.broker.listener.name": PLAINTEXT,
        "listener.security.protocol.map": f"{CONTROLLER}:PLAINTEXT,{PLAINTEXT}:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": least,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": least,
        # Kafka's default is 1, which `doctor` finds; a topic with one copy still needs only that
        "min.insync.replicas": least,
        "group.initial.rebalance.delay.ms": "0",
        # default: 128 MiB, a third of the heap
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        **(_SHORT_SESSION if len(nodes) > 1 else {}),
        **(_RACKS | {"broker.rack": f"rack-{node.id}"} if len(nodes) > 1 else {}),
    }


def _urls(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def write_settings(path: Path, settings: Mapping[str, str]) -> None:
    """Write a Java .properties file. Only its owner may read it: it may hold passwords."""
    path.touch(mode=0o600)
    path.write_bytes(settings_text(settings))


def settings_text(settings: Mapping[str, str]) -> bytes:
    """Return the content of a Java .properties file."""
    lines = [f"{key}={_escape(value)}\n" for key, value in settings.items()]
    return "".join(lines).encode("latin-1")


def _escape(value: str) -> str:
    """Return a value for java.util.Properties: Latin-1, backslash escapes, no leading blank."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if escaped[:1] in (" ", "\t", "\f"):
        escaped = "\\" + escaped
    return "".join(
        char if ord(char) < 256 else "".join(f"\\u{unit:04x}" for unit in _utf16_units(char))
        for char in escaped
    )


def _utf16_units(char: str) -> list[int]:
    raw = char.encode("utf-16-be")
    return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]


def format_storage(
    runtime: Runtime, record: LabRecord, folder: Path, users: Sequence[str] = ()
) -> None:
    """Run `kafka-storage.sh format` for a quorum of all nodes (KIP-853).

    users: SCRAM credentials for --add-scram. Raises UnreachableError with Kafka's reason.
    """
    nodes = record.nodes
    first = nodes[0]
    voters = ",".join(
        f"{node.id}@{HOST}:{node.ports[CONTROLLER]}:{node.directory_id}" for node in nodes
    )
    args = ["format", "--config", str(broker_folder(folder, first.id) / "server.properties")]
    args += ["--cluster-id", record.cluster_id, "--initial-controllers", voters]
    if record.spec.transaction_version is not None:
        args += ["--feature", f"transaction.version={record.spec.transaction_version}"]
    for user in users:
        args += ["--add-scram", user]
    done = run_storage_tool(runtime, args, broker_log(folder, first.id))
    if done.returncode:
        output = reason(done.stderr + done.stdout) or "no reason given"
        if record.spec.settings:
            raise UsageError(f"Kafka refuses these settings: {output}", where="--set")
        raise UnreachableError(f"Kafka's storage could not be formatted: {output}")
    # All nodes get the same bootstrap records; only meta.properties names the node.
    source = data_folder(folder, first.id)
    for node in nodes[1:]:
        target = data_folder(folder, node.id)
        shutil.copytree(source, target)
        meta = (source / "meta.properties").read_text()
        meta = meta.replace(f"node.id={first.id}", f"node.id={node.id}")
        meta = meta.replace(first.directory_id, node.directory_id)
        (target / "meta.properties").write_text(meta)


def run_storage_tool(
    runtime: Runtime, args: Sequence[str], log: Path
) -> "subprocess.CompletedProcess[str]":
    """Run kafka-storage.sh in its own JVM; return its output and its exit status."""
    return subprocess.run(
        runtime.argv(STORAGE_TOOL, *args, flags=log_flags(runtime.kafka_version, log)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def start(
    runtime: Runtime,
    folder: Path,
    broker_id: int,
    *,
    leave_archive: bool,
    clock_ahead_ms: int = 0,
) -> Process:
    """Start one broker. leave_archive: write `classes.jsa` into the folder when the broker ends."""
    home = broker_folder(folder, broker_id)
    flags = log_flags(runtime.kafka_version, broker_log(folder, broker_id))
    flags.append(f"-XX:ErrorFile={home}/java-crash.log")
    if leave_archive:
        flags.append(f"-XX:ArchiveClassesAtExit={folder}/classes.jsa")
    if clock_ahead_ms:
        runtime = replace(runtime, jars=(_clock(runtime), *runtime.jars))
        flags.append(f"-Deoctl.clock.ahead.ms={clock_ahead_ms}")
    argv = runtime.argv("kafka.Kafka", home / "server.properties", flags=flags)
    with broker_log(folder, broker_id).open("a") as log:
        log.write(_START_MARK)
    return spawn(argv, home / "console.log")


def _clock(runtime: Runtime) -> Path:
    """Return classes to load before Kafka's: a settable clock. Raises RefusedError without javac.

    Nothing simpler reaches a coordinator's clock: no request does, and a JVM has no flag for it.
    """
    source = Path(str(resources.files("eoctl.lab") / "SystemTime.java"))
    digest = hashlib.sha256(f"{runtime.java.banner}{runtime.classpath}".encode())
    digest.update(source.read_bytes())
    classes = cache_dir().absolute() / "classes" / f"clock-{digest.hexdigest()[:16]}"
    if classes.exists():
        return classes
    compiler = runtime.java.path.resolve().with_name("javac")
    if not compiler.exists():
        raise RefusedError(
            "a broker's clock is set by a class that has to be compiled, and there is no javac",
            where=str(compiler),
            remedy="install a JDK (Debian, Ubuntu: openjdk-17-jdk-headless)",
        )
    arriving = classes.with_suffix(f".{os.getpid()}")
    arriving.mkdir(parents=True)
    argv = [str(compiler), "-proc:none", "-d", str(arriving), "-cp", runtime.classpath, str(source)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    arriving.rename(classes)
    return classes


def log_flags(kafka_version: str, log: Path) -> list[str]:
    """Return JVM flags that send Kafka's log to a file: Log4j 2 since 4.0 (KIP-653), else 1."""
    name, option = "log4j2.properties", "log4j2.configurationFile"
    if int(kafka_version.partition(".")[0]) < 4:
        name, option = "log4j.properties", "log4j.configuration"
    configuration = Path(str(resources.files("eoctl.lab") / name)).as_uri()
    return [f"-D{option}={configuration}", f"-Deoctl.log={log}"]


def read_cluster_id(data: Path) -> str:
    """Return the cluster id that a broker's data belongs to (meta.properties)."""
    for line in (data / "meta.properties").read_text().splitlines():
        if line.startswith("cluster.id="):
            return line.removeprefix("cluster.id=")
    raise UnreachableError("no cluster.id", where=str(data / "meta.properties"))


def broker_folder(folder: Path, broker_id: int) -> Path:
    return folder / f"broker-{broker_id}"


def data_folder(folder: Path, broker_id: int) -> Path:
    """Return the broker's log.dirs."""
    return broker_folder(folder, broker_id) / "data"


def broker_log(folder: Path, broker_id: int) -> Path:
    return broker_folder(folder, broker_id) / "broker.log"


def save_log(folder: Path, broker_id: int) -> Path:
    """Copy a broker's log out of a lab that is about to be deleted; return the new path.

    The console's lines come last: they exist even if the JVM itself did not start.
    """
    target = folder.parent / ".failed" / f"{folder.name}-broker-{broker_id}.log"
    target.parent.mkdir(exist_ok=True)
    with target.open("wb") as file:
        for name in ("broker.log", "console.log"):
            source = broker_folder(folder, broker_id) / name
            if source.exists():
                file.write(source.read_bytes())
    return target


# Written into a broker's log at each start, to separate older errors from this start's.
_START_MARK = "[eoctl] start\n"

_LOGGED = re.compile(r"\[[^]]*\] (?P<level>\w+) (?P<text>.*)")
_EXCEPTION = re.compile(
    r'(?:Exception in thread "[^"]*" )?(?:[\w$]+\.)+(?P<text>[\w$]*(?:Exception|Error)(?:: .+)?$)'
)


def reason(log: str) -> str | None:
    """Return why a Java program ended: the first exception below a logged error, or the error."""
    error = None
    severe = True  # printed rather than logged
    for line in log.rpartition(_START_MARK)[2].splitlines():
        if logged := _LOGGED.match(line):
            severe = logged["level"] in ("ERROR", "FATAL")
            error = logged["text"] if severe and error is None else error
        elif severe and (exception := _EXCEPTION.match(line)):
            return exception["text"]
        elif line.startswith("Error: ") and error is None:
            error = line.removeprefix("Error: ")
    return error
