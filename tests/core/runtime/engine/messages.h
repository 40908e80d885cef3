#pragma once

// Messages of bytes, for tests of engines.

#include <cstring>
#include <random>
#include <vector>

#include "cluster.h"

namespace hvd::test {

using Bytes = std::vector<uint8_t>;

constexpr int64_t kMessageLimitUs = kPatienceMs * int64_t{1000};
constexpr int kAnybody = -1;

inline Entry MessageEntry(bool sends, Bytes* data, int rank, int64_t tag, uint32_t set) {
  Entry entry;
  entry.process_set = set;
  entry.peer = PeerOperation{sends, GlobalRank(rank), tag};
  const auto bytes = static_cast<int64_t>(data->size());
  entry.request.tensors.push_back({DataType::kUint8, {bytes}});
  entry.buffers.push_back(TensorBuffer::InPlace(data->data(), bytes));
  return entry;
}
inline Entry SendEntry(Bytes* data, int to, int64_t tag = 0, uint32_t set = 0) {
  return MessageEntry(true, data, to, tag, set);
}
inline Entry RecvEntry(Bytes* data, int from, int64_t tag = 0, uint32_t set = 0) {
  return MessageEntry(false, data, from, tag, set);
}
inline int64_t SourceOf(const HandlePtr& handle) {
  int64_t source;
  std::memcpy(&source, handle->outputs.front().data.get(), sizeof source);
  return source;
}

// What a message holds, so that no other one has the same.
inline Bytes Content(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Bytes content(bytes);
  for (size_t i = 0; i < bytes; i += 1 + bytes / 4096) content[i] = static_cast<uint8_t>(random());
  if (bytes > 0) content.back() = static_cast<uint8_t>(seed);
  return content;
}

inline const std::vector<size_t>& MessageSizes() {
  static const std::vector<size_t> sizes{0,
                                         1,
                                         8,
                                         1023,
                                         1024,
                                         1025,
                                         16 << 10,
                                         17 << 10,
                                         64 << 10,
                                         (64 << 10) + 1,
                                         300 << 10,
                                         5 << 20,
                                         (9 << 20) + 3};
  return sizes;
}

}  // namespace hvd::test
