"""Fetching jars with the real Ivy, from a Maven repository served on this machine."""

import hashlib
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from eoctl.host.java import find_java
from eoctl.lab.jars import Jar, fetch, read_lock
from recovery.errors import Exit, RefusedError, UnreachableError, UsageError
from tests.started import started


@dataclass
class Repository:
    """A company's mirror. asked: how often each file was asked for."""

    root: Path
    settings: Path
    asked: Counter[str] = field(default_factory=Counter)
    missing: set[str] = field(default_factory=set)

    def publish(self, name: str) -> Jar:
        """A new jar in the repository, and the lock file's line for it."""
        folder = self.root / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        path = folder / f"{name}-1.0.jar"
        with zipfile.ZipFile(path, "w") as jar:
            jar.writestr("content", name * 1000)
        content = path.read_bytes()
        return Jar(hashlib.sha256(content).hexdigest(), len(content), "org.example", name, "1.0")

    def jar_requests(self) -> Counter[str]:
        return Counter({name: n for name, n in self.asked.items() if name.endswith(".jar")})


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path / "cache"))
    settings = tmp_path / "ivysettings.xml"
    made = Repository(tmp_path / "repository", settings)
    made.root.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            made.asked[name] += 1
            if name in made.missing:
                self.send_error(404)
            else:
                super().do_GET()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(made.root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    settings.write_text(
        '<ivysettings><settings defaultResolver="company"/><resolvers>'
        f'<ibiblio name="company" m2compatible="true" root="http://127.0.0.1:{server.server_port}/"'
        "/></resolvers></ivysettings>"
    )
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def test_jars_are_fetched_once(repository: Repository) -> None:
    jars = [repository.publish("one"), repository.publish("two")]
    seen: list[tuple[str, int, int]] = []
    java = find_java()

    def get() -> list[Path]:
        return fetch(
            jars, java, ivy_settings=repository.settings, progress=lambda *step: seen.append(step)
        )

    paths = get()
    assert [path.name for path in paths] == ["one-1.0.jar", "two-1.0.jar"]
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths] == [
        jar.sha256 for jar in jars
    ]
    assert seen == [("jars fetched", done, 2) for done in (0, 1, 2)]
    assert repository.jar_requests() == {"one-1.0.jar": 1, "two-1.0.jar": 1}
    asked = repository.asked.total()
    assert get() == paths
    assert repository.asked.total() == asked
    # one that was damaged in the cache is fetched again, the other is not
    paths[0].write_bytes(b"\0" * jars[0].size)
    assert get() == paths
    assert repository.jar_requests() == {"one-1.0.jar": 2, "two-1.0.jar": 1}
    assert jars[0].matches(paths[0])


