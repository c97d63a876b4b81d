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
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/**
 * Finds and loads libkvbm and its JNI library, and refuses a libkvbm that does not belong to them.
 *
 * <p>In this order: the folder that the environment's KVBM_LIBRARY_PATH names; java.library.path, where both files are
 * in one of its folders; the files packed in the jar. A folder may have libkvbm alone: the JNI library is the jar's
 * then.
 */
final class Loader {
  private static final String CORE = "libkvbm.so";
  private static final String JNI = "libkvbmjni.so";

  private Loader() {}

  /** Called once, by the static initialiser of the natives. */
  static void load() {
    String given = System.getenv("KVBM_LIBRARY_PATH");
    if (given != null && !given.isEmpty()) {
      Path folder = Path.of(given).toAbsolutePath();
      if (!Files.isRegularFile(folder.resolve(CORE))) {
        throw new UnsatisfiedLinkError("KVBM_LIBRARY_PATH is " + given + ", which has no " + CORE);
      }
      loadFrom(folder, folder.resolve(CORE));
    } else {
      Path folder = folderOfLibraryPath();
      if (folder != null) {
        loadFrom(folder, folder.resolve(CORE));
      } else {
        loadPacked(null);
      }
    }
    checkVersion();
  }

  private static Path folderOfLibraryPath() {
    for (String part : System.getProperty("java.library.path", "").split(":")) {
      if (part.isEmpty()) continue;
      Path folder = Path.of(part).toAbsolutePath();
      if (Files.isRegularFile(folder.resolve(CORE)) && Files.isRegularFile(folder.resolve(JNI))) return folder;
    }
    return null;
  }

  private static void loadFrom(Path folder, Path core) {
    if (Files.isRegularFile(folder.resolve(JNI))) {
      System.load(core.toString());
      System.load(folder.resolve(JNI).toString());
    } else {
      loadPacked(core);
    }
  }

  /** Unpacks into a folder that nobody else can write to, loads, and removes the files: they stay mapped. */
  private static void loadPacked(Path otherCore) {
    String place = "/native/" + platform() + "/";
    try {
      Map<String, String> sums = sums(place);
      Path folder = Files.createTempDirectory("libkvbm-");
      try {
        checkPrivate(folder);
        System.load((otherCore != null ? otherCore : unpack(place, CORE, folder, sums)).toString());
        System.load(unpack(place, JNI, folder, sums).toString());
      } finally {
        Files.deleteIfExists(folder.resolve(CORE));
        Files.deleteIfExists(folder.resolve(JNI));
        Files.deleteIfExists(folder);
      }
    } catch (IOException e) {
      throw new UncheckedIOException("libkvbm cannot be unpacked into " + System.getProperty("java.io.tmpdir")
          + "; set java.io.tmpdir, or KVBM_LIBRARY_PATH to a folder that has " + CORE + " and " + JNI, e);
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
            + "; set KVBM_LIBRARY_PATH to a folder that has " + CORE + " and " + JNI);
      }
      Map<String, String> sums = new HashMap<>();
      for (String line : new String(in.readAllBytes(), StandardCharsets.UTF_8).split("\n")) {
        String[] words = line.trim().split("\\s+", 2);
        if (words.length == 2) sums.put(words[1], words[0]);
      }
      return sums;
    }
  }

  private static void checkPrivate(Path folder) throws IOException {
    Set<PosixFilePermission> mode = Files.getPosixFilePermissions(folder, LinkOption.NOFOLLOW_LINKS);
    if (!mode.equals(PosixFilePermissions.fromString("rwx------"))) {
      throw new IOException(folder + " could be written to by others: " + PosixFilePermissions.toString(mode));
    }
  }

  private static Path unpack(String place, String name, Path folder, Map<String, String> sums) throws IOException {
    Path file = folder.resolve(name);
    try (InputStream in = Loader.class.getResourceAsStream(place + name)) {
      if (in == null) throw new IOException("the jar lacks " + place + name);
      Files.copy(in, file);
    }
    if (!sha256(file).equals(sums.get(name))) {
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

  private static void checkVersion() {
    long header = kvbm.kvbm_java_header_version();
    long library = kvbm.kvbm_version();
    // Before 1.0 a minor version is a soname of its own; within one, a newer library has all that an older header has.
    if (library / 1000 != header / 1000 || library < header) {
      throw new UnsatisfiedLinkError("libkvbm " + kvbm.kvbm_version_string() + " was loaded, but this jar was made for "
          + header / 1000000 + "." + header / 1000 % 1000 + "." + header % 1000
          + "; look at KVBM_LIBRARY_PATH and java.library.path, or take the jar of that version");
    }
  }
}
