// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.util.List;

/** Options of a {@link Manager}. What is not set comes from the configuration. */
public final class ManagerOptions {
  private boolean share;
  private long blockBytes;
  private long hostCapacityBytes;
  private String hostFile;
  private String policy;
  private List<Tier> tiers;

  /** Everything from the configuration. */
  public ManagerOptions() {}

  /**
   * Shares the tier set with other processes of this host and user, as the option share=on.
   *
   * @param on whether to
   * @return this
   */
  public ManagerOptions share(boolean on) {
    share = on;
    return this;
  }

  /**
   * Sets the largest payload of a record.
   *
   * @param bytes 0 = configuration
   * @return this
   */
  public ManagerOptions blockBytes(long bytes) {
    blockBytes = Call.size(bytes, "blockBytes");
    return this;
  }

  /**
   * Sets the size of the host tier, record heads included.
   *
   * @param bytes 0 = configuration
   * @return this
   */
  public ManagerOptions hostCapacityBytes(long bytes) {
    hostCapacityBytes = Call.size(bytes, "hostCapacityBytes");
    return this;
  }

  /**
   * Keeps host blocks over restarts.
   *
   * @param path a file on tmpfs or hugetlbfs; null = anonymous memory
   * @return this
   */
  public ManagerOptions hostFile(String path) {
    hostFile = path;
    return this;
  }

  /**
   * Names the eviction policy.
   *
   * @param name null = configuration
   * @return this
   */
  public ManagerOptions policy(String name) {
    policy = name;
    return this;
  }

  /**
   * Sets the tiers below host memory, fastest first.
   *
   * @param below null = configuration
   * @return this
   */
  public ManagerOptions tiers(List<Tier> below) {
    tiers = below == null ? null : List.copyOf(below);
    return this;
  }

  Struct write(Call call) {
    Struct out = call.memory(SIZEOF_manager_options);
    Call.check(kvbm.kvbm_manager_options_init(out.address, SIZEOF_manager_options));
    if (share) out.put(manager_options_flags, (int) KVBM_MANAGER_SHARE);
    out.put(manager_options_block_bytes, blockBytes);
    out.put(manager_options_host_capacity_bytes, hostCapacityBytes);
    out.put(manager_options_host_file, call.text(hostFile));
    out.put(manager_options_policy, call.text(policy));
    if (tiers != null) {
      Struct all = call.memory((long) SIZEOF_tier * tiers.size());
      for (int i = 0; i < tiers.size(); ++i) tiers.get(i).write(call, all, i * SIZEOF_tier);
      out.put(manager_options_tiers, all.address);
      out.put(manager_options_n_tiers, (long) tiers.size());
    }
    return out;
  }
}
