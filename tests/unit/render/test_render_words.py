"""Numbers as words. Expected texts are written by hand from the design's examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.render import words
from eoctl.render.words import Age
from recovery.times import duration

DAY = 86_400


@pytest.mark.parametrize(
    ("seconds", "short", "spoken"),
    [
        (0, "0s", "0 s"),
        (0.9, "0s", "0 s"),
        (42, "42s", "42 s"),
        (59.999, "59s", "59 s"),
        (60, "1m", "1 min"),
        (14 * 60 + 59, "14m", "14 min"),
        (3599, "59m", "59 min"),
        (3600, "1h", "1 h"),
        (2 * 3600 + 5 * 60 + 59, "2h 5m", "2 h 5 min"),
        (23 * 3600 + 3599, "23h 59m", "23 h 59 min"),
        (DAY, "1d", "1 d"),
        (6 * DAY + 2 * 3600 + 1800, "6d 2h", "6 d 2 h"),
        (400 * DAY + 59, "400d", "400 d"),
        (-0.5, "0s", "0 s"),
        (-1, "-1s", "-1 s"),
        (-200, "-3m", "-3 min"),
    ],
)
def test_age(seconds: float, short: str, spoken: str) -> None:
    assert words.age(seconds) == str(Age(seconds)) == short
    assert words.spoken_age(seconds) == spoken
    assert words.age(seconds, producer_clock=True) == str(Age(seconds, True)) == f"~{short}"
    assert words.spoken_age(seconds, producer_clock=True) == f"~{spoken}"


@given(st.integers(0, 36_499 * DAY))
def test_an_age_is_rounded_down_by_less_than_its_last_unit(seconds: int) -> None:
    text = words.age(seconds)
    unit = {"s": 1, "m": 60, "h": 3600, "d": DAY}[text[-1]]
    finer = {DAY: 3600, 3600: 60}.get(unit, unit) if " " not in text else unit
    assert 0 <= seconds - duration(text) < finer


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (20 * 2**30, "20.0 GiB"),
        (512 * 2**20, "512 MiB"),
        (2**20 - 1, "1.0 MiB"),
        (2**63, "8.0 EiB"),
        (2**73, "8192 EiB"),
    ],
)
def test_size(number: int, text: str) -> None:
    assert words.size(number) == text
