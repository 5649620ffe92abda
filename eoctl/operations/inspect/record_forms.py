"""Decode keys, values and headers for people: text, JSON, Avro, Protobuf, or else hexadecimal."""

import base64
import json
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from eoctl.render.sanitise import readable
from eoctl.stores import serdes
from eoctl.stores.schema_registry import URL, SchemaRegistry
from recovery.errors import UsageError
from recovery.formats import consumer_offsets
from recovery.formats.consumer_offsets import CONSUMER_OFFSETS
from recovery.formats.reader import CorruptError
from recovery.formats.records import Record, replaced
from recovery.inspect.cluster_rows import HeaderRow, RecordFormat

Format = Literal["auto", "text", "json", "avro", "protobuf", "hex"]
FORMATS: tuple[Format, ...] = ("auto", "text", "json", "avro", "protobuf", "hex")
_BINARY = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1a\\x1c-\\x1f\\x7f]")
"""Characters that no text holds. ESC is not among them: it is shown escaped."""


class Form(NamedTuple):
    """Content as people read it. problem: why it is shown as hexadecimal."""

    content: object
    format: RecordFormat | None
    problem: str | None = None


class Forms:
    """Decodes as requested. auto: by the schema registry's framing, else as JSON or text.

    Raises UsageError if the format needs a registry and none is named.
    """

    def __init__(self, format_: Format, registry: SchemaRegistry | None) -> None:
        self._format, self._registry = format_, registry
        if format_ in ("avro", "protobuf") and registry is None:
            raise UsageError(
                "needs a schema registry, and none is named",
                where=f"--format {format_}",
                remedy=f"set {URL} among the context's properties, or give -X {URL}=http://...",
            )

    def of(self, content: bytes | None) -> Form:
        """Decode one key or value. What cannot be decoded is shown as hexadecimal, with the reason.

        May ask the registry, so call it in a thread.
        """
        if content is None:
            return Form(None, None)
        if self._format == "hex":
            return _hex(content)
        decode: Callable[[bytes], Form] = {
            "auto": self._guessed,
            "text": _text,
            "json": _json,
        }.get(self._format, self._framed)
        try:
            return decode(content)
        except (ValueError, RecursionError) as error:
            return _hex(content, _reason(error))

    def _guessed(self, content: bytes) -> Form:
        if serdes.is_framed(content):
            if self._registry is not None:
                return self._framed(content)
            number = serdes.schema_number(content)
            return _hex(
                content, f"it looks like schema {number} of a schema registry; name it by {URL}"
            )
        if content[:1] in (b"{", b"["):
            try:
                return _json(content)
            except (ValueError, RecursionError):
                pass  # text that only begins like JSON
        form = _text(content)
        if _BINARY.search(str(form.content)):
            return _hex(content)
        return form

    def _framed(self, content: bytes) -> Form:
        if not serdes.is_framed(content):
            raise ValueError("not framed as the schema registry's clients do")
        assert self._registry is not None
        value, kind = self._registry.decode(content)
        if self._format in ("avro", "protobuf") and kind != self._format:
            raise ValueError(f"its schema is of the kind {kind}")
        return Form(_finite(value), kind)


def _hex(content: bytes, problem: str | None = None) -> Form:
    return Form(f"0x{content.hex()}", "hex", problem)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 from byte {error.start} on"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _text(content: bytes) -> Form:
    return Form(content.decode("utf-8"), "text")


def _json(content: bytes) -> Form:
    return Form(_finite(serdes.json_value(content)), "json")


def _finite(value: object) -> object:
    """Return the value without what JSON cannot hold: 1e999 becomes the text inf."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return json.loads(json.dumps(value), parse_constant=str)
    return value


def own_topic(topic: str, record: Record) -> tuple[Form, Form] | None:
    """Return key and value of an offset commit in `__consumer_offsets`; None for other records."""
    if topic != CONSUMER_OFFSETS or record.key is None:
        return None
    try:
        key = consumer_offsets.decode_key(record.key)
        if not isinstance(key, consumer_offsets.OffsetKey):
            return None
        value = consumer_offsets.decode_value(record.value)
    except CorruptError:
        return None
    if value is None:
        offset = Form(None, None)
    elif isinstance(value, consumer_offsets.OffsetValue):
        offset = Form({"offset": value.offset, "metadata": value.metadata}, "json")
    else:
        return None
    return Form(key.as_dict(), "json"), offset


def header_rows(record: Record) -> list[HeaderRow]:
    """Return a record's headers."""
    return [
        HeaderRow(
            name=replaced(name),
            value=in_base64(value),
            value_decoded=None if value is None else readable(value),
        )
        for name, value in record.headers
    ]


def in_base64(content: bytes | None) -> str | None:
    """Return bytes as JSON has them."""
    return None if content is None else base64.b64encode(content).decode("ascii")
