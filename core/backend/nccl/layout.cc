#include "backend/nccl/layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace hvd::nccl {

namespace {

constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool TravelTogether(const CollectiveSpec& spec) {
  return spec.kind == OpKind::kAllreduce && spec.pieces.size() > 1;
}

bool IsHere(const CollectiveSpec& spec, size_t piece, int32_t home) {
  return spec.order[piece].device == home;
}
// What a rank that has joined brings lies on the host.
bool IsNeutral(const CollectiveSpec& spec, size_t piece) {
  return spec.order[piece].device == kHostDevice;
}

int64_t OutputBytes(const CollectiveSpec& spec, size_t piece, int rank) {
  if (spec.shares.empty()) return spec.pieces[piece].bytes;
  const auto& [to, from] = spec.shares[piece];
  if (spec.kind == OpKind::kReducescatter) return to[static_cast<size_t>(rank)];
  return std::accumulate(from.begin(), from.end(), int64_t{0});
}

}  // namespace

int64_t Layout::BufferBytes(const CollectiveSpec& spec, int32_t home, int rank) {
  int64_t bytes = 0;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const int64_t input = Aligned(spec.pieces[i].bytes);
    if (TravelTogether(spec)) {
      bytes += input;
    } else if (!IsHere(spec, i, home)) {
      bytes += input + Aligned(OutputBytes(spec, i, rank));
    }
  }
  return bytes;
}

Layout::Layout(const CollectiveSpec& spec, int32_t home, int rank, std::byte* buffer)
    : home_(home) {
  if (TravelTogether(spec)) {
    Together(spec, buffer);
  } else {
    Apart(spec, rank, buffer);
  }
}

// The gaps between tensors are reduced, too, and nobody looks at them.
void Layout::Together(const CollectiveSpec& spec, std::byte* buffer) {
  int64_t at = 0;
  int64_t end = 0;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const int64_t bytes = spec.pieces[i].bytes;
    CopyIn(spec, i, buffer + at);
    CopyOut(spec, i, buffer + at, bytes);
    end = at + bytes;
    at += Aligned(bytes);
  }
  parts.push_back({buffer, buffer, end, nullptr});
}

void Layout::Apart(const CollectiveSpec& spec, int rank, std::byte* buffer) {
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const Piece& piece = spec.pieces[i];
    Part part{piece.input, piece.output, piece.bytes, nullptr};
    if (!spec.shares.empty()) part.shares = &spec.shares[i];
    if (!IsHere(spec, i, home_)) {
      const int64_t bytes = OutputBytes(spec, i, rank);
      CopyIn(spec, i, buffer);
      part.input = buffer;
      part.output = buffer + Aligned(piece.bytes);
      CopyOut(spec, i, part.output, bytes);
      buffer = part.output + Aligned(bytes);
    }
    parts.push_back(part);
  }
}

void Layout::CopyIn(const CollectiveSpec& spec, size_t i, std::byte* to) {
  const Piece& piece = spec.pieces[i];
  if (piece.bytes == 0) return;
  Copy copy{to, piece.input, piece.bytes, home_, spec.order[i].device, 0, {}};
  if (IsNeutral(spec, i)) {
    if (!Reduces(spec.kind)) return;  // nobody looks at it
    copy.from = nullptr;
    copy.element = SizeOf(spec.reduction.dtype);
    std::memcpy(copy.pattern, piece.input, copy.element);
  }
  before.push_back(copy);
}

void Layout::CopyOut(const CollectiveSpec& spec, size_t i, const std::byte* from, int64_t bytes) {
  if (bytes == 0 || IsNeutral(spec, i)) return;
  after.push_back({spec.pieces[i].output, from, bytes, spec.order[i].device, home_, 0, {}});
}

}  // namespace hvd::nccl
