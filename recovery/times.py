"""Durations and instants as people type them: `15m`, `PT15M`, `2h ago`, `2026-11-21T14:16:20Z`.

Pure: for "2h ago" the caller passes the current time. Instants are epoch milliseconds (UTC), as in
Kafka's records; durations are seconds. All output can be typed as input.
"""

import datetime
import re

from recovery.errors import IncompleteError, UsageError
from recovery.quoting import quoted

MAX_INSTANT_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last in RFC 3339
MAX_DURATION_S = 36_500 * 86_400  # a hundred years

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  (all arithmetic here is in UTC)
_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
# Patterns are compiled when a time is read: most commands get none, and compiling takes 2 ms.
_SHORT = r"\s*".join(f"(?:{_NUMBER}{unit}(?![a-z]))?" for unit in _UNITS_MS)
_ISO = (
    rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_RFC3339 = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"\s?([Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
_AGO = r"(.+?)\s*\bago"

_DURATION_REMEDY = "write 90s, 15m, 2h, 3d, 1h30m or PT15M"
_INSTANT_REMEDY = (
    "write 2026-11-21T14:16:20Z (no zone means UTC), 2h ago, now or epoch milliseconds"
)


def duration(text: str, *, where: str | None = None) -> float:
    """Return the seconds, to the ms, in `90s 15m 2h 3d 1w 250ms 1h30m 1.5s 0` or ISO 8601 `PT15M`.

    Years and months are refused: they have no fixed length. where: the option, for the error.
    Raises UsageError.
    """
    given = text.strip()
    if given == "0":
        return 0.0
    if match := re.fullmatch(_SHORT, given, re.IGNORECASE):
        factors = tuple(_UNITS_MS.values())
    elif match := re.fullmatch(_ISO, given):
        factors = tuple(_UNITS_MS.values())[:5]
    if not match or not any(match.groups()):
        raise UsageError(_why_no_duration(given), where=where, remedy=_DURATION_REMEDY)
    millis = round(
        sum(
            # Digits before the point are read as integers, so that long ones are not rounded.
            int(whole) * factor + (float(f"0.{fraction}") * factor if fraction else 0)
            for factor, number in zip(factors, match.groups(), strict=True)
            if number
            for whole, _, fraction in [number.partition(".")]
        )
    )
    if millis > MAX_DURATION_S * 1000:
        raise UsageError(f"{quoted(given)} is more than a hundred years", where=where)
    return millis / 1000


def format_duration(seconds: float) -> str:
    """Return exactly these seconds, to the ms, as `duration` reads them: `6d 2h`, `1m 30s`."""
    millis = round(abs(seconds) * 1000)
    words = []
    for unit, factor in _UNITS_MS.items():
        if unit != "w" and millis >= factor:
            words.append(f"{millis // factor}{unit}")
            millis %= factor
    return ("-" if seconds < 0 and words else "") + (" ".join(words) or "0s")


def span(ms: int) -> str:
    """Return ms for people, rounded down to two units: `24d 20h`, `9m 50s`, `300ms`."""
    whole = format_duration(abs(ms) // 1000 if abs(ms) >= 1000 else abs(ms) / 1000)
    return " ".join(whole.split()[:2])


def not_done_within(
    seconds: float | None, so_far: str = "", remedy: str = "give more time with --timeout"
) -> IncompleteError:
    """Return the error for running out of time. so_far: what is certain, after a semicolon.

    seconds: from --timeout; None = no limit, and the system gave up.
    """
    text = "not done in time" if seconds is None else f"not done within {format_duration(seconds)}"
    return IncompleteError(f"{text}; {so_far}" if so_far else text, remedy=remedy)


def instant(text: str, now: int, *, where: str | None = None) -> int:
    """Return the epoch milliseconds of an instant: RFC 3339, `2h ago`, `now`, or digits.

    RFC 3339 has T or a blank; without a zone it is UTC, a date alone its midnight, and fractions
    are cut to ms. Digits are epoch milliseconds. now: epoch milliseconds. where: the option, for
    the error. Raises UsageError, also before 1970.
    """
    given = text.strip()
    try:
        millis = _instant(given, now, where)
    except ValueError as error:  # such as 31 February or 25 o'clock
        raise UsageError(f"{quoted(given)}: {error}", where=where) from None
    if not 0 <= millis <= MAX_INSTANT_MS:
        raise UsageError(f"{quoted(given)} is not between 1970 and 9999", where=where)
    return millis


def _instant(given: str, now: int, where: str | None) -> int:
    if given.lower() == "now":
        return now
    if match := re.fullmatch(_AGO, given, re.IGNORECASE):
        return now - round(duration(match[1], where=where) * 1000)
    if re.fullmatch("[0-9]{10}", given):
        raise UsageError(
            f"{given} looks like epoch seconds", where=where, remedy=f"write {given}000"
        )
    if re.fullmatch("[0-9]{1,18}", given):
        return int(given)
    if not (match := re.fullmatch(_RFC3339, given)):
        raise UsageError(f"{quoted(given)} is not an instant", where=where, remedy=_INSTANT_REMEDY)
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    read = datetime.datetime(  # noqa: DTZ001
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)
    )
    millis = (read - _EPOCH) // datetime.timedelta(milliseconds=1)
    return millis + int((fraction or "0").ljust(3, "0")[:3]) - _zone_ms(zone)


def _zone_ms(zone: str | None) -> int:
    if zone is None or zone in "Zz":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"zone {zone} is out of range")
    return (hours * 60 + minutes) * (-60_000 if zone[0] == "-" else 60_000)


def rfc3339(millis: int | None) -> str | None:
    """Return `2026-11-21T14:16:20.123Z`, always UTC with milliseconds.

    None for None, for a number below 0 (Kafka's -1 is "no timestamp") and for years after 9999:
    clients set timestamps, which may be any 64-bit number.
    """
    if millis is None or not 0 <= millis <= MAX_INSTANT_MS:
        return None
    read = _EPOCH + datetime.timedelta(milliseconds=millis)
    return read.isoformat(timespec="milliseconds") + "Z"


def _why_no_duration(given: str) -> str:
    if re.fullmatch("[0-9.]+", given):
        return f"{quoted(given)} has no unit"
    if given.startswith("-"):
        return f"{quoted(given)} is negative"
    return f"{quoted(given)} is not a duration"
