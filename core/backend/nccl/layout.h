#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/nccl/calls.h"
#include "base/collective.h"

namespace hvd::nccl {

// A copy on the GPU, or between two of them. Without `from`: `bytes` of `to` are filled with the
// `element` bytes of `pattern`.
struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;
  int32_t to_device = kHostDevice;
  int32_t from_device = kHostDevice;
  size_t element = 0;
  std::byte pattern[8] = {};
};

// Where the tensors of a collective lie while NCCL works on them, and what is copied before and
// after. Tensors that are reduced together travel in one buffer. So does a tensor that is not on
// the communicator's own GPU: one of another GPU of this rank, or what a rank that has joined
// brings. Which of its own tensors travel in the buffer is this rank's own matter: NCCL's calls are
// the same.
struct Layout {
  std::vector<Part> parts;  // what NCCL works on
  std::vector<Copy> before;
  std::vector<Copy> after;

  // The most that the buffer must hold; 0: none is needed.
  static int64_t BufferBytes(const CollectiveSpec& spec, int32_t home, int rank);
  // `buffer` has so many bytes.
  Layout(const CollectiveSpec& spec, int32_t home, int rank, std::byte* buffer);

 private:
  void Together(const CollectiveSpec& spec, std::byte* buffer);
  void Apart(const CollectiveSpec& spec, int rank, std::byte* buffer);
  void CopyIn(const CollectiveSpec& spec, size_t piece, std::byte* to);
  void CopyOut(const CollectiveSpec& spec, size_t piece, const std::byte* from, int64_t bytes);

  const int32_t home_;
};

}  // namespace hvd::nccl
