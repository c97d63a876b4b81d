// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.util.List;
import java.util.Objects;

/** Options of {@link BlockArray#register}. What is not set has its default. */
public final class RegisterOptions {
  private Duplicates duplicates = Duplicates.REUSE;
  private Part part;
  private Key parent;
  private boolean unchained;
  private Priority priority = Priority.NORMAL;
  private List<Position> positions;
  private Status[] itemStatus;

  /** Duplicates are reused; component 0 of the whole model, no parent, chained, normal priority, no positions. */
  public RegisterOptions() {}

  /**
   * Sets what a key that is there already does.
   *
   * @param how what it does
   * @return this
   */
  public RegisterOptions duplicates(Duplicates how) {
    duplicates = Objects.requireNonNull(how, "how");
    return this;
  }

  /**
   * Sets what part the blocks are.
   *
   * @param which null = component 0, whole model
   * @return this
   */
  public RegisterOptions part(Part which) {
    part = which;
    return this;
  }

  /**
   * Sets the key before the first.
   *
   * @param key null = none
   * @return this
   */
  public RegisterOptions parent(Key key) {
    parent = key;
    return this;
  }

  /**
   * Says that the keys are not a prefix in order: blocks have no parents.
   *
   * @param on whether so
   * @return this
   */
  public RegisterOptions unchained(boolean on) {
    unchained = on;
    return this;
  }

  /**
   * Tells the policies what is known of the blocks.
   *
   * @param value the priority
   * @return this
   */
  public RegisterOptions priority(Priority value) {
    priority = Objects.requireNonNull(value, "value");
    return this;
  }

  /**
   * Says where blocks under content keys were computed.
   *
   * @param list one for each block; null = none
   * @return this
   */
  public RegisterOptions positions(List<Position> list) {
    positions = list == null ? null : List.copyOf(list);
    return this;
  }

  /**
   * Asks what became of each block: {@link Status#OK}, or {@link Status#EXISTS} where it was there already.
   *
   * @param into filled by the call; as long as the batch
   * @return this
   */
  public RegisterOptions itemStatus(Status[] into) {
    itemStatus = into;
    return this;
  }

  Struct write(Call call, ItemStatus statuses, int n) {
    Struct out = call.memory(SIZEOF_register_options);
    Call.check(kvbm.kvbm_register_options_init(out.address, SIZEOF_register_options));
    out.put(register_options_duplicates, duplicates.number());
    out.put(register_options_part, call.part(part));
    out.put(register_options_parent, call.key(parent));
    out.put(register_options_unchained, unchained ? 1 : 0);
    out.put(register_options_priority, priority.number());
    out.put(register_options_item_status, statuses.address());
    out.put(register_options_positions, Position.write(call, positions, n));
    return out;
  }

  Status[] statuses() {
    return itemStatus;
  }
}
