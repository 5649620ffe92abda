"""Error names against those that Kafka's own class prints."""

import importlib.util
from pathlib import Path
from typing import Any

from eoctl.kafka.connection import messages


def test_every_error_has_kafkas_own_name() -> None:
    lines = Path(__file__).with_name("kafka_errors.txt").read_text().splitlines()[1:]
    known = {int(code): name for code, name in map(str.split, lines)}
    assert len(known) == 135
    assert {code: messages.error_name(code) for code in known} == known


def test_an_unknown_error_keeps_its_number() -> None:
    assert messages.error_name(9999) == "ERROR_9999"


def test_schemas_are_read_as_kafka_python_reads_them() -> None:
    kafka = importlib.util.find_spec("kafka")
    assert kafka is not None
    assert kafka.origin is not None
    folder = Path(kafka.origin).parent / "protocol" / "schemas"
    spec = importlib.util.spec_from_file_location(
        "kafka.protocol.schemas.theirs", folder / "load_json.py"
    )
    assert spec is not None
    assert spec.loader is not None
    theirs: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    assert messages.MetadataRequest  # the package is planted
    names = [path.stem for path in (folder / "resources").glob("*.json")]
    assert len(names) > 100
    for name in names:
        expected = theirs.load_json(name)
        for comment in ("license", "doc"):
            expected.pop(comment, None)
        assert messages.read_schema(name) == expected, name
    own = "eoctl.kafka.connection.schemas"
    for path in (Path(messages.__file__).parents[1] / "schemas").glob("*.json"):
        assert messages.read_schema(path.stem, own) == theirs.load_json(path.stem, own)
