// One collective under way, from the start of its kernel to TensorFlow's `done`.
#pragma once

#include <functional>
#include <vector>

#include "tensorflow_ops/collective.h"
#include "tensorflow_ops/core_link.h"
#include "tensorflow_ops/owned.h"
#include "tensorflow_ops/step.h"

namespace hvd::tensorflow {

struct Kernel {
  const Collective* collective;
  Attributes attributes;
  std::unique_ptr<Step::Member> step;  // may be null
};

// Owns itself: Start ends its life, at once or from another thread.
class Call {
 public:
  Call(const Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

  void Start();

 private:
  static void Complete(void* call, const hvd_result* result) noexcept;

  bool TakeInputs();
  bool AddTensor(int input);
  bool ReadSplits();
  void Submit();
  void Deliver(const hvd_result& result);
  void Adopt(int output, const hvd_output& given);
  void Store32(int output, const hvd_output& numbers, bool scalar);
  bool Fail(TF_Code code, const std::string& message);
  void Finish();

  const Kernel& kernel_;
  TF_OpKernelContext* context_;
  std::function<void()> done_;
  OwnedStatus status_;
  std::vector<TensorPtr> held_;  // inputs and outputs, for as long as the core uses them
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<hvd_tensor> tensors_;
  std::vector<int64_t> splits_;
};

}  // namespace hvd::tensorflow
