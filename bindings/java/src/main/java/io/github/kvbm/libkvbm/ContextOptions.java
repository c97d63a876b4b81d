// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/** Options of a {@link Context}. What is not set has its default. */
public final class ContextOptions {
  private int threads;
  private String configFile;
  private final Map<String, String> settings = new LinkedHashMap<>();
  private LogListener log;
  private LogLevel logLevel = LogLevel.ERROR;

  /** All defaults. */
  public ContextOptions() {}

  /**
   * Sets the number of worker threads.
   *
   * @param count 0 = from the configuration
   * @return this
   */
  public ContextOptions threads(int count) {
    threads = Call.size(count, "threads");
    return this;
  }

  /**
   * Names the configuration file.
   *
   * @param path a TOML file; null = the environment's KVBM_CONFIG, else none
   * @return this
   */
  public ContextOptions configFile(String path) {
    configFile = path;
    return this;
  }

  /**
   * Sets one option of the configuration, over file and environment.
   *
   * @param key e.g. host.capacity
   * @param value e.g. 8GiB
   * @return this
   */
  public ContextOptions setting(String key, String value) {
    settings.put(Objects.requireNonNull(key, "key"), Objects.requireNonNull(value, "value"));
    return this;
  }

  /**
   * Sets the listener of log lines; without one the library is silent. Lines that come after the context was closed are
   * dropped.
   *
   * @param listener null = none
   * @param level highest level of its lines
   * @return this
   */
  public ContextOptions log(LogListener listener, LogLevel level) {
    log = listener;
    logLevel = Objects.requireNonNull(level, "level");
    return this;
  }

  LogListener listener() {
    return log;
  }

  Struct write(Call call, long listener) {
    Struct out = call.memory(SIZEOF_context_options);
    Call.check(kvbm.kvbm_context_options_init(out.address, SIZEOF_context_options));
    out.put(context_options_threads, threads);
    out.put(context_options_config_file, call.text(configFile));
    Struct all = call.memory((long) SIZEOF_setting * settings.size());
    int at = 0;
    for (Map.Entry<String, String> setting : settings.entrySet()) {
      all.put(at + setting_key, call.text(setting.getKey()));
      all.put(at + setting_value, call.text(setting.getValue()));
      at += SIZEOF_setting;
    }
    if (!settings.isEmpty()) out.put(context_options_settings, all.address);
    out.put(context_options_n_settings, (long) settings.size());
    if (listener != 0) {
      out.put(context_options_log, kvbm.kvbm_java_log_function());
      out.put(context_options_log_user, listener);
      out.put(context_options_log_level, logLevel.number());
    }
    return out;
  }
}
