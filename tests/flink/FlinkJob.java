import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaSinkBuilder;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.connector.kafka.source.split.KafkaPartitionSplit;
import org.apache.flink.connector.kafka.source.split.KafkaPartitionSplitSerializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.io.SimpleVersionedSerialization;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.metrics.groups.SinkCommitterMetricGroup;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.checkpoint.metadata.MetadataSerializers;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.OperatorStreamStateHandle;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.operators.StreamingRuntimeContext;
import org.apache.flink.streaming.runtime.operators.sink.committables.CommittableCollectorSerializer;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A job source topic -> Kafka sink EXACTLY_ONCE in one JVM (`run FILE.properties`), and what Flink's
 * own classes read from a checkpoint (`load CHECKPOINT`: JSON lines), the oracle of eoctl's reader.
 */
public class FlinkJob {
  private static final List<String> READ =
      List.of("streaming_committer_raw_states", "writer_raw_states", "SourceReaderState");

  public static void main(String[] args) throws Exception {
    if (args[0].equals("load")) {
      load(args[1]);
    } else if (args[0].equals("rewrite")) {
      rewrite(args[1], Integer.parseInt(args[2]), args[3]);
    } else {
      run(args[1]);
    }
  }

  private static void run(String file) throws Exception {
    Properties told = new Properties();
    try (FileInputStream in = new FileInputStream(file)) {
      told.load(in);
    }
    Configuration config = new Configuration();
    for (String name : told.stringPropertyNames()) {
      if (name.startsWith("flink.")) {
        config.setString(name.substring("flink.".length()), told.getProperty(name));
      }
    }
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(config);
    Properties kafka = new Properties();
    kafka.setProperty("bootstrap.servers", told.getProperty("bootstrap"));
    KafkaSource<byte[]> source =
        KafkaSource.<byte[]>builder()
            .setProperties(kafka)
            .setGroupId(told.getProperty("group"))
            .setTopics(told.getProperty("source"))
            .setStartingOffsets(
                Boolean.parseBoolean(told.getProperty("from.group"))
                    ? OffsetsInitializer.committedOffsets()
                    : OffsetsInitializer.earliest())
            .setDeserializer(new Values())
            .build();
    env.fromSource(source, WatermarkStrategy.noWatermarks(), "from-kafka")
        .uid("from-kafka")
        .map(new Slow(told.getProperty("folder"), Long.parseLong(told.getProperty("hold.at"))))
        .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
        .uid("slow")
        .sinkTo(sink(told))
        .name("to-kafka")
        .uid("to-kafka");
    follow(env.executeAsync("eoctl"), Path.of(told.getProperty("folder")));
  }

  /**
   * Waits for the job's end. A file `savepoint-wanted` in its folder, which says `stop` or `go on`,
   * is answered by `savepoint-made`, which says where the savepoint lies.
   */
  private static void follow(JobClient job, Path folder) throws Exception {
    CompletableFuture<JobExecutionResult> end = job.getJobExecutionResult();
    Path wanted = folder.resolve("savepoint-wanted");
    while (!end.isDone()) {
      if (Files.exists(wanted)) {
        String to = folder.resolve("savepoints").toUri().toString();
        CompletableFuture<String> made =
            Files.readString(wanted).equals("stop")
                ? job.stopWithSavepoint(false, to, SavepointFormatType.CANONICAL)
                : job.triggerSavepoint(to, SavepointFormatType.CANONICAL);
        Path answer = Files.writeString(folder.resolve("savepoint-arriving"), made.get());
        Files.delete(wanted);
        Files.move(answer, folder.resolve("savepoint-made"), StandardCopyOption.ATOMIC_MOVE);
      }
      Thread.sleep(20);
    }
    end.get();
  }

  private static KafkaSink<byte[]> sink(Properties told) {
    Properties producer = new Properties();
    producer.setProperty("transaction.timeout.ms", told.getProperty("timeout.ms", "600000"));
    KafkaSinkBuilder<byte[]> builder =
        KafkaSink.<byte[]>builder()
            .setBootstrapServers(told.getProperty("bootstrap", "localhost:9"))
            .setKafkaProducerConfig(producer)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(told.getProperty("prefix", "none"))
            .setTransactionNamingStrategy(
                TransactionNamingStrategy.valueOf(told.getProperty("naming", "INCREMENTING")))
            .setRecordSerializer(
                KafkaRecordSerializationSchema.<byte[]>builder()
                    .setTopic(told.getProperty("sink", "none"))
                    .setValueSerializationSchema(new Same())
                    .build());
    return builder.build();
  }

  public static class Values implements KafkaRecordDeserializationSchema<byte[]> {
    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<byte[]> out) {
      out.collect(record.value());
    }

