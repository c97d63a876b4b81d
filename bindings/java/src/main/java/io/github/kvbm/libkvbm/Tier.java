// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.util.Objects;

/** A tier below the host's memory: a disk or a store. */
public final class Tier {
  private final String path; // of a disk, else null
  private final String url; // of a store, else null
  private long capacityBytes;
  private long writeBytesPerS;
  private long readBytesPerS;
  private Admission admission = Admission.ALL;
  private int admissionUses;
  private String codec;
  private int codecGoal;

  private Tier(String path, String url) {
    this.path = path;
    this.url = url;
  }

  /**
   * Describes a disk tier in a directory.
   *
   * @param path the directory
   * @param capacityBytes hard cap of everything in it
   * @return the tier
   */
  public static Tier disk(String path, long capacityBytes) {
    return new Tier(Objects.requireNonNull(path, "path"), null).capacity(capacityBytes);
  }

  /**
   * Describes a store, which has no cap unless {@link #capacity} sets one.
   *
   * @param url where it is: s3://bucket/prefix?region=..., file:///mnt/shared/kv; docs/stores.md has them all
   * @return the tier
   */
  public static Tier store(String url) {
    return new Tier(null, Objects.requireNonNull(url, "url"));
  }

  /**
   * Caps what it holds.
   *
   * @param bytes hard cap of everything in its directory or store; of a store 0 = no cap
   * @return this
   */
  public Tier capacity(long bytes) {
    capacityBytes = Call.size(bytes, "bytes");
    return this;
  }

  /**
   * Caps the bandwidth.
   *
   * @param write bytes per second of offload into it; 0 = no cap
   * @param read bytes per second of onboard from it; 0 = no cap
   * @return this
   */
  public Tier bandwidth(long write, long read) {
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
  public Tier admission(Admission kind, int uses) {
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
  public Tier codec(String name, int goal) {
    codec = name;
    codecGoal = Call.size(goal, "goal");
    return this;
  }

  void write(Call call, Struct out, int at) {
    out.put(at + tier_path, call.text(path));
    out.put(at + tier_url, call.text(url));
    out.put(at + tier_capacity_bytes, capacityBytes);
    out.put(at + tier_write_bytes_per_s, writeBytesPerS);
    out.put(at + tier_read_bytes_per_s, readBytesPerS);
    out.put(at + tier_admission, admission.number());
    out.put(at + tier_admission_uses, admissionUses);
    out.put(at + tier_codec, call.text(codec));
    out.put(at + tier_codec_goal, codecGoal);
  }
}
