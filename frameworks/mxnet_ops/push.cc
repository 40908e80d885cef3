#include "mxnet_ops/push.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace hvd::mxnet {

namespace {

std::atomic<hvd_api*> core{nullptr};
horovod_mxnet_functions functions;  // constant once `core` is set

// A second handle of the caller's array, who may drop its own.
class Array {
 public:
  Array() = default;
  Array(Array&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Array() {
    if (handle_ != nullptr) functions.free(handle_);
  }

  bool CopyOf(NDArrayHandle handle) { return functions.shallow_copy(handle, &handle_) == 0; }
  NDArrayHandle handle() const { return handle_; }

  void* data() const {
    static char nothing;  // for the core, no address means "allocate"
    void* address = nullptr;
    return functions.get_data(handle_, &address) == 0 && address != nullptr ? address : &nothing;
  }

 private:
  NDArrayHandle handle_ = nullptr;
};

// One operation, from the push until the engine has been told of its end.
class Call {
 public:
  explicit Call(const hvd_operation& operation)
      : operation_(operation),
        name_(operation.name),
        splits_(operation.splits, operation.splits + operation.split_count),
        tensors_(operation.tensors, operation.tensors + operation.tensor_count) {
    operation_.name = name_.c_str();
    operation_.splits = splits_.data();
    operation_.tensors = tensors_.data();
    shapes_.reserve(tensors_.size());
    for (hvd_tensor& tensor : tensors_) {
      shapes_.emplace_back(tensor.shape, tensor.shape + tensor.dims);
      tensor.shape = shapes_.back().data();
    }
  }

  bool Hold(void** inputs, void** outputs) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      inputs_.emplace_back();
      outputs_.emplace_back();
      if (!inputs_.back().CopyOf(inputs[i]) || !outputs_.back().CopyOf(outputs[i])) return false;
      // The engine takes an array that is read and written for one that is written.
      if (inputs[i] != outputs[i]) read_.push_back(inputs_.back().handle());
      written_.push_back(outputs_.back().handle());
    }
    return true;
  }

  // The engine owns this from here on: Start or Delete ends its life.
  int Push(int priority) {
    const Context cpu{1, 0};
    return functions.push(&Start, this, nullptr, &cpu, read_.data(), static_cast<int>(read_.size()),
                          written_.data(), static_cast<int>(written_.size()), &kAsync, priority, "horovod",
                          false);
  }

 private:
  static void Start(void*, void* on_complete, void* given) {
    auto* call = static_cast<Call*>(given);
    call->on_complete_ = *static_cast<OnComplete*>(on_complete);  // the engine's, only while this runs
    for (size_t i = 0; i < call->tensors_.size(); ++i) {
      hvd_tensor& tensor = call->tensors_[i];
      tensor.input = call->inputs_[i].data();
      if (call->WrittenByCore()) tensor.output = call->outputs_[i].data();
    }
    core.load()->submit(core.load(), &call->operation_, &Complete, call);
  }

  static void Complete(void* given, const hvd_result* result) {
    const std::unique_ptr<Call> call(static_cast<Call*>(given));
    if (result->code == 0) {
      call->CopyResults(*result);
      call->on_complete_(nullptr);
    } else {
      const dmlc::Error error(result->message);
      call->on_complete_(&error);
    }
  }

  bool WrittenByCore() const {
    const auto kind = static_cast<OpKind>(operation_.kind);
    return kind == OpKind::kAllreduce || kind == OpKind::kBroadcast;
  }

  void CopyResults(const hvd_result& result) {
    if (WrittenByCore()) return;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const hvd_output& output = result.outputs[i];
      size_t bytes = SizeOf(static_cast<DataType>(output.dtype));
      for (int32_t d = 0; d < output.dims; ++d) bytes *= static_cast<size_t>(output.shape[d]);
      std::memcpy(outputs_[i].data(), output.data, bytes);
    }
  }

  hvd_operation operation_;
  const std::string name_;
  const std::vector<int64_t> splits_;
  std::vector<hvd_tensor> tensors_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<Array> inputs_;
  std::vector<Array> outputs_;
  std::vector<NDArrayHandle> read_;
  std::vector<NDArrayHandle> written_;
  OnComplete on_complete_;
};

}  // namespace

}  // namespace hvd::mxnet

int horovod_mxnet_bind(hvd_api* api, const horovod_mxnet_functions* given) {
  if (api->version < HVD_API_VERSION || api->bytes < sizeof(hvd_api)) {
    api->release(api);
    return HVD_API_VERSION;
  }
  hvd::mxnet::functions = *given;
  hvd::mxnet::core.store(api);
  return 0;
}

int horovod_mxnet_push(const hvd_operation* operation, void** inputs, void** outputs, int priority) {
  auto call = std::make_unique<hvd::mxnet::Call>(*operation);
  if (!call->Hold(inputs, outputs)) return -1;
  const int status = call->Push(priority);
  if (status == 0) (void)call.release();
  return status;
}
