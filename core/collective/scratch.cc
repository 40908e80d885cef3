#include "collective/scratch.h"

#include <algorithm>

namespace hvd {

namespace {

// Buffers that wait for a borrower. More than this many have never been in use at once lately.
constexpr size_t kKept = 8;

size_t RoundUp(size_t bytes) {
  size_t rounded = kPageBytes;
  while (rounded < bytes) rounded *= 2;
  // Above a few MiB doubling would waste more than growing in smaller steps costs.
  constexpr size_t kLarge = 4 << 20;
  return rounded <= kLarge ? rounded : (bytes + kLarge - 1) / kLarge * kLarge;
}

}  // namespace

ScratchPool::Lease::~Lease() {
  if (!pool_) return;
  auto& free = pool_->free_;
  free.push_back(std::move(mapping_));
  if (free.size() <= kKept) return;
  const auto smallest = std::min_element(
      free.begin(), free.end(), [](const Mapping& a, const Mapping& b) { return a.bytes() < b.bytes(); });
  free.erase(smallest);
}

Status ScratchPool::Borrow(size_t bytes, Lease* lease) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes() >= bytes && (best == free_.end() || it->bytes() < best->bytes())) best = it;
  }
  Mapping mapping;
  if (best != free_.end()) {
    mapping = std::move(*best);
    free_.erase(best);
  } else {
    HVD_RETURN_IF_ERROR(Mapping::Anonymous(RoundUp(bytes), &mapping));
  }
  *lease = Lease(shared_from_this(), std::move(mapping));
  return Status::Ok();
}

}  // namespace hvd
