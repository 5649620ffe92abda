"""Producer id blocks: which producer ids the cluster has handed out, and to which broker.

They are only read: a lost or lowered block makes a cluster hand out old producer ids again.
Source: Kafka's ProducerIdsRecord.json and AbstractApiMessageSerde (metadata log),
ProducerIdControlManager, ProducerIdsBlock; ProducerIdBlockZNode of ZkData (ZooKeeper).
"""

import json

from recovery.formats.reader import CorruptError, Reader
from recovery.values import Value

BLOCK_SIZE = 1000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE
ZOOKEEPER_PATH = "/latest_producer_id_block"
_FRAME_VERSION = 1
_PRODUCER_IDS_RECORD = 15


class ProducerIdBlock(Value):
    """The latest block handed out: ids first to last, both included.

    broker: -1 = a metadata snapshot no longer says which. broker_epoch: -1 = unknown.
    """

    broker: int
    broker_epoch: int
    first: int
    last: int


def from_zookeeper(node: bytes) -> ProducerIdBlock:
    """Read the content of ZooKeeper's node. Raises CorruptError if it is not such a block."""
    try:
        block = json.loads(node)
        ids = ProducerIdBlock(
            int(block["broker"]), -1, int(block["block_start"]), int(block["block_end"])
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CorruptError("not a producer id block", where=ZOOKEEPER_PATH) from error
    if not 0 <= ids.first <= ids.last:
        raise CorruptError(f"block {ids.first} to {ids.last}", where=ZOOKEEPER_PATH)
    return ids


def from_metadata_record(value: bytes) -> ProducerIdBlock | None:
    """Read the block in a record of the metadata log (`__cluster_metadata`); None: another record.

    A ProducerIdsRecord holds the id that comes after its block. Raises CorruptError if the record
    is cut or framed in an unknown way.
    """
    reader = Reader(value, "record of the metadata log")
    frame = reader.uvarint()
    if frame != _FRAME_VERSION:
        raise reader.corrupt(f"frame version {frame}, only {_FRAME_VERSION} is known")
    kind, version = reader.uvarint(), reader.uvarint()
    if kind != _PRODUCER_IDS_RECORD:
        return None
    if version != 0:
        raise reader.corrupt(f"ProducerIdsRecord of version {version}, only 0 is known")
    broker, broker_epoch, following = reader.int32(), reader.int64(), reader.int64()
    reader.tags()
    return ProducerIdBlock(broker, broker_epoch, max(0, following - BLOCK_SIZE), following - 1)
