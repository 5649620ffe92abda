// A Kafka Streams application with key-value stores in RocksDB only, for `state deliver --into
// streams-dir:`. Compiled for Streams 3.9, 4.0 and 4.3 alike.  java -cp ... StoresApp CONFIG.properties
//
// CONFIG: Kafka Streams' own settings, input and partitions. Two stores of one subtopology, fed from
// input: totals (timestamped, of the DSL) and raw (plain). On stdin, a command a line; each is
// answered by one line of JSON on stdout:
//   state       state of the application, how many records it processed, and what it restored: a list
//               of [changelog-partition, first offset, end, records]
//   dump FILE   every row of every store by interactive queries, as JSON lines
//   halt        dies at once

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

public class StoresApp {
    static final AtomicLong processed = new AtomicLong();
    static final ObjectMapper json = new ObjectMapper();
    static final Base64.Encoder base64 = Base64.getEncoder();

    static class Keeper implements Processor<Bytes, byte[], Void, Void> {
        KeyValueStore<Bytes, byte[]> raw;

        @Override public void init(ProcessorContext<Void, Void> context) { raw = context.getStateStore("raw"); }

        @Override public void process(Record<Bytes, byte[]> record) {
            if (record.value() == null) raw.delete(record.key());
            else raw.put(record.key(), record.value());
            processed.incrementAndGet();
        }
    }

    static Topology topology(Properties p) {
        StreamsBuilder b = new StreamsBuilder();
        b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("raw"), Serdes.Bytes(), Serdes.ByteArray()));
        KStream<Bytes, byte[]> in = b.stream(p.getProperty("input"), Consumed.with(Serdes.Bytes(), Serdes.ByteArray()));
        in.toTable(Materialized.<Bytes, byte[], KeyValueStore<Bytes, byte[]>>as("totals")
            .withKeySerde(Serdes.Bytes()).withValueSerde(Serdes.ByteArray()));
        in.process(Keeper::new, "raw");
        return b.build();
    }

    static void dump(KafkaStreams streams, int partitions, Writer out) throws IOException {
        for (int p = 0; p < partitions; p++) {
            try (KeyValueIterator<Bytes, ValueAndTimestamp<byte[]>> rows = streams.store(StoreQueryParameters.fromNameAndType(
                    "totals", QueryableStoreTypes.<Bytes, byte[]>timestampedKeyValueStore()).withPartition(p)).all()) {
                while (rows.hasNext()) {
                    KeyValue<Bytes, ValueAndTimestamp<byte[]>> next = rows.next();
                    row(out, "totals", p, next.key, next.value.value(), next.value.timestamp());
                }
            }
            try (KeyValueIterator<Bytes, byte[]> rows = streams.store(StoreQueryParameters.fromNameAndType(
                    "raw", QueryableStoreTypes.<Bytes, byte[]>keyValueStore()).withPartition(p)).all()) {
                while (rows.hasNext()) {
                    KeyValue<Bytes, byte[]> next = rows.next();
                    row(out, "raw", p, next.key, next.value, null);
                }
            }
        }
    }

    static void row(Writer out, String store, int partition, Bytes key, byte[] value, Long timestamp) throws IOException {
        Map<String, Object> m = new LinkedHashMap<>();
        m.put("store", store);
        m.put("partition", partition);
        m.put("key", base64.encodeToString(key.get()));
        m.put("value", base64.encodeToString(value));
        m.put("timestamp", timestamp);
        out.write(json.writeValueAsString(m) + "\n");
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        try (InputStream in = Files.newInputStream(Path.of(args[0]))) { p.load(in); }
        int partitions = Integer.parseInt(p.getProperty("partitions"));
        Map<String, List<Object>> restored = new ConcurrentHashMap<>();
        KafkaStreams streams = new KafkaStreams(topology(p), p);
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            final Map<String, long[]> begun = new ConcurrentHashMap<>();

            @Override public void onRestoreStart(TopicPartition tp, String store, long start, long end) {
                begun.put(tp.toString(), new long[] {start, end});
                restored.put(tp + "@" + start, List.of(tp.toString(), start, end, 0));
            }
            @Override public void onBatchRestored(TopicPartition tp, String store, long end, long count) {}
            @Override public void onRestoreEnd(TopicPartition tp, String store, long total) {
                long[] range = begun.get(tp.toString());
                restored.put(tp + "@" + range[0], List.of(tp.toString(), range[0], range[1], total));
            }
        });
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ");
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("command", words[0]);
            try {
                switch (words[0]) {
                    case "state" -> {
                        answer.put("state", streams.state().name());
                        answer.put("processed", processed.get());
                        answer.put("restored", restored.values());
                    }
                    case "dump" -> {
                        try (Writer out = Files.newBufferedWriter(Path.of(words[1]))) { dump(streams, partitions, out); }
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
