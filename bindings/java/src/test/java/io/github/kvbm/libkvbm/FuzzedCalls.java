// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * Calls that bytes choose, with arguments that bytes choose: whatever they are, a call works or throws one of the
 * exceptions that the README names.
 */
final class FuzzedCalls {
  private final ByteBuffer data;
  private final World world = new World(16);
  private final ByteBuffer memory = World.memory(4);
  private final List<Object> objects = new ArrayList<>();
  private final Status[] status = new Status[3];

  FuzzedCalls(byte[] data) {
    this.data = ByteBuffer.wrap(data);
    Collections.addAll(objects, world.manager, world.ns, world.keys(3, 1), world.cache(memory),
        CompletionQueue.create(world.context, 4));
  }

  private int next() {
    return data.hasRemaining() ? data.get() : 0;
  }

  /** A small number mostly, sometimes one at the end of the range. */
  private int number() {
    int n = next();
    return n == 127 ? Integer.MAX_VALUE : n == -128 ? Integer.MIN_VALUE : n == -127 ? 70_000 : n % 8;
  }

  /** An object of the type, if there is one; sometimes null. */
  private <T> T any(Class<T> type) {
    int start = Math.floorMod(next(), objects.size() + 1);
    for (int i = 0; i < objects.size(); ++i) {
      Object one = start == objects.size() ? null : objects.get((start + i) % objects.size());
      if (type.isInstance(one)) return type.cast(one);
    }
    return null;
  }

  private Part part() {
    return next() % 3 == 0 ? new Part(number(), Shard.WHOLE) : null;
  }

  private int[] ids() {
    int[] ids = new int[Math.abs(next() % 5)];
    for (int i = 0; i < ids.length; ++i) ids[i] = number();
    return ids;
  }

  private CodeOptions how() {
    CodeOptions how = new CodeOptions().part(next() == 7 ? number() : 0);
    if (next() % 2 == 0) how.form(new Codec.Form(Element.of(next() & 7), number() * 8, next() == 7 ? number() : 0));
    return next() == 7 ? how.stream(number()) : how;
  }

  /** Makes the calls; how many worked. */
  int run() {
    int worked = 0;
    try {
      while (data.hasRemaining()) {
        try {
          Object made = next() % 2 == 0 ? pool(next()) : attached(next());
          if (made != null) objects.add(made);
          ++worked;
        } catch (KvbmException | IllegalArgumentException | IllegalStateException | NullPointerException
            | IndexOutOfBoundsException expected) {
          // Answers to bad input.
        }
      }
    } finally {
      for (Object one : objects) {
        if (one instanceof BlockViews) ((BlockViews) one).close();
        if (one instanceof NativeObject) ((NativeObject) one).close();
      }
      world.close();
    }
    return worked;
  }

  private Object pool(int choice) {
    switch (Math.floorMod(choice, 14)) {
      case 0:
        return any(Manager.class).allocate(any(Namespace.class), Math.min(number(), 70_000));
      case 1:
        any(BlockArray.class).complete();
        return null;
      case 2:
        any(BlockArray.class).complete(new long[] {number(), number()});
        return null;
      case 3:
        any(BlockArray.class)
            .register(any(Namespace.class), any(KeyArray.class),
                new RegisterOptions()
                    .duplicates(Duplicates.of(number()))
                    .part(part())
                    .priority(Priority.of(number()))
                    .unchained(next() % 2 == 0));
        return null;
      case 4:
        return any(BlockArray.class).views();
      case 5:
        touch(any(BlockViews.class).get(number()));
        return null;
      case 6:
        return any(BlockArray.class).duplicate();
      case 7:
        return next() % 2 == 0 ? any(BlockArray.class).downgrade() : any(BlockArray.class).upgrade();
      case 8:
        return any(BlockArray.class).take(number(), number());
      case 9:
        any(BlockArray.class).close();
        return null;
      case 10:
        return any(Namespace.class).chain(ids(), number());
      case 11:
        return any(Namespace.class).fromHashes(new byte[Math.abs(next())], number());
      case 12:
        return KeyArray.wrap(ByteBuffer.allocateDirect(data.capacity() % 64));
      default:
        return any(KeyArray.class).slice(number(), number());
    }
  }

  /** Only views of partial blocks are written, and only while their array has not moved on. */
  private static void touch(ByteBuffer view) {
    if (view != null) view.get(view.capacity() - 1);
  }

  private Object attached(int choice) {
    switch (Math.floorMod(choice, 16)) {
      case 0:
        return any(Manager.class).lookup(any(Namespace.class), any(KeyArray.class),
            new LookupOptions().mode(LookupMode.of(number())).hostOnly(next() % 2 == 0).unitKeys(any(KeyArray.class)));
      case 1:
        return any(Cache.class).lookup(any(KeyArray.class));
      case 2:
        return any(Match.class).blocks(number(), number(), Math.min(number(), 70_000));
      case 3:
        any(Match.class).items(number(), Math.min(number(), 70_000));
        return null;
      case 4:
        any(Cache.class).store(any(KeyArray.class), ids(),
            new StoreOptions().priority(Priority.of(number())).timeout(Duration.ofNanos(number()))
                .itemStatus(next() % 2 == 0 ? status : null));
        return null;
      case 5:
        any(Cache.class).load(any(Match.class), ids(), new LoadOptions().firstKey(number()).layers(number(), number()));
        return null;
      case 6:
        any(Cache.class).storeAsync(any(KeyArray.class), ids(), null, any(CompletionQueue.class));
        return null;
      case 7:
        any(Cache.class).loadAsync(any(Match.class), ids(), null, any(CompletionQueue.class)).cancel(true);
        return null;
      case 8:
        any(Manager.class).prefetch(any(Namespace.class), part(), any(KeyArray.class));
        return null;
      case 9:
        any(Manager.class).offload(any(Namespace.class), part(), any(KeyArray.class), number());
        return null;
      case 10:
        any(Manager.class).drop(any(Namespace.class), part(), any(KeyArray.class));
        return null;
      case 11:
        any(Manager.class).pin(any(Namespace.class), part(), any(KeyArray.class), number(), Duration.ofNanos(number()));
        return null;
      case 12:
        return any(Cache.class).encode(ids(), CodecMode.of(next() & 31), how());
      case 13:
        any(Cache.class).decode(any(ByteBuffer.class), ids(), next() % 2 == 0, how());
        return null;
      case 14:
        any(Cache.class).encode(ids(), CodecMode.of(next() & 31), how(), ByteBuffer.allocateDirect(next() & 127));
        any(Cache.class).codeRoom(number(), how());
        return null;
      default:
        any(Match.class).close();
        return null;
    }
  }
}
