// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.util.List;
import java.util.Objects;

/**
 * How an engine holds one part of its model.
 *
 * @param part which component and shard; null = component 0, whole model
 * @param form how it is ordered
 * @param tensors in the order [layer] or [layer][K,V], as the form says
 */
public record CachePart(Part part, Form form, List<Tensor> tensors) {
  /**
   * Copies the list.
   *
   * @param part which component and shard; null = component 0, whole model
   * @param form how it is ordered
   * @param tensors in the order [layer] or [layer][K,V], as the form says
   */
  public CachePart {
    Objects.requireNonNull(form, "form");
    tensors = List.copyOf(tensors);
  }

  void write(Call call, Struct out, int at) {
    Struct all = call.memory((long) SIZEOF_tensor * tensors.size());
    for (int i = 0; i < tensors.size(); ++i) tensors.get(i).write(all, i * SIZEOF_tensor);
    if (part != null) part.write(out, at + cache_part_part);
    out.put(at + cache_part_form, form.number());
    out.put(at + cache_part_tensors, all.address);
    out.put(at + cache_part_n_tensors, (long) tensors.size());
  }
}
