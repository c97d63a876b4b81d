// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The JVM lives by signals: SIGSEGV is a null check of compiled code, SIGTERM runs the shutdown hooks. */
@Timeout(120)
class SignalsTest {
  /** Makes a node of the given settings, then uses what signals are for. */
  static final class Program {
    private int field;

    private static int fieldOf(Program program) {
      return program.field;
    }

    public static void main(String[] arguments) throws Exception {
      ContextOptions options = new ContextOptions().setting("node.listen", "127.0.0.1:0");
      for (String setting : arguments) options.setting(setting.split("=", 2)[0], setting.split("=", 2)[1]);
      Context context = Context.create(options);
      Manager manager = Manager.create(context, new ManagerOptions().tiers(List.of()));
      System.out.println("node " + manager.nodeAddress());
      // Compiled first: an interpreter tests for null by itself.
      Program program = new Program();
      for (int i = 0; i < 200_000; ++i) program.field += fieldOf(program);
      int caught = 0;
      for (int i = 0; i < 1000; ++i) {
        try {
          program.field += fieldOf(null);
        } catch (NullPointerException e) {
          ++caught;
        }
      }
      System.out.println("null checks " + caught);
      Runtime.getRuntime().addShutdownHook(new Thread(() -> {
        System.out.println("hook ran");
        System.out.flush();
      }));
      System.out.println("ready");
      System.out.flush();
      System.in.read();
      Thread.sleep(60_000);
    }
  }

  private static void check(String... settings) throws Exception {
    // Without inlining of the exception, so that each null check faults.
    Child child = new Child(
        Map.of("UCX_NET_DEVICES", "lo"), List.of("-XX:-OmitStackTraceInFastThrow"), Program.class, settings);
    StringBuilder said = new StringBuilder();
    java.io.BufferedReader reader = child.process().inputReader();
    for (String line = reader.readLine(); line != null; line = reader.readLine()) {
      said.append(line).append('\n');
      if (line.equals("ready")) child.process().toHandle().destroy(); // SIGTERM
    }
    assertTrue(said.toString().contains("null checks 1000\n"), said.toString());
    assertTrue(said.toString().contains("hook ran\n"), said.toString());
    assertEquals(143, child.status(), said.toString());
  }

  @Test
  void signalsOfTheJvmAreLeftAlone() throws Exception {
    check("node.transport=tcp");
  }

  @Test
  void signalsOfTheJvmAreLeftAloneByUcx() throws Exception {
    String given = System.getProperty("kvbm.test.ucx", "");
    Path module =
        Path.of(given.isEmpty() ? System.getProperty("kvbm.test.prefix") + "/lib/kvbm/libkvbm_ucx.so" : given);
    assumeTrue(Files.exists(module), "there is no UCX module " + module);
    // UCX cannot determine the user of its peers.
    Path key = Files.createTempFile("kvbm-test-key", "");
    try {
      Files.writeString(
          key, "kvbm-pool-key-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f:75cfd3a0");
      check("node.transport=ucx", "node.ucx_devices=lo", "node.trusted_network=on", "node.key_file=" + key,
          "node.ucx_module=" + module.toAbsolutePath());
    } finally {
      Files.delete(key);
    }
  }
}
