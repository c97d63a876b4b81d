// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Blocks of an attached cache, coded where they lie. */
@Timeout(60)
class CodingTest {
  static final Codec.Form BF16 = new Codec.Form(Element.BF16, 64, 0);

  /** bf16 between 0.5 and 1, other ones for each seed. */
  static ByteBuffer values(int bytes, int seed) {
    ByteBuffer out = ByteBuffer.allocateDirect(bytes);
    for (int i = 0; i < bytes; i += 2) out.put(i, (byte) ((i * 7 + seed) % 128)).put(i + 1, (byte) 0x3F);
    return out;
  }

  private static ByteBuffer block(ByteBuffer memory, int block) {
    return memory.slice(block * World.BLOCK, World.BLOCK);
  }

  private static ByteBuffer filled() {
    ByteBuffer memory = World.memory(8);
    for (int b = 0; b < 8; ++b) block(memory, b).put(values(World.BLOCK, b));
    return memory;
  }

  private static ByteBuffer both(ByteBuffer memory, int first, int second) {
    return ByteBuffer.allocateDirect(2 * World.BLOCK).put(block(memory, first)).put(block(memory, second)).flip();
  }

  @Test
  void blocksAreCodedAsTheirBytes() {
    ByteBuffer memory = filled();
    CodeOptions how = new CodeOptions().form(BF16);
    try (World world = new World(); Cache cache = world.cache(memory)) {
      ByteBuffer plain = both(memory, 5, 1);
      int[] ids = {5, 1};
      for (CodecMode mode : EnumSet.range(CodecMode.OFF, CodecMode.ZSTD)) {
        assertEquals(Codec.encode(plain, mode, BF16), cache.encode(ids, mode, how), Codec.modeName(mode));
      }
      ByteBuffer coded = cache.encode(ids, CodecMode.INT8, how);
      ByteBuffer room = ByteBuffer.allocateDirect((int) cache.codeRoom(2, how) + 7).position(7);
      assertEquals(coded.remaining(), cache.encode(ids, CodecMode.INT8, how, room));
      assertEquals(coded, room);
      int[] others = {2, 3};
      UnavailableException e =
          assertThrows(UnavailableException.class, () -> cache.decode(coded, others, false, how));
      assertEquals("KVBM_ERR_PERMISSION", e.statusName());
      cache.decode(coded.asReadOnlyBuffer(), others, true, how);
      assertEquals(Codec.decode(coded, true), both(memory, 2, 3));
      assertNotEquals(plain, both(memory, 2, 3));
    }
  }

  private static void refused(Class<? extends KvbmException> kind, String says, Executable call) {
    KvbmException e = assertThrows(kind, call, says);
    assertTrue(e.getMessage().contains(says), e.getMessage());
  }

  @Test
  void whatCannotBeCodedIsRefusedInWords() {
    ByteBuffer memory = filled();
    Supplier<CodeOptions> how = CodeOptions::new;
    try (World world = new World(); Cache cache = world.cache(memory)) {
      int[] one = {0};
      refused(CallerException.class, "bytes of no known kind", () -> cache.encode(one, CodecMode.INT8, null));
      refused(CallerException.class, "mode", () -> cache.encode(one, CodecMode.UNKNOWN, null));
      refused(CallerException.class, "block_ids", () -> cache.encode(new int[] {8}, CodecMode.OFF, null));
      refused(CallerException.class, "block_ids", () -> cache.encode(new int[] {Kvbm.NO_BLOCK}, CodecMode.OFF, null));
      refused(CallerException.class, "part", () -> cache.encode(one, CodecMode.OFF, how.get().part(1)));
      refused(CallerException.class, "part", () -> cache.codeRoom(1, how.get().part(-1)));
      refused(CallerException.class, "stream", () -> cache.encode(one, CodecMode.OFF, how.get().stream(0)));
      ByteBuffer little = ByteBuffer.allocateDirect(9);
      refused(NoRoomException.class, "are needed", () -> cache.encode(one, CodecMode.OFF, null, little));
      ByteBuffer coded = cache.encode(new int[] {0, 1}, CodecMode.OFF, null);
      refused(CallerException.class, "block_ids", () -> cache.decode(coded, new int[] {2, 2}, false, null));
      refused(CallerException.class, "blocks", () -> cache.decode(coded, new int[] {2}, false, null));
      int last = coded.limit() - 1;
      coded.put(last, (byte) (coded.get(last) ^ 1));
      int[] others = {2, 3};
      assertThrows(MissException.class, () -> cache.decode(coded, others, false, null));
      assertThrows(NullPointerException.class, () -> cache.encode(null, CodecMode.OFF, null));
      assertThrows(NullPointerException.class, () -> cache.decode(null, others, false, null));
      assertThrows(NullPointerException.class, () -> cache.decode(coded, null, false, null));
      assertThrows(IllegalArgumentException.class, () -> cache.codeRoom(-1, null));
      assertThrows(IllegalArgumentException.class, () -> cache.decode(ByteBuffer.allocate(9), others, false, null));
      assertThrows(IllegalArgumentException.class,
          () -> cache.encode(one, CodecMode.OFF, null, little.asReadOnlyBuffer()));
      cache.close();
      assertThrows(IllegalStateException.class, () -> cache.encode(one, CodecMode.OFF, null));
    }
  }
}
