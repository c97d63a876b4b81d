// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.util.ArrayList;
import java.util.List;

/** Reads what is there, page by page; made by {@link Manager#scan}. For one thread. */
public final class BlockScan {
  private final Manager manager;
  private long cursor;
  private boolean ended;

  BlockScan(Manager manager) {
    this.manager = manager;
  }

  /**
   * Reads a page.
   *
   * @param max rows at most
   * @return rows, perhaps none of them before the end
   */
  public List<ScanRow> next(int max) {
    if (max < 1) throw new IllegalArgumentException("a page of " + max);
    List<ScanRow> rows = new ArrayList<>();
    if (ended) return rows;
    try (Call call = Call.begin()) {
      Struct place = call.memory(16).put(0, cursor);
      Struct out = call.output((long) SIZEOF_scan_row * max);
      long pointer = call.use(manager.handle);
      Call.check(kvbm.kvbm_manager_scan(pointer, place.address, out.address, max, place.address + 8));
      for (int i = 0; i < place.getLong(8); ++i) rows.add(ScanRow.read(out, i * SIZEOF_scan_row));
      cursor = place.getLong(0);
      ended = cursor == 0;
    }
    return rows;
  }

  /** {@return whether the last page was read} */
  public boolean ended() {
    return ended;
  }
}
