import io.github.kvbm.libkvbm.*;
import java.nio.ByteBuffer;
import java.util.Random;

/** Encodes a page of KV, changes a bit of the coded buffer, and gets an exception instead of wrong bytes. */
public class CodePage {
  public static void main(String[] args) {
    int tokens = 256;
    int heads = 8;
    int dim = 128;
    ByteBuffer page = ByteBuffer.allocateDirect(tokens * heads * dim * 2); // [token][head][dim] of bf16
    Random random = new Random(1);
    for (int i = 0; i < page.capacity(); i += 2) {
      page.put(i, (byte) random.nextInt(128)).put(i + 1, (byte) (59 + random.nextInt(3) + 128 * random.nextInt(2)));
    }
    ByteBuffer coded = Codec.encode(page, CodecMode.DEFAULT, new Codec.Form(Element.BF16, heads * dim, 0));
    if (!Codec.decode(coded, false).equals(page)) throw new AssertionError("other bytes came back");
    int middle = coded.remaining() / 2;
    coded.put(middle, (byte) (coded.get(middle) ^ 1));
    try {
      Codec.decode(coded, false);
      throw new AssertionError("wrong bytes were taken");
    } catch (MissException e) {
      System.out.println(page.remaining() + " bytes as " + coded.remaining() + "; changed: " + e.statusName());
    }
  }
}
