#include "collective/kernels/loops.h"

namespace hvd::kernels {

extern const Table kBaselineTable = {"baseline", HVD_KERNEL_ROWS(HalfLane, BfloatLane)};

}  // namespace hvd::kernels
