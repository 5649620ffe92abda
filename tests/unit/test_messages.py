"""Error names against those that Kafka's own class prints."""

from pathlib import Path

from eoctl.kafka.connection import messages


def test_every_error_has_kafkas_own_name() -> None:
    lines = Path(__file__).with_name("kafka_errors.txt").read_text().splitlines()[1:]
    known = {int(code): name for code, name in map(str.split, lines)}
    assert len(known) == 135
    assert {code: messages.error_name(code) for code in known} == known


def test_an_unknown_error_keeps_its_number() -> None:
    assert messages.error_name(9999) == "ERROR_9999"
