// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm.raw;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Listeners of log lines: C identifies a listener by its number. */
public final class Log {
  /** Receives one line. */
  public interface Listener {
    /** Called on any thread, also on one of the library's. */
    void line(int level, String component, String text);
  }

  private static final Map<Long, Listener> LISTENERS = new ConcurrentHashMap<>();
  private static final AtomicLong LAST = new AtomicLong();

  private Log() {}

  /** {@return the listener's number} */
  public static long add(Listener listener) {
    long number = LAST.incrementAndGet();
    LISTENERS.put(number, listener);
    return number;
  }

  /** Lines that still come are dropped. */
  public static void remove(long number) {
    LISTENERS.remove(number);
  }

  /** Called by the natives. */
  static void line(long number, int level, byte[] component, byte[] text) {
    Listener listener = LISTENERS.get(number);
    if (listener != null) {
      listener.line(
          level, new String(component, StandardCharsets.UTF_8), new String(text, StandardCharsets.UTF_8));
    }
  }
}
