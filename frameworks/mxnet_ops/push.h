// Collectives as operations of MXNet's engine: started when their inputs have been computed, complete when
// the core says so, and whatever reads their outputs waits for that. No thread waits.
#pragma once

#include "api/c_api.h"
#include "mxnet_ops/mxnet_c_api.h"

extern "C" {

// Takes over the caller's reference to `api`. 0, or the version of the table that this library needs.
__attribute__((visibility("default"))) int horovod_mxnet_bind(hvd_api* api,
                                                              const horovod_mxnet_functions* functions);

// Hands an operation to the engine and returns. Its tensors say type and shape; where they lie is asked for
// when they have been computed. Where inputs[i] is outputs[i], it is in place. Results whose size only
// negotiation tells are copied into outputs[i], which must have that size. 0, or -1: see MXGetLastError.
__attribute__((visibility("default"))) int horovod_mxnet_push(const hvd_operation* operation, void** inputs,
                                                              void** outputs, int priority);
}
