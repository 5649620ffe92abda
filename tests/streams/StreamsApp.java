// A Kafka Streams application with a store of every kind, whose stores can be read and compared.
// Run by tests/streams/app.py, which compiles it.  java -cp ... StreamsApp CONFIG.properties
//
// CONFIG: Kafka Streams' own settings, and input, window.ms, gap.ms, retention.ms, history.ms.
// On stdin, a command a line; each is answered by one line of JSON on stdout:
//   state                      state of the application and how many records it processed
//   commit                     commits once, as soon as every task has seen the command
//   dump FILE                  every row of every store by interactive queries, as JSON lines
//   asof FILE KEYS TIME...     the versioned store's answer for each key (base64, a line each) and time
//   halt                       dies at once, whatever is open
// Nothing commits by itself: commit.interval.ms is near the transactions' timeout.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.*;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.query.*;
import org.apache.kafka.streams.state.*;

public class StreamsApp {
    static final AtomicLong processed = new AtomicLong(), commands = new AtomicLong();
    static final Map<String, Long> committed = new java.util.concurrent.ConcurrentHashMap<>();
    static final ObjectMapper json = new ObjectMapper();
    static final Base64.Encoder base64 = Base64.getEncoder();
    static boolean headers;

    // The last step of the topology: counts, and commits its task when told to.
    static class Counter extends ContextualFixedKeyProcessor<Bytes, byte[], byte[]> {
        @Override public void init(FixedKeyProcessorContext<Bytes, byte[]> context) {
            super.init(context);
            String task = context.taskId().toString();
            committed.put(task, commands.get());
            context.schedule(Duration.ofMillis(50), PunctuationType.WALL_CLOCK_TIME, now -> {
                long wanted = commands.get();
                if (committed.get(task) < wanted) {
                    committed.put(task, wanted);
                    context.commit();
                }
            });
        }

        @Override public void process(FixedKeyRecord<Bytes, byte[]> record) { processed.incrementAndGet(); }
    }

    static <S extends StateStore> Materialized<Bytes, byte[], S> store(String name, boolean cached) {
        Materialized<Bytes, byte[], S> m = Materialized.<Bytes, byte[], S>as(name)
            .withKeySerde(Serdes.Bytes()).withValueSerde(Serdes.ByteArray());
        return cached ? m.withCachingEnabled() : m.withCachingDisabled();
    }

    static byte[] join(byte[] a, byte[] b) {  // bounded, and different in every order
        byte[] all = Arrays.copyOf(a, a.length + b.length);
        System.arraycopy(b, 0, all, a.length, b.length);
        return all.length <= 24 ? all : Arrays.copyOfRange(all, all.length - 24, all.length);
    }

