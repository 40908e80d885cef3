#include "negotiate/response_cache.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace hvd::negotiate {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

// Equal for requests that SameAs. The few shapes of one name differ early, so the first tensors are
// enough.
uint64_t Hash(const Request& request) {
  constexpr size_t kHashedTensors = 4;
  uint64_t hash = std::hash<std::string_view>{}(request.name);
  hash = Mix(hash, static_cast<uint64_t>(request.kind) | request.tensors.size() << 8);
  const size_t first =
      request.kind == OpKind::kAllgather || request.kind == OpKind::kAlltoall ? 1 : 0;
  for (size_t t = 0; t < std::min(request.tensors.size(), kHashedTensors); ++t) {
    const TensorMeta& tensor = request.tensors[t];
    hash = Mix(hash, static_cast<uint64_t>(tensor.dtype) | tensor.shape.size() << 8);
    for (size_t d = first; d < tensor.shape.size(); ++d)
      hash = Mix(hash, static_cast<uint64_t>(tensor.shape[d]));
  }
  return hash;
}

}  // namespace

ResponseCache::ResponseCache(size_t capacity)
    : capacity_(std::min(capacity, kMostIds)), buckets_(16, kNoId) {}

uint32_t ResponseCache::Find(const Request& request) const {
  return Lookup(request, Hash(request));
}

Status ResponseCache::Learn(uint32_t id, Request request) {
  const uint64_t hash = Hash(request);
  const uint32_t known = Lookup(request, hash);
  if (known == id && id != kNoId) return Status::Ok();
  if (known != kNoId || id != entries_.size() || id >= capacity_) {
    return Status::Aborted("response stream gives id " + std::to_string(id) + " to '" +
                           Shown(request.name) + "', but the next free id is " +
                           std::to_string(entries_.size()) + " of " + std::to_string(capacity_));
  }
  entries_.push_back({hash, std::move(request)});
  if (2 * entries_.size() > buckets_.size()) Grow();
  Insert(id);
  return Status::Ok();
}

uint32_t ResponseCache::Lookup(const Request& request, uint64_t hash) const {
  const size_t mask = buckets_.size() - 1;
  for (size_t b = hash & mask;; b = (b + 1) & mask) {
    const uint32_t id = buckets_[b];
    if (id == kNoId) return kNoId;
    if (entries_[id].hash == hash && entries_[id].request.SameAs(request)) return id;
  }
}

void ResponseCache::Insert(uint32_t id) {
  const size_t mask = buckets_.size() - 1;
  size_t b = entries_[id].hash & mask;
  while (buckets_[b] != kNoId) b = (b + 1) & mask;
  buckets_[b] = id;
}

void ResponseCache::Grow() {
  buckets_.assign(2 * buckets_.size(), kNoId);
  for (uint32_t id = 0; id + 1 < entries_.size(); ++id) Insert(id);
}

}  // namespace hvd::negotiate
