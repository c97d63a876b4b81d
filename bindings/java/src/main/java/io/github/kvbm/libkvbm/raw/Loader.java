// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm.raw;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/**
 * Finds and loads libkvbm and its JNI library, and refuses a libkvbm that does not belong to them.
 *
 * <p>In this order: the folder that the system property kvbm.library.path or the environment's KVBM_LIBRARY_PATH names;
 * java.library.path, where all files are in one of its folders; the files packed in the jar. A folder that is named may
 * have libkvbm alone: the others are the jar's then.
 */
final class Loader {
  private static final String CORE = "libkvbm.so";
  private static final String JNI = "libkvbmjni.so";
  private static final String PROBE = "libkvbmprobe.so";

  /** In the order in which they are loaded. */
  private static final List<String> ALL = List.of(PROBE, CORE, JNI);

  private Loader() {}

  /** Called once, by the static initialiser of the natives. */
  static void load() {
    String how = "kvbm.library.path";
    String given = System.getProperty(how);
    if (given == null) {
      how = "KVBM_LIBRARY_PATH";
      given = System.getenv(how);
    }
    Path folder = given != null && !given.isEmpty() ? Path.of(given).toAbsolutePath() : folderOfLibraryPath();
    if (folder != null && !Files.isRegularFile(folder.resolve(CORE))) {
      throw new UnsatisfiedLinkError(how + " is " + given + ", which has no " + CORE);
    }
    try {
      loadFrom(folder);
    } catch (IOException e) {
      throw new UncheckedIOException("libkvbm cannot be unpacked into " + System.getProperty("java.io.tmpdir")
          + "; set java.io.tmpdir, or KVBM_LIBRARY_PATH to a folder that has " + ALL, e);
    }
  }

  private static Path folderOfLibraryPath() {
    for (String part : System.getProperty("java.library.path", "").split(":")) {
      if (part.isEmpty()) continue;
      Path folder = Path.of(part).toAbsolutePath();
      if (ALL.stream().allMatch(name -> Files.isRegularFile(folder.resolve(name)))) return folder;
    }
    return null;
  }

  /**
   * Loads libraries from the folder if it has them, and the others from the jar. Those are unpacked into a folder that
   * no other user can write to, and removed at once, because loaded files stay mapped.
   */
  private static void loadFrom(Path given) throws IOException {
    Path unpacked = null;
    try {
      for (String name : ALL) {
        Path file = given == null ? null : given.resolve(name);
        if (file == null || !Files.isRegularFile(file)) {
          if (unpacked == null) unpacked = privateFolder();
          file = unpack(name, unpacked);
        }
        // The core may be looked into only once the probe is there.
        if (name.equals(CORE)) checkVersion(file);
        System.load(file.toString());
      }
    } finally {
      if (unpacked != null) {
        for (String name : ALL) Files.deleteIfExists(unpacked.resolve(name));
        Files.deleteIfExists(unpacked);
      }
    }
  }

  /** The name of this machine's folder in the jar, e.g. linux-x86_64. */
  static String platform() {
    String machine = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
    if (machine.equals("amd64")) machine = "x86_64";
    return System.getProperty("os.name").toLowerCase(Locale.ROOT) + "-" + machine;
  }

  private static Map<String, String> sums(String place) throws IOException {
    try (InputStream in = Loader.class.getResourceAsStream(place + "SHA256SUMS")) {
      if (in == null) {
        throw new UnsatisfiedLinkError("this jar has no libkvbm for " + platform()
            + "; set KVBM_LIBRARY_PATH to a folder that has " + ALL);
      }
      Map<String, String> sums = new HashMap<>();
      for (String line : new String(in.readAllBytes(), StandardCharsets.UTF_8).split("\n")) {
        String[] words = line.trim().split("\\s+", 2);
        if (words.length == 2) sums.put(words[1], words[0]);
      }
      return sums;
    }
  }

  private static Path privateFolder() throws IOException {
    Path folder = Files.createTempDirectory("libkvbm-");
    Set<PosixFilePermission> mode = Files.getPosixFilePermissions(folder, LinkOption.NOFOLLOW_LINKS);
    if (!mode.equals(PosixFilePermissions.fromString("rwx------"))) {
      throw new IOException(folder + " could be written to by others: " + PosixFilePermissions.toString(mode));
    }
    return folder;
  }

  private static Path unpack(String name, Path folder) throws IOException {
    String place = "/native/" + platform() + "/";
    String sum = sums(place).get(name);
    Path file = folder.resolve(name);
    try (InputStream in = Loader.class.getResourceAsStream(place + name)) {
      if (in == null) throw new IOException("the jar lacks " + place + name);
      Files.copy(in, file);
    }
    if (!sha256(file).equals(sum)) {
      throw new IOException(file + " is not what was packed: the disk may be full, or the jar damaged");
    }
    return file;
  }

  private static String sha256(Path file) throws IOException {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(file)));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every Java has SHA-256", e);
    }
  }

  private static void checkVersion(Path core) {
    int header = Probe.header();
    int library = Probe.library((core + "\0").getBytes(StandardCharsets.UTF_8));
    // Before 1.0 a minor version is a soname of its own; within one, a newer library has all that an older header has.
    if (library == 0) throw new UnsatisfiedLinkError(core + " cannot be loaded, or is no libkvbm");
    if (library / 1000 != header / 1000 || library < header) {
      throw new UnsatisfiedLinkError(core + " is libkvbm " + text(library) + ", but this jar was made for "
          + text(header) + "; look at KVBM_LIBRARY_PATH and java.library.path, or take the jar of that version");
    }
  }

  private static String text(int version) {
    return version / 1_000_000 + "." + version / 1000 % 1000 + "." + version % 1000;
  }
}
