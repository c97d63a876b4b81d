// SPDX-License-Identifier: Apache-2.0
/** The functions of kvbm.h one to one, made by SWIG; not for use outside this module. */
package io.github.kvbm.libkvbm.raw;
