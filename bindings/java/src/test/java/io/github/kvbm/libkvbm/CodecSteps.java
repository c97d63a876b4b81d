// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.Steps.results;

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;

/** Steps of coding by hand. */
final class CodecSteps {
  private CodecSteps() {}

  static void add(Steps steps) {
    steps.put("codec.mode", in -> results("mode", (long) Codec.modeByName(in.text("name"))));
    steps.put("codec.encode", in -> {
      Codec.Form form =
          new Codec.Form(in.integer("element", 0), in.integer("row_elements", 0), in.integer("rows", 0));
      return hex("coded", Codec.encode(raw(in), in.integer("mode", 0), form));
    });
    steps.put("codec.inspect", in -> {
      Codec.Info info = Codec.inspect(direct(in.hex("coded")));
      return results("mode", (long) info.mode(), "element", (long) info.form().element(), "row_elements",
          Steps.unsigned(info.form().rowElements()), "rows", Steps.unsigned(info.form().rows()), "lossy",
          info.lossy() ? 1L : 0L, "leaves", Steps.unsigned(info.leaves()), "raw_leaves",
          Steps.unsigned(info.rawLeaves()), "raw_bytes", info.rawBytes(), "coded_bytes", info.codedBytes(),
          "error_ppb", info.errorPpb());
    });
    steps.put("codec.decode", in -> hex("raw", Codec.decode(direct(in.hex("coded")), in.number("allow_lossy", 0) != 0)));
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
