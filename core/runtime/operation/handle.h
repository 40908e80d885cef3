#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "negotiate/message.h"

namespace hvd {

// A tensor that the core allocated: its size was known only after negotiation, or the caller gave no output.
// Adapters adopt it.
struct Output {
  DataType dtype = DataType::kFloat32;
  Shape shape;
  std::shared_ptr<std::byte> data;
  int64_t bytes = 0;  // of data

  // Fails when `shape` does not fit memory.
  static Status Allocate(DataType dtype, Shape shape, Output* output);
};

struct Handle;
using HandlePtr = std::shared_ptr<Handle>;

// Memory of one tensor: every address with its length, which must be that of dtype and shape. `output` null:
// the core allocates. So it must be where the result has another size than the input (HasResultSizes).
struct TensorBuffer {
  const std::byte* input = nullptr;
  int64_t input_bytes = 0;
  std::byte* output = nullptr;
  int64_t output_bytes = 0;

  static TensorBuffer InPlace(void* data, int64_t bytes) {
    return {static_cast<std::byte*>(data), bytes, static_cast<std::byte*>(data), bytes};
  }
};

// What an adapter submits. The caller keeps the memory alive until the operation is complete.
struct Entry {
  uint32_t process_set = 0;
  negotiate::Request request;         // name empty = unnamed
  std::vector<TensorBuffer> buffers;  // one per request.tensors; several = a group, all or nothing
  int32_t priority = 0;  // among named operations that are taken from the queue together: highest first
  bool urgent = false;   // the submitter is about to wait for it
  bool awaited = false;  // with on_complete: the submitter does nothing before that
  bool sampled = false;  // the submitter will ask whether the outputs have been changed since
  // Called once, from whichever thread completes the operation, without the progress lock. Nobody waits for
  // an operation that has it. It throws nothing.
  std::function<void(const Handle&)> on_complete;
  // Not submitted here: this rank has joined and takes part without data of its own.
  bool stand_in = false;
};

// The life of one operation: queued -> announced -> decided -> running -> done.
// Fields but `done` belong to the holder of the progress lock until `done` is set, to the waiter afterwards.
struct Handle {
  explicit Handle(Entry e) : entry(std::move(e)) {}

  Entry entry;
  uint64_t id = 0;  // number of the submission on this rank
  uint64_t generation = 0;
  uint64_t ordinal = 0;    // n-th unnamed operation of the set; 0 = named, or a join
  uint64_t announced = 0;  // place in this rank's announcements to the set, from 1; 0 = not yet
  int64_t submitted_us = 0;
  std::atomic<bool> decided{false};  // a response has named it
  size_t running = 0;                // collectives of this operation that are not complete
  Status status;
  // By tensor; empty when the core allocated none, without data where only others were. Behind that of an
  // alltoall, the rows received from each member (int64); of a join, the last rank to join (int64).
  std::vector<Output> outputs;
  std::vector<Output> kept;  // memory that the buffers of the entry point into, where it is the core's
  uint64_t sample = 0;       // of the outputs as the operation left them, where the entry asks for it
  std::atomic<bool> done{false};

  // The neighbours in a HandleChain, of whoever owns that.
  HandlePtr next;
  Handle* previous = nullptr;

  std::string name() const;  // the public name, for messages
  // Once done: whether somebody has written to the outputs since, as far as a sample tells.
  bool Changed() const;
};

}  // namespace hvd
