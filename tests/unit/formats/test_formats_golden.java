// Writes test_formats_golden.json: bytes made, and read back, by Kafka 4.3.1's own classes.
// Run again only for a new Kafka version (jars of kafka_2.13 4.3.1 with its dependencies in DIR):
//   java -Dfile.encoding=UTF-8 -cp 'DIR/*' tests/unit/test_formats_golden.java > tests/unit/test_formats_golden.json

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.storage.internals.log.*;

public class Golden {
    static final String[] NAMES = {
        "", "a", "orders-enricher", "payments-0", "prefix-3-17", "Zürich", "日本語", "😀", "a😀b",
        "\ud800", "x\udfffy", "\u0000", "\u001b[31m", "‮evil", "[/x]", "line\nbreak", "Aa", "BB",
        "polygenelubricants", "￿", "z".repeat(249)};

    static String hex(ByteBuffer b) {
        StringBuilder s = new StringBuilder();
        for (ByteBuffer d = b.duplicate(); d.hasRemaining();) s.append(String.format("%02x", d.get()));
        return s.toString();
    }

    static String hex(byte[] b) { return b == null ? null : hex(ByteBuffer.wrap(b)); }

    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> m = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) m.put((String) pairs[i], pairs[i + 1]);
        return m;
    }

    // --- batches -------------------------------------------------------------------------
    static byte[] utf(String s) { return s == null ? null : s.getBytes(StandardCharsets.UTF_8); }

    static void fill(MemoryRecordsBuilder b, int n) {
        for (int i = 0; i < n; i++) {
            Header[] headers = i % 3 != 2 ? new Header[0] : new Header[] {
                new RecordHeader("trace", utf("t" + i)), new RecordHeader("ключ", null),
                new RecordHeader("", new byte[0])};
            b.append(1700000000000L + i * 7 - (i % 2) * 5000, i % 5 == 0 ? null : utf("key-" + i % 4),
                i % 4 == 3 ? null : utf("value ".repeat(i % 7) + i), headers);
        }
    }

    static MemoryRecords data(Compression c, TimestampType t, long base, long pid, int epoch, int seq, boolean txn, int n) {
        MemoryRecordsBuilder b = new MemoryRecordsBuilder(ByteBuffer.allocate(1 << 16), (byte) 2, c, t, base,
            t == TimestampType.LOG_APPEND_TIME ? 1700000099999L : -1L, pid, (short) epoch, seq, txn, false, 9, 1 << 16);
        fill(b, n);
        return b.build();
    }

    static MemoryRecords compact(MemoryRecords in, int keepEvery, boolean horizon) {
        ByteBuffer out = ByteBuffer.allocate(1 << 16);
        MemoryRecords.RecordFilter f = new MemoryRecords.RecordFilter(1700000500000L, 60000L) {
            @Override protected BatchRetentionResult checkBatchRetention(RecordBatch b) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, horizon);
            }
            @Override protected boolean shouldRetainRecord(RecordBatch b, Record r) {
                return keepEvery > 0 && r.offset() % keepEvery == 0;
            }
        };
        in.filterTo(f, out, BufferSupplier.NO_CACHING);
        out.flip();
        return MemoryRecords.readableRecords(out);
    }

    static Map<String, Object> batches(String name, MemoryRecords records) {
        List<Object> list = new ArrayList<>();
        for (MutableRecordBatch b : records.batches()) {
            List<Object> inside = new ArrayList<>();
            for (Record r : b) {
                List<Object> headers = new ArrayList<>();
                for (Header h : r.headers()) headers.add(Arrays.asList(h.key(), hex(h.value())));
                Map<String, Object> m = map("offset", r.offset(), "timestamp", r.timestamp(),
                    "key", r.hasKey() ? hex(r.key()) : null, "value", r.hasValue() ? (r.valueSize() > 1000 ? "length " + r.valueSize() : hex(r.value())) : null, "headers", headers);
                if (b.isControlBatch()) {
                    ControlRecordType t = ControlRecordType.parse(r.key());
                    m.put("type", t.name());
                    if (t == ControlRecordType.ABORT || t == ControlRecordType.COMMIT)
                        m.put("coordinator_epoch", EndTransactionMarker.deserialize(r).coordinatorEpoch());
                }
                inside.add(m);
            }
            list.add(map("base_offset", b.baseOffset(), "last_offset", b.lastOffset(), "leader_epoch", b.partitionLeaderEpoch(),
                "magic", b.magic(), "crc", b.checksum(), "codec", b.compressionType().name, "timestamp_type", b.timestampType().name,
                "is_transactional", b.isTransactional(), "is_control", b.isControlBatch(),
                "has_delete_horizon", b.deleteHorizonMs().isPresent(),
                "base_timestamp", ((DefaultRecordBatch) b).baseTimestamp(),
                "max_timestamp", b.maxTimestamp(), "producer_id", b.producerId(), "producer_epoch", b.producerEpoch(),
                "base_sequence", b.baseSequence(), "last_sequence", b.lastSequence(), "records_count", b.countOrNull(),
                "size", b.sizeInBytes(), "records", inside));
        }
        return map("name", name, "hex", hex(records.buffer()), "batches", list);
    }

    static List<Object> allBatches() {
        List<Object> out = new ArrayList<>();
        for (String c : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Compression z = Compression.of(c).build();
            out.add(batches(c, data(z, TimestampType.CREATE_TIME, 1000, -1, -1, -1, false, 12)));
            out.add(batches(c + " transactional, log append time, sequence wraps",
                data(z, TimestampType.LOG_APPEND_TIME, 5_000_000_000L, 4001, 7, Integer.MAX_VALUE - 4, true, 12)));
            out.add(batches(c + " compacted", compact(data(z, TimestampType.CREATE_TIME, 300, 17, 2, 40, true, 12), 3, true)));
        }
        out.add(batches("snappy, more than one xerial block of 32 KiB", bigSnappy()));
        MemoryRecords empty = compact(data(Compression.NONE, TimestampType.CREATE_TIME, 300, 17, 2, 40, true, 12), 0, true);
        out.add(batches("emptied by compaction", empty));
        for (ControlRecordType t : List.of(ControlRecordType.ABORT, ControlRecordType.COMMIT))
            out.add(batches("marker " + t.name(), MemoryRecords.withEndTransactionMarker(77, 1700000000123L, 9, 4001, (short) 8,
                new EndTransactionMarker(t, 31))));
        out.add(batches("leader change", MemoryRecords.withLeaderChangeMessage(5, 1700000000123L, 4, ByteBuffer.allocate(512),
            new LeaderChangeMessage().setVersion((short) 0).setLeaderId(1))));
        return out;
    }

    static MemoryRecords bigSnappy() {
        MemoryRecordsBuilder b = new MemoryRecordsBuilder(ByteBuffer.allocate(1 << 20), (byte) 2, Compression.snappy().build(),
            TimestampType.CREATE_TIME, 0, -1L, -1, (short) -1, -1, false, false, -1, 1 << 20);
        for (int i = 0; i < 2; i++) b.append(-1L, utf("k" + i), utf("abcdefghijklmnop".repeat(1500)));
        return b.build();
    }

    // --- coordinator topics --------------------------------------------------------------
    static List<Object> transactionValues() {
        List<Object> out = new ArrayList<>();
        for (short version : new short[] {0, 1})
            for (TransactionState state : TransactionState.values())
                for (boolean tags : version == 0 ? new boolean[] {false} : new boolean[] {false, true}) {
                    TransactionLogValue v = new TransactionLogValue().setProducerId(4001L << 33).setProducerEpoch((short) 12)
                        .setTransactionTimeoutMs(60000).setTransactionStatus(state.id())
                        .setTransactionLastUpdateTimestampMs(1700000000456L)
                        .setTransactionStartTimestampMs(state == TransactionState.EMPTY ? -1 : 1700000000123L)
                        .setTransactionPartitions(state == TransactionState.EMPTY ? null : List.of(
                            new TransactionLogValue.PartitionsSchema().setTopic("orders").setPartitionIds(List.of(0, 3, 2147483647)),
                            new TransactionLogValue.PartitionsSchema().setTopic("Zürich").setPartitionIds(List.of())));
                    if (tags) v.setPreviousProducerId(4000).setNextProducerId(4002).setNextProducerEpoch((short) 5)
                        .setClientTransactionVersion((short) 2);
                    out.add(map("version", version, "state", state.stateName(), "tags", tags,
                        "hex", hex(MessageUtil.toVersionPrefixedByteBuffer(version, v))));
                }
        return out;
    }

    static List<Object> offsetKeys() {
        List<Object> out = new ArrayList<>();
        for (String group : List.of("g", "Zürich 😀", "")) {
            out.add(map("type", 0, "group", group, "topic", "orders", "partition", 7, "hex", hex(MessageUtil.toCoordinatorTypePrefixedByteBuffer(
                new LegacyOffsetCommitKey().setGroup(group).setTopic("orders").setPartition(7)))));
            out.add(map("type", 1, "group", group, "topic", "orders", "partition", 7, "hex", hex(MessageUtil.toCoordinatorTypePrefixedByteBuffer(
                new OffsetCommitKey().setGroup(group).setTopic("orders").setPartition(7)))));
        }
        return out;
    }

    static List<Object> offsetValues() {
        List<Object> out = new ArrayList<>();
        for (short version = 0; version <= OffsetCommitValue.HIGHEST_SUPPORTED_VERSION; version++)
            for (String metadata : List.of("", "{\"output\":[\"Zürich\"]}", "m".repeat(300))) {
                OffsetCommitValue v = new OffsetCommitValue().setOffset(5_000_000_123L).setMetadata(metadata)
                    .setCommitTimestamp(1700000000123L);
                if (version >= 3) v.setLeaderEpoch(6);
                if (version == 1) v.setExpireTimestamp(1700000999999L);
                if (version >= 4 && !metadata.isEmpty()) v.setTopicId(new Uuid(1, 2));
                out.add(map("version", version, "metadata", metadata, "hex", hex(MessageUtil.toVersionPrefixedByteBuffer(version, v))));
            }
        return out;
    }

    static List<Object> groupKeys() {
        List<Object> out = new ArrayList<>();
        for (String group : List.of("g", "Zürich 😀", ""))
            out.add(map("group", group, "hex", hex(MessageUtil.toCoordinatorTypePrefixedByteBuffer(new GroupMetadataKey().setGroup(group)))));
        return out;
    }

    static List<Object> groupValues() {
        List<Object> out = new ArrayList<>();
        for (short version = 0; version <= GroupMetadataValue.HIGHEST_SUPPORTED_VERSION; version++)
            for (String protocolType : List.of("consumer", ""))
                for (int members : new int[] {0, 1, 3}) {
                    GroupMetadataValue v = new GroupMetadataValue().setProtocolType(protocolType).setGeneration(7)
                        .setProtocol(members == 0 ? null : "range").setLeader(members == 0 ? null : "m-0");
                    if (version >= 2 && members != 3) v.setCurrentStateTimestamp(1700000000123L);
                    for (int i = 0; i < members; i++) {
                        GroupMetadataValue.MemberMetadata m = new GroupMetadataValue.MemberMetadata().setMemberId("m-" + i)
                            .setClientId("Zürich").setClientHost("/10.0.0.7").setSessionTimeout(45000)
                            .setSubscription(new byte[] {0, 1, 2}).setAssignment(new byte[i]);
                        if (version >= 1) m.setRebalanceTimeout(300000);
                        if (version >= 3 && i == 1) m.setGroupInstanceId("static");
                        v.members().add(m);
                    }
                    out.add(map("version", version, "protocol_type", protocolType, "members", members,
                        "hex", hex(MessageUtil.toVersionPrefixedByteBuffer(version, v))));
                }
        return out;
    }

    static List<Object> groupRecordTypes() throws Exception {
        List<Object> out = new ArrayList<>();
        for (org.apache.kafka.coordinator.group.generated.CoordinatorRecordType t : org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values()) {
            ApiMessage key = t.newRecordKey();
            out.add(map("id", t.id(), "name", t.toString(), "hex", hex(MessageUtil.toCoordinatorTypePrefixedByteBuffer(key))));
        }
        return out;
    }

    // --- metadata log and broker files ---------------------------------------------------
    static String metadata(ApiMessage m, short version) {
        ApiMessageAndVersion a = new ApiMessageAndVersion(m, version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer b = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(a, cache));
        MetadataRecordSerde.INSTANCE.write(a, cache, new ByteBufferAccessor(b));
        b.flip();
        return hex(b);
    }

    static String snapshot(int n) throws Exception {
        File f = File.createTempFile("golden", ".snapshot");
        Map<Long, ProducerStateEntry> m = new TreeMap<>();
        for (int i = 0; i < n; i++) {
            ProducerStateEntry e = new ProducerStateEntry(4000L + i, (short) (i * 3), i == 1 ? -1 : 5 + i, 1700000000000L + i,
                i % 2 == 0 ? OptionalLong.of(900L + i) : OptionalLong.empty());
            if (i < 3) m.put(4000L + i, withBatch(e, i)); else m.put(4000L + i, e);
        }
        ProducerStateManager.writeSnapshot(f, m, true);
        byte[] bytes = Files.readAllBytes(f.toPath());
        f.delete();
        return hex(bytes);
    }

    static ProducerStateEntry withBatch(ProducerStateEntry e, int i) throws Exception {
        var add = ProducerStateEntry.class.getDeclaredMethod("addBatch", short.class, int.class, long.class, int.class, long.class);
        add.setAccessible(true);
        add.invoke(e, (short) (i * 3), 10 + i, 1000L + i, i, 1700000000000L + i);
        return e;
    }

    static String transactionIndex() throws Exception {
        File f = File.createTempFile("golden", ".txnindex");
        TransactionIndex index = new TransactionIndex(0, f);
        index.append(new AbortedTxn(4001, 10, 25, 8));
        index.append(new AbortedTxn(4002, 12, 5_000_000_000L, 26));
        index.close();
        byte[] bytes = Files.readAllBytes(f.toPath());
        f.delete();
        return hex(bytes);
    }

    public static void main(String[] args) throws Exception {
        List<Object> hashes = new ArrayList<>();
        for (String s : NAMES) {
            List<Integer> units = new ArrayList<>();
            for (char c : s.toCharArray()) units.add((int) c);
            hashes.add(map("utf16", units, "hash", s.hashCode(),
                "of_50", org.apache.kafka.common.utils.Utils.abs(s.hashCode()) % 50, "of_7", org.apache.kafka.common.utils.Utils.abs(s.hashCode()) % 7));
        }
        System.out.println(new ObjectMapper().writeValueAsString(map(
            "kafka", "4.3.1",
            "hashes", hashes,
            "batches", allBatches(),
            "transaction_keys", List.of(
                map("id", "orders-enricher", "hex", hex(MessageUtil.toVersionPrefixedByteBuffer((short) 0, new TransactionLogKey().setTransactionalId("orders-enricher")))),
                map("id", "a😀b", "hex", hex(MessageUtil.toVersionPrefixedByteBuffer((short) 0, new TransactionLogKey().setTransactionalId("a😀b"))))),
            "transaction_values", transactionValues(),
            "offset_keys", offsetKeys(), "offset_values", offsetValues(), "group_record_types", groupRecordTypes(),
            "group_keys", groupKeys(), "group_values", groupValues(),
            "producer_ids", List.of(
                map("broker", 2, "broker_epoch", 77, "next", 5000, "hex", metadata(new ProducerIdsRecord().setBrokerId(2).setBrokerEpoch(77).setNextProducerId(5000), (short) 0)),
                map("broker", -1, "broker_epoch", -1, "next", 1L << 40, "hex", metadata(new ProducerIdsRecord().setBrokerId(-1).setBrokerEpoch(-1).setNextProducerId(1L << 40), (short) 0))),
            "other_metadata", metadata(new TopicRecord().setName("orders").setTopicId(new Uuid(1, 2)), (short) 0),
            "producer_id_block_size", org.apache.kafka.server.common.ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE,
            "snapshot", snapshot(4), "snapshot_empty", snapshot(0),
            "transaction_index", transactionIndex())));
    }
}
