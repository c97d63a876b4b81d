// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.EnumSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Coding of buffers: the same bytes as in every language, and never wrong ones. */
@Timeout(60)
class CodecTest {
  private static final int DIM = 64;
  private static final int TOKENS = 96;
  private static final Codec.Form FORM = new Codec.Form(Element.BF16, DIM, TOKENS);

  /** bf16 as [head][token][dim]: the high halves of normal floats. */
  private static ByteBuffer page() {
    Random random = new Random(1);
    ByteBuffer out = ByteBuffer.allocateDirect(4 * TOKENS * DIM * 2).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < out.capacity(); i += 2) {
      out.putShort(i, (short) (Float.floatToIntBits((float) random.nextGaussian()) >>> 16));
    }
    return out;
  }

  private static JsonNode vectors() throws Exception {
    return new ObjectMapper().readTree(new File("../../tests/data/vectors/codec.json"));
  }

  private static ByteBuffer direct(JsonNode hex) {
    byte[] bytes = HexFormat.of().parseHex(hex.asText());
    return ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
  }

  @Test
  void vectorsDecodeToTheirBytes() throws Exception {
    JsonNode streams = vectors().get("streams");
    assertTrue(streams.size() > 0);
    for (JsonNode stream : streams) {
      String name = stream.get("name").asText();
      boolean lossy = stream.get("lossy").asBoolean();
      ByteBuffer coded = direct(stream.get("coded"));
      Codec.Info info = Codec.inspect(coded.asReadOnlyBuffer());
      assertEquals(Codec.modeByName(stream.get("mode").asText()), info.mode(), name);
      assertEquals(stream.get("mode").asText(), Codec.modeName(info.mode()));
      assertEquals(stream.get("row").asInt(), info.form().rowElements(), name);
      assertEquals(stream.get("rows").asInt(), info.form().rows(), name);
      assertEquals(lossy, info.lossy(), name);
      assertEquals(stream.get("raw_bytes").asLong(), info.rawBytes(), name);
      assertEquals(coded.remaining(), info.codedBytes(), name);
      MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
      sha256.update(Codec.decode(coded, lossy));
      assertEquals(stream.get("decoded_sha256").asText(), HexFormat.of().formatHex(sha256.digest()), name);
      if (lossy) {
        UnavailableException e = assertThrows(UnavailableException.class, () -> Codec.decode(coded, false), name);
        assertEquals("KVBM_ERR_PERMISSION", e.statusName());
      }
    }
  }

  @Test
  void wrongVectorsAreRefused() throws Exception {
    for (JsonNode refused : vectors().get("refused")) {
      ByteBuffer coded = direct(refused.get("coded"));
      KvbmException e =
          assertThrows(KvbmException.class, () -> Codec.decode(coded, true), refused.get("name").asText());
      assertEquals(refused.get("status").asInt(), e.statusNumber());
    }
  }

  @Test
  void losslessModesGiveBackEveryBit() {
    ByteBuffer page = page();
    for (CodecMode mode : EnumSet.range(CodecMode.OFF, CodecMode.ZSTD)) {
      ByteBuffer coded = Codec.encode(page.asReadOnlyBuffer(), mode, FORM);
      assertEquals(mode != CodecMode.OFF, coded.remaining() < page.remaining() * 9 / 10);
      assertEquals(page, Codec.decode(coded, false));
      ByteBuffer room = ByteBuffer.allocateDirect((int) Codec.room(page.remaining(), FORM) + 7).position(7);
      assertEquals(coded.remaining(), Codec.encode(page, mode, FORM, room));
      assertEquals(coded, room);
      ByteBuffer back = ByteBuffer.allocateDirect(page.remaining() + 1);
      assertEquals(page.remaining(), Codec.decode(room, false, back));
      assertEquals(page, back);
    }
    assertFalse(
        Codec.decode(Codec.encode(ByteBuffer.allocateDirect(0), CodecMode.DEFAULT, null), false).hasRemaining());
    assertFalse(Codec.kernel().isEmpty());
  }

  @Test
  void lossyModesAskFirst() {
    ByteBuffer coded = Codec.encode(page(), CodecMode.INT8, FORM);
    Codec.Info info = Codec.inspect(coded);
    assertTrue(info.lossy() && info.errorPpb() > 0 && info.mode() == CodecMode.INT8 && info.form().equals(FORM));
    assertThrows(UnavailableException.class, () -> Codec.decode(coded, false));
    assertEquals(page().remaining(), Codec.decode(coded, true).remaining());
  }

  @Test
  void changedBytesGiveTheRightOnesOrNone() {
    ByteBuffer page = page();
    ByteBuffer coded = Codec.encode(page, CodecMode.DEFAULT, FORM);
    int refused = 0;
    for (int i = 0; i < coded.limit(); i += i < 128 ? 1 : 977) {
      coded.put(i, (byte) (coded.get(i) ^ 0x24));
      try {
        assertEquals(page, Codec.decode(coded, false));
      } catch (KvbmException e) {
        ++refused;
      }
      coded.put(i, (byte) (coded.get(i) ^ 0x24));
    }
    assertTrue(refused > 50);
    coded.limit(coded.limit() - 1);
    assertThrows(MissException.class, () -> Codec.inspect(coded));
  }

  @Test
  void whatDoesNotFitIsRefused() {
    ByteBuffer page = page();
    ByteBuffer coded = Codec.encode(page, CodecMode.FAST, FORM);
    ByteBuffer heap = ByteBuffer.allocate(page.remaining());
    assertThrows(NullPointerException.class, () -> Codec.encode(null, CodecMode.FAST, FORM));
    assertThrows(NullPointerException.class, () -> Codec.decode(coded, false, null));
    assertThrows(NullPointerException.class, () -> Codec.inspect(null));
    assertThrows(IllegalArgumentException.class, () -> Codec.encode(heap, CodecMode.FAST, FORM));
    assertThrows(IllegalArgumentException.class, () -> Codec.decode(coded, false, heap));
    assertThrows(IllegalArgumentException.class, () -> Codec.decode(coded, false, page.asReadOnlyBuffer()));
    assertThrows(IllegalArgumentException.class, () -> Codec.decode(coded, false, coded.duplicate()));
    assertThrows(NoRoomException.class, () -> Codec.decode(coded, false, ByteBuffer.allocateDirect(9)));
    assertThrows(NoRoomException.class, () -> Codec.encode(page, CodecMode.FAST, FORM, ByteBuffer.allocateDirect(9)));
    assertThrows(CallerException.class, () -> Codec.encode(page, CodecMode.UNKNOWN, FORM));
    assertThrows(CallerException.class, () -> Codec.encode(page, CodecMode.FAST, new Codec.Form(Element.of(99), 0, 0)));
    assertThrows(CallerException.class, () -> Codec.modeByName("best"));
    assertThrows(CallerException.class, () -> Codec.modeByName(null));
    assertThrows(IllegalArgumentException.class, () -> Codec.room(-1, null));
    assertNull(Codec.modeName(CodecMode.of(7)));
  }

  @Test
  void aTierCodesAndANamespaceSaysHow(@TempDir Path folder) {
    Tier tier = Tier.disk(folder.toString(), 1 << 26).codec("default", 0);
    ManagerOptions options = new ManagerOptions().blockBytes(4096).hostCapacityBytes(1 << 20).tiers(List.of(tier));
    try (Context context = Context.create(); Manager manager = Manager.create(context, options);
        Namespace ns = manager.namespace(new NamespaceOptions("m").codec("int8").allowLossy(true));
        BlockArray blocks = manager.allocate(ns, 1)) {
      blocks.complete();
      blocks.register(ns, ns.chain(new int[] {1}, 1));
      manager.flush(null);
      ManagerStats stats = manager.stats();
      assertEquals(2, stats.codec().size());
      assertEquals(0, stats.lossyRefused());
      assertTrue(stats.codec().get(1).coded() + stats.codec().get(1).leftPlain() > 0);
      assertThrows(CallerException.class, () -> manager.namespace(new NamespaceOptions("m").codec("none such")));
    }
  }
}
