#include "collective/kernels/loops.h"

namespace hvd::kernels {

extern const Table kAvx2Table = {"avx2", HVD_KERNEL_ROWS};

}  // namespace hvd::kernels
