// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.Steps.results;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Steps of devices, on the fake of their driver: its memory is a direct buffer here. */
final class DeviceSteps {
  private DeviceSteps() {}

  /** Sets up what a scenario needs, or skips it. */
  static void need(Object what, Values values) {
    if (what == null) return;
    if (!what.equals("cuda_driver")) throw new AssertionError("no such need: " + what);
    assumeTrue(TestDriver.isBuilt(), "the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)");
    Kvbm.versionString(); // loads the library
    TestDriver.open();
    if (!TestDriver.apply("devices=2")) throw new AssertionError("the fake CUDA driver has no second device");
    values.bind("driver", TestDriver.file().toString());
  }

  static void add(Steps steps) {
    steps.put("device.memory", in -> {
      long bytes = in.number("bytes");
      long address = TestDriver.allocateOn(in.integer("device", 0), bytes);
      return results("memory", kvbm.kvbm_java_buffer_at(address, bytes));
    });
    steps.put("device.stream",
        in -> results("stream", Steps.decimal(TestDriver.streamOn(in.integer("device", 0)))));
    steps.put("device.copy", DeviceSteps::copy);
    steps.put("device.hold", in -> {
      TestDriver.hold(in.number("stream"), in.flag("on"));
      return results();
    });
    steps.put("device.capture", in -> {
      TestDriver.capture(in.number("stream"), in.flag("on"));
      return results();
    });
    steps.put("device.waits", in -> {
      if (!TestDriver.apply(in.flag("on") ? "waits=1" : "waits=0")) throw new AssertionError("there is no such setting");
      return results();
    });
    steps.put("device.synchronize", in -> {
      TestDriver.synchronize(in.number("stream"));
      return results();
    });
    steps.put("cache.wait_layer", in -> {
      // By a number, also one of no load: Cache.waitLayer takes the operation.
      try (Call call = Call.begin()) {
        Call.check(kvbm.kvbm_cache_wait_layer(call.use(in.object("cache", Cache.class), "cache"),
            in.number("operation"), in.integer("layer", 0), in.number("stream")));
      }
      return results();
    });
    steps.put("manager.devices", in -> {
      List<Object> rows = new ArrayList<>();
      for (DeviceRow row : in.object("manager", Manager.class).devices()) {
        Map<String, Object> one = SeeingSteps.members(row);
        one.put("lost", row.lost() ? 1L : 0L);
        one.put("gathers", SeeingSteps.members(row.gathers()));
        one.put("scatters", SeeingSteps.members(row.scatters()));
        rows.add(one);
      }
      return results("n", (long) rows.size(), "rows", rows);
    });
  }

  private static Map<String, Object> copy(Arguments in) {
    ByteBuffer from = in.object("from", ByteBuffer.class);
    ByteBuffer to = in.object("to", ByteBuffer.class);
    if (from.capacity() != to.capacity()) throw new AssertionError("the memories are not as large as each other");
    boolean taken = TestDriver.copy(
        Memory.address(to, "to"), Memory.address(from, "from"), to.capacity(), in.number("stream"));
    if (!taken) throw new AssertionError("there is no such stream");
    return results();
  }
}
