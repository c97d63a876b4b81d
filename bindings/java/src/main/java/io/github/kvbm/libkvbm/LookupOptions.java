// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/** Options of a lookup. What is not set has its default. */
public final class LookupOptions {
  private LookupMode mode = LookupMode.PREFIX;
  private List<Part> parts;
  private boolean hostOnly;
  private boolean noUse;
  private KeyArray unitKeys;
  private long askNodesNs;

  /** The longest prefix, in all tiers, of component 0 and the whole model. */
  public LookupOptions() {}

  /**
   * Sets what counts as a hit.
   *
   * @param how the mode
   * @return this
   */
  public LookupOptions mode(LookupMode how) {
    mode = Objects.requireNonNull(how, "how");
    return this;
  }

  /**
   * Sets what must be there for a hit: all of them.
   *
   * @param needed null = component 0 and the whole model
   * @return this
   */
  public LookupOptions parts(List<Part> needed) {
    parts = needed == null ? null : List.copyOf(needed);
    return this;
  }

  /**
   * Looks in the host tier alone.
   *
   * @param on whether to
   * @return this
   */
  public LookupOptions hostOnly(boolean on) {
    hostOnly = on;
    return this;
  }

  /**
   * Does not count as a use.
   *
   * @param on whether not to
   * @return this
   */
  public LookupOptions noUse(boolean on) {
    noUse = on;
    return this;
  }

  /**
   * Sets the keys of the prompt's engine blocks, by which the leading ones of a stored block are found.
   *
   * @param keys from the start of the prompt; null = not wanted
   * @return this
   */
  public LookupOptions unitKeys(KeyArray keys) {
    unitKeys = keys;
    return this;
  }

  /**
   * Asks other nodes for keys that are nowhere here.
   *
   * @param time how long to wait for their answers; null = not to ask
   * @return this
   */
  public LookupOptions askNodes(Duration time) {
    askNodesNs = time == null ? 0 : Call.nanoseconds(time, "askNodes");
    return this;
  }

  Struct write(Call call) {
    Struct out = call.memory(SIZEOF_lookup_options);
    Call.check(kvbm.kvbm_lookup_options_init(out.address, SIZEOF_lookup_options));
    out.put(lookup_options_mode, mode.number());
    out.put(lookup_options_parts, Part.write(call, parts));
    out.put(lookup_options_n_parts, parts == null ? 0L : parts.size());
    out.put(lookup_options_host_only, hostOnly ? 1 : 0);
    out.put(lookup_options_no_use, noUse ? 1 : 0);
    if (unitKeys != null) {
      out.put(lookup_options_unit_keys, unitKeys.address(call));
      out.put(lookup_options_n_unit_keys, (long) unitKeys.size());
    }
    out.put(lookup_options_ask_nodes_ns, askNodesNs);
    return out;
  }
}
