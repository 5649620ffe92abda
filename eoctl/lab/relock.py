"""Write a Kafka version's lock file, for maintainers: `python -m eoctl.lab.relock 4.3.1`.

Dependencies are resolved only here. The checksums are those of the files that the repository gave:
read the diff.
"""

import hashlib
import sys
import tempfile
from importlib import resources
from pathlib import Path

from eoctl.host.java import Java, find_java
from eoctl.lab.jars import Jar, ivy_xml, run_ivy
from recovery.errors import UnreachableError

# Connect comes with kafka-tools for one plug-in lister: 45 jars that no broker loads.
# Log4j 1 has known vulnerabilities; reload4j is the fixed replacement.
NOT_NEEDED = (
    '<exclude org="org.apache.kafka" module="connect-.*" matcher="regexp"/>'
    '<exclude org="log4j" module="log4j"/><exclude org="org.slf4j" module="slf4j-log4j12"/>'
)

_WITH_DESCRIPTORS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


def lab_jars(kafka_version: str) -> list[Jar]:
    """Return the jars that a lab starts from: broker, tools, and a logger for broker logs."""
    modules = [("org.apache.kafka", "kafka_2.13", kafka_version)]
    if not kafka_version.startswith("2."):  # before 3.0 the tools were part of the broker
        modules.append(("org.apache.kafka", "kafka-tools", kafka_version))
    if kafka_version.startswith(("2.", "3.")):
        modules.append(("org.slf4j", "slf4j-reload4j", "1.7.36"))
    else:
        modules.append(("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"))
    return [Jar("", 0, *module) for module in modules]


def resolve(kafka_version: str, java: Java) -> list[Jar]:
    """Return all jars of a version, with the dependencies that the repository names."""
    with tempfile.TemporaryDirectory() as folder:
        staging = Path(folder)
        settings = staging / "with-descriptors.xml"
        settings.write_text(_WITH_DESCRIPTORS)
        request = ivy_xml(lab_jars(kafka_version), transitive=True, rest=NOT_NEEDED)
        with run_ivy(java, staging, request, settings) as lines:
            output = list(lines)
        if any("UNRESOLVED DEPENDENCIES" in line for line in output):
            raise UnreachableError("".join(output[-40:]))
        jars = []
        for path in (staging / "cache").glob("*/*/*/*.jar"):
            organisation, name = path.parts[-4], path.parts[-3]
            if path.stem.startswith(f"{name}-"):
                revision = path.stem.removeprefix(f"{name}-")
                content = path.read_bytes()
                sha256 = hashlib.sha256(content).hexdigest()
                jars.append(Jar(sha256, len(content), organisation, name, revision))
    return sorted(jars, key=lambda jar: (jar.organisation, jar.name))


def main() -> None:
    """Write the lock files of the versions named on the command line."""
    java = find_java()
    for kafka_version in sys.argv[1:]:
        lines = [
            f"# Kafka {kafka_version}: made by python -m eoctl.lab.relock {kafka_version}",
            "# sha256  bytes  organisation:name:revision",
        ]
        lines += [
            f"{jar.sha256}  {jar.size}  {jar.organisation}:{jar.name}:{jar.revision}"
            for jar in resolve(kafka_version, java)
        ]
        target = resources.files("eoctl.lab") / "locks" / f"kafka-{kafka_version}.lock"
        Path(str(target)).write_text("\n".join(lines) + "\n")
        print(f"{target}: {len(lines) - 2} jars")


if __name__ == "__main__":
    main()
