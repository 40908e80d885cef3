#include "collective/window_alltoall.h"

#include "collective/local.h"

namespace hvd {

std::unique_ptr<StepMachine> MakeWindowAlltoall(Board*, const CollectiveSpec&) {
  return MakeFailed(Status::Internal("not yet"));
}

}  // namespace hvd
