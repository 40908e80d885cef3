#include "runtime/operation/handle.h"

#include <cstddef>
#include <cstring>
#include <string>

namespace hvd {

namespace {

// A few spots and not many single lines: each spot costs a walk through the page tables.
constexpr int64_t kSpot = 128;
constexpr int64_t kSpots = 8;
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;  // odd, so that every bit of a word counts
constexpr int64_t kLanes = 4;  // independent sums, which a core computes at once
constexpr int64_t kBlock = kLanes * static_cast<int64_t>(sizeof(uint64_t));

uint64_t Step(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * kMultiplier;
  return sum ^ (sum >> 32);
}

uint64_t Mix(uint64_t sum, const std::byte* data, int64_t bytes) {
  uint64_t lanes[kLanes] = {sum, 1, 2, 3};
  uint64_t words[kLanes];
  for (; bytes >= kBlock; bytes -= kBlock, data += kBlock) {
    std::memcpy(words, data, kBlock);
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] = Step(lanes[i], words[i]);
  }
  std::memset(words, 0, kBlock);
  std::memcpy(words, data, static_cast<size_t>(bytes));
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = Step(lanes[i], words[i]);
  return Step(Step(Step(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

uint64_t MixTensor(uint64_t sum, const std::byte* data, int64_t bytes) {
  if (bytes <= kSpot * kSpots) return Mix(sum, data, bytes);
  const int64_t distance = (bytes - kSpot) / (kSpots - 1);
  for (int64_t i = 0; i < kSpots; ++i) sum = Mix(sum, data + distance * i, kSpot);
  return sum;
}

// "send to rank 1 (tag 0)".
std::string NameOf(const PeerOperation& peer) {
  const std::string whom = peer.rank.known() ? Name(peer.rank) : "any rank";
  const std::string what =
      IsNote(peer.tag) ? "a process set to be made" : "tag " + std::to_string(peer.tag);
  return (peer.sends ? "send to " : "recv from ") + whom + " (" + what + ")";
}

}  // namespace

std::string Handle::name() const {
  if (entry.peer) return NameOf(*entry.peer);
  if (entry.request.kind == OpKind::kJoin) return Name(OpKind::kJoin);
  if (ordinal == 0) return entry.request.name;
  return negotiate::PublicName(entry.request.kind, ordinal);
}

bool Handle::Changed() const {
  return entry.sampled && done.load(std::memory_order_acquire) && status.ok() &&
         Sample(entry) != sample;
}

uint64_t Sample(const Entry& entry) {
  uint64_t sum = 0;
  for (const TensorBuffer& buffer : entry.buffers) {
    if (buffer.output != nullptr) sum = MixTensor(sum, buffer.output, buffer.output_bytes);
  }
  return sum;
}

}  // namespace hvd
