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

  /** Sets it up; false for what it does not know. */
  static native boolean apply(String text);

  static long allocate(long bytes) {
    return allocateOn(0, bytes);
  }

  static native long allocateOn(int device, long bytes);

  static long stream() {
    return streamOn(0);
  }

  static native long streamOn(int device);

  /** Enqueues a copy; false if there is no such stream. */
  static native boolean copy(long to, long from, long bytes, long stream);

  /** Stops a stream until it is released. */
  static native void hold(long stream, boolean on);

  /** Begins and ends a capture into a graph. */
  static native void capture(long stream, boolean on);

  static native void synchronize(long stream);
}
