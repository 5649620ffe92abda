"""Fetch Kafka's jars once per user, with Ivy from a Maven repository; SHA-256 pins each jar.

Each Kafka version has a lock file, `locks/kafka-VERSION.lock`, and MirrorMaker one of its own, with
a line per jar: `sha256  bytes  organisation:name:revision`. The file is complete, so Ivy is asked
for exactly these files and resolves nothing. `python -m eoctl.lab.relock VERSION` rewrites a Kafka
version's; MirrorMaker's is kept by hand.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from eoctl.host.java import Java
from eoctl.settings.folders import cache_dir
from recovery.errors import RefusedError, UnreachableError, UsageError
from recovery.plurals import counted
from recovery.values import Value

KAFKA = "4.3.1"

_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # for a short run: start-up is most of it

FetchProgress = Callable[[str, int, int], None]
"""What is being done, how many of it are done, of how many."""


def nothing(what: str, done: int, total: int) -> None:
    """Show no progress."""


class Jar(Value):
    """One line of a lock file."""

    sha256: str
    size: int  # bytes
    organisation: str
    name: str
    revision: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.revision}.jar"

    def matches(self, path: Path) -> bool:
        """Return True if exactly this jar is at `path`."""
        try:
            if path.stat().st_size != self.size:
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except FileNotFoundError:
            return False


def versions() -> list[str]:
    """Return the Kafka versions that have a lock file."""
    names = [entry.name for entry in (resources.files("eoctl.lab") / "locks").iterdir()]
    matches = [re.fullmatch(r"kafka-(.+)\.lock", name) for name in names]
    return sorted((match.group(1) for match in matches if match), reverse=True)


def read_lock(kafka_version: str, of: str = "kafka") -> list[Jar]:
    """Return the jars of a Kafka version. Raises UsageError for a version without a lock file.

    of: `mirror` = those that MirrorMaker needs beside them, of the version KAFKA only.
    """
    if kafka_version not in versions():
        raise UsageError(
            f"eoctl cannot start Kafka {kafka_version}", remedy=f"choose {', '.join(versions())}"
        )
    text = (resources.files("eoctl.lab") / "locks" / f"{of}-{kafka_version}.lock").read_text()
    return [_parse(line) for line in text.splitlines() if line and not line.startswith("#")]


def _parse(line: str) -> Jar:
    sha256, size, coordinates = line.split()
    return Jar(sha256, int(size), *coordinates.split(":"))


def fetch(
    jars: Sequence[Jar],
    java: Java,
    *,
    ivy_settings: Path | None = None,
    progress: FetchProgress = nothing,
) -> list[Path]:
    """Download the missing jars into the user's cache; return the paths of all.

    ivy_settings: a company's ivysettings.xml; default $EOCTL_IVY_SETTINGS, else Maven Central.
    Raises UnreachableError for a jar that no repository gave, RefusedError for a wrong checksum.
    """
    folder = cache_dir().absolute() / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / jar.file_name for jar in jars]
    if all(jar.matches(path) for jar, path in zip(jars, paths, strict=True)):
        return paths
    with _only_one(folder / ".lock"):  # another eoctl may have fetched them meanwhile
        missing = [jar for jar, path in zip(jars, paths, strict=True) if not jar.matches(path)]
        if missing:
            with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as staging:
                _download(missing, folder, Path(staging), java, ivy_settings, progress)
    return paths


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(
    jars: Sequence[Jar],
    folder: Path,
    staging: Path,
    java: Java,
    ivy_settings: Path | None,
    progress: FetchProgress,
) -> None:
    output: list[str] = []
    done = 0
    progress("jars fetched", done, len(jars))
    try:
        with run_ivy(java, staging, ivy_xml(jars, transitive=False), ivy_settings) as lines:
            for line in lines:
                output.append(line.strip())
                if "[SUCCESSFUL ]" in line:
                    done += 1
                    progress("jars fetched", done, len(jars))
    finally:
        # Keep the files that arrived, whatever happened to the rest: the next try is shorter.
        arrived = {path.name: path for path in staging.rglob("*.jar")}
        right = {jar for jar in jars if (path := arrived.get(jar.file_name)) and jar.matches(path)}
        for jar in right:
            arrived[jar.file_name].replace(folder / jar.file_name)
    for jar in jars:
        if jar.file_name in arrived and jar not in right:
            raise RefusedError(
                f"the repository's {jar.file_name} is not the pinned one "
                f"(its SHA-256 is not {jar.sha256[:16]}...)",
                remedy="its mirror is stale, broken or tampered with; try another one",
            )
    absent = [jar.file_name for jar in jars if jar not in right]
    if absent:
        raise UnreachableError(
            f"{len(absent)} of {counted(len(jars), 'jar')} could not be fetched, {absent[0]} first"
            f"{_reason(output)}",
            remedy="check the network, or name your company's repository in an ivysettings.xml "
            "and set EOCTL_IVY_SETTINGS to it",
        )


def _reason(output: Sequence[str]) -> str:
    """Return Ivy's own explanation, if it gave one."""
    for line in output:
        if re.search(r"Exception|refused|Server access|HTTP response|Unknown host", line):
            return f" ({line[:200]})"
    return ""


