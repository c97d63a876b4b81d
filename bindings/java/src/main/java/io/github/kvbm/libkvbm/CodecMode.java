// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Coding modes. Numbers below 16 are lossless, 16 and above lossy. */
public enum CodecMode implements Numbered {
  /** Hashed and not coded. */
  OFF(KVBM_CODEC_OFF),

  /** Decodes at about the speed of memory. */
  FAST(KVBM_CODEC_FAST),

  /** A little denser, a little slower. */
  DEFAULT(KVBM_CODEC_DEFAULT),

  /** Where space counts. */
  MAX(KVBM_CODEC_MAX),

  /** Any bytes; the reference. */
  ZSTD(KVBM_CODEC_ZSTD),

  /** Lossy, as are all that follow: 8-bit floats. */
  FP8_E4M3(KVBM_CODEC_FP8_E4M3),

  /** 8-bit floats of more range. */
  FP8_E5M2(KVBM_CODEC_FP8_E5M2),

  /** 8-bit integers with a scale for each channel. */
  INT8(KVBM_CODEC_INT8),

  /** 6 bits. */
  INT6(KVBM_CODEC_INT6),

  /** 4 bits. */
  INT4(KVBM_CODEC_INT4),

  /** With an entropy stage: denser, slower. */
  INT8_CODED(KVBM_CODEC_INT8_CODED),

  /** With an entropy stage. */
  INT6_CODED(KVBM_CODEC_INT6_CODED),

  /** With an entropy stage. */
  INT4_CODED(KVBM_CODEC_INT4_CODED),

  /** Anchors and coded differences of tokens. */
  DELTA(KVBM_CODEC_DELTA),

  /** One that this version does not know. */
  UNKNOWN(-1);

  private static final CodecMode[] ALL = values();

  private final int number;

  CodecMode(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  static CodecMode of(int number) {
    return Numbered.of(ALL, number, UNKNOWN);
  }
}
