// The core as the operations see it: its C table, which Python hands over after loading this
// library, and what its numbers are in TensorFlow.
#pragma once

#include <cstdint>

#include "api/c_api.h"
#include "tensorflow_ops/tf_c_api.h"

namespace hvd::tensorflow {

// Null before Python has handed over a table.
hvd_api* Core();

// The element types that the core knows, for the attribute of an op.
extern const char kTypes[];

int32_t CoreType(TF_DataType type);  // -1: unknown to the core
TF_DataType TensorFlowType(int32_t type);

// The error that a user sees, for an error code of the core.
TF_Code CodeOf(int32_t code);

}  // namespace hvd::tensorflow

extern "C" {

// Takes over the caller's reference. 0, or the version that this library needs.
__attribute__((visibility("default"))) int horovod_tensorflow_bind(hvd_api* api);
}
