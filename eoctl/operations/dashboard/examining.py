"""Ask `doctor` for the dashboard: when its screen opens, and not in the rounds that repeat."""

import shlex
from collections.abc import Sequence

from eoctl.host.clock import now_ms
from eoctl.operations.dashboard.snapshot import Round
from eoctl.operations.diagnose.live import Live
from eoctl.operations.doctor.doctor_answer import doctor
from eoctl.operations.session.session import Session
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.errors import EoctlError
from recovery.row import ErrorRow


async def examined(context: Context, seconds: float, about: str) -> Round:
    """Return what doctor finds, by a connection that is closed again; about: names for a shell.

    A cluster that does not answer within so many seconds is an error of the answer.
    """
    named = shlex.split(about)
    session = Session(context, seconds)
    try:
        answer = await session.ask(lambda cluster: doctor(Live(cluster), context, named))
    except EoctlError as error:
        answer = _refused(named, error.sentence)
    finally:
        session.close()
    return Round({"doctor": answer})


def _refused(named: Sequence[str], detail: str) -> Answer:
    row = ErrorRow(scope="doctor", error="REFUSED", detail=detail)
    return Answer("doctor", None, now_ms(), [], [row], extra={"named": list(named)})
