"""The series of `exporter`: their limits, what is not known, and that each metric is documented."""

import math
import re
from pathlib import Path
from typing import Any

from eoctl.render.watch_words import HELP, SERIES_HELP, exposition, families
from recovery.diagnose.diagnosis_rows import RemedyRow, TxnHangingRow
from recovery.inspect.cluster_rows import OffsetsShowRow
from recovery.values import replace
from recovery.watch.metrics import Sample
from recovery.watch.series import Limits, finding_samples, group_samples
from tests.unit.watch.test_metrics import conventions, read

DOCS = Path(__file__).parents[3] / "docs"


def row(group: str, partition: int, lag: int | None, records: int | None = None) -> OffsetsShowRow:
    """A group's committed offset so far below the last stable offset."""
    return OffsetsShowRow(
        group=group,
        topic="t",
        partition=partition,
        committed_offset=100,
        leader_epoch=None,
        metadata=None,
        pending=False,
        last_stable_offset=None if lag is None else 100 + lag,
        high_watermark=None,
        lag=lag,
        lag_hw=None,
        data_records=records,
    )


def finding(number: int, age: float | None, transactional_id: str | None = "id") -> TxnHangingRow:
    fields: dict[str, Any] = dict.fromkeys(TxnHangingRow.__struct_fields__)
    return TxnHangingRow(
        **{
            **fields,
            "topic": "t",
            "partition": number,
            "verdict": "orphan",
            "transactional_id": transactional_id,
            "age_seconds": age,
            "remedy": RemedyRow(
                action="abort", does="", caveats=[], refused=[], argv=None, command=None
            ),
        }
    )


def values(samples: list[Sample], name: str) -> dict[tuple[str, ...], float]:
    """A metric's samples by the values of their labels behind the context."""
    return {tuple(v for _, v in s.labels[1:]): s.value for s in samples if s.name == name}


def test_a_group_is_the_sum_of_all_its_partitions() -> None:
    rows = [row("a", 0, 10, 7), row("a", 1, 5, 5), row("a", 2, -3, 0), row("b", 0, 0, 0)]
    samples = group_samples("c", ["a", "b", "empty"], rows, Limits(groups=2, partitions=2))
    assert values(samples, "eoctl_groups") == {(): 3}
    assert values(samples, "eoctl_group_lag_offsets") == {("a",): 15, ("b",): 0}
    assert values(samples, "eoctl_group_lag_records") == {("a",): 12, ("b",): 0}
    assert values(samples, "eoctl_group_partition_lag_offsets") == {
        ("a", "t", "0"): 10,
        ("a", "t", "1"): 5,
    }
    assert values(samples, "eoctl_exporter_left_out") == {
        ("group",): 0,
        ("partition",): 2,
        ("record-count",): 0,
    }


def test_what_is_not_known_is_not_zero() -> None:
    for rows in ([row("a", 0, 10, 7), row("a", 1, None)], [row("a", 1, None), row("a", 0, 1, 1)]):
        samples = group_samples("c", ["a"], rows, Limits())
        assert math.isnan(values(samples, "eoctl_group_lag_offsets")["a",])
        assert math.isnan(values(samples, "eoctl_group_lag_records")["a",])
        assert math.isnan(values(samples, "eoctl_group_partition_lag_offsets")["a", "t", "1"])
        # what nobody could have counted was not left out by a limit
        assert values(samples, "eoctl_exporter_left_out")["record-count",] == 0
    samples = group_samples("c", ["a"], [row("a", 0, 10), row("a", 1, 2, 2)], Limits())
    assert math.isnan(values(samples, "eoctl_group_lag_records")["a",])
    assert values(samples, "eoctl_exporter_left_out")["record-count",] == 1


