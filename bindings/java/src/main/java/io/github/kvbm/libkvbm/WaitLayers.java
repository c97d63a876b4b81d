// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** How streams wait for the layers of a load ({@link Cache#waitLayer}). */
public enum WaitLayers implements Numbered {
  /** Not at all: layers land in any order. */
  OFF(KVBM_WAIT_LAYERS_OFF),

  /**
   * On the device, also for a layer that was not given to the driver yet. The caller never blocks; until the load has
   * ended it must make no call of the driver that waits for the stream.
   */
  ON_DEVICE(KVBM_WAIT_LAYERS_ON_DEVICE),

  /**
   * {@link Cache#waitLayer} blocks until the layer was given to the driver. Any call may follow. Works on every device.
   */
  ISSUED(KVBM_WAIT_LAYERS_ISSUED);

  private final int number;

  WaitLayers(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static WaitLayers of(int number) {
    return Numbered.of(values(), number, "way to wait for layers");
  }
}
