#include "negotiate/marks.h"

#include <utility>

namespace hvd::negotiate {

void Batches::Begin(std::vector<size_t> payloads) {
  payloads_ = std::move(payloads);
  const size_t length = payloads_.size();
  ahead_.assign(length, 1);
  for (size_t first = 0; first < length; ++first) {
    const auto carries = [&](uint64_t ahead) { return payloads_[(first + ahead) % length] > 0; };
    while (!carries(0) && ahead_[first] < kMostAhead && !carries(ahead_[first])) ++ahead_[first];
  }
}

}  // namespace hvd::negotiate
