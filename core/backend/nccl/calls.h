#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/nccl/communicator.h"
#include "base/collective.h"

namespace hvd::nccl {

// One tensor's memory on the communicator's GPU.
struct Part {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t bytes = 0;               // of the input
  const Shares* shares = nullptr;  // as in CollectiveSpec
};

// Hands a collective to NCCL, as one group of calls. Of a reduction `op` is NCCL's number. The
// answer is NCCL's: kInProgress until Look of the communicator says otherwise.
int Issue(const CollectiveSpec& spec, const std::vector<Part>& parts, int op, int rank, int size,
          const Communicator& communicator);

}  // namespace hvd::nccl
