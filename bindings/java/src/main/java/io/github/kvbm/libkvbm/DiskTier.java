// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.util.Objects;

/** A disk tier below the host's memory. */
public final class DiskTier {
  /** Every block of the host comes here. */
  public static final int ADMIT_ALL = KVBM_ADMIT_ALL;

  /** What the tier above evicts comes here. */
  public static final int ADMIT_ON_EVICTION = KVBM_ADMIT_ON_EVICTION;

  /** What was used so many times comes here. */
  public static final int ADMIT_AFTER_USES = KVBM_ADMIT_AFTER_USES;

  /** What is used often comes here. */
  public static final int ADMIT_FREQUENCY = KVBM_ADMIT_FREQUENCY;

  /** What {@link Manager#offload} sends comes here, and nothing else. */
  public static final int ADMIT_ON_REQUEST = KVBM_ADMIT_ON_REQUEST;

  private final String path;
  private final long capacityBytes;
  private long writeBytesPerS;
  private long readBytesPerS;
  private int admission = ADMIT_ALL;
  private int admissionUses;
  private String codec;
  private int codecGoal;

  /**
   * Describes a tier in a directory.
   *
   * @param path the directory
   * @param capacityBytes hard cap of everything in it
   */
  public DiskTier(String path, long capacityBytes) {
    this.path = Objects.requireNonNull(path, "path");
    this.capacityBytes = capacityBytes;
  }

  /**
   * Caps the bandwidth.
   *
   * @param write bytes per second of offload into it; 0 = no cap
   * @param read bytes per second of onboard from it; 0 = no cap
   * @return this
   */
  public DiskTier bandwidth(long write, long read) {
    writeBytesPerS = write;
    readBytesPerS = read;
    return this;
  }

  /**
   * Says which blocks of the host come here.
   *
   * @param kind one of the admissions of this class
   * @param uses number of uses, or threshold; 1 to 15, 0 = 2
   * @return this
   */
  public DiskTier admission(int kind, int uses) {
    admission = kind;
    admissionUses = uses;
    return this;
  }

  /**
   * Says how records are coded here.
   *
   * @param name "off", "auto", or a lossless mode's name, as "default"; null = off
   * @param goal what "auto" is for; 0: blocks are brought up sooner, 1: more of them fit
   * @return this
   */
  public DiskTier codec(String name, int goal) {
    codec = name;
    codecGoal = goal;
    return this;
  }

  void write(Call call, Struct out, int at) {
    out.put(at + tier_path, call.text(path));
    out.put(at + tier_capacity_bytes, capacityBytes);
    out.put(at + tier_write_bytes_per_s, writeBytesPerS);
    out.put(at + tier_read_bytes_per_s, readBytesPerS);
    out.put(at + tier_admission, admission);
    out.put(at + tier_admission_uses, admissionUses);
    out.put(at + tier_codec, call.text(codec));
    out.put(at + tier_codec_goal, codecGoal);
  }
}
