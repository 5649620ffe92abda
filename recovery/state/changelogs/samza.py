"""Apache Samza's changelogs.

A changelog holds keys and values in the store's form; a null value deletes. With transactional
state, a restore trims what is above the checkpoint's marker, so a rebuild that must equal it ends
at that marker.
Source: Samza's class TransactionalStateTaskRestoreManager.
"""

from recovery.state.changelogs.changelog import ChangelogFormat


class Samza(ChangelogFormat):
    """Last value per key; keys and values in the store's own serialisation."""

    name = "samza"
