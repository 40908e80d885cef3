// Collectives as operations of MXNet's engine: started when their inputs have been computed,
// complete when the core says so, and whatever reads their outputs waits for that. No thread waits.
#pragma once

#include "api/c_api.h"
#include "mxnet_ops/mxnet_c_api.h"

extern "C" {

// The arrays of one operation, by tensor. Where inputs[i] is outputs[i], it is in place.
struct horovod_mxnet_arrays {
  void** inputs;
  void** outputs;

  // How much the core's result for each tensor must be, when it is the core that allocates it, to
  // be copied to the output. An error of the operation otherwise.
  const int64_t* output_bytes;

  // Of an alltoall, by member of the process set: how many rows of the output are for what it
  // sends. Zeros where it sends nothing, because it has joined.
  const int64_t* sources;
};

// Takes over the caller's reference to `api`. `operation_bytes`: how large the caller takes
// hvd_operation and hvd_tensor to be, together. 0, or the version of the table that this library
// needs.
__attribute__((visibility("default"))) int horovod_mxnet_bind(
    hvd_api* api, const horovod_mxnet_functions* functions, uint64_t operation_bytes);

// Hands an operation to the engine and returns. Its tensors say type and shape; where they lie is
// asked for when they have been computed. 0, or -1: see MXGetLastError.
__attribute__((visibility("default"))) int horovod_mxnet_push(const hvd_operation* operation,
                                                              const horovod_mxnet_arrays* arrays,
                                                              int priority);

// Makes whatever is pushed later and reads one of the arrays wait for all that reads it now. 0, or
// -1.
__attribute__((visibility("default"))) int horovod_mxnet_await_readers(void** arrays, int count);

// The number of the operation that was pushed last.
__attribute__((visibility("default"))) uint64_t horovod_mxnet_last();

// Waits until the core knows all operations up to `last`; for `seconds` at most. How many are
// missing.
__attribute__((visibility("default"))) uint64_t horovod_mxnet_await_submitted(uint64_t last,
                                                                              double seconds);

// Waits until the operations up to `last` of one process set, or of all (-1), have ended; for
// `seconds` at most. How many are missing.
__attribute__((visibility("default"))) uint64_t horovod_mxnet_await_ended(uint64_t last,
                                                                          int64_t process_set,
                                                                          double seconds);
}
