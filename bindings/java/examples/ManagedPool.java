// SPDX-License-Identifier: Apache-2.0
import io.github.kvbm.libkvbm.*;
import java.nio.ByteBuffer;
import java.util.List;

/** The manager owns the blocks: those of a prompt are written once, and found again for every equal prompt. */
public class ManagedPool {
  public static void main(String[] args) {
    int[] prompt = new int[64];
    for (int i = 0; i < prompt.length; ++i) prompt[i] = 1000 + i;
    ManagerOptions options = new ManagerOptions().blockBytes(65536).hostCapacityBytes(16 << 20).tiers(List.of());
    try (Context context = Context.create();
        Manager manager = Manager.create(context, options);
        Namespace ns = manager.namespace(new NamespaceOptions("my-model, bf16"))) {
      KeyArray keys = ns.chain(prompt, 16);
      try (BlockArray blocks = manager.allocate(ns, keys.size())) {
        try (BlockViews views = blocks.views()) {
          for (int i = 0; i < views.size(); ++i) compute(views.get(i), i);
        }
        blocks.complete();
        blocks.register(ns, keys);
      } // Nothing holds them now: they stay until their memory is needed.

      try (Match match = manager.lookup(ns, keys); BlockArray found = match.blocks();
           BlockViews views = found.views()) {
        System.out.println(match.hits() + " of " + keys.size() + " blocks were there; the last begins with "
            + views.get(found.size() - 1).getInt(0));
        if (match.hits() != 4 || views.get(3).getInt(0) != 3) System.exit(1);
      }
    }
  }

  private static void compute(ByteBuffer kv, int number) {
    for (int i = 0; i < kv.capacity(); i += 4) kv.putInt(i, number + i);
  }
}
