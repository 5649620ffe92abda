"""Ask `doctor` for the dashboard: when its screen opens, and not in the rounds that repeat."""

import shlex

from eoctl.operations.dashboard.once import asked_once, without_rows
from eoctl.operations.dashboard.snapshot import Round
from eoctl.operations.diagnose.live import Live
from eoctl.operations.doctor.doctor_answer import doctor
from eoctl.settings.context import Context


async def examined(context: Context, seconds: float, about: str) -> Round:
    """Return what doctor finds; about: names for a shell.

    A cluster that does not answer within so many seconds is an error of the answer.
    """
    named = shlex.split(about)
    refused = without_rows("doctor", named=named)
    answer = await asked_once(context, seconds, lambda c: doctor(Live(c), context, named), refused)
    return Round({"doctor": answer})
