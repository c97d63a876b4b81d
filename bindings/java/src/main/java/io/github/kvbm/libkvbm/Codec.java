// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * Encodes and decodes KV in the caller's own buffers, without a context or manager.
 *
 * <p>A coded buffer describes itself and has a hash of each part. So decoding gives the right bytes or a {@link
 * MissException}, never wrong KV, whatever happened to the buffer. Hashes detect faults, not forgery. Buffers are
 * direct. They are read and written in place, from their position to their limit; a call sets the limit to the end of
 * its output.
 */
public final class Codec {
  private Codec() {}

  /**
   * Form of the bytes: rows of elements, in which one index is one channel.
   *
   * @param element type of the elements
   * @param rowElements elements of a row; 0 = unknown. [token][head][dim] is heads * dim, [head][token][dim] is dim
   * @param rows rows until the channels change, such as the tokens of a head; 0 = never
   */
  public record Form(Element element, int rowElements, int rows) {
    /** Opaque bytes, which only zstd can make smaller. */
    public static final Form OPAQUE = new Form(Element.BYTES, 0, 0);

    /**
     * Checks that an element is given, and that no number is negative.
     *
     * @param element type of the elements
     * @param rowElements elements of a row; 0 = not known
     * @param rows rows after which other channels begin; 0 = never
     */
    public Form {
      Objects.requireNonNull(element, "element");
      Call.size(rowElements, "rowElements");
      Call.size(rows, "rows");
    }

    private Struct write(Call call) {
      return call.memory(SIZEOF_codec_options).put(codec_options_struct_size, SIZEOF_codec_options)
          .put(codec_options_element, element.number()).put(codec_options_row_elements, rowElements)
          .put(codec_options_rows, rows);
    }
  }

  /**
   * Description of a coded buffer, read from its own table.
   *
   * @param mode requested mode
   * @param form form of the bytes
   * @param lossy decoding must allow loss
   * @param leaves number of independently coded parts
   * @param rawLeaves parts stored unchanged
   * @param rawBytes size of the decoded bytes
   * @param codedBytes size of the coded buffer
   * @param errorPpb lossy: sum of squared differences / sum of squared values, in 1e-9
   */
  public record Info(CodecMode mode, Form form, boolean lossy, int leaves, int rawLeaves, long rawBytes,
      long codedBytes, long errorPpb) {}

  /**
   * The name of a mode.
   *
   * @param mode which
   * @return as configuration has it, "int8_coded"; null for {@link CodecMode#UNKNOWN}
   */
  public static String modeName(CodecMode mode) {
    return kvbm.kvbm_codec_mode_name(mode.number());
  }

