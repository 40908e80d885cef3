#pragma once

#include <cstdint>

#include "runtime/operation/handle.h"

namespace hvd {

// A number made of the contents of the entry's outputs: of tensors of up to 1 KiB of all, of larger ones of
// 8 spots of 128 bytes spread evenly, so that it costs no more than as many reads of memory. Equal contents
// make equal numbers; what changes many elements, such as clipping, scaling or zeroing, changes it almost
// surely.
uint64_t Sample(const Entry& entry);

}  // namespace hvd