    @Override
    public TypeInformation<byte[]> getProducedType() {
      return PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
    }
  }

  public static class Same implements SerializationSchema<byte[]> {
    @Override
    public byte[] serialize(byte[] value) {
      return value;
    }
  }

  /**
   * Passes records on, one per millisecond. Once its part of checkpoint `holdAt` is taken, the
   * thread that it shares with the committer behind it stops for good within a millisecond or two:
   * the committer is not told that the checkpoint is complete, and nothing is committed.
   */
  public static class Slow extends RichMapFunction<byte[], byte[]>
      implements CheckpointedFunction {
    private final String folder;
    private final long holdAt;

    Slow(String folder, long holdAt) {
      this.folder = folder;
      this.holdAt = holdAt;
    }

    @Override
    public byte[] map(byte[] value) throws Exception {
      Thread.sleep(1);
      return value;
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) {
      if (holdAt > 0 && context.getCheckpointId() >= holdAt) {
        ProcessingTimeService time =
            ((StreamingRuntimeContext) getRuntimeContext()).getProcessingTimeService();
        time.registerTimer(time.getCurrentProcessingTime(), now -> hold());
      }
    }

    private void hold() throws Exception {
      int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
      Files.writeString(Path.of(folder, "held-" + subtask), "");
      Thread.sleep(Long.MAX_VALUE);
    }

    @Override
    public void initializeState(FunctionInitializationContext context) {}
  }

  private static CheckpointMetadata metadata(String checkpoint) throws Exception {
    File file = new File(checkpoint, "_metadata");
    try (DataInputStream in = new DataInputStream(new FileInputStream(file))) {
      return Checkpoints.loadCheckpointMetadata(in, FlinkJob.class.getClassLoader(), checkpoint);
    }
  }

  /** Writes a checkpoint's `_metadata` in an older format, by Flink's own serializer of it. */
  private static void rewrite(String checkpoint, int version, String out) throws Exception {
    CheckpointMetadata metadata = metadata(checkpoint);
    try (DataOutputStream to = new DataOutputStream(new FileOutputStream(out))) {
      Checkpoints.storeCheckpointMetadata(
          metadata, to, MetadataSerializers.getSerializer(version));
    }
  }

  private static void load(String checkpoint) throws Exception {
    CheckpointMetadata metadata = metadata(checkpoint);
    System.out.println("{\"checkpoint\": " + metadata.getCheckpointId() + "}");
    KafkaSink<byte[]> sink = sink(new Properties());
    Object committables = call(sink, "getCommittableSerializer");
    Object writers = call(sink, "getWriterStateSerializer");
    for (OperatorState operator : metadata.getOperatorStates()) {
      for (OperatorSubtaskState subtask : operator.getSubtaskStates().values()) {
        for (OperatorStateHandle handle : subtask.getManagedOperatorState()) {
          for (Map.Entry<String, OperatorStateHandle.StateMetaInfo> state :
              handle.getStateNameToPartitionOffsets().entrySet()) {
            if (!READ.contains(state.getKey())) {
              continue;
            }
            for (byte[] item : items(handle, state.getValue().getOffsets())) {
              if (state.getKey().equals("streaming_committer_raw_states")) {
                for (Object one : committables((SimpleVersionedSerializer<?>) committables, item)) {
                  told("committable", one.toString());
                }
              } else if (state.getKey().equals("writer_raw_states")) {
                SimpleVersionedSerializer<?> serializer = (SimpleVersionedSerializer<?>) writers;
                told("writer", decode(serializer, item).toString());
              } else if (state.getKey().equals("SourceReaderState")) {
                KafkaPartitionSplit split =
                    (KafkaPartitionSplit) decode(new KafkaPartitionSplitSerializer(), item);
                told(
                    "split",
                    split.getTopic() + " " + split.getPartition() + " " + split.getStartingOffset());
              }
            }
          }
        }
      }
    }
  }

  private static void told(String kind, String text) {
    System.out.println("{\"" + kind + "\": \"" + text.replace("\"", "\\\"") + "\"}");
  }

  private static List<byte[]> items(OperatorStateHandle handle, long[] offsets) throws Exception {
    List<byte[]> items = new ArrayList<>();
    try (FSDataInputStream in = handle.openInputStream()) {
      for (long offset : offsets) {
        in.seek(offset);
        DataInputStream data = new DataInputStream(in);
        byte[] item = new byte[data.readInt()];
        data.readFully(item);
        items.add(item);
      }
    }
    return items;
  }

  private static <T> T decode(SimpleVersionedSerializer<T> serializer, byte[] item)
      throws Exception {
    return SimpleVersionedSerialization.readVersionAndDeSerialize(serializer, item);
  }

  /** The committables that a restore would commit, by Flink's own collector. */
  @SuppressWarnings({"rawtypes", "unchecked"})
  private static List<Object> committables(SimpleVersionedSerializer serializer, byte[] item)
      throws Exception {
    Object nobody =
        Proxy.newProxyInstance(
            FlinkJob.class.getClassLoader(),
            new Class<?>[] {SinkCommitterMetricGroup.class},
            (proxy, method, given) -> null);
    Object collector =
        decode(
            new CommittableCollectorSerializer(
                serializer, 0, 1, (SinkCommitterMetricGroup) nobody),
            item);
    List<Object> found = new ArrayList<>();
    for (Object checkpoint : (Collection<?>) call(collector, "getCheckpointCommittables")) {
      for (Object subtask : (Collection<?>) call(checkpoint, "getSubtaskCommittableManagers")) {
        for (Object request : (Collection<?>) call(subtask, "getRequests")) {
          if (!(Boolean) call(request, "isFinished")) {
            Object id = call(checkpoint, "getCheckpointId");
            found.add(id + " " + call(request, "getCommittable"));
          }
        }
      }
    }
    return found;
  }

  private static Object call(Object on, String name) throws Exception {
    for (Class<?> type = on.getClass(); type != null; type = type.getSuperclass()) {
      for (Method method : type.getDeclaredMethods()) {
        if (method.getName().equals(name) && method.getParameterCount() == 0) {
          method.setAccessible(true);
          return method.invoke(on);
        }
      }
    }
    throw new NoSuchMethodException(name);
  }
}
