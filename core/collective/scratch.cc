#include "collective/scratch.h"

#include <algorithm>
#include <numeric>

namespace hvd {

namespace {

// Buffers that wait for a borrower. More than this many have never been in use at once lately.
constexpr size_t kKept = 8;
// And so many bytes; what is larger is given back to the system.
constexpr size_t kKeptBytes = 64 << 20;

size_t RoundUp(size_t bytes) {
  size_t rounded = PageBytes();
  while (rounded < bytes) rounded *= 2;
  // Above a few MiB doubling would waste more than growing in smaller steps costs.
  constexpr size_t kLarge = 4 << 20;
  return rounded <= kLarge ? rounded : (bytes + kLarge - 1) / kLarge * kLarge;
}

}  // namespace

// What is given back needs no memory: one more than is kept, for a moment.
ScratchPool::ScratchPool() { free_.reserve(kKept + 1); }

ScratchPool::Lease::~Lease() {
  if (!pool_) return;
  auto& free = pool_->free_;
  free.push_back(std::move(mapping_));
  const auto smaller = [](const Mapping& a, const Mapping& b) { return a.bytes() < b.bytes(); };
  if (free.size() > kKept) free.erase(std::min_element(free.begin(), free.end(), smaller));
  const auto add = [](size_t sum, const Mapping& mapping) { return sum + mapping.bytes(); };
  while (std::accumulate(free.begin(), free.end(), size_t{0}, add) > kKeptBytes) {
    free.erase(std::max_element(free.begin(), free.end(), smaller));
  }
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
