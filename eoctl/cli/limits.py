"""The options of judging: when a transaction is long or stuck, how far apart two looks are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from eoctl.cli.options import option
from recovery.times import duration

if TYPE_CHECKING:  # the dashboard paints before it loads the rules
    from eoctl.settings.context import Context
    from recovery.inspect.observation import Settings


@dataclass(frozen=True)
class Limits:
    """The bounds from which a transaction is long or stuck, and the pause between the two looks."""

    sample_interval: Annotated[str, option("--sample-interval D", "between the two looks")] = "5s"
    long_after: Annotated[str, option("--long-after D", "open for longer is `long`")] = "15m"
    stuck_after: Annotated[str, option("--stuck-after D", "prepared for longer is stuck")] = "60s"
    clock_skew: Annotated[str, option("--clock-skew D", "clocks may differ by so much")] = "5s"

    @property
    def interval(self) -> float:
        """Return the seconds between the two samples."""
        return duration(self.sample_interval, where="--sample-interval")

    def settings(self, context: "Context") -> "Settings":
        """Return the limits as the rules take them."""
        from recovery.inspect.observation import Settings

        return Settings(
            long_after=round(duration(self.long_after, where="--long-after") * 1000),
            stuck_after=round(duration(self.stuck_after, where="--stuck-after") * 1000),
            clock_skew=round(duration(self.clock_skew, where="--clock-skew") * 1000),
            two_phase_patterns=context.two_phase_patterns,
        )
