"""Keys and values as people read and type them: string, numbers, JSON, hex, Avro, Protobuf.

Schemas are local files: an Avro schema (.avsc), a Protobuf descriptor set (`protoc
--include_imports --descriptor_set_out=FILE`). With the prefix `confluent-`, the schema registry's
framing (a zero byte, the schema's number) comes first.
"""

import base64
import io
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from recovery.errors import UsageError

NUMBERS = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}
KNOWN = (
    *("string", *NUMBERS, "json", "hex", "base64"),
    *(
        "avro:FILE",
        "protobuf:FILE:MESSAGE",
        "confluent-avro:FILE",
        "confluent-protobuf:FILE:MESSAGE",
    ),
)

Decoder = Callable[[bytes], Any]


class Serde(NamedTuple):
    """decode: raises ValueError for other bytes. encode: None if values cannot be typed."""

    decode: Decoder
    encode: Callable[[str], bytes] | None


def serde(text: str, where: str) -> Serde:
    """Parse a --key-serde or --value-serde. Raises UsageError."""
    kind, _, rest = text.partition(":")
    if not rest:
        if text in NUMBERS:
            return _number(NUMBERS[text])
        simple = {
            "string": Serde(lambda b: b.decode("utf-8"), lambda t: t.encode("utf-8")),
            "json": Serde(_json, lambda t: t.encode("utf-8")),
            "hex": Serde(bytes.hex, bytes.fromhex),
            "base64": Serde(
                lambda b: base64.b64encode(b).decode(),
                lambda t: base64.b64decode(t, validate=True),
            ),
        }
        if text in simple:
            return simple[text]
    else:
        framed = kind.startswith("confluent-")
        if kind.removeprefix("confluent-") == "avro":
            return Serde(_unframed(_avro(rest, where), framed, indexes=False), None)
        if kind.removeprefix("confluent-") == "protobuf":
            return Serde(_unframed(_protobuf(rest, where), framed, indexes=True), None)
    raise UsageError(f"no serde {text!r}", where=where, remedy=f"one of {', '.join(KNOWN)}")


def _json(content: bytes) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(content, parse_constant=refuse)


def _number(form: str) -> Serde:
    def decode(content: bytes) -> Any:
        try:
            number = struct.unpack(form, content)[0]
            return number if math.isfinite(number) else str(number)
        except struct.error as error:
            raise ValueError(str(error)) from None

    def encode(text: str) -> bytes:
        try:
            return struct.pack(form, float(text) if form[1] in "fd" else int(text))
        except (struct.error, OverflowError) as error:
            raise ValueError(str(error)) from None

    return Serde(decode, encode)


def _unframed(decode: Decoder, framed: bool, *, indexes: bool) -> Decoder:
    """Skip the framing: a zero byte, an int32, and for Protobuf the message's indexes."""
    if not framed:
        return decode

    def decode_framed(content: bytes) -> Any:
        if len(content) < 5 or content[0] != 0:
            raise ValueError("not framed as the schema registry's clients do")
        at = 5
        if indexes:
            count, at = _varint(content, at)
            for _ in range(count):
                _, at = _varint(content, at)
        return decode(content[at:])

    return decode_framed


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content):
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("the bytes end within the message's indexes")


def _avro(file: str, where: str) -> Decoder:
    try:
        import fastavro
    except ImportError:
        raise _missing("fastavro", where) from None
    try:
        schema = fastavro.parse_schema(json.loads(_read(file, where)))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise UsageError(f"{file} is not an Avro schema: {error}", where=where) from None

    def decode(content: bytes) -> Any:
        stream = io.BytesIO(content)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except (EOFError, IndexError, TypeError, OverflowError) as error:
            raise ValueError(f"not of that schema: {error}") from None
        if stream.tell() != len(content):
            raise ValueError("bytes are left over after what the schema describes")
        return json.loads(json.dumps(value, default=_plain))

    return decode


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _protobuf(words: str, where: str) -> Decoder:
    file, _, message = words.rpartition(":")
    if not file or not message:
        raise UsageError("name the file and the message", where=where, remedy="FILE:MESSAGE")
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
        from google.protobuf.message import DecodeError
    except ImportError:
        raise _missing("protobuf", where) from None
    try:
        described = descriptor_pb2.FileDescriptorSet.FromString(_read(file, where))
        pool = descriptor_pool.DescriptorPool()
        for one in described.file:
            pool.Add(one)
        message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError:
        raise UsageError(f"{file} has no message {message}", where=where) from None
    except (DecodeError, TypeError) as error:
        raise UsageError(f"{file} is not a descriptor set: {error}", where=where) from None

    def decode(content: bytes) -> Any:
        try:
            return json_format.MessageToDict(message_class.FromString(content))
        except DecodeError as error:
            raise ValueError(f"not of that message: {error}") from None

    return decode


def _read(file: str, where: str) -> bytes:
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", where=where) from None


def _missing(package: str, where: str) -> UsageError:
    return UsageError(
        f"the package {package} is not installed", where=where, remedy="install eoctl[serde]"
    )
