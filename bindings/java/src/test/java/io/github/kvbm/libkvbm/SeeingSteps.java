// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.Steps.results;

import java.lang.reflect.RecordComponent;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Steps that see a manager work: statistics, scans, nodes. */
final class SeeingSteps {
  private SeeingSteps() {}

  static void add(Steps steps) {
    steps.put("manager.stats", in -> {
      ManagerStats stats = in.object("manager", Manager.class).stats();
      Map<String, Object> out = members(stats);
      List<Object> tiers = new ArrayList<>();
      for (TierStats tier : stats.tiers()) tiers.add(members(tier));
      List<Object> codec = new ArrayList<>();
      for (TierCodecStats tier : stats.codec()) codec.add(members(tier));
      out.put("codec", codec);
      out.put("tiers", tiers);
      out.put("n_tiers", (long) tiers.size());
      return out;
    });
    steps.put("manager.metrics", in -> results("text", in.object("manager", Manager.class).metrics()));
    steps.put("manager.subscribe", in -> {
      in.object("manager", Manager.class).subscribe(in.object("queue", CompletionQueue.class));
      return results();
    });
    steps.put("manager.scan", in -> {
      List<Object> rows = new ArrayList<>();
      BlockScan scan = in.object("manager", Manager.class).scan();
      while (!scan.ended()) {
        for (ScanRow row : scan.next(in.integer("page", 1))) rows.add(members(row));
      }
      return results("rows", rows);
    });
    steps.put("manager.nodes", in -> {
      List<Object> rows = new ArrayList<>();
      for (NodeRow row : in.object("manager", Manager.class).nodes()) rows.add(members(row));
      return results("n", (long) rows.size(), "rows", rows);
    });
    steps.put("manager.node_address", in -> results("address", in.object("manager", Manager.class).nodeAddress()));
    steps.put("manager.wait_for_peers", in -> {
      in.object("manager", Manager.class).waitForPeers(in.time("timeout_ns", 0));
      return results();
    });
    steps.put("manager.locate", in -> {
      int[] requests = in.has("request_keys") ? in.integers("request_keys") : null;
      LocateResult found = in.object("manager", Manager.class).locate(in.object("namespace", Namespace.class),
          in.keys("keys"), requests, in.parts("parts"), in.time("ask_nodes_ns", 0));
      List<Object> rows = new ArrayList<>();
      for (Location row : found.rows()) {
        Map<String, Object> one = members(row);
        one.put("n_prefix", row.prefix());
        one.put("n_in_tier", row.inTier());
        rows.add(one);
      }
      return results("status", found.complete() ? 0L : 1L, "n", (long) rows.size(), "rows", rows);
    });
    steps.put("manager.share", in -> members(in.object("manager", Manager.class).share()));
  }

  /** The members of a record by their names in kvbm.h. */
  static Map<String, Object> members(Record record) {
    Map<String, Object> out = new HashMap<>();
    for (RecordComponent component : record.getClass().getRecordComponents()) {
      Object value;
      try {
        value = component.getAccessor().invoke(record);
      } catch (ReflectiveOperationException e) {
        throw new AssertionError(e);
      }
      if (value instanceof Integer) value = Steps.unsigned((Integer) value);
      if (value instanceof Key) value = value.toString();
      if (value instanceof Numbered) value = (long) ((Numbered) value).number();
      out.put(component.getName().replaceAll("([A-Z])", "_$1").toLowerCase(), value);
    }
    out.put("text", Steps.shown(record));
    return out;
  }
}
