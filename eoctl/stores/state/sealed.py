"""JSON with a CRC-32C over its content, which shows that it is still what a task has written."""

import json
from collections.abc import Mapping
from typing import Any

_CRC = "crc32c"


def sealed(fields: Mapping[str, Any]) -> bytes:
    """Return fields as a file's content."""
    return json.dumps({**fields, _CRC: _crc(fields)}).encode("ascii")


def unsealed(data: bytes) -> dict[str, Any]:
    """Return the fields of such a file. Raises ValueError if they are not what was written."""
    fields = json.loads(data)
    if not isinstance(fields, dict) or fields.pop(_CRC, None) != _crc(fields):
        raise ValueError("another checksum")
    return fields


def _crc(fields: Mapping[str, Any]) -> int:
    from crc32c import crc32c

    return int(crc32c(json.dumps(fields).encode("ascii")))
