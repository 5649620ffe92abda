"""Small batches that expand: refused at a bound, in bounded memory, for every codec."""

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

from recovery.formats.batches import HEADER_SIZE, header_at
from recovery.formats.columns import decode
from recovery.formats.reader import CorruptError
from recovery.formats.records import records
from tests.unit.formats_build import Item, batch, seal

MIB = 1 << 20
XERIAL = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2


def snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True))


def framed(block: bytes) -> bytes:
    return len(block).to_bytes(4, "big") + block


def stream(codec: str) -> Callable[[bytes, int], bytes]:
    """Of a repeated MiB: as one frame, never whole in memory."""

    def compress(data: bytes, times: int) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as file:
            for _ in range(times):
                file.write(data)
        return bytes(sink.getvalue())

    return compress


BOMBS: dict[str, tuple[int, Callable[[bytes, int], bytes]]] = {
    "gzip": (1, lambda data, times: gzip.compress(data) * times),
    "snappy": (2, lambda data, times: snappy(data * times)),
    "snappy in blocks": (2, lambda data, times: XERIAL + framed(snappy(data)) * times),
    "lz4": (3, stream("lz4")),
    "zstd": (4, stream("zstd")),
}


def compressed(codec: int, content: bytes, count: int) -> bytes:
    """A batch at offset 10 that claims `count` records."""
    out = bytearray(batch(10, [Item(0)])[:HEADER_SIZE]) + content
    out[22] |= codec
    out[23:27] = (count - 1).to_bytes(4, "big")
    out[57:61] = count.to_bytes(4, "big")
    return seal(out)


def bomb(name: str, mib: int = 300) -> bytes:
    codec, compress = BOMBS[name]
    return compressed(codec, compress(bytes(MIB), mib), 1)


@pytest.mark.parametrize("name", BOMBS)
def test_a_batch_that_expands_too_far_is_refused_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("recovery.formats.records.MOST_EXPANDED", 4 * MIB)
    data = bomb(name, 4)
    with suppress(CorruptError):  # not too large: no records in it, but zeros
        list(records(data, header_at(data, 0)))
    data = bomb(name, 5)
    for read in (lambda: list(decode(data, ())), lambda: list(records(data, header_at(data, 0)))):
        with pytest.raises(CorruptError, match="expands to more than 4 MiB") as refused:
            read()
        assert refused.value.exit_status == 3
        assert "offset 10" in refused.value.sentence
        assert f"a batch of {len(data):,} bytes" in refused.value.sentence


def test_more_records_than_the_bytes_can_hold_are_not_believed() -> None:
    data = compressed(4, pa.Codec("zstd").compress(b"x" * 1000, asbytes=True), 2**31 - 1)
    with pytest.raises(CorruptError, match="2,147,483,647 records in one batch are not opened"):
        list(decode(data, ()))
    data = compressed(4, pa.Codec("zstd").compress(b"x" * 1000, asbytes=True), 2000)
    with pytest.raises(CorruptError, match="offset 10"):
        list(decode(data, ()))


def test_many_records_of_one_batch_come_in_parts() -> None:
    """The same as one by one, the seams included."""
    count = 600_000
    one = bytes([12, 0, 0, 0, 1, 1, 0])  # all of offset delta 0, which must rise

    def record(n: int) -> bytes:
        delta, number = bytearray(), n << 1
        while number >= 0x80:
            delta.append(number & 0x7F | 0x80)
            number >>= 7
        delta.append(number)
        return bytes([(5 + len(delta)) << 1, 0, 0]) + delta + bytes([1, 1, 0])

    codec = pa.Codec("zstd")
    content = b"".join(map(record, range(count)))
    data = compressed(4, codec.compress(content, asbytes=True), count)
    parts = list(decode(data, ()))
    assert len(parts) > 1
    offsets = [offset for part in parts for offset in part.offset.tolist()]
    assert offsets == list(range(10, 10 + count))
    again = record(0) * 2 + content[2 * len(one) :]
    with pytest.raises(CorruptError, match="record 1 has offset delta 0"):
        list(decode(compressed(4, codec.compress(again, asbytes=True), count), ()))


