// TensorFlow's numbers and the core's.
#pragma once

#include <cstdint>

#include "tensorflow_ops/tf_c_api.h"

namespace hvd::tensorflow {

// The element types that the core knows, for the attribute of an op.
extern const char kTypes[];

int32_t CoreType(TF_DataType type);  // -1: unknown to the core
TF_DataType TensorFlowType(int32_t type);

// The error that a user sees, for an error code of the core.
TF_Code CodeOf(int32_t code);

}  // namespace hvd::tensorflow
