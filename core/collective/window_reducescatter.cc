#include "collective/window_reducescatter.h"

#include "collective/local.h"

namespace hvd {

std::unique_ptr<StepMachine> MakeWindowReducescatter(Board*, const CollectiveSpec&) {
  return MakeFailed(Status::Internal("not yet"));
}

}  // namespace hvd
