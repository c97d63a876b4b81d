// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Where the native library comes from, and which one is refused. */
@Timeout(60)
class LoaderTest {
  private static final Path NATIVE = Path.of(System.getProperty("kvbm.test.native"));
  private static final Path OTHER = NATIVE.resolve("other");

  /** Says the version, and which libkvbm is mapped. */
  static final class Program {
    public static void main(String[] arguments) throws Exception {
      System.out.println("version " + Kvbm.versionString());
      Context.create().close();
      for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
        if (line.contains("libkvbm.so") && line.contains(" r-xp ")) System.out.println(line);
      }
    }
  }

  private static Path resources() throws Exception {
    try (Stream<Path> all = Files.list(NATIVE.resolve("resources/native"))) {
      return all.findFirst().orElseThrow();
    }
  }

  @Test
  void theArtifactHasTheVersionOfTheLibrary() {
    assertEquals(System.getProperty("kvbm.test.version"), Kvbm.versionString());
  }

  @Test
  void theJarsOwnLibraryIsUnpackedAndLeavesNoFile(@TempDir Path tmp) throws Exception {
    Child child = new Child(Map.of(), List.of("-Djava.io.tmpdir=" + tmp), Program.class);
    String said = child.output();
    assertEquals(0, child.status(), said);
    assertTrue(said.contains("version " + Kvbm.versionString()), said);
    assertTrue(said.contains(tmp.toString()), said);
    try (Stream<Path> left = Files.list(tmp)) {
      assertEquals(List.of(), left.filter(file -> file.getFileName().toString().startsWith("libkvbm")).toList());
    }
  }

  @Test
  void aFolderThatIsGivenIsUsed(@TempDir Path tmp) throws Exception {
    for (String how : new String[] {"-Dkvbm.library.path=", "-Djava.library.path="}) {
      Child child = new Child(Map.of(), List.of(how + resources(), "-Djava.io.tmpdir=" + tmp), Program.class);
      String said = child.output();
      assertEquals(0, child.status(), said);
      assertTrue(said.contains(resources().toString()), said);
    }
  }

  @Test
  void theEnvironmentNamesAFolderToo() throws Exception {
    Child child = new Child(Map.of("KVBM_LIBRARY_PATH", OTHER.toString()), List.of(), Program.class);
    String said = child.output();
    assertFalse(child.status() == 0, said);
    assertTrue(said.contains("9.0.1"), said);
  }

  @Test
  void anotherVersionIsRefusedByName() throws Exception {
    Child child = new Child(Map.of(), List.of("-Dkvbm.library.path=" + OTHER), Program.class);
    String said = child.output();
    assertFalse(child.status() == 0, said);
    assertTrue(said.contains("libkvbm.so is libkvbm 9.0.1, but this jar was made for 0."), said);
  }

  @Test
  void aFolderWithoutTheLibraryIsNamed(@TempDir Path tmp) throws Exception {
    Child child = new Child(Map.of(), List.of("-Dkvbm.library.path=" + tmp), Program.class);
    String said = child.output();
    assertFalse(child.status() == 0, said);
    assertTrue(said.contains(tmp + ", which has no libkvbm.so"), said);
  }
}
