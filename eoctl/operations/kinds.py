"""The kinds of change, and the module that carries out each.

Code that carries out plans of any kind imports this; a kind's module is loaded when needed.
"""

from typing import Any

from eoctl.operations.change.acting import KINDS


def _remedies() -> Any:
    from eoctl.operations.remedy import remedy_change

    return remedy_change


def _salvage() -> Any:
    from eoctl.operations.remedy import salvage_change

    return salvage_change


def _replay() -> Any:
    from eoctl.operations.merge import replay_change

    return replay_change


def _restart() -> Any:
    from eoctl.operations.restart import applying

    return applying


def _dedup() -> Any:
    from eoctl.operations.dedup import copying

    return copying


def _created() -> Any:
    from eoctl.operations.dedup import creating

    return creating


def _deliver() -> Any:
    from eoctl.operations.state import delivery_change

    return delivery_change


KINDS |= {
    "txn-abort": _remedies,
    "txn-fence": _remedies,
    "txn-resolve": _remedies,
    "txn-commit": _remedies,
    "txn-salvage": _salvage,
    "txn-many": _remedies,
    "merge-replay": _replay,
    "restart": _restart,
    "restart-undo": _restart,
    "dedup": _dedup,
    "dedup-create": _created,
    "state-deliver": _deliver,
}
