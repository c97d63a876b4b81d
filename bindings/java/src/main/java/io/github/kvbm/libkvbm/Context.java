// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import io.github.kvbm.libkvbm.raw.Log;
import io.github.kvbm.libkvbm.raw.kvbm;

/** Configuration, worker threads and I/O of a process. It lives until its last child is closed. */
public final class Context extends NativeObject {
  private Context(long pointer, long listener) {
    super("context", pointer, p -> {
      kvbm.kvbm_context_release(p);
      Log.remove(listener);
    });
  }

  /** {@return a context with default options} */
  public static Context create() {
    return create(new ContextOptions());
  }

  /**
   * Creates a context. The configuration is resolved once, here: defaults, the TOML file, the environment's KVBM_*,
   * settings; the later wins.
   *
   * @param options what to set
   * @return the context
   * @throws CallerException KVBM_ERR_CONFIG: an unknown key or a bad value
   */
  public static Context create(ContextOptions options) {
    LogListener listener = options.listener();
    long number = listener == null ? 0 : Log.add(
        (level, component, text) -> listener.line(LogLevel.of(level), component, text));
    Context made = null;
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_context_create(options.write(call, number).address, out.address, error.address), error);
      made = new Context(out.getLong(0), number);
      return made;
    } finally {
      if (made == null) Log.remove(number);
    }
  }

  /** {@return the effective configuration as TOML, each value with its origin} */
  public String config() {
    return Call.twoPhase((out, capacity, needed) -> {
      try (Call call = Call.begin()) {
        return kvbm.kvbm_context_config(call.use(handle), out, capacity, needed);
      }
    });
  }
}
