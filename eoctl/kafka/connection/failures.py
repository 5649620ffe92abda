"""The reasons why one broker did not answer, and how long anybody waits for an answer."""

import time


class WireError(Exception):
    """One broker did not answer one question.

    error: Kafka's error name or TIMED_OUT, CONNECTION_REFUSED, CONNECTION_CLOSED, NOT_KAFKA,
    RESOLVE_FAILED, TLS_FAILED, AUTHENTICATION_FAILED, UNSUPPORTED_VERSION.
    detail: one sentence; remedy: what to do, or None.
    """

    def __init__(self, error: str, detail: str, remedy: str | None = None) -> None:
        super().__init__(f"{error}: {detail}")
        self.error = error
        self.detail = detail
        self.remedy = remedy


class Deadline:
    """A moment on the monotonic clock that no request may outlast. None = no end."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    def within(self, seconds: float) -> "Deadline":
        """Return the earlier of this deadline and `seconds` from now."""
        inner = Deadline(seconds)
        if self._at is not None and inner._at is not None and self._at < inner._at:
            return self
        return inner

    def half_for(self, seconds: float) -> float:
        """Return the seconds, but at most half of those left: the other half is for the rest."""
        left = self.seconds_left
        return seconds if left is None else min(seconds, left / 2)

    @property
    def seconds_left(self) -> float | None:
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at
