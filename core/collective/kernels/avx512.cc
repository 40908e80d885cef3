#include "collective/kernels/loops.h"

namespace hvd::kernels {

extern const Table kAvx512Table = {"avx512", HVD_KERNEL_ROWS};

}  // namespace hvd::kernels
