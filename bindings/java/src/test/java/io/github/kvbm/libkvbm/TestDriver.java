// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.nio.file.Files;
import java.nio.file.Path;

/** The engine's side of the fake CUDA driver that the library's own tests use: its devices have host memory. */
final class TestDriver {
  private TestDriver() {}

  /** Where the fake is built, if it is. */
  static Path file() {
    String given = System.getenv("KVBMTEST_CUDA_DRIVER");
    if (given != null && !given.isEmpty()) return Path.of(given);
    return Path.of("../../build/release/tests/libtest_cuda_driver.so").toAbsolutePath().normalize();
  }

  static boolean isBuilt() {
    return Files.exists(file());
  }

  static void open() {
    System.load(Path.of(System.getProperty("kvbm.test.native"), "test", "libtestdriver.so").toString());
    if (!load(file().toString())) throw new AssertionError(file() + " is not the fake CUDA driver");
  }

  private static native boolean load(String path);

  static native long allocate(long bytes);

  static native long stream();

  static native void synchronize(long stream);
}
