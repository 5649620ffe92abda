"""Object storage behind a proxy that fails as networks do: moto's server, which is a fake of S3."""

import hashlib
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eoctl.stores import object_storage
from eoctl.stores.storage import LocalFolder, Storage
from eoctl.stores.storage_address import storage_and_name, storage_at
from recovery.errors import EoctlError, RefusedError, UnreachableError, UsageError
from tests.object_store import CODES, Fault, Faulty, environment, make_bucket, s3_server
from tests.share import kills

SECRET = "s3cret-of-tests"


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        make_bucket(port, "bucket")
        yield port


@pytest.fixture
def through(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[str], Fault]], Faulty]]:
    """Sets the environment to a proxy with faults, and makes them."""
    proxies: list[Faulty] = []

    def through(fault: Callable[[str], Fault]) -> Faulty:
        proxy = Faulty(server, fault)
        proxies.append(proxy)
        for name, value in environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        return proxy

    through(lambda line: None)
    yield through
    for proxy in proxies:
        proxy.close()


Through = Callable[[Callable[[str], Fault]], Faulty]


def new(scheme: str = "s3") -> Storage:
    return storage_at(f"{scheme}://bucket/of tests/{uuid.uuid4().hex}")


def once(fault: str, word: str) -> Callable[[str], Fault]:
    """The first request whose line has the word meets the fault."""
    left = [fault]
    return lambda line: left.pop() if left and word in line else None


@pytest.mark.parametrize("kind", ["local", "s3", "s3a"])
def test_one_interface(through: Through, tmp_path: Path, kind: str) -> None:
    storage = LocalFolder(tmp_path / "new") if kind == "local" else new(kind)
    assert storage.top() == storage.names("data") == []
    with storage.held():
        storage.prove()
        storage.put("request.json", b"one")
        storage.put("request.json", b"other")
    assert storage.get("request.json") == b"other"
    assert storage.put_new("manifest.json", b"mine")
    assert not storage.put_new("manifest.json", b"theirs")
    assert storage.get("manifest.json") == b"mine"
    name = "data/a topic é=%20/0.parquet"
    with storage.writing(name):
        file = storage.new_file(name)
        for part in (b"12", b"345"):
            file.sink.write(part)
        if kind != "local":
            assert storage.names("data") == []  # not there before it is whole
        assert file.finish() == (5, hashlib.sha256(b"12345").hexdigest())
    assert storage.names("data") == [name]
    assert storage.sizes("data") == {name: 5}
    assert (storage.size(name), storage.sha256(name, 5)) == (
        5,
        hashlib.sha256(b"12345").hexdigest(),
    )
    assert storage.sha256(name, 4) == storage.sha256(name, 6) == storage.sha256(name, 0) == ""
    assert storage.get_range(name, 9, 1) == b""
    storage.put("data/empty", b"")
    assert storage.sha256("data/empty", 5) == ""
    assert storage.sha256("data/empty", 0) == hashlib.sha256().hexdigest()
    storage.delete(["data/empty"])
    with pytest.raises(FileNotFoundError):
        storage.sha256("data/empty", 0)
    opened = storage.opened(name)
    assert (opened.size(), opened.seek(1), opened.read(2), opened.read()) == (5, 1, b"23", b"45")
    storage.put("data.json", b"beside")
    assert storage.top() == ["data", "data.json", "manifest.json", "request.json"]
    assert storage_at(storage.address).get("request.json") == b"other"
    storage.delete(["gone", "request.json"])
    for folder in ("data", "gone"):
        storage.delete_folder(folder)
    assert storage.top() == ["data.json", "manifest.json"]
    reads = (storage.size, storage.get, lambda name: storage.sha256(name, 5), storage.opened)
    for read in reads:
        with pytest.raises(FileNotFoundError):
            read(name)


