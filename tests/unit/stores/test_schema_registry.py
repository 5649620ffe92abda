"""Content by schemas of a registry, which is a real HTTP server; fastavro and protobuf write it."""

import base64
import io
import json
import socket
import threading
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from eoctl.stores.schema_registry import SchemaRegistry, registry_of
from eoctl.stores.serdes import avro_decoder, message_indexes, protobuf_decoder
from recovery.errors import UsageError
from tests.registry import Schemas, framed, registry

MONEY = {
    "type": "record",
    "name": "Money",
    "fields": [{"name": "cents", "type": "long"}, {"name": "exact", "type": "bytes"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "total", "type": "Money"}],
}


def avro_bytes(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    whole = json.loads(json.dumps(ORDER))
    whole["fields"][1]["type"] = MONEY
    fastavro.schemaless_writer(out, fastavro.parse_schema(whole), value)
    return out.getvalue()


def file_of(name: str, package: str = "shop") -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")


def protobuf_files() -> tuple[
    descriptor_pb2.FileDescriptorProto, descriptor_pb2.FileDescriptorProto
]:
    """Order with an inner Line; Line has a Money of another file and a time of Protobuf's own."""
    money = file_of("money.proto")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    order = file_of("order.proto")
    order.dependency.extend(["money.proto", "google/protobuf/timestamp.proto"])
    order.message_type.add(name="First").field.add(name="x", number=1, type=9, label=1)
    outer = order.message_type.add(name="Order")
    line = outer.nested_type.add(name="Line")
    line.field.add(name="price", number=1, type=11, type_name=".shop.Money", label=1)
    stamp = ".google.protobuf.Timestamp"
    line.field.add(name="at", number=2, type=11, type_name=stamp, label=1)
    return money, order


def in_registry(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


REFERENCES = [{"name": "Money", "subject": "money/value", "version": 3}]
PROTO_REFERENCES = [{"name": "money.proto", "subject": "money", "version": 1}]
FIRST, SECOND = protobuf_files()
SCHEMAS: Schemas = {
    "/schemas/ids/1": {"schema": json.dumps(ORDER), "references": REFERENCES},
    "/subjects/money%2Fvalue/versions/3": {"schema": json.dumps(MONEY)},
    "/schemas/ids/2": {"schema": "{}", "schemaType": "JSON"},
    "/schemas/ids/3": {
        "schema": "syntax = ...",
        "schemaType": "PROTOBUF",
        "references": PROTO_REFERENCES,
    },
    "/schemas/ids/3?format=serialized": {
        "schema": in_registry(SECOND),
        "schemaType": "PROTOBUF",
        "references": PROTO_REFERENCES,
    },
    "/subjects/money/versions/1?format=serialized": {
        "schema": in_registry(FIRST),
        "schemaType": "PROTOBUF",
    },
    "/schemas/ids/4": {"schema": "not json"},
    "/schemas/ids/5": {"schema": "syntax", "schemaType": "PROTOBUF"},
    "/schemas/ids/5?format=serialized": {"schema": "syntax = ", "schemaType": "PROTOBUF"},
    "/schemas/ids/6": {"schema": "x", "schemaType": "THRIFT"},
    "/schemas/ids/7": {"strange": 1},
    "/schemas/ids/8": {
        "schema": '"Again"',
        "references": [{"name": "Again", "subject": "again", "version": 1}],
    },
    "/subjects/again/versions/1": {
        "schema": '"Again"',
        "references": [{"name": "Again", "subject": "again", "version": 1}],
    },
}


def made(url: str, **more: str) -> SchemaRegistry:
    found = registry_of({"schema.registry.url": url, **more})
    assert found is not None
    return found


def test_avro_with_a_type_of_another_schema() -> None:
    value = {"id": "a-1", "total": {"cents": -17, "exact": b"\xff"}}
    with registry(SCHEMAS) as (url, asked):
        reader = made(url)
        for _ in range(3):
            content, kind = reader.decode(framed(1, avro_bytes(value)))
        assert kind == "avro"
        assert content == {"id": "a-1", "total": {"cents": -17, "exact": "/w=="}}
        assert sorted(asked) == sorted(set(asked)), "asked once"


def test_json_by_a_schema() -> None:
    with registry(SCHEMAS) as (url, _):
        assert made(url).decode(framed(2, b'{"a": 1}')) == ({"a": 1}, "json")


def test_protobuf_of_an_inner_message_with_other_files() -> None:
    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    from google.protobuf import timestamp_pb2

    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    for file in (stamp, FIRST, SECOND):
        pool.Add(file)
    line = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order.Line"))()
    line.price.cents = 250
    line.at.FromMilliseconds(1_700_000_000_000)
    first = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.First"))(x="y")
    with registry(SCHEMAS) as (url, _):
        reader = made(url)
        # the path 1, 0 as zigzag varints, after their number; 0 alone stands for the first message
        inner = framed(3, b"\x04\x02\x00" + line.SerializeToString())
        assert reader.decode(inner) == (
            {"price": {"cents": "250"}, "at": "2023-11-14T22:13:20Z"},
            "protobuf",
        )
        assert reader.decode(framed(3, b"\x00" + first.SerializeToString()))[0] == {"x": "y"}
        for wrong in (b"\x02\x0c", b"\x02\x01", b"\x04\x02", b"\x00\xff\xff\xff"):
            with pytest.raises(ValueError, match=r"schema 3|message's indexes"):
                reader.decode(framed(3, wrong))


@pytest.mark.parametrize(
    ("number", "content", "why"),
    [
        (1, b"\xff", "schema 1: not of that schema"),
        (1, avro_bytes({"id": "", "total": {"cents": 0, "exact": b""}}) + b"x", "left over"),
        (2, b"{", "schema 2: "),
        (4, b"", "schema 4 cannot be used"),
        (5, b"\x00", "gives it only as text"),
        (6, b"", "of the kind THRIFT"),
        (7, b"", "answer holds no schema"),
        (8, b"", "its references do not end"),
        (99, b"", "has no schemas/ids/99"),
    ],
)
def test_what_cannot_be_decoded_says_why(number: int, content: bytes, why: str) -> None:
    with registry(SCHEMAS) as (url, _), pytest.raises(ValueError, match=why):
        made(url).decode(framed(number, content))


def test_a_login_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY", "reader:hunter2")
    with registry(SCHEMAS, "reader:hunter2") as (url, _):
        for name in ("basic.auth.user.info", "schema.registry.basic.auth.user.info"):
            assert made(url, **{name: "env:REGISTRY"}).decode(framed(2, b"1"))[0] == 1
        for more in ({}, {"schema.registry.basic.auth.user.info": "reader:hunter3"}):
            with pytest.raises(ValueError, match="answered HTTP 401") as failed:
                made(url, **more).decode(framed(2, b"1"))
            assert "hunter" not in str(failed.value)


def test_one_that_is_silent_is_asked_once() -> None:
    """It takes the connection and closes it: how often is counted."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        taken: list[socket.socket] = []

        def take() -> None:
            with suppress(TimeoutError):
                while True:
                    taken.append(server.accept()[0])
                    taken[-1].close()

        thread = threading.Thread(target=take)
        thread.start()
        reader = made(f"http://127.0.0.1:{server.getsockname()[1]}")
        for number in (1, 2, 3):
            with pytest.raises(ValueError, match="did not answer"):
                reader.decode(framed(number, b""))
        thread.join()
    assert len(taken) == 1


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a:1", "registry:8081", "http://", "http://a:0"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="http://HOST:PORT"):
        made(url)


def test_a_login_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match=r"basic\.auth\.user\.info") as failed:
        made("http://u:hunter2@registry:8081")
    assert "hunter2" not in failed.value.sentence


def test_none_is_named() -> None:
    assert registry_of({}) is None


def test_indexes_without_end_cost_no_time() -> None:
    """A hostile value: a number of a megabyte, and a number of indexes that nobody has."""
    head = b"\0\0\0\0\1"
    for rest in (b"\1" + b"\xff" * 1_000_000, b"\xfe\xff\xff\xff\x0f" + b"\0" * 1000):
        with pytest.raises(ValueError, match="index"):
            message_indexes(head + rest)


def test_an_any_of_an_unknown_type_is_not_decoded() -> None:
    from google.protobuf import any_pb2, descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto.FromString(any_pb2.DESCRIPTOR.serialized_pb)
    decode = protobuf_decoder([file], "google.protobuf.Any")
    content = any_pb2.Any(type_url="type.googleapis.com/x.Y", value=b"1").SerializeToString()
    with pytest.raises(ValueError, match="not of that message"):
        decode(content)


@pytest.mark.parametrize(
    "schemas",
    [
        [{"type": "record", "name": "a.N", "fields": [{"name": "n", "type": ["null", "N"]}]}],
        [
            {
                "type": "record",
                "name": "Tree",
                "fields": [
                    {
                        "name": "children",
                        "type": {
                            "type": "array",
                            "items": {
                                "type": "record",
                                "name": "Child",
                                "fields": [
                                    {"name": "of", "type": {"type": "map", "values": "Tree"}}
                                ],
                            },
                        },
                    }
                ],
            }
        ],
    ],
)
def test_a_type_that_contains_itself_is_decoded_up_to_a_length(schemas: list[Any]) -> None:
    """Thousands of levels end the process in fastavro's C code: each takes at least a byte."""
    decode = avro_decoder(schemas, "x", most_nested=1000)
    assert isinstance(decode(b"\0"), dict)
    with pytest.raises(ValueError, match="contains itself"):
        decode(b"\2" * 5000 + b"\0")


def test_a_type_used_twice_does_not_contain_itself() -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "string"}]}
    line = {
        "type": "record",
        "name": "L",
        "fields": [{"name": "a", "type": "P"}, {"name": "b", "type": "P"}],
    }
    text = b"\xd0\x0f" + b"t" * 1000  # zigzag 2000: a string of 1,000 bytes
    found = avro_decoder([point, line], "x", most_nested=1000)(text * 2)
    assert found == {"a": {"x": "t" * 1000}, "b": {"x": "t" * 1000}}