  /**
   * The mode of a name.
   *
   * @param name as configuration has it
   * @return the mode
   */
  public static CodecMode modeByName(String name) {
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_codec_mode_by_name(call.text(name), out.address, error.address), error);
      return CodecMode.of(out.getInt(0));
    }
  }

  /** {@return which implementation runs on this processor: "avx512", "bmi2", "portable"; all give the same bytes} */
  public static String kernel() {
    return kvbm.kvbm_codec_kernel();
  }

  /**
   * How many bytes {@link #encode(ByteBuffer, CodecMode, Form, ByteBuffer)} needs.
   *
   * @param rawBytes what is to be coded
   * @param form of it; null = opaque
   * @return enough for any bytes and mode
   */
  public static long room(long rawBytes, Form form) {
    Call.size(rawBytes, "rawBytes");
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_codec_room(rawBytes, form(call, form), out.address, error.address), error);
      return out.getLong(0);
    }
  }

  /**
   * Codes a buffer. One core, and the calling thread, are busy until it is done.
   *
   * @param raw a direct buffer, which may be read-only
   * @param mode the mode
   * @param form form of the bytes; null = opaque
   * @return a direct buffer of the coded bytes
   */
  public static ByteBuffer encode(ByteBuffer raw, CodecMode mode, Form form) {
    Memory.address(raw, "raw");
    ByteBuffer out = Memory.allocate(room(raw.remaining(), form));
    encode(raw, mode, form, out);
    return out;
  }

  /**
   * Encodes a buffer into another one, and sets the limit of that to the end of the output.
   *
   * @param raw a direct buffer, which may be read-only
   * @param mode the mode
   * @param form form of the bytes; null = opaque
   * @param out a direct buffer with {@link #room} bytes between position and limit
   * @return the number of bytes written
   */
  public static int encode(ByteBuffer raw, CodecMode mode, Form form, ByteBuffer out) {
    long from = Memory.address(raw, "raw");
    long to = Memory.writable(out, "out");
    apart(from, raw, to, out);
    try (Call call = Call.begin()) {
      call.keep(raw);
      call.keep(out);
      Struct n = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_codec_encode(from, raw.remaining(), mode.number(), form(call, form), to, out.remaining(),
                     n.address, error.address),
          error);
      return end(out, n);
    }
  }

  /**
   * Reads what coded bytes say of themselves, without decoding: look before room is taken for what comes from
   * elsewhere.
   *
   * @param coded a direct buffer, which may be read-only
   * @return what they say
   */
  public static Info inspect(ByteBuffer coded) {
    long from = Memory.address(coded, "coded");
    try (Call call = Call.begin()) {
      call.keep(coded);
      Struct in = call.memory(SIZEOF_codec_info).put(codec_info_struct_size, SIZEOF_codec_info);
      Struct error = call.error();
      Call.check(kvbm.kvbm_codec_inspect(from, coded.remaining(), in.address, error.address), error);
      Form form = new Form(
          Element.of(in.getInt(codec_info_element)), in.getInt(codec_info_row_elements), in.getInt(codec_info_rows));
      return new Info(CodecMode.of(in.getInt(codec_info_mode)), form, in.getInt(codec_info_lossy) != 0,
          in.getInt(codec_info_leaves), in.getInt(codec_info_raw_leaves), in.getLong(codec_info_raw_bytes),
          in.getLong(codec_info_coded_bytes), in.getLong(codec_info_error_ppb));
    }
  }

  /**
   * Decodes a coded buffer.
   *
   * @param coded a direct buffer, which may be read-only
   * @param allowLossy accept bytes that differ from the encoded ones; else they are an {@link UnavailableException}
   * @return a direct buffer with the decoded bytes
   */
  public static ByteBuffer decode(ByteBuffer coded, boolean allowLossy) {
    ByteBuffer out = Memory.allocate(inspect(coded).rawBytes());
    decode(coded, allowLossy, out);
    return out;
  }

  /**
   * Decodes a coded buffer into another one, and sets the limit of that to the end of the output. After an exception
   * its contents are undefined.
   *
   * @param coded a direct buffer, which may be read-only
   * @param allowLossy accept bytes that differ from the encoded ones; else they are an {@link UnavailableException}
   * @param out a direct buffer with {@link Info#rawBytes} bytes between position and limit
   * @return the number of bytes written
   */
  public static int decode(ByteBuffer coded, boolean allowLossy, ByteBuffer out) {
    long from = Memory.address(coded, "coded");
    long to = Memory.writable(out, "out");
    apart(from, coded, to, out);
    try (Call call = Call.begin()) {
      call.keep(coded);
      call.keep(out);
      Struct n = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_codec_decode(from, coded.remaining(), allowLossy ? (int) KVBM_CODEC_ALLOW_LOSSY : 0, to,
          out.remaining(), n.address, error.address), error);
      return end(out, n);
    }
  }

  private static long form(Call call, Form form) {
    return form == null ? 0 : form.write(call).address;
  }

  private static int end(ByteBuffer out, Struct n) {
    int bytes = (int) n.getLong(0);
    out.limit(out.position() + bytes);
    return bytes;
  }

  private static void apart(long from, ByteBuffer raw, long to, ByteBuffer out) {
    if (from < to + out.remaining() && to < from + raw.remaining()) {
      throw new IllegalArgumentException("the buffers overlap");
    }
  }
}