def test_series_are_bounded_whatever_the_cluster_holds() -> None:
    limits = Limits(groups=3, partitions=4, findings=5)
    rows = [row(f"g{n}", p, 1, 1) for n in range(50) for p in range(10)]
    samples = group_samples("c", [f"g{n}" for n in range(50)], rows, limits)
    assert len(samples) == 1 + 2 * 3 + 2 * 4 + 3
    assert values(samples, "eoctl_exporter_left_out")["partition",] == 500 - 4
    ids = [finding(n, float(n), f"flink-{n}") for n in range(1000)]
    samples = finding_samples("c", ids, limits)
    oldest = values(samples, "eoctl_finding_age_seconds")
    assert sorted(oldest.values()) == [995, 996, 997, 998, 999]
    assert values(samples, "eoctl_exporter_left_out") == {("finding",): 995}
    # of two looks at one cluster the same groups are chosen
    again = group_samples("c", [], reversed(rows), limits)
    assert {s.labels for s in again if "group_lag" in s.name} == {
        (("context", "c"), ("group", name)) for name in ("g0", "g1", "g10")
    }


def test_two_findings_with_the_same_labels_are_one_series() -> None:
    samples = finding_samples("c", [finding(0, 3.0), finding(0, 9.0), finding(1, None)], Limits())
    ages = values(samples, "eoctl_finding_age_seconds")
    assert ages["orphan", "id", "t", "0"] == 9
    assert math.isnan(ages["orphan", "id", "t", "1"])
    assert len(ages) == 2
    text = exposition([*samples, *group_samples("c", ["a"], [row("a", 0, 1)], Limits())])
    assert conventions(read(text)) == []
    assert 'eoctl_group_lag_records{context="c",group="a"} NaN' in text


def test_only_a_counter_is_a_counter() -> None:
    samples = [Sample(name, 1) for name in {**HELP, **SERIES_HELP}]
    kinds = {f.name: f.kind for f in families(samples)}
    assert [name for name, kind in kinds.items() if kind == "counter"] == [
        "eoctl_exporter_looks_total"
    ]


def test_the_pages_name_all_metrics_and_no_others() -> None:
    for page, names in (("check.md", HELP), ("exporter.md", SERIES_HELP)):
        table = [
            line for line in (DOCS / page).read_text().splitlines() if line.startswith("| `eoctl_")
        ]
        named = [name for line in table for name in re.findall(r"`(eoctl_\w+)", line)]
        assert sorted(named) == sorted(names), page


def in_time(age: float | None, margin: float | None, retention: Any = "time") -> Any:
    return replace(
        row("a", 0, 5), lag_seconds=age, retention_margin_seconds=margin, retention=retention
    )


def test_a_groups_lag_in_seconds_is_its_oldest_and_its_margin_its_shortest() -> None:
    rows = [in_time(10.0, 90.0), in_time(30.0, 70.0), in_time(0.0, None)]
    samples = group_samples("c", ["a"], rows, Limits(in_time=True))
    assert values(samples, "eoctl_group_lag_seconds") == {("a",): 30.0}
    assert values(samples, "eoctl_group_retention_margin_seconds") == {("a",): 70.0}
    off = group_samples("c", ["a"], rows, Limits())
    assert not [s for s in off if "seconds" in s.name]


def test_an_unknown_age_or_margin_is_not_a_number_and_no_limit_has_no_series() -> None:
    unknown = [in_time(10.0, 90.0), in_time(None, None)]
    samples = group_samples("c", ["a"], unknown, Limits(in_time=True))
    assert math.isnan(values(samples, "eoctl_group_lag_seconds")["a",])
    assert math.isnan(values(samples, "eoctl_group_retention_margin_seconds")["a",])
    kept = [in_time(10.0, None, "none"), in_time(0.0, None)]
    samples = group_samples("c", ["a"], kept, Limits(in_time=True))
    assert values(samples, "eoctl_group_lag_seconds") == {("a",): 10.0}
    assert values(samples, "eoctl_group_retention_margin_seconds") == {}