@pytest.mark.long
def test_the_company_settings_may_come_from_the_environment(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = repository.publish("one")
    monkeypatch.setenv("EOCTL_IVY_SETTINGS", str(repository.settings))
    assert jar.matches(fetch([jar], find_java())[0])
    monkeypatch.setenv("EOCTL_IVY_SETTINGS", "/nowhere/ivysettings.xml")
    assert fetch([jar], find_java())  # nothing to fetch
    with pytest.raises(UsageError, match=r"/nowhere/ivysettings\.xml: no such file"):
        fetch([repository.publish("two")], find_java())


def test_a_cache_that_the_company_settings_name_is_no_obstacle(
    repository: Repository, tmp_path: Path
) -> None:
    jar = repository.publish("one")
    text = repository.settings.read_text()
    elsewhere = f'<caches defaultCacheDir="{tmp_path}/company-cache"/><resolvers>'
    repository.settings.write_text(text.replace("<resolvers>", elsewhere))
    assert jar.matches(fetch([jar], find_java(), ivy_settings=repository.settings)[0])


def test_what_is_not_the_pinned_jar_is_refused(repository: Repository, tmp_path: Path) -> None:
    good, bad = repository.publish("good"), repository.publish("bad")
    path = next(repository.root.rglob("bad-1.0.jar"))
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    with pytest.raises(RefusedError, match=r"bad-1\.0\.jar is not the pinned one") as caught:
        fetch([good, bad], find_java(), ivy_settings=repository.settings)
    assert caught.value.exit_status == Exit.REFUSED
    assert "\n" not in caught.value.sentence
    kept = [file.name for file in (tmp_path / "cache" / "jars").rglob("*.jar")]
    assert kept == ["good-1.0.jar"]


def test_a_jar_that_no_repository_has(repository: Repository) -> None:
    jars = [repository.publish("one"), repository.publish("two")]
    repository.missing.add("two-1.0.jar")
    with pytest.raises(UnreachableError, match=r"1 of 2 jars .*two-1\.0\.jar.*EOCTL_IVY") as caught:
        fetch(jars, find_java(), ivy_settings=repository.settings)
    assert "\n" not in caught.value.sentence
    # what came is kept: the next try asks for the rest only
    repository.missing.clear()
    repository.asked.clear()
    fetch(jars, find_java(), ivy_settings=repository.settings)
    assert repository.jar_requests() == {"two-1.0.jar": 1}


def test_a_repository_that_is_not_there(repository: Repository) -> None:
    jar = repository.publish("one")
    text = repository.settings.read_text().replace(
        'root="http://127.0.0.1:', 'root="http://127.0.0.1:1'
    )
    repository.settings.write_text(text.replace(":1", ":1/", 1))
    with pytest.raises(UnreachableError, match=r"one-1\.0\.jar.*EOCTL_IVY_SETTINGS"):
        fetch([jar], find_java(), ivy_settings=repository.settings)


@pytest.mark.long
def test_many_at_once_fetch_each_jar_once(repository: Repository, tmp_path: Path) -> None:
    jars = [repository.publish(f"jar{number}") for number in range(5)]
    lines = [f"Jar({j.sha256!r}, {j.size}, {j.organisation!r}, {j.name!r}, '1.0')" for j in jars]
    script = (
        "from pathlib import Path\nfrom eoctl.lab.jars import Jar, fetch\n"
        "from eoctl.host.java import find_java\n"
        f"jars = [{', '.join(lines)}]\n"
        f"paths = fetch(jars, find_java(), ivy_settings=Path({str(repository.settings)!r}))\n"
        "assert all(jar.matches(path) for jar, path in zip(jars, paths))\n"
    )
    words = [sys.executable, "-c", script]
    with ExitStack() as stack:
        running = [stack.enter_context(started(words, stderr=subprocess.PIPE)) for _ in range(4)]
        said = [process.communicate(timeout=60)[1].decode() for process in running]
    assert said == [""] * 4
    assert [process.returncode for process in running] == [0] * 4
    assert repository.jar_requests() == {jar.file_name: 1 for jar in jars}
    left = {path.name for path in (tmp_path / "cache" / "jars").iterdir()}
    assert left == {jar.file_name for jar in jars} | {".lock"}


def test_a_wrong_line_in_a_lock_file_is_noticed(repository: Repository) -> None:
    """The pinned checksum decides, not the repository's own."""
    jar = repository.publish("one")
    tampered = Jar("0" * 64, jar.size, jar.organisation, jar.name, jar.revision)
    with pytest.raises(RefusedError, match="is not the pinned one"):
        fetch([tampered], find_java(), ivy_settings=repository.settings)


def test_the_users_cache_holds_what_the_lock_file_says(lab_state: Path) -> None:
    """Against sha256sum, for the version that the other tests run on."""
    jars = read_lock("4.3.1")
    paths = fetch(jars, find_java())
    told = subprocess.run(
        ["sha256sum", *paths], capture_output=True, text=True, check=True
    ).stdout.split()
    assert told[::2] == [jar.sha256 for jar in jars]
