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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.errors import UsageError
from recovery.values import Value

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

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


class Serde(Value):
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
            "json": Serde(json_value, lambda t: t.encode("utf-8")),
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


def json_value(content: bytes) -> Any:
    """Return JSON's value. Raises ValueError, also for NaN and infinities."""

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
        if not is_framed(content):
            raise ValueError("not framed as the schema registry's clients do")
        return decode(content[message_indexes(content)[1] if indexes else FRAME_BYTES :])

    return decode_framed


FRAME_BYTES = 5
MOST_INDEXES = 32  # of a message within its file: how deep messages are declared in each other
"""Of the framing: a zero byte and the schema's number, an int32."""


def is_framed(content: bytes) -> bool:
    """Return True if the bytes begin as the schema registry's clients write them."""
    return len(content) >= FRAME_BYTES and content[0] == 0


def schema_number(content: bytes) -> int:
    """Return the number of the schema that framed content names."""
    return int.from_bytes(content[1:FRAME_BYTES])


def message_indexes(content: bytes) -> tuple[list[int], int]:
    """Return which message of its file framed Protobuf content is, and where it begins.

    A path into the file's messages and the messages in them; [] stands for the first one.
    Raises ValueError.
    """
    count, at = _varint(content, FRAME_BYTES)
    if not 0 <= count <= MOST_INDEXES:
        raise ValueError(f"{count} message indexes are too many")
    indexes = []
    for _ in range(count):
        index, at = _varint(content, at)
        indexes.append(index)
    return indexes, at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content):
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        if shift > 63:
            raise ValueError("a number among the message's indexes is too long")
    raise ValueError("the bytes end within the message's indexes")


def _avro(file: str, where: str) -> Decoder:
    try:
        schema = json.loads(_read(file, where))
        return avro_decoder([schema], where)
    except ValueError as error:
        raise UsageError(f"{file} is not an Avro schema: {error}", where=where) from None


def avro_decoder(schemas: Sequence[Any], where: str, *, most_nested: int | None = None) -> Decoder:
    """Return the decoder of the last of these Avro schemas; the others are types that it names.

    most_nested: bytes of a value whose type contains itself, above which it is not decoded: each
    level takes a byte and more, and fastavro ends the process where there are too many. None = any.
    Raises ValueError if one is no schema, UsageError without fastavro.
    """
    try:
        import fastavro
    except ImportError:
        raise _missing("fastavro", where) from None
    named: dict[str, Any] = {}
    try:
        for one in schemas:
            schema = fastavro.parse_schema(one, named_schemas=named)
    except (fastavro.schema.SchemaParseException, KeyError, TypeError) as error:
        raise ValueError(str(error)) from None
    most = most_nested if _contain_themselves(named) else None

    def decode(content: bytes) -> Any:
        if most is not None and len(content) > most:
            raise ValueError(f"its type contains itself, and it has more than {most} bytes")
        stream = io.BytesIO(content)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except (EOFError, IndexError, TypeError, OverflowError, MemoryError) as error:
            raise ValueError(f"not of that schema: {error}") from None
        if stream.tell() != len(content):
            raise ValueError("bytes are left over after what the schema describes")
        return json.loads(json.dumps(value, default=_plain))

    return decode


def _contain_themselves(named: Mapping[str, Any]) -> bool:
    """Return True if one of these Avro types contains itself, directly or through others."""

    def within(schema: Any) -> Iterator[str]:
        if isinstance(schema, str):
            yield schema
        elif isinstance(schema, list):
            for one in schema:
                yield from within(one)
        elif isinstance(schema, dict):
            if schema.get("name") in named:
                yield schema["name"]
            else:
                yield from within([schema.get(of) for of in ("type", "items", "values")])

    fields = {
        name: {n for f in schema.get("fields", ()) for n in within(f["type"]) if n in named}
        for name, schema in named.items()
    }
    try:
        TopologicalSorter(fields).prepare()
    except CycleError:
        return True
    return False


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _protobuf(words: str, where: str) -> Decoder:
    file, _, message = words.rpartition(":")
    if not file or not message:
        raise UsageError("name the file and the message", where=where, remedy="FILE:MESSAGE")
    try:
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError
    except ImportError:
        raise _missing("protobuf", where) from None
    try:
        described = descriptor_pb2.FileDescriptorSet.FromString(_read(file, where))
        return protobuf_decoder(described.file, message)
    except KeyError:
        raise UsageError(f"{file} has no message {message}", where=where) from None
    except (DecodeError, TypeError) as error:
        raise UsageError(f"{file} is not a descriptor set: {error}", where=where) from None


def protobuf_decoder(files: "Iterable[FileDescriptorProto]", message: str) -> Decoder:
    """Return the decoder of a message. files: those that others import come first.

    Raises KeyError for an unknown message, TypeError for files that do not belong together.
    """
    from google.protobuf import descriptor_pool, json_format, message_factory
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    for one in files:
        pool.Add(one)
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))

    def decode(content: bytes) -> Any:
        try:
            return json_format.MessageToDict(message_class.FromString(content))
        except (DecodeError, TypeError, json_format.Error) as error:  # TypeError: an Any of another
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
