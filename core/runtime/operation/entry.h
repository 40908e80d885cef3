#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/collective.h"
#include "base/status.h"
#include "negotiate/message.h"

namespace hvd {

struct Handle;

// A tensor that the core allocated: its size was known only after negotiation, or the caller gave
// no output. Adapters adopt it. On a device also what the caller gave has one, without data.
struct Output {
  DataType dtype = DataType::kFloat32;
  Shape shape;
  std::shared_ptr<std::byte> data;
  int64_t bytes = 0;  // of data
  int32_t device = kHostDevice;
  std::shared_ptr<const DeviceEnd> end;  // on a device: what streams that use it wait for

  // Without data yet. Fails when `shape` does not fit memory.
  static Status Describe(DataType dtype, Shape shape, Output* output);
  // On the host. Likewise.
  static Status Allocate(DataType dtype, Shape shape, Output* output);
};

// Memory of one tensor: every address with its length, which must be that of dtype and shape.
// `output` null: the core allocates. It does so, too, where the result has a size of its own
// (HasResultSizes) and `output_bytes` turns out to be another: no rank can know that before the
// others have told what they bring, and it must take part nevertheless.
struct TensorBuffer {
  const std::byte* input = nullptr;
  int64_t input_bytes = 0;
  std::byte* output = nullptr;
  int64_t output_bytes = 0;

  static TensorBuffer InPlace(void* data, int64_t bytes) {
    return {static_cast<std::byte*>(data), bytes, static_cast<std::byte*>(data), bytes};
  }
};

// A message between two ranks, which those two alone know of: nothing is negotiated.
struct PeerOperation {
  bool sends = false;  // else it receives
  GlobalRank rank;     // whom to, or whom from; a receive without one: from anybody of its set
  int64_t tag = 0;     // of the engine's own messages, its notes, below kFirstTag
};
// Of programs.
constexpr int64_t kFirstTag = -(int64_t{1} << 62);
constexpr bool IsNote(int64_t tag) { return tag < kFirstTag; }
// What a note may have.
constexpr size_t kMostNoteBytes = 512;

// What an adapter submits. The caller keeps the memory alive until the operation is complete.
struct Entry {
  uint32_t process_set = 0;
  negotiate::Request request;         // name empty = unnamed
  std::vector<TensorBuffer> buffers;  // one per request.tensors; several = a group, all or nothing
  // Of an operation that is a send or receive: the request is but its only tensor then. A receive
  // writes to the output, which the message must fill.
  std::optional<PeerOperation> peer;
  DeviceOrder order;  // of all of them; of a device alone, which is that of the request
  int32_t priority =
      0;  // among named operations that are taken from the queue together: highest first
  bool urgent = false;   // the submitter is about to wait for it
  bool awaited = false;  // with on_complete: the submitter does nothing before that
  bool sampled = false;  // the submitter will ask whether the outputs have been changed since
  // Called once, from whichever thread completes the operation, without the progress lock. Nobody
  // waits for an operation that has it. It throws nothing.
  std::function<void(const Handle&)> on_complete;
  // Not submitted here: this rank has joined and takes part without data of its own.
  bool neutral = false;

  bool OnGpu() const { return KindOf(request.device) == DeviceKind::kGpu; }
};

// What no rank may ask for, whichever it is: of the description alone.
Status CheckRequest(const negotiate::Request& request);

// What one caller can get wrong, found before anything is sent. `members`: how many its process set
// has.
Status CheckEntry(const Entry& entry, size_t members);
// Likewise of a send or receive.
Status CheckMessage(const Entry& entry, const Members& members);

// What a rank that has joined runs in place of an operation that it did not submit: the same
// request, which is another rank's, over `memory`. To a reduction it brings the element that
// changes nothing (zero to Sum, Average and Adasum; the identity of Min, Max and Product), to an
// allgather or alltoall no rows; what it receives is dropped.
Status MakeNeutral(uint32_t process_set, const negotiate::Request& request, Entry* entry,
                   std::vector<Output>* memory);

}  // namespace hvd