    static Topology topology(Properties p) {
        Duration window = millis(p, "window.ms"), gap = millis(p, "gap.ms");
        Duration retention = millis(p, "retention.ms"), grace = retention.minus(window);
        StreamsBuilder b = new StreamsBuilder();
        KStream<Bytes, byte[]> in = b.stream(p.getProperty("input"), Consumed.with(Serdes.Bytes(), Serdes.ByteArray()));
        in.toTable(StreamsApp.<KeyValueStore<Bytes, byte[]>>store("kv", false));
        in.toTable(StreamsApp.<KeyValueStore<Bytes, byte[]>>store("kv-cached", true));
        in.toTable(StreamsApp.<KeyValueStore<Bytes, byte[]>>store("memory", false).withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY));
        in.toTable(Materialized.<Bytes, byte[]>as(Stores.persistentVersionedKeyValueStore("versioned", millis(p, "history.ms")))
            .withKeySerde(Serdes.Bytes()).withValueSerde(Serdes.ByteArray()));
        KGroupedStream<Bytes, byte[]> grouped = in.filter((k, v) -> v != null)
            .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.ByteArray()));
        for (boolean cached : new boolean[] {false, true}) {
            String suffix = cached ? "-cached" : "";
            Materialized<Bytes, byte[], WindowStore<Bytes, byte[]>> windows = store("window" + suffix, cached);
            grouped.windowedBy(TimeWindows.ofSizeAndGrace(window, grace)).reduce(StreamsApp::join, windows.withRetention(retention));
            Materialized<Bytes, byte[], SessionStore<Bytes, byte[]>> sessions = store("session" + suffix, cached);
            grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(gap, retention.minus(gap)))
                .reduce(StreamsApp::join, sessions.withRetention(retention));
        }
        Materialized<Bytes, byte[], WindowStore<Bytes, byte[]>> hopping = store("hopping-memory", false);
        grouped.windowedBy(TimeWindows.ofSizeAndGrace(window, grace).advanceBy(window.dividedBy(2)))
            .reduce(StreamsApp::join, hopping.withRetention(retention).withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY));
        in.processValues(Counter::new);
        return b.build();
    }

    static Duration millis(Properties p, String name) { return Duration.ofMillis(Long.parseLong(p.getProperty(name))); }

    static String text(byte[] b) { return b == null ? null : base64.encodeToString(b); }

    static Map<String, Object> row(Object... pairs) {
        Map<String, Object> m = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) m.put((String) pairs[i], pairs[i + 1]);
        return m;
    }

    // Under dsl.store.format=HEADERS stores hold headers, but those in memory do not.
    static <T> T open(KafkaStreams streams, String name, int partition, QueryableStoreType<T> type) {
        return streams.store(StoreQueryParameters.fromNameAndType(name, type).withPartition(partition));
    }

    static void dump(KafkaStreams streams, int partitions, Writer out) throws IOException {
        for (int p = 0; p < partitions; p++) {
            for (String name : List.of("kv", "kv-cached", "memory"))
                if (headers && !name.endsWith("memory")) pairs(out, name, p, open(streams, name, p, QueryableStoreTypes.<Bytes, byte[]>timestampedKeyValueStoreWithHeaders()).all());
                else pairs(out, name, p, open(streams, name, p, QueryableStoreTypes.<Bytes, byte[]>timestampedKeyValueStore()).all());
            for (String name : List.of("window", "window-cached", "hopping-memory"))
                if (headers && !name.endsWith("memory")) pairs(out, name, p, open(streams, name, p, QueryableStoreTypes.<Bytes, byte[]>timestampedWindowStoreWithHeaders()).all());
                else pairs(out, name, p, open(streams, name, p, QueryableStoreTypes.<Bytes, byte[]>timestampedWindowStore()).all());
            for (String name : List.of("session", "session-cached"))
                if (headers) pairs(out, name, p, open(streams, name, p, QueryableStoreTypes.<Bytes, byte[]>sessionStoreWithHeaders()).fetch(null, null));
                else pairs(out, name, p, open(streams, name, p, QueryableStoreTypes.<Bytes, byte[]>sessionStore()).fetch(null, null));
        }
    }

    static void pairs(Writer out, String name, int partition, KeyValueIterator<?, ?> rows) throws IOException {
        try (rows) {
            while (rows.hasNext()) {
                KeyValue<?, ?> next = rows.next();
                Map<String, Object> m = row("store", name, "partition", partition);
                if (next.key instanceof Windowed<?> w) {
                    m.put("key", text(((Bytes) w.key()).get()));
                    m.put("start", w.window().start());
                    m.put("end", w.window().end());
                } else {
                    m.put("key", text(((Bytes) next.key).get()));
                }
                if (next.value instanceof ValueAndTimestamp<?> v) {
                    m.put("value", text((byte[]) v.value()));
                    m.put("timestamp", v.timestamp());
                } else if (next.value instanceof ValueTimestampHeaders<?> v) {
                    m.put("value", text((byte[]) v.value()));
                    m.put("timestamp", v.timestamp());
                } else if (next.value instanceof AggregationWithHeaders<?> v) {
                    m.put("value", text((byte[]) v.aggregation()));
                } else {
                    m.put("value", text((byte[]) next.value));
                }
                out.write(json.writeValueAsString(m) + "\n");
            }
        }
    }

    // For each key: all versions that the store still has, and what it answers for each time.
    static void asOf(KafkaStreams streams, int partitions, List<String> keys, List<Long> times, Writer out) throws IOException {
        for (String key : keys) {
            Bytes bytes = Bytes.wrap(Base64.getDecoder().decode(key));
            for (int p = 0; p < partitions; p++) {
                Set<Integer> only = Set.of(p);
                MultiVersionedKeyQuery<Bytes, byte[]> all = MultiVersionedKeyQuery.withKey(bytes);
                QueryResult<VersionedRecordIterator<byte[]>> found = streams.query(
                    StateQueryRequest.inStore("versioned").withQuery(all).withPartitions(only)).getPartitionResults().get(p);
                try (VersionedRecordIterator<byte[]> versions = found.getResult()) {
                    while (versions.hasNext()) {
                        VersionedRecord<byte[]> v = versions.next();
                        out.write(json.writeValueAsString(row("partition", p, "key", key, "value", text(v.value()),
                            "timestamp", v.timestamp(), "valid_to", v.validTo().orElse(null))) + "\n");
                    }
                }
                for (long time : times) {
                    VersionedKeyQuery<Bytes, byte[]> one = VersionedKeyQuery.withKey(bytes);
                    VersionedRecord<byte[]> v = streams.query(StateQueryRequest.inStore("versioned")
                        .withQuery(one.asOf(Instant.ofEpochMilli(time))).withPartitions(only)).getPartitionResults().get(p).getResult();
                    out.write(json.writeValueAsString(row("partition", p, "key", key, "at", time,
                        "value", v == null ? null : text(v.value()), "timestamp", v == null ? null : v.timestamp(),
                        "valid_to", v == null ? null : v.validTo().orElse(null))) + "\n");
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        try (InputStream in = Files.newInputStream(Path.of(args[0]))) { p.load(in); }
        headers = "HEADERS".equals(p.getProperty(StreamsConfig.DSL_STORE_FORMAT_CONFIG));
        int partitions = Integer.parseInt(p.getProperty("partitions"));
        KafkaStreams streams = new KafkaStreams(topology(p), p);
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ");
            Map<String, Object> answer = row("command", words[0]);
            try {
                switch (words[0]) {
                    case "state" -> {
                        answer.put("state", streams.state().name());
                        answer.put("processed", processed.get());
                    }
                    case "commit" -> commands.incrementAndGet();
                    case "dump" -> {
                        try (Writer out = Files.newBufferedWriter(Path.of(words[1]))) { dump(streams, partitions, out); }
                    }
                    case "asof" -> {
                        List<Long> times = Arrays.stream(words).skip(3).map(Long::parseLong).toList();
                        try (Writer out = Files.newBufferedWriter(Path.of(words[1]))) {
                            asOf(streams, partitions, Files.readAllLines(Path.of(words[2])), times, out);
                        }
                    }
                    case "halt" -> Runtime.getRuntime().halt(137);
                    default -> answer.put("error", "unknown command");
                }
            } catch (Exception e) {
                answer.put("error", e.toString());
                e.printStackTrace();
            }
            System.out.println(json.writeValueAsString(answer));
        }
        streams.close(Duration.ofSeconds(20));
    }
}
