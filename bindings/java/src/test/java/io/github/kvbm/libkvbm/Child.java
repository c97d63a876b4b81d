// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A JVM of its own, for what a JVM can do only once. */
final class Child {
  private final Process process;

  Child(Map<String, String> environment, List<String> jvm, Class<?> program, String... arguments) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.add("-Xmx128m");
    command.addAll(jvm);
    command.add("-cp");
    command.add(String.join(File.pathSeparator, folder(Kvbm.class), folder(Child.class)));
    command.add(program.getName());
    command.addAll(List.of(arguments));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().keySet().removeIf(name -> name.startsWith("KVBM_"));
    builder.environment().putAll(environment);
    process = builder.start();
  }

  private static String folder(Class<?> of) throws Exception {
    return Path.of(of.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
  }

  Process process() {
    return process;
  }

  /** All that it said, once it has ended. */
  String output() throws Exception {
    process.getOutputStream().close();
    String text = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    process.waitFor();
    return text;
  }

  int status() throws InterruptedException {
    return process.waitFor();
  }
}