@pytest.mark.parametrize("seed", range(kills(4)))
def test_faults_change_nothing(
    through: Through, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A third of all requests meets a fault: files in parts, creates, reads, deletes."""
    chance = random.Random(seed)
    proxy = through(lambda line: chance.choice(["503", "cut", "lost"] + [None] * 6))
    monkeypatch.setattr(object_storage, "PART_BYTES", 5 << 20)
    storage, content = new(), random.Random(seed).randbytes(11 << 20)
    with storage.writing("data/f"):
        file = storage.new_file("data/f")
        for low in range(0, len(content), 1 << 20):
            file.sink.write(content[low : low + (1 << 20)])
        assert file.finish() == (len(content), hashlib.sha256(content).hexdigest())
    assert storage.sha256("data/f", len(content)) == hashlib.sha256(content).hexdigest()
    for number in range(10):
        assert storage.put_new(f"n/{number}", b"%d by me" % number)
        assert not storage.put_new(f"n/{number}", b"by another")
    assert [storage.get(f"n/{n}") for n in range(10)] == [b"%d by me" % n for n in range(10)]
    storage.delete_folder("n")
    assert storage.top() == ["data"]
    assert {fault for fault, _ in proxy.faults} == {"503", "cut", "lost"}


@pytest.mark.parametrize("fault", ["503", "cut", "lost"])
def test_who_created_it_is_told_by_the_content(through: Through, fault: str) -> None:
    storage = new()
    for mine, expected in ((b"run 1", True), (b"run 2", False)):
        proxy = through(once(fault, "PUT "))
        assert storage_at(storage.address).put_new("manifest.json", mine) is expected
        assert len(proxy.faults) == 1
    assert storage.get("manifest.json") == b"run 1"


def test_a_conflict_is_waited_for_and_is_nobody_elses_object(
    through: Through, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 answers 409 while another create of that name is under way, which may come to nothing."""
    monkeypatch.setattr(object_storage, "UNKNOWN_WAITS", (0.01, 0.01))
    storage = new()
    through(once("409", "PUT "))
    assert storage_at(storage.address).put_new("manifest.json", b"mine")
    through(lambda line: "409" if "PUT " in line else None)
    with pytest.raises(UnreachableError, match="refuses to create an object, and shows none"):
        storage_at(storage.address).put_new("other.json", b"mine")


RACE = """
import os, sys, time
from eoctl.stores.storage_address import storage_at
storage, me = storage_at(sys.argv[1]), sys.argv[2].encode()
storage.put(f"ready-{sys.argv[2]}", b"")
while len([n for n in storage.top() if n.startswith("ready-")]) < 2: time.sleep(0.01)
for n in range(30): print(int(storage.put_new(f"manifest-{n}.json", me)))
"""


def test_of_two_processes_one_creates_it(through: Through) -> None:
    storage = new()
    words = [sys.executable, "-c", RACE, storage.address]
    both = [
        subprocess.Popen([*words, name], stdout=subprocess.PIPE, text=True, env=os.environ)
        for name in ("a", "b")
    ]
    said = [process.communicate(timeout=60)[0].split() for process in both]
    assert [len(one) for one in said] == [30, 30]
    for number, pair in enumerate(zip(*said, strict=True)):
        assert sorted(pair) == ["0", "1"]
        assert storage.get(f"manifest-{number}.json") == (b"a" if pair[0] == "1" else b"b")


def test_a_service_that_writes_over_it_is_refused(through: Through) -> None:
    through(lambda line: "overwrite")
    with pytest.raises(RefusedError, match="writes over an object that may only be created"):
        new().prove()


def tried(address: str = "s3://bucket/x") -> Iterator[EoctlError]:
    """What each way of using a storage raises."""

    def write(storage: Storage) -> None:
        with storage.writing("f"):
            file = storage.new_file("f")
            file.sink.write(b"1")
            file.finish()

    uses: list[Callable[[Storage], object]] = [
        lambda s: s.top(),
        lambda s: s.put("a", b""),
        lambda s: s.put_new("a", b""),
        lambda s: s.names("a"),
        write,
    ]
    for use in uses:
        with pytest.raises(EoctlError) as raised:
            use(storage_at(address))
        assert SECRET not in raised.value.sentence
        assert "\n" not in raised.value.sentence
        yield raised.value


def test_what_is_wrong_is_one_sentence(through: Through, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_storage, "RETRIES", 1)
    monkeypatch.setattr(object_storage, "UNKNOWN_WAITS", (0.01,))
    for error in tried("s3://nobody/x"):
        assert error.sentence.startswith("s3://nobody: there is no such bucket;")
        assert isinstance(error, UsageError)
    for fault, words in (
        ("403", "refuses these credentials, or they may not do this (403 AccessDenied)"),
        ("503", "did not do what was asked (status 503 SlowDown)"),
        ("cut", "did not do what was asked (no answer)"),
    ):
        assert fault in (*CODES, "cut")
        through(lambda line, fault=fault: fault)  # type: ignore[misc]
        for error in tried():
            assert words in error.sentence
            assert isinstance(error, UnreachableError)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    assert all("set AWS_ALLOW_HTTP=true" in error.sentence for error in tried())
    monkeypatch.setenv("AWS_ALLOW_HTTP", "perhaps")
    assert all("a setting of it in the environment" in error.sentence for error in tried())
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name)
        for error in tried():
            assert "no credentials for this object storage were found" in error.sentence
            assert isinstance(error, UnreachableError)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hdfs://nn:8020/x", "hdfs:// is not read or written here"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss:// is not read or written here"),
        ("file:///x", "file:// is not read or written here"),
        ("s3://", "names no bucket"),
        (f"s3://key:{SECRET}@bucket/x", "names no bucket and no more than"),
        (f"s3://bucket/x?key={SECRET}", "names no bucket and no more than"),
        ("s3://bucket/x/../y", "a part of the path is empty, . or .."),
    ],
)
def test_other_addresses_are_refused(address: str, words: str) -> None:
    for given in (address, Path(address) if address[-1] != "/" else address):
        with pytest.raises(UsageError) as raised:
            storage_at(given)
        assert words in raised.value.sentence
        assert SECRET not in raised.value.sentence


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "eoctl.stores.storage_address.installed", lambda package: package != "obstore"
    )
    with pytest.raises(UsageError, match=r"object storage needs .* pip install 'eoctl\[data\]'"):
        storage_at("s3://bucket/x")
    assert storage_at("x").address == str(Path("x").absolute())


def test_a_manifest_is_named_by_itself_or_by_its_place(tmp_path: Path) -> None:
    assert storage_and_name("s3://bucket/x", "manifest.json")[1] == "manifest.json"
    storage, name = storage_and_name("s3://bucket/x/other.json", "manifest.json")
    assert (storage.address, name) == ("s3://bucket/x", "other.json")
    storage, name = storage_and_name(Path("s3://bucket.json"), "manifest.json")
    assert (storage.address, name) == ("s3://bucket.json", "manifest.json")
    storage, name = storage_and_name(tmp_path / "other.json", "manifest.json")
    assert (storage.address, name) == (str(tmp_path), "other.json")
