// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;

/** Which blocks of a cache are coded, and how, for {@link Cache#encode} and {@link Cache#decode}. */
public final class CodeOptions {
  private int part;
  private Codec.Form form = Codec.Form.OPAQUE;
  private long stream;
  private boolean hasStream;

  /** The first part, its own form, at once. */
  public CodeOptions() {}

  /**
   * Sets which part of the cache.
   *
   * @param index in the order of {@link Manager#attach}
   * @return this
   */
  public CodeOptions part(int index) {
    part = index;
    return this;
  }

  /**
   * Says what the bytes of an opaque part, or of a state, are. Of other parts it is known.
   *
   * @param what null = opaque
   * @return this
   */
  public CodeOptions form(Codec.Form what) {
    form = what == null ? Codec.Form.OPAQUE : what;
    return this;
  }

  /**
   * Reads or writes the blocks after what a stream holds now. Without one it is done at once.
   *
   * @param handle a CUstream or cudaStream_t of the cache's device; 0 is the legacy one
   * @return this
   */
  public CodeOptions stream(long handle) {
    stream = handle;
    hasStream = true;
    return this;
  }

  Struct write(Call call, int flags) {
    Struct out = call.memory(SIZEOF_cache_code_options);
    Call.check(kvbm.kvbm_cache_code_options_init(out.address, SIZEOF_cache_code_options));
    out.put(cache_code_options_part, part);
    out.put(cache_code_options_element, form.element().number());
    out.put(cache_code_options_row_elements, form.rowElements());
    out.put(cache_code_options_rows, form.rows());
    out.put(cache_code_options_flags, flags);
    out.put(cache_code_options_stream, stream);
    out.put(cache_code_options_has_stream, hasStream ? 1 : 0);
    return out;
  }
}
