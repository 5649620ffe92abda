// Applications that live in groups of each kind, in one process.  java -cp ... Living CONFIG...
//
// A CONFIG of a Kafka Streams application (of either group protocol) has `input` and `output`: it copies
// one to the other. A CONFIG with `share` is a share consumer's: `share` names its topic. On stdin, a
// command a line; each is answered by one line of JSON on stdout, NAME being an application or a group:
//   state                    the state of each Streams application, and how many records it processed
//   commit NAME              a Streams application commits with its next record
//   share NAME COUNT OFFSET  the share consumer reads until COUNT records were seen, accepts all of them
//                            but OFFSET, which it releases, and answers the offsets
//   poll NAME                the share consumer polls once, as one that lives does, and releases all
//   halt                     dies at once

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.*;

public class Living {
    static final ObjectMapper json = new ObjectMapper();
    static final Map<String, KafkaStreams> applications = new LinkedHashMap<>();
    static final Map<String, AtomicLong> processed = new ConcurrentHashMap<>();
    static final Map<String, AtomicBoolean> commits = new ConcurrentHashMap<>();
    static final Map<String, KafkaShareConsumer<byte[], byte[]>> consumers = new LinkedHashMap<>();

    static class Pass implements org.apache.kafka.streams.processor.api.Processor<byte[], byte[], byte[], byte[]> {
        final String name;
        ProcessorContext<byte[], byte[]> context;

        Pass(String name) { this.name = name; }

        @Override public void init(ProcessorContext<byte[], byte[]> context) { this.context = context; }

        @Override public void process(org.apache.kafka.streams.processor.api.Record<byte[], byte[]> record) {
            context.forward(record);
            if (commits.get(name).getAndSet(false)) context.commit();
            processed.get(name).incrementAndGet();
        }
    }

    static void streams(Properties p) {
        String name = p.getProperty("application.id");
        processed.put(name, new AtomicLong());
        commits.put(name, new AtomicBoolean());
        StreamsBuilder b = new StreamsBuilder();
        b.stream(p.getProperty("input"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .process(() -> new Pass(name))
            .to(p.getProperty("output"), Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
        KafkaStreams application = new KafkaStreams(b.build(), p);
        applications.put(name, application);
        application.start();
    }

    static void share(Properties p) {
        p.setProperty("share.acknowledgement.mode", "explicit");
        KafkaShareConsumer<byte[], byte[]> c =
            new KafkaShareConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        c.subscribe(List.of(p.getProperty("share")));
        consumers.put(p.getProperty("group.id"), c);
    }

    static Collection<Long> read(KafkaShareConsumer<byte[], byte[]> c, int count, long released) {
        Set<Long> seen = new TreeSet<>();
        long end = System.currentTimeMillis() + 60_000;
        while (seen.size() < count && System.currentTimeMillis() < end) {
            for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) {
                seen.add(r.offset());
                c.acknowledge(r, r.offset() == released ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
            }
            c.commitSync();
        }
        return seen;
    }

    static void poll(KafkaShareConsumer<byte[], byte[]> c) {
        for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) c.acknowledge(r, AcknowledgeType.RELEASE);
        c.commitSync();
    }

    public static void main(String[] args) throws Exception {
        for (String file : args) {
            Properties p = new Properties();
            try (InputStream in = Files.newInputStream(Path.of(file))) { p.load(in); }
            if (p.containsKey("share")) share(p);
            else streams(p);
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ");
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("command", words[0]);
            try {
                switch (words[0]) {
                    case "state" -> {
                        Map<String, String> states = new LinkedHashMap<>();
                        applications.forEach((name, a) -> states.put(name, a.state().name()));
                        answer.put("states", states);
                        answer.put("processed", processed);
                    }
                    case "commit" -> commits.get(words[1]).set(true);
                    case "share" -> answer.put("offsets",
                        read(consumers.get(words[1]), Integer.parseInt(words[2]), Long.parseLong(words[3])));
                    case "poll" -> poll(consumers.get(words[1]));
                    case "halt" -> Runtime.getRuntime().halt(137);
                    default -> answer.put("error", "unknown command");
                }
            } catch (Exception e) {
                answer.put("error", e.toString());
                e.printStackTrace();
            }
            System.out.println(json.writeValueAsString(answer));
        }
        applications.values().forEach(a -> a.close(Duration.ofSeconds(20)));
        consumers.values().forEach(KafkaShareConsumer::close);
    }
}
