"""Decode what the schema registry's clients wrote: the content names its schema by a number.

Blocking, over HTTP(S); no redirect is followed, since a login goes only to the address that was
given. Source: Confluent's wire format and its REST interface (/schemas/ids/N), which others serve
too, Protobuf as `format=serialized`.
"""

import base64
import http.client
import json
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from eoctl.kafka.connection.credentials import Secret, resolve
from eoctl.kafka.connection.tls import Tls, tls_settings
from eoctl.stores import serdes
from recovery.errors import UsageError
from recovery.inspect.cluster_rows import RecordFormat
from recovery.values import Value

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

URL = "schema.registry.url"
LOGIN = "basic.auth.user.info"
_OWN = "schema.registry."
SECONDS = 5.0
MOST_BYTES = 4 << 20
MOST_NESTED = 1000  # bytes of a value whose Avro type contains itself
MOST_DEEP = 16  # schemas that name schemas
_KINDS: Mapping[str, RecordFormat] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json"}


class Reference(Value):
    """A schema that another one names. name: of an Avro type, or a Protobuf file."""

    name: str
    subject: str
    version: int


class Schema(Value):
    """A schema as the registry has it. kind: AVRO, PROTOBUF, JSON."""

    kind: str
    text: str
    references: tuple[Reference, ...]


class SchemaRegistry:
    """One registry. Each schema is asked for once, and one that does not answer only once."""

    def __init__(self, url: str, login: Secret | None, tls: Tls | None) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
        self._where = f"the schema registry {url}"
        self._login, self._tls = login, tls
        self._silent: str | None = None
        self._schemas: dict[str, Schema | str] = {}
        self._decoders = lru_cache(maxsize=256)(self._decoder)

    def decode(self, content: bytes) -> tuple[object, RecordFormat]:
        """Return framed content as its schema says. Raises ValueError, which says why not."""
        number = serdes.schema_number(content)
        schema = self._schema(f"/schemas/ids/{number}")
        if schema.kind not in _KINDS:
            raise ValueError(f"schema {number} is of the kind {schema.kind}")
        indexes: list[int] = []
        at = serdes.FRAME_BYTES
        if schema.kind == "PROTOBUF":
            indexes, at = serdes.message_indexes(content)
        decode = self._decoders(number, tuple(indexes))
        try:
            return decode(content[at:]), _KINDS[schema.kind]
        except ValueError as error:
            raise ValueError(f"schema {number}: {error}") from None

    def _decoder(self, number: int, indexes: tuple[int, ...]) -> serdes.Decoder:
        path = f"/schemas/ids/{number}"
        kind = self._schema(path).kind
        if kind == "JSON":
            return serdes.json_value
        try:
            if kind == "AVRO":
                texts = self._with_references(path, "").values()
                schemas = [json.loads(text) for text in texts]
                return serdes.avro_decoder(schemas, URL, most_nested=MOST_NESTED)
            texts_of = self._with_references(path, "?format=serialized")
            files = [_file(name, text) for name, text in texts_of.items()]
            known = [_well_known(name) for file in files for name in file.dependency]
            needed = [file for file in known if file is not None]
            return serdes.protobuf_decoder([*needed, *files], _message(files[-1], indexes or (0,)))
        except (ValueError, KeyError, TypeError, UsageError) as error:
            raise ValueError(f"schema {number} cannot be used: {error}") from None

    def _with_references(self, path: str, form: str, deep: int = 0) -> dict[str, str]:
        """Return the texts of the schemas that one names, by name, and at the end its own."""
        if deep > MOST_DEEP:
            raise ValueError("its references do not end")
        schema = self._schema(path + form)
        texts: dict[str, str] = {}
        for r in schema.references:
            named = f"/subjects/{quote(r.subject, safe='')}/versions/{r.version}"
            inner = self._with_references(named, form, deep + 1)
            own = inner.pop("")
            texts |= {**inner, r.name: own}
        return {**texts, "": schema.text}

    def _schema(self, path: str) -> Schema:
        """Return a schema; a failure is remembered. Raises ValueError."""
        if path not in self._schemas:
            try:
                self._schemas[path] = _read(self._get(path))
            except ValueError as error:
                self._schemas[path] = str(error)
        known = self._schemas[path]
        if isinstance(known, str):
            raise ValueError(known)
        return known

    def _get(self, path: str) -> Any:
        if self._silent is not None:
            raise ValueError(self._silent)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._login is not None:
            pair = base64.b64encode(self._login.reveal().encode()).decode("ascii")
            headers["Authorization"] = f"Basic {pair}"
        connection = self._connection()
        try:
            connection.request("GET", f"{self._path.rstrip('/')}{path}", headers=headers)
            answer = connection.getresponse()
            status, body = answer.status, _body(answer)
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._silent = f"{self._where} did not answer: {why}"
            raise ValueError(self._silent) from None
        finally:
            connection.close()
        if status == 404:
            raise ValueError(f"{self._where} has no {path.partition('?')[0].strip('/')}")
        if status != 200:
            raise ValueError(f"{self._where} answered HTTP {status}")
        if len(body) > MOST_BYTES:
            raise ValueError(f"{self._where} gave more than {MOST_BYTES >> 20} MiB")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError(f"{self._where} did not answer with JSON") from None

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=SECONDS)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=SECONDS, context=self._tls.context
        )


