#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/collective.h"
#include "base/waker.h"

// A library of collectives of somebody else's, such as Gloo, as a module that is loaded where a job
// asks for it: nothing is linked to the library, so what is built with it runs without it.
//
// Such a library waits in its calls and fails them by exceptions. Here a call runs on a thread of
// the library's own and in memory of our own; the driver begins it and looks whether it is done.
// After a failure the call may be left behind: it holds nothing of the user's.

namespace hvd {

// Combines two arrays, left to right, into the third (kernels::Reduce).
using CombineFunction = void (*)(DataType dtype, ReduceOp op, const void* left, const void* right,
                                 void* result, int64_t elements);

struct LibraryOptions {
  std::string address;     // at which the other ranks of the job reach this one
  int job_size = 0;        // ranks of the job
  int64_t timeout_us = 0;  // of a call that makes no progress
  // For so long after its end a set's connections stay open: members that are slower may still
  // need what this one has sent.
  int64_t linger_us = 0;
  CombineFunction combine = nullptr;  // LoadLibrary fills it in
};

// What one call works on. Equal on every member, but for the memory and for its own lengths.
struct LibraryCall {
  OpKind kind = OpKind::kAllreduce;
  uint64_t sequence = 0;
  DataType dtype = DataType::kUint8;  // allreduce
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // broadcast
  // Allreduce and broadcast: in place in `output`.
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<int64_t> input_bytes;   // alltoall: by receiver; allgather: one number
  std::vector<int64_t> output_bytes;  // allgather, alltoall: by sender; the others: one number
  std::shared_ptr<void> memory;       // of input and output
};

// One process set's members in a library. Everything that is begun runs on a thread of its own, one
// thing at a time; Look says how it went.
class LibrarySet {
 public:
  // What a member tells another one so that it can reach it.
  static constexpr size_t kAddressBytes = 256;
  using Addresses = std::vector<std::byte>;  // kAddressBytes for each member

  virtual ~LibrarySet() = default;

  virtual bool Has(OpKind kind, ReduceOp op) const = 0;

  // Finds where each member is to reach this one. What is begun from now on rings `waker` at its
  // end.
  virtual void BeginToListen(const Waker& waker, std::shared_ptr<Addresses> mine) = 0;
  // To the addresses that the members have for this one.
  virtual void BeginToConnect(std::shared_ptr<const Addresses> theirs) = 0;
  virtual void Begin(LibraryCall call) = 0;

  // kBlocked: it is under way.
  virtual Step Look() = 0;
  // Why it failed.
  virtual Status status() const = 0;
  // Leaves what is under way behind. The waker is not rung any more; nothing is begun.
  virtual void Abandon() noexcept = 0;
};

class Library {
 public:
  virtual ~Library() = default;
  virtual const char* name() const = 0;  // "Gloo"
  // Waits for nobody. `id` is the process set's number, equal on all members; `rank` is this rank's
  // position among `size` of them.
  virtual std::unique_ptr<LibrarySet> MakeSet(uint32_t id, int rank, int size) = 0;
  // A rank of the job is lost or stuck: whatever waits for all ranks waits for ever.
  virtual void LoseRank() noexcept {}
};

// What a module exports as `hvd_library_module`.
struct LibraryModule {
  // Of the headers that it was compiled with: another one's classes may be laid out otherwise.
  const char* stamp;
  Library* (*make)(const LibraryOptions& options);
};

// Of the module in this file.
Status LoadLibrary(const std::string& path, LibraryOptions options,
                   std::unique_ptr<Library>* library);

}  // namespace hvd
