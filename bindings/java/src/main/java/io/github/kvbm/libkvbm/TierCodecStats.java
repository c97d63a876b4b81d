// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * Counters of a tier that codes or seals; bytes are of payloads.
 *
 * @param coded records coded, sealed ones included
 * @param plainBytes bytes of coded and of sealed records, before
 * @param storedBytes and after
 * @param sealed records sealed
 * @param leftPlain records stored unchanged
 * @param encodeNs sum over all threads
 * @param decodeNs sum over all threads
 * @param decoded records decoded
 * @param decodedBytes bytes of decoded records
 * @param refusedLossy records that no open handle of their namespace allows
 * @param missingKeys records sealed with a key that is not there
 * @param damaged records that did not decode or unseal, and were removed
 * @param steppedDown times that encoding delayed writes
 * @param probes records that auto coded only to measure
 * @param lossyError sum of squared differences / sum of squared values of lossy records
 * @param mode mode of the records coded last
 * @param automatic 1: auto
 * @param setting the mode of the tier's codec option; off also for auto
 * @param seals 1: every record written there is sealed
 */
public record TierCodecStats(long coded, long plainBytes, long storedBytes, long sealed, long leftPlain, long encodeNs,
    long decodeNs, long decoded, long decodedBytes, long refusedLossy, long missingKeys, long damaged, long steppedDown,
    long probes, double lossyError, CodecMode mode, int automatic, CodecMode setting, int seals) {
  static TierCodecStats read(Struct in, int at) {
    return new TierCodecStats(in.getLong(at + tier_codec_stats_coded),
        in.getLong(at + tier_codec_stats_plain_bytes),
        in.getLong(at + tier_codec_stats_stored_bytes),
        in.getLong(at + tier_codec_stats_sealed),
        in.getLong(at + tier_codec_stats_left_plain),
        in.getLong(at + tier_codec_stats_encode_ns),
        in.getLong(at + tier_codec_stats_decode_ns),
        in.getLong(at + tier_codec_stats_decoded),
        in.getLong(at + tier_codec_stats_decoded_bytes),
        in.getLong(at + tier_codec_stats_refused_lossy),
        in.getLong(at + tier_codec_stats_missing_keys),
        in.getLong(at + tier_codec_stats_damaged),
        in.getLong(at + tier_codec_stats_stepped_down),
        in.getLong(at + tier_codec_stats_probes),
        in.getDouble(at + tier_codec_stats_lossy_error),
        CodecMode.of(in.getInt(at + tier_codec_stats_mode)), in.getInt(at + tier_codec_stats_automatic),
        CodecMode.of(in.getInt(at + tier_codec_stats_setting)), in.getInt(at + tier_codec_stats_seals));
  }
}
