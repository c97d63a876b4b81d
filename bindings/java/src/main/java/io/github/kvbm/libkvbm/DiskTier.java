// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.util.Objects;

/** A disk tier below the host's memory. */
public final class DiskTier {
  private final String path;
  private final long capacityBytes;
  private long writeBytesPerS;
  private long readBytesPerS;
  private Admission admission = Admission.ALL;
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
    this.capacityBytes = Call.size(capacityBytes, "capacityBytes");
  }

  /**
   * Caps the bandwidth.
   *
   * @param write bytes per second of offload into it; 0 = no cap
   * @param read bytes per second of onboard from it; 0 = no cap
   * @return this
   */
  public DiskTier bandwidth(long write, long read) {
    writeBytesPerS = Call.size(write, "write");
    readBytesPerS = Call.size(read, "read");
    return this;
  }

  /**
   * Says which blocks of the host come here.
   *
   * @param kind which
   * @param uses number of uses, or threshold; 1 to 15, 0 = 2
   * @return this
   */
  public DiskTier admission(Admission kind, int uses) {
    admission = Objects.requireNonNull(kind, "kind");
    admissionUses = Call.size(uses, "uses");
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
    codecGoal = Call.size(goal, "goal");
    return this;
  }

  void write(Call call, Struct out, int at) {
    out.put(at + tier_path, call.text(path));
    out.put(at + tier_capacity_bytes, capacityBytes);
    out.put(at + tier_write_bytes_per_s, writeBytesPerS);
    out.put(at + tier_read_bytes_per_s, readBytesPerS);
    out.put(at + tier_admission, admission.number());
    out.put(at + tier_admission_uses, admissionUses);
    out.put(at + tier_codec, call.text(codec));
    out.put(at + tier_codec_goal, codecGoal);
  }
}
