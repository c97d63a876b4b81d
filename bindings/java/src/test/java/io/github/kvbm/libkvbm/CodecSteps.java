// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.Steps.results;

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;

/** Steps of coding buffers. */
final class CodecSteps {
  private CodecSteps() {}

  static void add(Steps steps) {
    steps.put("codec.mode", in -> results("mode", (long) Codec.modeByName(in.text("name")).number()));
    steps.put("codec.encode", in -> hex("coded", Codec.encode(raw(in), CodecMode.of(in.integer("mode", 0)), form(in))));
    steps.put("codec.inspect", in -> {
      Codec.Info info = Codec.inspect(direct(in.hex("coded")));
      return results("mode", (long) info.mode().number(), "element", (long) info.form().element().number(),
          "row_elements", Steps.unsigned(info.form().rowElements()), "rows", Steps.unsigned(info.form().rows()),
          "lossy", info.lossy() ? 1L : 0L, "leaves", Steps.unsigned(info.leaves()), "raw_leaves",
          Steps.unsigned(info.rawLeaves()), "raw_bytes", info.rawBytes(), "coded_bytes", info.codedBytes(), "error_ppb",
          info.errorPpb());
    });
    steps.put(
        "codec.decode", in -> hex("raw", Codec.decode(direct(in.hex("coded")), in.number("allow_lossy", 0) != 0)));
    steps.put("cache.code_room",
        in -> results("bytes", in.object("cache", Cache.class).codeRoom(in.integer("n_blocks", 0), how(in))));
    steps.put("cache.encode", CodecSteps::encode);
    steps.put("cache.decode", CodecSteps::decode);
  }

  private static Codec.Form form(Arguments in) {
    return new Codec.Form(Element.of(in.integer("element", 0)), in.integer("row_elements", 0), in.integer("rows", 0));
  }

  /** Which blocks of a cache, but for the stream. */
  private static CodeOptions how(Arguments in) {
    return new CodeOptions().part(in.integer("part", 0)).form(form(in));
  }

  private static CodeOptions behindStream(Arguments in) {
    return in.has("stream") ? how(in).stream(in.number("stream")) : how(in);
  }

  private static Map<String, Object> encode(Arguments in) {
    Cache cache = in.object("cache", Cache.class);
    int[] ids = in.integers("block_ids");
    CodecMode mode = CodecMode.of(in.integer("mode", 0));
    CodeOptions how = behindStream(in);
    if (!in.has("capacity")) return hex("coded", cache.encode(ids, mode, how));
    ByteBuffer out = ByteBuffer.allocateDirect(in.integer("capacity", 0));
    int used = cache.encode(ids, mode, how, out);
    if (used != out.remaining()) throw new AssertionError(used + " bytes were coded, the buffer has " + out);
    return hex("coded", out);
  }

  private static Map<String, Object> decode(Arguments in) {
    ByteBuffer coded = direct(in.hex("coded"));
    if (in.has("coded_bytes")) coded.limit(in.integer("coded_bytes", 0));
    in.object("cache", Cache.class).decode(coded, in.integers("block_ids"), in.flag("allow_lossy"), behindStream(in));
    return results();
  }

  private static ByteBuffer raw(Arguments in) {
    if (in.has("raw")) return direct(in.hex("raw"));
    ByteBuffer raw = ByteBuffer.allocateDirect(in.integer("bytes", 0));
    int seed = in.integer("seed", 0);
    for (int j = 0; j < raw.capacity(); ++j) raw.put(j, CoreSteps.pattern(seed, j));
    return raw;
  }

  private static ByteBuffer direct(byte[] bytes) {
    return ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
  }

  private static Map<String, Object> hex(String name, ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.get(buffer.position(), bytes);
    return results(name, HexFormat.of().formatHex(bytes), "n", (long) bytes.length);
  }
}
