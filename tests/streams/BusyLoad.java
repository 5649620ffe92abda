// The load of a busy field: many transactional producers and two Kafka Streams applications in one
// process.  java -cp ... BusyLoad CONFIG.properties
//
// CONFIG: bootstrap.servers, topic, partitions (of that topic), ids (transactional producers), seed,
// input (the applications' topic), name (prefix of the applications and of their output topics),
// state.dir, protocols (group protocols, an application of each: classic,streams).
// Every second one line on stdout: committed aborted processed running-applications
// It ends with stdin.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class BusyLoad {
    static final AtomicLong committed = new AtomicLong(), aborted = new AtomicLong(), processed = new AtomicLong();
    static volatile boolean running = true;

    static Properties client(Properties config) {
        Properties p = new Properties();
        p.put("bootstrap.servers", config.getProperty("bootstrap.servers"));
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        p.put("buffer.memory", "1048576");
        p.put("batch.size", "1024");
        p.put("linger.ms", "0");
        return p;
    }

    // mostly short, some of seconds: how long a transaction stays open
    static long open(Random r) {
        double kind = r.nextDouble();
        if (kind < 0.6) return r.nextInt(50);
        return kind < 0.9 ? r.nextInt(2000) : r.nextInt(8000);
    }

    static void transactions(Properties config, int number) {
        Random r = new Random(Long.parseLong(config.getProperty("seed")) * 1000 + number);
        int partitions = Integer.parseInt(config.getProperty("partitions"));
        String topic = config.getProperty("topic");
        Properties p = client(config);
        p.put("transactional.id", config.getProperty("name") + "-java-" + number);
        // not all in one moment: their senders ask without a pause while brokers are slow to answer
        try { Thread.sleep(r.nextInt(5000)); } catch (InterruptedException end) { return; }
        while (running) {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(p)) {
                producer.initTransactions();
                while (running) {
                    producer.beginTransaction();
                    for (int i = r.nextInt(4) + 1; i > 0; i--) {
                        producer.send(new ProducerRecord<>(topic, r.nextInt(partitions), "k", "v" + i));
                        if (r.nextInt(3) == 0) Thread.sleep(r.nextInt(20));
                    }
                    producer.flush();
                    Thread.sleep(open(r));
                    if (r.nextInt(5) == 0) { producer.abortTransaction(); aborted.incrementAndGet(); }
                    else { producer.commitTransaction(); committed.incrementAndGet(); }
                    Thread.sleep(r.nextInt(2000));
                }
            } catch (InterruptedException end) {
                return;
            } catch (KafkaException again) {
                System.err.println(number + " " + again);
            }
        }
    }

    static void inputs(Properties config) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(client(config))) {
            for (long n = 0; running; n++) {
                producer.send(new ProducerRecord<>(config.getProperty("input"), "key-" + n % 100, "" + n));
                Thread.sleep(20);
            }
        } catch (InterruptedException | KafkaException end) {
            System.err.println("inputs " + end);
        }
    }

    // a repartition topic, whose records are deleted while it runs, a store, and an output
    static KafkaStreams application(Properties config, String protocol) {
        StreamsBuilder b = new StreamsBuilder();
        b.stream(config.getProperty("input"), Consumed.with(Serdes.String(), Serdes.String()))
            .peek((key, value) -> processed.incrementAndGet())
            .map((key, value) -> KeyValue.pair("of-" + value.hashCode() % 20, value))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(config.getProperty("name") + "-" + protocol + "-out", Produced.with(Serdes.String(), Serdes.Long()));
        Properties p = new Properties();
        p.put("application.id", config.getProperty("name") + "-" + protocol);
        p.put("bootstrap.servers", config.getProperty("bootstrap.servers"));
        p.put("state.dir", config.getProperty("state.dir") + "/" + protocol);
        p.put("group.protocol", protocol);
        p.put("processing.guarantee", "exactly_once_v2");
        p.put("commit.interval.ms", "100");
        // Streams' own 10 s is near on a crowded machine: then `check` rightly warns of the deadline
        p.put("producer.transaction.timeout.ms", "60000");
        p.put("repartition.purge.interval.ms", "500");
        p.put("statestore.cache.max.bytes", "0");
        p.put("num.stream.threads", "1");
        p.put("consumer.auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(b.build(), p);
        streams.start();
        return streams;
    }

    static void background(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        try (var in = new java.io.FileInputStream(arguments[0])) { config.load(in); }
        int ids = Integer.parseInt(config.getProperty("ids"));
        for (int i = 0; i < ids; i++) {
            int number = i;
            background(() -> transactions(config, number));
        }
        background(() -> inputs(config));
        List<KafkaStreams> applications = new ArrayList<>();
        for (String protocol : config.getProperty("protocols").split(",")) applications.add(application(config, protocol));
        background(() -> {
            try { while (System.in.read() >= 0) { } } catch (java.io.IOException end) { }
            Runtime.getRuntime().halt(0);
        });
        while (true) {
            long up = applications.stream().filter(a -> a.state() == KafkaStreams.State.RUNNING).count();
            System.out.println(committed + " " + aborted + " " + processed + " " + up);
            System.out.flush();
            Thread.sleep(1000);
        }
    }
}
