#include "negotiate/response_cache.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/text.h"
#include "negotiate/bytes/wire.h"

namespace hvd::negotiate {
namespace {

// What SameAs compares, and nothing else.
void Pack(const Request& request, std::string* key) {
  key->clear();
  Encoder out(key);
  out.Byte(static_cast<uint8_t>(request.kind));
  out.Text(request.name);
  out.Varint(request.tensors.size());
  if (request.kind == OpKind::kBarrier) return;
  out.Byte(static_cast<uint8_t>(KindOf(request.device)));
  if (HasReduction(request.kind)) {
    const bool scaled = request.prescale != 1.0 || request.postscale != 1.0;
    out.Byte(static_cast<uint8_t>(request.reduce_op));
    out.Byte(scaled ? 1 : 0);
    if (scaled) out.Double(request.prescale);
    if (scaled) out.Double(request.postscale);
  }
  if (HasRoot(request.kind)) out.Signed(request.root.value());
  for (const TensorMeta& tensor : request.tensors) {
    out.Byte(static_cast<uint8_t>(tensor.dtype));
    out.Varint(tensor.shape.size());
    for (size_t d = IsRagged(request.kind) ? 1 : 0; d < tensor.shape.size(); ++d)
      out.Varint(static_cast<uint64_t>(tensor.shape[d]));
  }
}

uint32_t HashOf(std::string_view key) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(key));
}

void Unpack(Decoder* in, Request* request) {
  request->kind = static_cast<OpKind>(in->Byte("operation"));
  request->name = in->Text("name", in->left());
  request->tensors.resize(in->Varint("tensors"));
  if (request->kind == OpKind::kBarrier) return;
  in->Byte("device");
  if (HasReduction(request->kind)) {
    request->reduce_op = static_cast<ReduceOp>(in->Byte("reduce op"));
    const bool scaled = in->Byte("scaled") != 0;
    if (scaled) request->prescale = in->Double("prescale");
    if (scaled) request->postscale = in->Double("postscale");
  }
  if (HasRoot(request->kind))
    request->root = GlobalRank(static_cast<int>(
        in->Signed("root", std::numeric_limits<int>::min(), std::numeric_limits<int>::max())));
  for (TensorMeta& tensor : request->tensors) {
    tensor.dtype = static_cast<DataType>(in->Byte("data type"));
    tensor.shape.resize(in->Varint("dimensions"));
    for (size_t d = IsRagged(request->kind) ? 1 : 0; d < tensor.shape.size(); ++d)
      tensor.shape[d] = static_cast<int64_t>(in->Varint("dimension"));
  }
}

}  // namespace

ResponseCache::ResponseCache(size_t capacity)
    : capacity_(std::min(capacity, kMostIds)), buckets_(16, kNoId) {}

uint32_t ResponseCache::Find(const Request& request) const {
  if (entries_.empty() || request.notice != 0) return kNoId;
  Pack(request, &key_);
  return Lookup(key_, HashOf(key_));
}

Status ResponseCache::Learn(uint32_t id, const Request& request) {
  Pack(request, &key_);
  const uint32_t hash = HashOf(key_);
  const uint32_t known = Lookup(key_, hash);
  if (known == id && id != kNoId) return Status::Ok();
  if (known != kNoId || id != entries_.size() || id >= capacity_) {
    return Status::Aborted("response stream gives id " + std::to_string(id) + " to '" +
                           Shown(request.name) + "', but the next free id is " +
                           std::to_string(entries_.size()) + " of " + std::to_string(capacity_));
  }
  entries_.push_back({keys_.size(), hash, request.device});
  Keep(key_);
  if (2 * entries_.size() > buckets_.size()) Grow();
  Insert(id);
  return Status::Ok();
}

void ResponseCache::Clear() { *this = ResponseCache(capacity_); }

Request ResponseCache::At(uint32_t id) const {
  Request request;
  Decoder in(KeyOf(id));
  Unpack(&in, &request);
  request.device = entries_[id].device;
  return request;
}

std::string_view ResponseCache::KeyOf(uint32_t id) const {
  const size_t end = id + 1 < entries_.size() ? entries_[id + 1].key : keys_.size();
  return {keys_.data() + entries_[id].key, end - entries_[id].key};
}

// They are most of what is kept: room for a few more is enough.
void ResponseCache::Keep(std::string_view key) {
  const size_t needed = keys_.size() + key.size();
  if (needed > keys_.capacity()) keys_.reserve(needed + needed / 8);
  keys_.insert(keys_.end(), key.begin(), key.end());
}

uint32_t ResponseCache::Lookup(std::string_view key, uint32_t hash) const {
  const size_t mask = buckets_.size() - 1;
  for (size_t b = hash & mask;; b = (b + 1) & mask) {
    const uint32_t id = buckets_[b];
    if (id == kNoId) return kNoId;
    if (entries_[id].hash == hash && KeyOf(id) == key) return id;
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
