"""Coordinator partitions against Java's own String.hashCode (test_formats_golden.java)."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from recovery.formats.coordinator import coordinator_partition, java_hash

GOLDEN = json.loads(Path(__file__).with_name("test_formats_golden.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["hashes"], ids=lambda case: str(case["hash"]))
def test_as_java_does_it(case: dict[str, Any]) -> None:
    units = struct.pack(f">{len(case['utf16'])}H", *case["utf16"])
    text = units.decode("utf-16-be", "surrogatepass")  # lone surrogates are among them
    assert java_hash(text) == case["hash"]
    assert coordinator_partition(text) == case["of_50"]
    assert coordinator_partition(text, 7) == case["of_7"]
