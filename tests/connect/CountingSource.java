import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/**
 * A source of the numbers 1, 2, 3 ... up to `records`, `batch` of them every `pause.ms`, into
 * partition 0 of `topic`. Source partition: {"table": TABLE, "database": "shop"}; source offset:
 * {"id": the last number, "kind": "row"}. With `ordered` the partition's keys stand in this order,
 * else as in a HashMap: Connect itself reads offsets of this other order only.
 */
public class CountingSource extends SourceConnector {
  private Map<String, String> told;

  @Override public String version() { return "1"; }
  @Override public void start(Map<String, String> properties) { told = properties; }
  @Override public void stop() {}
  @Override public Class<? extends Task> taskClass() { return Counting.class; }
  @Override public List<Map<String, String>> taskConfigs(int most) { return List.of(told); }
  @Override public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> properties) {
    return ExactlyOnceSupport.SUPPORTED;
  }
  @Override public boolean alterOffsets(Map<String, String> p, Map<Map<String, ?>, Map<String, ?>> o) {
    return true;
  }
  @Override public ConfigDef config() {
    ConfigDef known = new ConfigDef();
    for (String name : List.of("topic", "table", "records", "batch", "pause.ms")) {
      known.define(name, ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, name);
    }
    return known;
  }

  public static class Counting extends SourceTask {
    private Map<String, String> partition;
    private String topic;
    private long next, records, batch, pause;

    @Override public String version() { return "1"; }
    @Override public void stop() {}
    @Override public void start(Map<String, String> properties) {
      topic = properties.get("topic");
      records = Long.parseLong(properties.get("records"));
      batch = Long.parseLong(properties.get("batch"));
      pause = Long.parseLong(properties.get("pause.ms"));
      partition = "true".equals(properties.get("ordered")) ? new LinkedHashMap<>() : new HashMap<>();
      partition.put("table", properties.get("table"));
      partition.put("database", "shop");
      Map<String, Object> at = context.offsetStorageReader().offset(partition);
      next = at == null ? 1 : ((Number) at.get("id")).longValue() + 1;
    }
    @Override public List<SourceRecord> poll() throws InterruptedException {
      Thread.sleep(pause);
      List<SourceRecord> found = new ArrayList<>();
      for (; next <= records && found.size() < batch; next++) {
        Map<String, Object> at = new LinkedHashMap<>();
        at.put("id", next);
        at.put("kind", "row");
        found.add(new SourceRecord(partition, at, topic, 0, Schema.STRING_SCHEMA, "k",
            Schema.STRING_SCHEMA, String.valueOf(next)));
      }
      return found.isEmpty() ? null : found;
    }
  }
}
