"""The cache of `__transaction_state`: the same answer with and without it, damaged or not."""

from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from recovery.formats.batches import batch_headers
from tests.kafka.command import environment, eoctl
from tests.unit.formats_build import seal


def _history(lab: Lab, cache: Path, name: str) -> list[dict[str, object]]:
    ran = eoctl(
        "txn", "history", name, "-o", "json", lab=lab, env=environment(EOCTL_CACHE_DIR=str(cache))
    )
    assert ran.status == 0, ran.stderr
    return ran.rows


@pytest.mark.parametrize("damage", ["none", "cut", "bit", "other", "empty"])
def test_history_is_the_same_with_a_cache_whatever_became_of_it(
    lab1: Lab, tmp_path: Path, damage: str
) -> None:
    [first] = break_(lab1, "zombie")
    assert first.transactional_id is not None
    name = first.transactional_id
    fresh = _history(lab1, tmp_path / "a", name)
    assert len(fresh) >= 5
    kept = sorted((tmp_path / "a").glob("transaction-state/*/*.log"))
    assert kept
    for path in kept:
        data = path.read_bytes()
        if damage == "cut":
            path.write_bytes(data[:-7])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "bit":
            path.write_bytes(data[:90] + bytes([data[90] ^ 1]) + data[91:])
        elif damage == "other":  # whole and sound, but its last batch is not the log's
            last = [h.position for h in batch_headers(data)][-1]
            changed = seal(bytearray(data[last:-1] + bytes([data[-1] ^ 1])))
            path.write_bytes(data[:last] + changed)
    assert _history(lab1, tmp_path / "a", name) == fresh
    [more] = break_(lab1, "zombie", transactional_id=name)
    assert more.transactional_id == name
    grown = _history(lab1, tmp_path / "a", name)
    assert grown[: len(fresh)] == fresh
    assert grown == _history(lab1, tmp_path / "b", name)
    assert len(grown) > len(fresh)