@contextmanager
def run_ivy(
    java: Java, staging: Path, ivy_xml: str, ivy_settings: Path | None
) -> Iterator[Iterator[str]]:
    """Let Ivy put the jars of `ivy_xml` below `staging`; yield the lines that Ivy prints."""
    if ivy_settings is None and os.environ.get("EOCTL_IVY_SETTINGS"):
        ivy_settings = Path(os.environ["EOCTL_IVY_SETTINGS"])
    if ivy_settings is None:
        ivy_settings = staging / "ivysettings.xml"
        ivy_settings.write_text(_MAVEN_CENTRAL)
    elif not ivy_settings.is_file():
        raise UsageError("no such file", where=str(ivy_settings), remedy="see EOCTL_IVY_SETTINGS")
    ivy_file = staging / "ivy.xml"
    ivy_file.write_text(ivy_xml)
    argv: list[str | Path] = [java.path, *_JVM, f"-Divy.default.ivy.user.dir={staging}"]
    argv += ["-jar", _ivy_jar(), "-settings", ivy_settings, "-cache", staging / "cache"]
    argv += ["-ivy", ivy_file, "-confs", "default"]
    # a company's settings may name another cache: its files are copied here
    argv += ["-retrieve", f"{staging}/[artifact]-[revision].[ext]"]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout)
        except BaseException:
            process.terminate()
            raise


# Ivy knows where Maven Central is. Without descriptors and checksum files each jar is one request;
# the files are checked against the lock file.
_MAVEN_CENTRAL = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <property name="ivy.checksums" value=""/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def ivy_xml(jars: Sequence[Jar], *, transitive: bool, rest: str = "") -> str:
    """Return an ivy.xml that asks for exactly these jars, or for their dependencies too."""
    lines = [
        '<ivy-module version="2.0"><info organisation="eoctl" module="lab"/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
    ]
    for jar in jars:
        # naming the artifact frees Ivy from needing a descriptor or a type like "bundle"
        artifact = "" if transitive else f'<artifact name="{jar.name}" type="jar" ext="jar"/>'
        lines.append(
            f'<dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.revision}" '
            f'transitive="{str(transitive).lower()}" conf="default->default">'
            f"{artifact}</dependency>"
        )
    return "\n".join([*lines, rest, "</dependencies></ivy-module>\n"])


def pyspark_jars() -> Path:
    """Return the folder of jars in pyspark, with Ivy and a ZooKeeper. Raises UsageError."""
    spec = importlib.util.find_spec("pyspark")  # finds pyspark without importing it
    if spec is None or spec.origin is None:
        raise UsageError("this needs pyspark", remedy="pip install 'eoctl[lab]'")
    return Path(spec.origin).parent / "jars"


def _ivy_jar() -> Path:
    jars = sorted(pyspark_jars().glob("ivy-*.jar"))
    if not jars:
        raise UsageError("no ivy-*.jar in pyspark", where=str(pyspark_jars()))
    return jars[-1]