MEASURED = """
import json, resource, sys
import pyarrow as pa
from recovery.errors import EoctlError
from recovery.formats.columns import decode
from tests.unit.kafka import test_expansion as bombs

def read(data):
    try:
        for part in decode(data, ()):
            part.rows()
    except EoctlError as error:
        return error.sentence
    return "opened"

said = {name: read(bombs.bomb(name)) for name in bombs.BOMBS}
# as many records as are opened, of the shortest: all of offset delta 0, which ends it at the last
count = 4 << 20
content = bombs.stream("zstd")(bytes([12, 0, 0, 0, 1, 1, 0]) * (1 << 16), 64)
said["records"] = read(bombs.compressed(4, content, count))
# one record of nearly as many bytes as are opened
value = 126 << 20
def length(n):
    return bytes([n << 1 & 0x7F | 0x80, n >> 6 & 0x7F | 0x80, n >> 13 & 0x7F | 0x80, n >> 20])
sink = pa.BufferOutputStream()
with pa.CompressedOutputStream(sink, "zstd") as file:
    head = bytes([0, 0, 0, 1]) + length(value)
    file.write(length(len(head) + value + 1) + head)
    for _ in range(126):
        file.write(bytes(1 << 20))
    file.write(bytes(1))
said["value"] = read(bombs.compressed(4, bytes(sink.getvalue()), 1))
print(json.dumps([said, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10]))
"""


def test_memory_under_bombs_and_the_largest_that_is_opened() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True
    )
    said, peak = json.loads(done.stdout)
    assert said.pop("value") == "opened"
    assert "record 1 has offset delta 0" in said.pop("records")
    assert all("expands to more than 128 MiB" in sentence for sentence in said.values())
    assert len(said) == len(BOMBS)
    assert peak < 1024, f"{peak} MiB at most"


def test_a_frame_takes_the_memory_of_what_has_come_not_of_what_it_claims() -> None:
    from eoctl.kafka.connection.wire import FIRST_BYTES, MAX_FRAME, _Frames

    frames = _Frames()
    future: asyncio.Future[memoryview] = asyncio.Future(loop=asyncio.new_event_loop())
    frames.pending.append((7, future))
    content = (7).to_bytes(4, "big") + bytes(range(256)) * (9 * MIB // 256)

    def come(data: bytes) -> None:
        while data:
            room = frames.get_buffer(-1)
            size = min(len(room), len(data), 100_000)
            room[:size] = data[:size]
            frames.buffer_updated(size)
            data = data[size:]

    come(MAX_FRAME.to_bytes(4, "big"))
    assert len(frames.get_buffer(-1)) == FIRST_BYTES
    come(content)
    assert len(frames.get_buffer(-1)) <= len(content)
    frames = _Frames()
    frames.pending.append((7, future))
    come(len(content).to_bytes(4, "big") + content)
    assert bytes(future.result()) == content
    future.get_loop().close()


def test_the_bound_is_a_client_property() -> None:
    """It counts while a cluster that has it is open, and only there."""
    from eoctl.kafka.connection.cluster import Cluster
    from eoctl.kafka.connection.failures import Deadline
    from eoctl.kafka.connection.properties import client_settings
    from recovery.errors import UnreachableError, UsageError
    from recovery.formats.records import EXPANDED_PROPERTY, allow_expanded, most_expanded

    servers = {"bootstrap.servers": "127.0.0.1:1"}
    asked = client_settings({**servers, EXPANDED_PROPERTY: "4MiB"})
    assert asked.most_expanded == 4 * MIB
    assert client_settings(servers).most_expanded is None
    data = bomb("zstd", 5)
    forget, more = allow_expanded(4 * MIB), allow_expanded(3 * MIB)
    with pytest.raises(CorruptError, match=f"more than 4 MiB.* set {EXPANDED_PROPERTY} to more"):
        list(decode(data, ()))
    forget()
    more()
    assert most_expanded() == 128 * MIB

    async def unreachable() -> None:
        async with Cluster(asked, Deadline(1)):
            pass

    with pytest.raises(UnreachableError):
        asyncio.run(unreachable())
    assert most_expanded() == 128 * MIB
    for wrong in ({EXPANDED_PROPERTY: "much"}, {"eoctl.batch.bytes": "1"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            client_settings({**servers, **wrong})


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd"])
def test_without_the_extra_data_its_codecs_are_named_not_called_damage(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    data = compressed(number, b"never looked at", 1)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    header = header_at(data, 0)
    with pytest.raises(CorruptError, match=f"{codec}, which the extra 'data' reads") as said:
        list(records(data, header))
    assert said.value.remedy == "pip install 'eoctl[data]'"
