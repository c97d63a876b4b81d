// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * What a tier that codes or seals made of what it was given; bytes are of payloads.
 *
 * @param coded records that were coded, of sealed ones too
 * @param plainBytes of these and of sealed ones before
 * @param storedBytes and after
 * @param sealed records sealed
 * @param leftPlain records stored as they were
 * @param encodeNs of all threads together
 * @param decodeNs of all threads together
 * @param decoded records that came back
 * @param decodedBytes of these
 * @param refusedLossy records that no open handle of their namespace allows
 * @param missingKeys records sealed with a key that is not there
 * @param damaged records that did not decode or open: forgotten
 * @param steppedDown times that encoding held writing up
 * @param probes records that auto coded only to measure
 * @param lossyError of what was coded with loss: squared differences to squared values
 * @param mode of what was stored last
 * @param automatic 1: auto
 * @param setting the mode that the tier's codec names; off also where it is auto
 * @param seals 1: whatever is written there is sealed
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
