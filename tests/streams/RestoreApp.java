// Kafka Streams restoring one key-value store in RocksDB from a changelog that is there already:
// the peer of `state rebuild` in benchmarks/rebuild.py.  java -cp ... RestoreApp CONFIG.properties
//
// CONFIG: Kafka Streams' own settings, and input: an empty topic with the changelog's partitions.
// The changelog is <application.id>-kv-changelog. One line on stdout, then it dies at once:
//   <ns from the first onRestoreStart to the last onRestoreEnd> <ns of CPU meanwhile> <rows> <digest>
// The digest is that of docs/state.md, taken after the time.

import java.io.*;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.*;

public class RestoreApp {
    static final AtomicLong begun = new AtomicLong(Long.MAX_VALUE), ended = new AtomicLong();
    static final AtomicLong cpuBegun = new AtomicLong(Long.MAX_VALUE), cpuEnded = new AtomicLong();

    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    static BigInteger row(MessageDigest sha256, int partition, byte[] key, long timestamp, byte[] value) {
        ByteBuffer row = ByteBuffer.allocate(20 + key.length + value.length);
        row.putInt(partition).putInt(key.length).put(key).putLong(timestamp).putInt(value.length).put(value);
        return new BigInteger(1, sha256.digest(row.array()));
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        try (InputStream in = Files.newInputStream(Path.of(args[0]))) { p.load(in); }
        int partitions = Integer.parseInt(p.getProperty("partitions"));
        CountDownLatch left = new CountDownLatch(partitions);
        StreamsBuilder b = new StreamsBuilder();
        b.table(p.getProperty("input"), Consumed.with(Serdes.Bytes(), Serdes.ByteArray()),
            Materialized.<Bytes, byte[], KeyValueStore<Bytes, byte[]>>as("kv")
                .withKeySerde(Serdes.Bytes()).withValueSerde(Serdes.ByteArray()));
        KafkaStreams streams = new KafkaStreams(b.build(), p);
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override public void onRestoreStart(TopicPartition tp, String store, long start, long end) {
                begun.accumulateAndGet(System.nanoTime(), Math::min);
                cpuBegun.accumulateAndGet(cpu(), Math::min);
            }
            @Override public void onBatchRestored(TopicPartition tp, String store, long end, long count) {}
            @Override public void onRestoreEnd(TopicPartition tp, String store, long total) {
                ended.accumulateAndGet(System.nanoTime(), Math::max);
                cpuEnded.accumulateAndGet(cpu(), Math::max);
                left.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        left.await();
        while (streams.state() != KafkaStreams.State.RUNNING) Thread.sleep(50);
        MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
        BigInteger sum = BigInteger.ZERO;
        long rows = 0;
        for (int partition = 0; partition < partitions; partition++) {
            ReadOnlyKeyValueStore<Bytes, ValueAndTimestamp<byte[]>> store = streams.store(StoreQueryParameters.fromNameAndType(
                "kv", QueryableStoreTypes.<Bytes, byte[]>timestampedKeyValueStore()).withPartition(partition));
            try (KeyValueIterator<Bytes, ValueAndTimestamp<byte[]>> all = store.all()) {
                for (; all.hasNext(); rows++) {
                    KeyValue<Bytes, ValueAndTimestamp<byte[]>> next = all.next();
                    sum = sum.add(row(sha256, partition, next.key.get(), next.value.timestamp(), next.value.value()));
                }
            }
        }
        String digest = sum.mod(BigInteger.ONE.shiftLeft(256)).toString(16);
        System.out.printf("%d %d %d %s%n", ended.get() - begun.get(), cpuEnded.get() - cpuBegun.get(), rows, "0".repeat(64 - digest.length()) + digest);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
