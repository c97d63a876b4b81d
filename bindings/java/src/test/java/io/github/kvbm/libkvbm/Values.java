// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Values of a scenario: variables, constants, and what matches what. Numbers are Long. */
final class Values {
  private static final Pattern VARIABLE = Pattern.compile("\\$(\\w+)(?:\\[(\\d+)(:(\\d+))?\\])?");
  private static final Pattern WITHIN = Pattern.compile("\\$\\{(\\w+)\\}");

  private final Map<String, Long> constants;
  private final Map<String, Object> variables = new HashMap<>();

  Values(Map<String, Long> constants) {
    this.constants = constants;
  }

  void bind(String name, Object value) {
    variables.put(name, value);
  }

  long constant(String name) {
    Long value = constants.get(name);
    if (value == null) throw new AssertionError("no constant " + name);
    return value;
  }

  private Object variable(String name) {
    if (!variables.containsKey(name)) throw new AssertionError("no variable " + name);
    return variables.get(name);
  }

  Object resolve(Object value) {
    if (value instanceof Integer || value instanceof Long) return ((Number) value).longValue();
    if (value instanceof BigInteger) return ((BigInteger) value).longValue();
    if (value instanceof String) return resolveText((String) value);
    if (value instanceof List) {
      List<Object> out = new ArrayList<>();
      for (Object element : (List<?>) value) {
        Object resolved = resolve(element);
        boolean slice = element instanceof String && ((String) element).matches("\\$\\w+\\[\\d+:\\d+\\]");
        if (slice) {
          out.addAll((List<?>) resolved);
        } else {
          out.add(resolved);
        }
      }
      return out;
    }
    if (value instanceof Map) {
      Map<String, Object> out = new HashMap<>();
      ((Map<?, ?>) value).forEach((name, member) -> out.put((String) name, resolve(member)));
      return out;
    }
    return value;
  }

  private Object resolveText(String text) {
    Matcher whole = VARIABLE.matcher(text);
    if (whole.matches()) {
      Object value = variable(whole.group(1));
      if (whole.group(2) == null) return value;
      int first = Integer.parseInt(whole.group(2));
      List<?> list = (List<?>) value;
      if (whole.group(4) == null) return list.get(first);
      return new ArrayList<>(list.subList(first, Integer.parseInt(whole.group(4))));
    }
    if (text.startsWith("KVBM_")) return constant(text);
    return WITHIN.matcher(text).replaceAll(m -> Matcher.quoteReplacement(String.valueOf(variable(m.group(1)))));
  }

  /** Null if it matches, else why not. */
  static String mismatch(Object expected, Object actual) {
    if (expected instanceof Map) return mismatchObject((Map<?, ?>) expected, actual);
    if (expected instanceof List) {
      if (!(actual instanceof List)) return actual + " is no list";
      List<?> wanted = (List<?>) expected;
      List<?> got = (List<?>) actual;
      if (wanted.size() != got.size()) return got.size() + " elements and not " + wanted.size() + ": " + got;
      for (int i = 0; i < wanted.size(); ++i) {
        String why = mismatch(wanted.get(i), got.get(i));
        if (why != null) return "[" + i + "] " + why;
      }
      return null;
    }
    return Objects.equals(expected, actual) ? null : actual + " and not " + expected;
  }

  private static String mismatchObject(Map<?, ?> expected, Object actual) {
    boolean matcher = false;
    for (Object name : expected.keySet()) {
      matcher |= List.of("min", "max", "length", "contains", "not", "any_order").contains(name);
    }
    for (Map.Entry<?, ?> member : expected.entrySet()) {
      String why;
      if (matcher) {
        why = mismatchMatcher((String) member.getKey(), member.getValue(), actual);
      } else if (!(actual instanceof Map) || !((Map<?, ?>) actual).containsKey(member.getKey())) {
        why = "no member " + member.getKey() + " in " + actual;
      } else {
        why = mismatch(member.getValue(), ((Map<?, ?>) actual).get(member.getKey()));
        if (why != null) why = "." + member.getKey() + " " + why;
      }
      if (why != null) return why;
    }
    return null;
  }

  private static String mismatchMatcher(String name, Object wanted, Object actual) {
    boolean good = switch (name) {
      case "min" -> actual instanceof Long && (Long) actual >= (Long) wanted;
      case "max" -> actual instanceof Long && (Long) actual <= (Long) wanted;
      case "length" -> actual instanceof List && ((List<?>) actual).size() == (Long) wanted
          || actual instanceof String && ((String) actual).length() == (Long) wanted;
      case "contains" -> actual instanceof String && ((String) actual).contains((String) wanted)
          || actual instanceof List && ((List<?>) actual).stream().anyMatch(e -> mismatch(wanted, e) == null);
      case "not" -> mismatch(wanted, actual) != null;
      case "any_order" -> anyOrder((List<?>) wanted, actual);
      default -> throw new AssertionError("no matcher " + name);
    };
    return good ? null : actual + " is not {" + name + ": " + wanted + "}";
  }

  private static boolean anyOrder(List<?> wanted, Object actual) {
    if (!(actual instanceof List) || ((List<?>) actual).size() != wanted.size()) return false;
    List<Object> left = new ArrayList<>((List<?>) actual);
    for (Object one : wanted) {
      int i = 0;
      while (i < left.size() && mismatch(one, left.get(i)) != null) ++i;
      if (i == left.size()) return false;
      left.remove(i);
    }
    return true;
  }
}
