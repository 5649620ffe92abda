"""Prometheus's text format, read back by a strict reader written from its specification.

Source of the reader: Prometheus, "Exposition formats", text format 0.0.4; of the conventions:
what `promtool check metrics` complains about.
"""

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.render.watch_words import HELP, check_row, exposition
from recovery.diagnose.diagnosis import ORDER
from recovery.facts import CoordinatorFacts
from recovery.watch.check_rules import Thresholds, check_rules
from recovery.watch.metrics import Sample, check_samples, unseen_samples
from tests.unit.check_facts import judged, observed, partition

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
LINE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (NaN|[+-]Inf|-?[0-9.]+(?:[eE][+-]?[0-9]+)?)")
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass
class Family:
    """One metric as read: its type, help and samples by labels."""

    kind: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float]


def read(text: str) -> dict[str, Family]:
    """The families of a text. Fails on whatever the format forbids, and on doubled samples."""
    assert text == "" or text.endswith("\n")
    families: dict[str, Family] = {}
    help_text: dict[str, str] = {}
    current: str | None = None
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            _, _, name, said = line.split(" ", 3)
            assert name not in help_text, "a second HELP"
            help_text[name] = said
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in families, "a second TYPE, or a family in two places"
            assert kind in ("gauge", "counter")
            assert name in help_text
            families[name] = Family(kind, help_text[name], {})
            current = name
        else:
            found = LINE.fullmatch(line)
            assert found, line
            name, inner, value = found.groups()
            assert name == current, "a sample outside its family"
            labels = _labels(inner or "")
            assert labels not in families[name].samples, "a doubled sample"
            families[name].samples[labels] = float(value)
    return families


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    labels, position = [], 0
    while position < len(text):
        found = LABEL.match(text, position)
        assert found, text[position:]
        value = re.sub(r'\\[\\"n]', lambda m: UNESCAPED[m.group()], found.group(2))
        labels.append((found.group(1), value))
        position = found.end()
        assert position == len(text) or text[position] == ","
        position += 1
    assert len({name for name, _ in labels}) == len(labels)
    return tuple(sorted(labels))


def conventions(families: dict[str, Family]) -> list[str]:
    """What `promtool check metrics` would say of names, units and types."""
    said = []
    for name, family in families.items():
        if name.endswith("_total") != (family.kind == "counter"):
            said.append(f"{name}: _total is for counters, and they need it")
        if re.search(r"_(milli|micro|nano)?(ms|minutes|hours|days|kilobytes)(_|$)", name):
            said.append(f"{name}: not a base unit")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name.endswith(
            ("_count", "_sum", "_bucket")
        ):
            said.append(f"{name}: name")
        if not family.help.endswith("."):
            said.append(f"{name}: no help")
    return said


LIMITS = Thresholds(
    held_records=5,
    held_age=10.0,
    verdicts={"orphan": 1, "long": 1},
    groups_pending=1,
    coordinators_unavailable=1,
    producer_id_expiry=60.0,
)


def some_samples(context: str = "prod") -> list[Sample]:
    seen = observed(
        judged("orphan", 1, age=12.5),
        judged("open", 2, number=1, age=3.0),
        partitions=(partition("t", 7), partition("t", 4, 1), partition("t", None, 2)),
        coordinators=(CoordinatorFacts(0, 1, True), CoordinatorFacts(1, None, False, "X")),
        groups=(),
    )
    rows = map(check_row, check_rules(seen, LIMITS))
    return check_samples(context, seen, rows, complete=False, seconds=0.25)


def test_what_is_written_can_be_read_and_follows_the_conventions() -> None:
    families = read(exposition([*some_samples("a"), *some_samples("b")]))
    assert conventions(families) == []
    assert set(families) <= set(HELP)
    for family in families.values():
        assert {dict(labels)["context"] for labels in family.samples} == {"a", "b"}


def test_the_reader_would_notice() -> None:
    for wrong in (
        "eoctl_up 1\n",
        "# HELP a b.\n# TYPE a gauge\na 1\na 1\n",
        '# HELP a b.\n# TYPE a gauge\na{x="\\"} 1\n',
        "# HELP a b.\n# TYPE a gauge\na 1",
    ):
        with pytest.raises(AssertionError):
            read(wrong)
    assert conventions(read("# HELP a_total b.\n# TYPE a_total gauge\na_total 1\n"))
    assert conventions(read("# HELP a_ms b.\n# TYPE a_ms gauge\na_ms 1\n"))


def test_values_are_those_of_the_look() -> None:
    families = read(exposition(some_samples()))

    def value(name: str, **labels: str) -> float:
        return families[name].samples[tuple(sorted({"context": "prod", **labels}.items()))]

    assert value("eoctl_up") == 1
    assert value("eoctl_complete") == 0
    assert value("eoctl_check_timestamp_seconds") == 1_700_000_000
    assert value("eoctl_check_duration_seconds") == 0.25
    assert value("eoctl_held_partitions") == 2
    assert value("eoctl_held_offsets") == 11
    assert value("eoctl_held_offsets_worst") == 7
    assert value("eoctl_held_age_seconds") == 12.5
    assert value("eoctl_coordinators") == 2
    assert value("eoctl_coordinators_unavailable") == 1
    assert value("eoctl_groups_pending") == 0
    assert {v: value("eoctl_transactions", verdict=v) for v in ORDER} == {
        **dict.fromkeys(ORDER, 0.0),
        "orphan": 1,
        "open": 1,
    }


def test_each_rule_stands_in_exactly_one_way() -> None:
    samples = read(exposition(some_samples()))["eoctl_check_rule"].samples
    stands = {dict(k)["rule"]: dict(k)["result"] for k, v in samples.items() if v == 1}
    assert len(samples) == 3 * len(stands)
    assert stands == {
        "held_records": "finding",
        "held_age": "finding",
        "verdicts.orphan": "finding",
        "verdicts.long": "unknown",
        "groups_pending": "ok",
        "coordinators_unavailable": "finding",
        "producer_id_expiry": "ok",
    }


def test_a_cluster_that_does_not_answer_is_down_and_not_silent() -> None:
    families = read(exposition(unseen_samples("prod", 5_000, up=False)))
    assert {name: list(f.samples.values()) for name, f in families.items()} == {
        "eoctl_up": [0],
        "eoctl_complete": [0],
        "eoctl_check_timestamp_seconds": [5],
    }


@given(st.text(), st.floats())
def test_any_label_and_any_number_survive(context: str, number: float) -> None:
    text = exposition([Sample("eoctl_held_offsets", number, (("context", context),))])
    ((labels, value),) = read(text)["eoctl_held_offsets"].samples.items()
    kept = context.encode("utf-8", "replace").decode()
    assert labels == (("context", kept),)
    assert value == number or (value != value and number != number)
