"""Keys and values as people read them: every format, hostile bytes, and why something is hex."""

import json

import pytest

from eoctl.operations.inspect.record_forms import Forms, header_rows, own_topic
from recovery.errors import UsageError
from recovery.formats.records import Record

BAD = b"caf\xe9"
DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("format_", "content", "shown", "kind", "problem"),
    [
        ("auto", b"plain", "plain", "text", None),
        ("auto", b"", "", "text", None),
        ("auto", b'{"a": [1, null]}', {"a": [1, None]}, "json", None),
        ("auto", b"[1]", [1], "json", None),
        ("auto", b"17", "17", "text", None),
        ("auto", b"{not json", "{not json", "text", None),
        ("auto", DEEP, DEEP.decode(), "text", None),
        ("auto", b"\x1b[31mred\n", "\x1b[31mred\n", "text", None),
        ("auto", BAD, "0x636166e9", "hex", "not UTF-8 from byte 3 on"),
        ("auto", b"\x00\x00\x01", "0x000001", "hex", None),
        ("auto", b"a\x00b", "0x610062", "hex", None),
        (
            "auto",
            b"\x00\x00\x00\x00\x07x",
            "0x000000000778",
            "hex",
            "it looks like schema 7 of a schema registry; name it by schema.registry.url",
        ),
        ("text", b"a\x00b", "a\x00b", "text", None),
        ("text", BAD, "0x636166e9", "hex", "not UTF-8 from byte 3 on"),
        ("json", b"17", 17, "json", None),
        ("json", b"1e999", "Infinity", "json", None),
        ("json", DEEP, f"0x{DEEP.hex()}", "hex", "nested too deeply"),
        ("hex", b"plain", "0x706c61696e", "hex", None),
    ],
)
def test_content(
    format_: str, content: bytes, shown: object, kind: str, problem: str | None
) -> None:
    form = Forms(format_, None).of(content)  # type: ignore[arg-type]
    assert (form.content, form.format, form.problem) == (shown, kind, problem)
    json.dumps(form.content, allow_nan=False)


def test_json_that_is_none_is_told() -> None:
    for content in (b"{", b"NaN", b'"' + BAD + b'"', b"9" * 5000):
        form = Forms("json", None).of(content)
        assert form.content == f"0x{content.hex()}"
        assert form.problem


def test_nothing_is_nothing() -> None:
    form = Forms("json", None).of(None)
    assert (form.content, form.format, form.problem) == (None, None, None)


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_a_registry_must_be_named(format_: str) -> None:
    with pytest.raises(UsageError, match=r"--format .*needs a schema registry.*-X schema\.reg"):
        Forms(format_, None)  # type: ignore[arg-type]


def test_headers() -> None:
    record = Record(1, None, None, None, (("a", b"x"), ("b\udcff", b"\x1b"), ("c", None)))
    assert [(h.name, h.value, h.value_decoded) for h in header_rows(record)] == [
        ("a", "eA==", "x"),
        ("b\ufffd", "Gw==", "0x1b"),
        ("c", None, None),
    ]


def test_a_commit_of_offsets() -> None:
    """The key of version 1 and the value of version 3, as Kafka's OffsetCommitValue.json says."""
    key = b"\x00\x01" + b"\x00\x01g" + b"\x00\x02in" + b"\x00\x00\x00\x02"
    value = b"\x00\x03" + (50).to_bytes(8) + (7).to_bytes(4) + b"\x00\x01m" + (9).to_bytes(8)
    found = own_topic("__consumer_offsets", Record(1, None, key, value, ()))
    assert found is not None
    assert found[0].content == {"group": "g", "topic": "in", "partition": 2}
    assert found[1].content == {"offset": 50, "metadata": "m"}
    tombstone = own_topic("__consumer_offsets", Record(1, None, key, None, ()))
    assert tombstone is not None
    assert tombstone[1].content is None
    for other in (b"\x00\x02\x00\x01g", key[:5], b""):
        assert own_topic("__consumer_offsets", Record(1, None, other, value, ())) is None
    assert own_topic("orders", Record(1, None, key, value, ())) is None
