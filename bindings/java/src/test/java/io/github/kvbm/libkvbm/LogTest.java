// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Log lines arrive, from the caller's thread and from the library's, and a listener's fault stays its own. */
@Timeout(60)
class LogTest {
  private static void work(LogListener listener, Path tmp) {
    ContextOptions options = new ContextOptions().log(listener, LogLevel.DEBUG)
        .setting("node.listen", "127.0.0.1:0").setting("node.peers", "127.0.0.1:9");
    try (Context context = Context.create(options);
        Manager manager = Manager.create(
            context, new ManagerOptions().tiers(List.of(Tier.disk(tmp.resolve("disk").toString(), 64L << 20))))) {
      assertFalse(manager.nodeAddress().isEmpty());
      assertTrue(context.config().contains("node"));
    }
  }

  @Test
  void linesArrive(@TempDir Path tmp) {
    Queue<String> lines = new ConcurrentLinkedQueue<>();
    work((level, component, text) -> lines.add(level + " " + component + ": " + text), tmp);
    assertFalse(lines.isEmpty());
    for (String line : lines) assertTrue(line.matches("(?s)(ERROR|WARNING|INFO|DEBUG) \\S+: .+"), line);
  }

  @Test
  void whatAListenerThrowsIsDropped(@TempDir Path tmp) {
    work((level, component, text) -> {
      throw new IllegalStateException(text);
    }, tmp);
  }
}
