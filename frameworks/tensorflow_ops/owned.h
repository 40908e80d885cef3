// Owners of what TensorFlow's C API hands out.
#pragma once

#include <memory>

#include "tensorflow_ops/tf_c_api.h"

namespace hvd::tensorflow {

struct Delete {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
  void operator()(TF_ShapeHandle* shape) const { TF_DeleteShapeHandle(shape); }
};

using TensorPtr = std::unique_ptr<TF_Tensor, Delete>;
using ShapePtr = std::unique_ptr<TF_ShapeHandle, Delete>;

class OwnedStatus {
 public:
  OwnedStatus() : status_(TF_NewStatus()) {}

  TF_Status* get() const { return status_.get(); }
  bool ok() const { return TF_GetCode(get()) == TF_OK; }
  void Set(TF_Code code, const char* message) { TF_SetStatus(get(), code, message); }

 private:
  std::unique_ptr<TF_Status, Delete> status_;
};

}  // namespace hvd::tensorflow
