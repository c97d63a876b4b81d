// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The arguments of a step. The step must ask for each of them: an unknown argument is a failure. */
final class Arguments {
  private final Map<?, ?> all;
  private final Set<Object> seen = new HashSet<>();

  Arguments(Map<?, ?> all) {
    this.all = all;
  }

  Object get(String name) {
    seen.add(name);
    return all.get(name);
  }

  boolean has(String name) {
    return get(name) != null;
  }

  void noneLeft() {
    Set<Object> left = new HashSet<>(all.keySet());
    left.removeAll(seen);
    if (!left.isEmpty()) throw new AssertionError("arguments that this runner does not know: " + left);
  }

  <T> T object(String name, Class<T> type) {
    return type.cast(get(name));
  }

  String text(String name) {
    return (String) get(name);
  }

  static long number(Object value) {
    if (!(value instanceof String)) return (Long) value;
    String text = (String) value;
    return text.startsWith("-") ? Long.parseLong(text) : Long.parseUnsignedLong(text);
  }

  /** A number of 32 bits, unsigned as kvbm.h has them; Java's own type also holds negative ones. */
  static int integer(Object value) {
    long number = number(value);
    return number < 0 ? Math.toIntExact(number) : Integer.parseUnsignedInt(Long.toString(number));
  }

  long number(String name, long otherwise) {
    Object value = get(name);
    return value == null ? otherwise : number(value);
  }

  long number(String name) {
    if (!has(name)) throw new AssertionError("no argument " + name);
    return number(name, 0);
  }

  int integer(String name, int otherwise) {
    Object value = get(name);
    return value == null ? otherwise : integer(value);
  }

  /** A time in nanoseconds; null for ever. */
  Duration time(String name, long otherwise) {
    Object value = get(name);
    long ns = value == null ? otherwise : number(value);
    return ns == Kvbm.FOREVER && !(value instanceof Long) ? null : Duration.ofNanos(ns);
  }

  boolean flag(String name) {
    return number(name, 0) != 0;
  }

  List<?> list(String name) {
    return (List<?>) get(name);
  }

  List<Arguments> objects(String name) {
    List<Arguments> out = new ArrayList<>();
    for (Object one : list(name)) out.add(new Arguments((Map<?, ?>) one));
    return out;
  }

  int[] integers(String name) {
    return list(name).stream().mapToInt(Arguments::integer).toArray();
  }

  long[] numbers(String name) {
    return list(name).stream().mapToLong(Arguments::number).toArray();
  }

  byte[] hex(String name) {
    return has(name) ? HexFormat.of().parseHex(text(name)) : null;
  }

  Key key(String name) {
    return has(name) ? Key.of(hex(name)) : null;
  }

  KeyArray keys(String name) {
    if (!has(name)) return null;
    return KeyArray.of(list(name).stream().map(one -> Key.of(HexFormat.of().parseHex((String) one))).toList());
  }

  private static Shard shard(Object value) {
    if (value == null) return Shard.WHOLE;
    Arguments in = new Arguments((Map<?, ?>) value);
    Shard shard = new Shard(in.integer("first_layer", 0), in.integer("layers", 0), in.integer("first_head", 0),
        in.integer("heads", 0), in.flag("replicated"));
    in.noneLeft();
    return shard;
  }

  Shard shard(String name) {
    return has(name) ? shard(get(name)) : null;
  }

  /** This object's own component and shard. */
  Part asPart() {
    return new Part(integer("component", 0), shard(get("shard")));
  }

  Part part(String name) {
    if (!has(name)) return null;
    Arguments in = new Arguments((Map<?, ?>) get(name));
    Part part = in.asPart();
    in.noneLeft();
    return part;
  }

  List<Part> parts(String name) {
    if (!has(name)) return null;
    List<Part> parts = new ArrayList<>();
    for (Arguments in : objects(name)) {
      parts.add(in.asPart());
      in.noneLeft();
    }
    return parts;
  }

  List<Position> positions(String name) {
    if (!has(name)) return null;
    List<Position> positions = new ArrayList<>();
    for (Arguments in : objects(name)) {
      positions.add(new Position(in.number("first_token", 0), in.number("rotation", 0), in.number("left_context", 0)));
      in.noneLeft();
    }
    return positions;
  }

  int[] tokens(String name) {
    Arguments in = new Arguments((Map<?, ?>) get(name));
    int[] tokens = new int[in.integer("count", 0)];
    long first = in.number("first");
    long step = in.number("step", 1);
    in.noneLeft();
    for (int i = 0; i < tokens.length; ++i) tokens[i] = (int) (first + i * step);
    return tokens;
  }
}
