import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/**
 * A transactional application as Kafka documents it: it aborts what may be aborted and goes on, and
 * ends on a fatal error. Its first transaction stays open until an error, the later ones are short.
 *
 * Arguments: bootstrap servers, transactional id, topic, the prefix of its records. A line on stdout
 * for each thing that happens; it ends with stdin.
 */
public class LiveProducer {
    private static int written = 0;

    public static void main(String[] args) throws Exception {
        Thread ending = new Thread(LiveProducer::endWithStdin);
        ending.setDaemon(true);
        ending.start();
        Properties told = new Properties();
        told.put("bootstrap.servers", args[0]);
        told.put("transactional.id", args[1]);
        told.put("transaction.timeout.ms", "600000");
        told.put("linger.ms", "0");
        told.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        told.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(told);
        producer.initTransactions();
        int most = Integer.MAX_VALUE;
        while (true) {
            try {
                producer.beginTransaction();
                for (int n = 0; n < most; n++) {
                    write(producer, args[2], args[3]);
                    Thread.sleep(50);
                }
                producer.commitTransaction();
                say("committed", written);
            } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException
                    | UnsupportedVersionException fatal) {
                say("fatal", fatal);
                break;
            } catch (Exception error) {
                say("error", error);
                most = 3;
                try {
                    producer.abortTransaction();
                    say("aborted", written);
                } catch (KafkaException fatal) {
                    say("fatal", fatal);
                    break;
                }
            }
        }
        System.exit(0);
    }

    private static void write(KafkaProducer<byte[], byte[]> producer, String topic, String prefix)
            throws Exception {
        byte[] value = (prefix + ++written).getBytes(StandardCharsets.UTF_8);
        Future<RecordMetadata> sent = producer.send(new ProducerRecord<>(topic, 0, null, value));
        try {
            sent.get();
        } catch (java.util.concurrent.ExecutionException failure) {
            throw (Exception) failure.getCause();
        }
        say("written", written);
    }

    private static void endWithStdin() {
        try {
            while (System.in.read() >= 0) {}
        } catch (java.io.IOException gone) {
            // ends it as well
        }
        Runtime.getRuntime().halt(0);
    }

    private static void say(String what, Object about) {
        System.out.println(what + " " + about);
        System.out.flush();
    }
}
