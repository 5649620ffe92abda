"""Durations and instants as typed. Oracles: arithmetic by hand, datetime for RFC 3339."""

import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recovery import times
from recovery.errors import UsageError

NOW = 1_795_270_580_123  # 2026-11-21T14:16:20.123Z, by `date -u -d @1795270580`


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 15 * 60),
        ("2h", 7200),
        ("3d", 259_200),
        ("1w", 604_800),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("6d 2h", 6 * 86_400 + 7200),
        (" 15m ", 900),
        ("15M", 900),
        ("1.5s", 1.5),
        ("0.5h", 1800),
        ("0", 0),
        ("0s", 0),
        ("2m500ms", 120.5),
        ("PT15M", 900),
        ("P1DT2H", 93_600),
        ("PT1.5S", 1.5),
        ("P2W", 1_209_600),
        ("2147483647ms", 2_147_483.647),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    assert times.duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "90", "1.5", "-5m", "5", "m", "1x", "1mo", "1y", "1h2h", "30m1h", "1m s", "1 h"),
        *(
            "P",
            "PT",
            "P1M",
            "P1Y",
            "P1DT",
            "PT1H1",
            "pt15m",
            "15m\n15m",
            "٣m",
            "1e3s",
            "nan",
            "inf",
        ),
        *("36501d", "9" * 15 + "w", "9" * 400 + "s", "1.5.5s", "\x1b[31m5m", "\ud800"),
    ],
)
def test_no_duration(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        times.duration(text, where="--timeout")
    assert caught.value.sentence.startswith("--timeout: ")
    assert caught.value.sentence.isprintable()
    assert len(caught.value.sentence) < 200


def test_a_missing_unit_is_named() -> None:
    with pytest.raises(UsageError, match="'90' has no unit; write 90s, 15m, 2h"):
        times.duration("90")


@given(st.integers(0, times.MAX_DURATION_S * 1000))
@example(times.MAX_DURATION_S * 1000)
def test_what_is_printed_can_be_typed(millis: int) -> None:
    seconds = millis / 1000
    assert times.duration(times.format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (42, "42s"),
        (90, "1m 30s"),
        (60, "1m"),
        (6 * 86_400 + 7200, "6d 2h"),
        (0.25, "250ms"),
        (-90, "-1m 30s"),
        (604_800, "7d"),
        (2_147_483.647, "24d 20h 31m 23s 647ms"),
    ],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert times.format_duration(seconds) == text


def test_what_ran_out_of_time_says_how_much_it_had() -> None:
    assert str(times.not_done_within(90.0)) == (
        "not done within 1m 30s; give more time with --timeout"
    )
    assert times.not_done_within(0.5, "nothing was sent").what == (
        "not done within 500ms; nothing was sent"
    )
    assert times.not_done_within(None).what == "not done in time"


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("now", NOW),
        ("NOW", NOW),
        ("2h ago", NOW - 7_200_000),
        ("1h30m ago", NOW - 5_400_000),
        ("PT15M ago", NOW - 900_000),
        ("6d 2h ago", NOW - 525_600_000),
        ("0s ago", NOW),
        ("1795270580123", NOW),
        ("0", 0),
        ("2026-11-21T14:16:20.123Z", NOW),
        ("2026-11-21t14:16:20.123z", NOW),
        ("2026-11-21 14:16:20.123", NOW),
        ("2026-11-21T14:16:20.123999999", NOW),
        ("2026-11-21T16:16:20.123+02:00", NOW),
        ("2026-11-21T08:46:20.123-05:30", NOW),
        ("2026-11-21 14:16:20.123 -00:00", NOW),
        ("2026-11-21T14:16:20.1Z", NOW - 23),
        ("2026-11-21T14:16", NOW - 20_123),
        ("2026-11-21", NOW - 20_123 - 16 * 60_000 - 14 * 3_600_000),
        ("2024-02-29", 1_709_164_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_instant(text: str, millis: int) -> None:
    assert times.instant(text, NOW) == millis


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not an instant; write 2026-11-21T14:16:20Z"),
        ("yesterday", "is not an instant"),
        ("ago", "is not an instant"),
        ("x ago", "'x' is not a duration"),
        ("100 ago", "'100' has no unit"),
        ("1795270580", "looks like epoch seconds; write 1795270580000"),
        ("9" * 18, "is not between 1970 and 9999"),
        ("9" * 5000, "is not an instant"),
        ("-1", "is not an instant"),
        ("2026-02-30", "day is out of range"),
        ("2026-13-01", "month must be"),
        ("2026-11-21T25:00", "hour must be"),
        ("2026-11-21T14:16:60Z", "second must be"),
        ("2026-11-21T14:16Z+02:00", "is not an instant"),
        ("2026-11-21T14:16+24:00", "out of range"),
        ("2026-11-21T14:16+02:60", "out of range"),
        ("1969-12-31T23:59:59.999Z", "is not between 1970 and 9999"),
        ("0000-01-01", "out of range"),
        ("0001-01-01T00:00+23:00", "is not between 1970 and 9999"),
        ("9999-12-31T23:59-01:00", "is not between 1970 and 9999"),
        ("36000d ago", "is not between 1970 and 9999"),
        ("２０２６-11-21", "is not an instant"),
        ("2026-11-21T14:16:20Z\n", None),
        ("2026-11-21\x1b[2J", "is not an instant"),
    ],
)
def test_no_instant(text: str, says: str | None) -> None:
    if says is None:  # a newline from a shell's $(date) is no mistake
        assert times.instant(text, NOW) == NOW - 123
        return
    with pytest.raises(UsageError) as caught:
        times.instant(text, NOW, where="--since")
    assert says in caught.value.sentence
    assert caught.value.sentence.startswith("--since: ")
    assert caught.value.sentence.isprintable()


@given(
    st.datetimes(
        datetime.datetime(1970, 1, 2),  # noqa: DTZ001
        datetime.datetime(9999, 12, 30),  # noqa: DTZ001
        timezones=st.builds(
            lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes)),
            st.integers(-1439, 1439),
        ),
    )
)
def test_any_rfc3339_is_read_as_datetime_reads_it(moment: datetime.datetime) -> None:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    millis = (moment - epoch) // datetime.timedelta(milliseconds=1)
    assert times.instant(moment.isoformat(), NOW) == millis
    assert times.instant(moment.isoformat(" "), NOW) == millis
    shown = times.rfc3339(millis)
    assert shown is not None
    assert times.instant(shown, NOW) == millis
    assert datetime.datetime.fromisoformat(shown) == moment - datetime.timedelta(
        microseconds=moment.microsecond % 1000
    )


@given(st.text())
def test_any_text_is_an_instant_or_a_usage_error(text: str) -> None:
    for parse in (times.duration, lambda given: times.instant(given, NOW)):
        sentence = ""
        try:
            parse(text)
        except UsageError as error:
            sentence = error.sentence
        assert sentence.isprintable()


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (NOW, "2026-11-21T14:16:20.123Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, None),
        (2**63 - 1, None),
        (-1, None),
        (-(2**63), None),
        (None, None),
    ],
)
def test_rfc3339(millis: int | None, text: str | None) -> None:
    assert times.rfc3339(millis) == text
