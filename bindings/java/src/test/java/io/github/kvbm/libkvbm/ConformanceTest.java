// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.github.kvbm.libkvbm.raw.kvbmConstants;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Runs every scenario of the suite that all languages share. */
class ConformanceTest {
  private static final Path SUITE = Path.of("../conformance").toAbsolutePath().normalize();
  private static final Set<String> NOT_ARGUMENTS =
      Set.of("do", "as", "expect", "error", "message", "range", "within_ns", "why");

  private static final Set<String> MEMBERS = Set.of("name", "purpose", "needs", "steps");

  @TestFactory
  Stream<DynamicTest> scenarios() throws IOException {
    Map<String, Long> constants = constants();
    List<Path> files;
    try (Stream<Path> all = Files.list(SUITE.resolve("scenarios"))) {
      files = all.filter(file -> file.toString().endsWith(".json")).sorted().toList();
    }
    assertFalse(files.isEmpty(), "no scenarios in " + SUITE);
    return files.stream().map(file -> {
      Map<String, Object> scenario = read(file);
      return DynamicTest.dynamicTest((String) scenario.get("name"), () -> run(scenario, constants));
    });
  }

  @Test
  void constantsAreThoseOfTheHeader() throws ReflectiveOperationException {
    Map<String, Long> expected = constants();
    Map<String, Long> elsewhere = Map.of("KVBM_FOREVER", Kvbm.FOREVER, "KVBM_NO_TIER", Steps.unsigned(Kvbm.NO_TIER),
        "KVBM_NO_BLOCK", Steps.unsigned(Kvbm.NO_BLOCK));
    for (Map.Entry<String, Long> one : expected.entrySet()) {
      Long here = elsewhere.get(one.getKey());
      if (here == null) here = ((Number) kvbmConstants.class.getField(one.getKey()).get(null)).longValue();
      assertTrue(here.equals(one.getValue()), one.getKey() + " is " + here);
    }
  }

  private static Map<String, Object> read(Path file) {
    try {
      return new ObjectMapper().readValue(file.toFile(), new TypeReference<Map<String, Object>>() {});
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Map<String, Long> constants() {
    Map<String, Long> out = new HashMap<>();
    read(SUITE.resolve("constants.json")).forEach((name, value) -> out.put(name,
        value instanceof String ? Long.parseUnsignedLong((String) value) : ((Number) value).longValue()));
    return out;
  }

  private static void run(Map<String, Object> scenario, Map<String, Long> constants) throws Exception {
    if (!MEMBERS.containsAll(scenario.keySet()))
      throw new AssertionError("members of a scenario: " + scenario.keySet());
    Path tmp = Files.createTempDirectory("kvbm-scenario-");
    Deque<AutoCloseable> made = new ArrayDeque<>();
    try {
      Values values = new Values(constants);
      values.bind("tmp", tmp.toString());
      DeviceSteps.need(scenario.get("needs"), values);
      Steps steps = new Steps();
      int number = 0;
      for (Object step : (List<?>) scenario.get("steps")) {
        ++number;
        try {
          patiently((Map<?, ?>) step, values, steps, made);
        } catch (Throwable e) {
          throw new AssertionError("step " + number + ", " + step, e);
        }
      }
    } finally {
      for (AutoCloseable one : made) one.close();
      try (Stream<Path> all = Files.walk(tmp)) {
        all.sorted((a, b) -> b.compareTo(a)).forEach(path -> path.toFile().delete());
      }
    }
  }

  /** Once, or again and again until it passes. */
  private static void patiently(Map<?, ?> step, Values values, Steps steps, Deque<AutoCloseable> made)
      throws Exception {
    long end = System.nanoTime() + (step.containsKey("within_ns") ? ((Number) step.get("within_ns")).longValue() : 0);
    for (;;) {
      try {
        once(step, values, steps, made);
        return;
      } catch (AssertionError | KvbmException e) {
        if (System.nanoTime() >= end) throw e;
        Thread.sleep(5);
      }
    }
  }

  private static void once(Map<?, ?> step, Values values, Steps steps, Deque<AutoCloseable> made) throws Exception {
    Map<Object, Object> given = new HashMap<>(step);
    given.keySet().removeAll(NOT_ARGUMENTS);
    Arguments in = new Arguments((Map<?, ?>) values.resolve(given));
    String error = (String) step.get("error");
    if (step.containsKey("range")) {
      Throwable e = assertThrows(Throwable.class, () -> steps.run((String) step.get("do"), in));
      if (!(e instanceof IllegalArgumentException || e instanceof ArithmeticException)) throw new AssertionError(e);
      return;
    }
    Map<String, Object> results;
    try {
      results = steps.run((String) step.get("do"), in);
    } catch (KvbmException e) {
      if (error == null) throw e;
      checkError(e, error, (String) step.get("message"), values);
      return;
    }
    for (Object result : results.values()) {
      if (result instanceof AutoCloseable && !made.contains(result)) made.addFirst((AutoCloseable) result);
    }
    if (error != null) throw new AssertionError("it did not fail with " + error);
    if (step.containsKey("expect")) {
      String why = Values.mismatch(values.resolve(step.get("expect")), results);
      if (why != null) throw new AssertionError(why);
    }
    if (step.containsKey("as")) {
      ((Map<?, ?>) step.get("as")).forEach((result, name) -> {
        if (!results.containsKey(result)) throw new AssertionError("no result " + result);
        values.bind((String) name, results.get(result));
      });
    }
  }

  private static void checkError(KvbmException e, String error, String message, Values values) {
    List<Class<?>> bands = List.of(CallerException.class, NoRoomException.class, PeerException.class,
        MissException.class, UnavailableException.class, InternalException.class);
    long status = values.constant(error);
    if (e.statusNumber() != status || e.status().number() != status || !e.statusName().equals(error)
        || e.getClass() != bands.get((int) (-status / 100 - 1))) {
      throw new AssertionError("failed otherwise than with " + error, e);
    }
    if (message != null && !e.getMessage().contains(message)) {
      throw new AssertionError("the message does not say " + message, e);
    }
  }
}
