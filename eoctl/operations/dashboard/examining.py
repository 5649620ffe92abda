"""Ask `doctor` for the dashboard: when its screen opens, and not in the rounds that repeat."""

import shlex
from collections.abc import Sequence

from eoctl.host.clock import now_ms
from eoctl.operations.dashboard.snapshot import Round
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
        answer = await session.ask(lambda cluster: doctor(cluster, named))
    except EoctlError as error:
        answer = _refused(named, now_ms(), "REFUSED", error.sentence)
    finally:
        session.close()
    return Round({"doctor": answer})


def not_in_bundle(about: str, now: int) -> Round:
    """Return that a bundle has no settings. now: when it was made, epoch ms."""
    text = "a bundle holds no settings; doctor asks a live cluster"
    return Round({"doctor": _refused(shlex.split(about), now, "NOT_IN_BUNDLE", text)})


def _refused(named: Sequence[str], now: int, error: str, detail: str) -> Answer:
    row = ErrorRow(scope="doctor", error=error, detail=detail)
    return Answer("doctor", None, now, [], [row], extra={"named": list(named)})
