"""Apache Samza's changelogs.

A changelog holds keys and values as the store has them; a null value deletes. Under transactional
state what lies above the checkpoint's marker is trimmed at a restore, so a rebuild that is to equal
it ends there.
Source: Samza's class TransactionalStateTaskRestoreManager.
"""

from recovery.state.changelogs.changelog import ChangelogFormat


class Samza(ChangelogFormat):
    """Last value per key; keys and values in the store's own serialisation."""

    name = "samza"
