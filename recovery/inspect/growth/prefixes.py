"""Find the prefix that the transactional ids of one application share.

Kafka knows no such thing: it is a convention of clients. Kafka Streams names `app-UUID-1` (and once
`app-0_1`, with a task id), Kafka Connect `connect-cluster-group-connector-0`, Flink
`prefix-SUBTASK-CHECKPOINT`, Spring `prefix0`. Others use the name of their Kubernetes pod.
"""

import re

_DIGIT, _HEX, _BETWEEN = "0-9", "[0-9a-fA-F]", r"[-_.:/]"
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"  # Kubernetes: rand.SafeEncodeString
# All are read from their end. A UUID has dashes of its own: whatever is before it, it is cut.
_UUID = f"{_HEX}{{12}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{8}}"
_POD = f"{_SAFE}{{5}}-{_SAFE}{{8,10}}(?=-)"  # of a Deployment: its pod, and the template's hash
_PART = f"(?:{_UUID}|{_POD}|(?:{_HEX}{{32}}|[{_DIGIT}]++)(?={_BETWEEN}|$))"
_PARTS = re.compile(f"{_PART}(?:{_BETWEEN}+{_PART})*+")


def prefix_of(transactional_id: str) -> str:
    """Return the id without the numbers, UUIDs and pod's name at its end, and what separates these.

    A number that follows a letter is cut only if it is the last part: `v2` in the middle of a name
    is part of the name. The separator before the first part that was cut is kept, so the result is
    a prefix that an ACL can have. It is empty for an id that is nothing but numbers.

    >>> [prefix_of(name) for name in ("pay-0", "app-0_1", "flink-v2-3-17", "tx12", "billing")]
    ['pay-', 'app-', 'flink-v2-', 'tx', 'billing']
    >>> prefix_of("app-0f8fad5b-d9cb-469f-a165-70867728950e-1")
    'app-'
    """
    cut = _PARTS.match(transactional_id[::-1])
    if cut is not None:
        return transactional_id[: len(transactional_id) - cut.end()]
    return transactional_id.rstrip("0123456789")
