#include "backend/library/rounds.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "collective/kernels/kernels.h"

namespace hvd {

namespace {

constexpr int64_t kRoundBytes = 32 << 20;    // of staging memory, about
constexpr int64_t kStride = kStepBytes / 2;  // read once, written once
constexpr int64_t kWindowUnit = 64;          // a multiple of every element

bool InPlace(OpKind kind) { return kind == OpKind::kAllreduce || kind == OpKind::kBroadcast; }

int64_t Sum(const std::vector<int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

Status Grow(int64_t bytes, Mapping* memory) {
  const auto needed = WholePages(static_cast<size_t>(bytes));
  return memory->bytes() >= needed ? Status::Ok() : Mapping::Anonymous(needed, memory);
}

}  // namespace

Rounds::Rounds(CollectiveSpec spec, int rank, int size)
    : spec_(std::move(spec)),
      in_place_(InPlace(spec_.kind)),
      packs_(spec_.kind != OpKind::kBroadcast || spec_.root.value() == rank),
      window_(kRoundBytes) {
  if (in_place_) {
    inputs_ = {PieceStream(spec_.pieces)};
    outputs_ = inputs_;
    longest_ = inputs_[0].bytes();
  } else if (spec_.kind == OpKind::kAllgather) {
    outputs_ = GatherParts(spec_, rank, size);
    inputs_ = {outputs_[static_cast<size_t>(rank)]};
    longest_ = LargestBytes(outputs_);
  } else if (spec_.kind == OpKind::kAlltoall) {
    AlltoallParts parts(spec_, rank, size);
    parts.to[static_cast<size_t>(rank)] = parts.own;
    parts.from[static_cast<size_t>(rank)] = parts.own;
    inputs_ = std::move(parts.to);
    outputs_ = std::move(parts.from);
    for (const AlltoallSender& sender : parts.senders)
      longest_ = std::max(longest_, sender.largest);
  }
  if (!in_place_) window_ = std::max(kRoundBytes / size, kWindowUnit) / kWindowUnit * kWindowUnit;
}

bool Rounds::Next(LibraryCall* call) {
  const bool barrier = spec_.kind == OpKind::kBarrier;
  if (began_ ? next_ >= longest_ : longest_ == 0 && !barrier) return false;
  began_ = true;
  begin_ = next_;
  next_ = begin_ + window_;
  packed_ = {};
  unpacked_ = {};
  call->kind = spec_.kind;
  call->sequence = spec_.sequence;
  call->dtype = spec_.reduction.dtype;
  call->op = spec_.reduction.op;
  call->root = std::max(spec_.root.value(), 0);
  call->input_bytes = Lengths(inputs_);
  call->output_bytes = Lengths(outputs_);
  return true;
}

std::vector<int64_t> Rounds::Lengths(const Lanes& lanes) const {
  std::vector<int64_t> lengths;
  lengths.reserve(lanes.size());
  for (const PieceStream& lane : lanes)
    lengths.push_back(std::clamp(lane.bytes() - begin_, int64_t{0}, window_));
  return lengths;
}

Status Rounds::Allocate(Staging* staging, LibraryCall* call) const {
  HVD_RETURN_IF_ERROR(Grow(Sum(call->output_bytes), &staging->output));
  if (!in_place_) HVD_RETURN_IF_ERROR(Grow(Sum(call->input_bytes), &staging->input));
  call->output = staging->output.data();
  call->input = in_place_ ? call->output : staging->input.data();
  return Status::Ok();
}

// At most one stride, of one lane.
template <typename Copy>
bool Rounds::Walk(const Lanes& lanes, Cursor* cursor, Copy copy) const {
  for (; cursor->lane < lanes.size(); ++cursor->lane, cursor->at = 0) {
    const PieceStream& lane = lanes[cursor->lane];
    const int64_t length = std::clamp(lane.bytes() - begin_, int64_t{0}, window_);
    if (cursor->at == length) continue;
    const int64_t bytes = std::min(kStride, length - cursor->at);
    const int64_t from = begin_ + cursor->at;
    lane.ForEach(from, from + bytes,
                 [&](const std::byte* input, std::byte* output, int64_t at, int64_t count) {
                   copy(input, output, cursor->in_memory + at, count);
                 });
    cursor->at += bytes;
    cursor->in_memory += bytes;
    return true;
  }
  return false;
}

void Rounds::Scale(const Reduction& reduction, const void* from, void* to, int64_t bytes) const {
  const auto element = static_cast<int64_t>(SizeOf(reduction.dtype));
  kernels::Reduce(reduction, &from, 1, &to, 1, bytes / element);
}

bool Rounds::Pack(LibraryCall* call) {
  if (!packs_) return false;
  const Reduction scaling = spec_.reduction.First();
  const bool scales = Reduces(spec_.kind) && scaling.prescale != 1.0;
  return Walk(inputs_, &packed_,
              [&](const std::byte* input, std::byte*, int64_t at, int64_t bytes) {
                if (scales) {
                  Scale(scaling, input, call->input + at, bytes);
                } else {
                  std::memcpy(call->input + at, input, static_cast<size_t>(bytes));
                }
              });
}

bool Rounds::Unpack(const LibraryCall& call) {
  const Reduction scaling = spec_.reduction.Last();
  const bool scales = Reduces(spec_.kind) && (scaling.postscale != 1.0 || scaling.divisor != 1);
  return Walk(outputs_, &unpacked_,
              [&](const std::byte*, std::byte* output, int64_t at, int64_t bytes) {
                if (scales) {
                  Scale(scaling, call.output + at, output, bytes);
                } else {
                  std::memcpy(output, call.output + at, static_cast<size_t>(bytes));
                }
              });
}

}  // namespace hvd