def _body(answer: http.client.HTTPResponse) -> bytes:
    """Return at most a little more than MOST_BYTES. Raises TimeoutError if it takes too long."""
    until, body = time.monotonic() + SECONDS, b""
    while len(body) <= MOST_BYTES and (part := answer.read1(1 << 16)):
        body += part
        if time.monotonic() > until:
            raise TimeoutError(f"its answer was not whole within {SECONDS:g} s")
    return body


def registry_of(properties: Mapping[str, str]) -> SchemaRegistry | None:
    """Return the registry that client properties name, if any. Raises UsageError.

    `schema.registry.url`, `basic.auth.user.info` and `schema.registry.ssl.*`, as Java's serializers
    name them. Sends nothing.
    """
    given = properties.get(URL, "").split(",")[0].strip()
    if not given:
        return None
    try:
        parts = urlsplit(given)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise UsageError("it is not http://HOST:PORT or https://HOST:PORT", where=URL)
    if parts.username is not None:
        raise UsageError(  # the login is not shown
            "a login does not belong in it", where=URL, remedy=f"set {LOGIN} to USER:PASSWORD"
        )
    login = properties.get(_OWN + LOGIN) or properties.get(LOGIN)
    mine = {k.removeprefix(_OWN): v for k, v in properties.items() if k.startswith(f"{_OWN}ssl.")}
    return SchemaRegistry(
        given.rstrip("/"),
        None if login is None else Secret(resolve(login, LOGIN)),
        tls_settings(mine) if parts.scheme == "https" else None,
    )


def _read(answer: Any) -> Schema:
    """Return the schema in an answer. Raises ValueError."""
    try:
        references = tuple(
            Reference(str(r["name"]), str(r["subject"]), int(r["version"]))
            for r in answer.get("references") or ()
        )
        kind = str(answer.get("schemaType") or "AVRO").upper()
        return Schema(kind, str(answer["schema"]), references)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the schema registry's answer holds no schema") from None


def _file(name: str, text: str) -> "FileDescriptorProto":
    """Return the Protobuf file in a registry's base64, under the name by which it is imported.

    Raises ValueError.
    """
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.message import DecodeError
    except ImportError:
        raise ValueError("the package protobuf is not installed; install eoctl[serde]") from None
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise ValueError("the registry gives it only as text (not as format=serialized)") from None
    file.name = name or "the schema itself"
    return file


def _well_known(name: str) -> "FileDescriptorProto | None":
    """Return one of Protobuf's own files, such as timestamp.proto; None for others."""
    from importlib import import_module

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not re.fullmatch(r"google/protobuf/[a-z_]+\.proto", name):
        return None
    file = FileDescriptorProto()
    import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2").DESCRIPTOR.CopyToProto(
        file
    )
    return file


def _message(file: "FileDescriptorProto", indexes: tuple[int, ...]) -> str:
    """Return the full name of the message at a path into a file. Raises ValueError."""
    words, messages = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"it has no message at {'.'.join(map(str, indexes))}")
        words.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(words)
