"""Make Kafka's request and response classes on demand, from kafka-python's copy of the schemas.

kafka-python serves eoctl to encode and decode only. `import kafka` would load its whole client (130
ms and 300 modules), so a bare package takes its place, and each message class is made from its
schema when it is first named: `messages.MetadataRequest`. Schemas it lacks are in our own package
`eoctl.kafka.connection.schemas`. Its schema reader is replaced too, because that one imports
`importlib.resources`, which takes 3 ms.
"""

import importlib.util
import json
import re
import sys
import types
from typing import TYPE_CHECKING, Any

OWN_SCHEMAS = (
    "ConsumerGroupDescribe",
    "ShareGroupDescribe",
    "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

else:

    def __getattr__(name: str) -> Any:
        if not name.endswith(("Request", "Response")):
            raise AttributeError(name)
        _plant_bare_package()
        if name.startswith("ApiVersions"):
            # its response header is never flexible: kafka-python handles that in code
            from kafka.protocol.metadata import api_versions

            message_class = getattr(api_versions, name)
        elif name == "RawFetchResponse":
            from eoctl.kafka.connection import raw_fetch

            message_class = raw_fetch.RawFetchResponse
        else:
            from kafka.protocol.api_message import ApiMessage

            own = name.startswith(OWN_SCHEMAS)
            package = {"load_json": "eoctl.kafka.connection.schemas"} if own else {}
            message_class = type(ApiMessage)(name.removeprefix("Raw"), (ApiMessage,), {}, **package)
            message_class.__name__ = name
        globals()[name] = message_class
        return message_class


def response_class(request: Any) -> Any:
    """Return the class that decodes the answer to `request`, whose header and version are set."""
    name = type(request).__name__
    name = name.removesuffix("Request") + "Response"
    module = sys.modules[__name__]
    return getattr(module, name)[request.API_VERSION]


def null_field(answer: Any) -> str | None:
    """Return the first list or string of an answer that is null but may not be; None: all valid.

    Java's generated classes refuse such an answer; kafka-python's hand out None.
    """
    struct = getattr(answer, "_struct", None)
    return None if struct is None else _null_field(struct, answer, answer.API_VERSION)


def _null_field(struct: Any, value: Any, version: int) -> str | None:
    for name, nullable, inner in _looked_at(struct, version):
        field_value = getattr(value, name)
        if field_value is None:
            if not nullable:
                return name
        elif inner is not None:
            for item in field_value:
                if (deeper := _null_field(inner, item, version)) is not None:
                    return f"{name}.{deeper}"
    return None


_Looked = tuple[tuple[str, bool, Any], ...]
_looked: dict[tuple[int, int], tuple[Any, _Looked]] = {}  # by a structure's id, which it keeps


def _looked_at(struct: Any, version: int) -> _Looked:
    """Return the lists and strings of a structure: name, whether null is allowed, and the structure
    of their items, if any."""
    if (known := _looked.get((id(struct), version))) is not None:
        return known[1]
    fields = []
    for f in struct.untagged_fields(version):
        nullable = f.nullable_for_version_q(version)
        inner = f.array_of if f.is_struct_array() else None
        if inner is not None and not _looked_at(inner, version):
            inner = None
        if inner is not None or (not nullable and (f.is_array() or f.type_str == "string")):
            fields.append((f.name, nullable, inner))
    _looked[id(struct), version] = struct, tuple(fields)
    return tuple(fields)


# names that are older in kafka-python, or missing there
_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    39: "INVALID_REPLICA_ASSIGNMENT",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}


def error_name(code: int) -> str:
    """Return Kafka's own name of an error code (org.apache.kafka.common.protocol.Errors, 4.3)."""
    if code in _NAMES:
        return _NAMES[code]
    _plant_bare_package()
    from kafka.errors import for_code

    name = str(for_code(code).message)
    return f"ERROR_{code}" if name == "UNKNOWN" else name


def read_schema(name: str, package: str | None = None) -> Any:
    """Return a message's schema without its comments. package: the one that holds it, None:
    kafka-python's."""
    folder: Any = importlib.import_module(package or "kafka.protocol.schemas.resources")
    text = folder.__loader__.get_data(f"{folder.__path__[0]}/{name}.json").decode()
    schema = json.loads(re.sub(r"(?m)^\s*//.*", "", text))
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    _fill_in(schema["fields"], common)
    return schema


def _fill_in(fields: Any, common: dict[str, Any]) -> None:
    """Expand a common structure into the fields of every field that has it as its type."""
    for field in fields:
        kind = field["type"].removeprefix("[]")
        if kind in common:
            field.setdefault("fields", common[kind])
        _fill_in(field.get("fields", ()), common)


def _plant_bare_package() -> None:
    for name in ("kafka", "kafka.protocol.metadata"):
        if name in sys.modules:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            raise ModuleNotFoundError(name)
        package = types.ModuleType(name)
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules[name] = package
    reader = types.ModuleType("kafka.protocol.schemas.load_json")
    reader.load_json = read_schema  # type: ignore[attr-defined]
    sys.modules.setdefault(reader.__name__, reader)
