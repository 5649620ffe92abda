"""What Spark jobs do with finished states: their requests."""

from recovery.documents import Document


class NamedState(Document):
    """A state that a job compares. address: of its manifest, as `state_folder.read` takes it;
    sha256: of its manifest."""

    address: str
    sha256: str


class CompareRequest(Document):
    """The request of a job that compares two states. most: differences that each task keeps.

    answer: the file for what the tasks found; None: it is the job's result.
    """

    a: NamedState
    b: NamedState
    most: int
    timestamps: bool = True
    answer: str | None = None


class DeliverRequest(Document):
    """The request of a job that delivers a state's changelog into a topic. partitions: those that
    are left."""

    state: NamedState
    changelog: str
    cluster_id: str | None
    topic: str
    topic_id: str | None
    partitions: tuple[int, ...]
