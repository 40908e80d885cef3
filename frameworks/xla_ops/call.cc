#include "xla_ops/call.h"

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "xla_ops/frame.h"

namespace hvd::xla {

namespace {

char nothing;  // where a buffer without elements lies: for the core, no address means "allocate"

void* DataOf(const Buffer& buffer) { return buffer.data == nullptr ? &nothing : buffer.data; }

int CodeOf(int32_t code) {
  switch (static_cast<Code>(code)) {
    case Code::kInvalidArgument:
    case Code::kDuplicate:
      return kInvalidArgument;
    case Code::kMismatch:
    case Code::kNotInitialized:
      return kFailedPrecondition;
    case Code::kAborted:
    case Code::kShutdown:
      return kUnknown;  // as outside of compiled functions: see tensorflow_ops/core.cc
    default:
      return kInternal;
  }
}

Error* MakeError(const Api& api, int code, const char* message) {
  ErrorArguments arguments{sizeof(ErrorArguments), nullptr, message, code};
  return api.create_error(&arguments);
}

bool WrittenByCore(OpKind kind) { return kind == OpKind::kAllreduce || kind == OpKind::kBroadcast; }

// One collective under way. Owns itself once it is submitted: Complete ends its life.
class Call {
 public:
  explicit Call(const Frame& frame)
      : api_(frame.api),
        options_(OptionsOf(frame.attributes)),
        kind_(static_cast<OpKind>(options_.kind)),
        inputs_(BuffersOf(frame.arguments)) {
    for (const Buffer* result : BuffersOf(frame.results))
      results_.push_back({DataOf(*result), BytesOf(*result)});
    if (options_.ordered == 1) {
      inputs_.erase(inputs_.begin());
      std::memset(results_.front().data, 0, static_cast<size_t>(results_.front().bytes));
      results_.erase(results_.begin());
    }
    Describe();
  }

  Future* MakeFuture() {
    FutureArguments arguments{sizeof(FutureArguments), nullptr, nullptr};
    if (api_->create_future(&arguments) != nullptr) return nullptr;
    return future_ = arguments.future;
  }

  void Submit(hvd_api* core) {
    hvd_operation operation{};
    operation.kind = static_cast<int32_t>(kind_);
    operation.reduce_op = static_cast<int32_t>(options_.reduce_op);
    operation.prescale = options_.prescale;
    operation.postscale = options_.postscale;
    operation.root = static_cast<int32_t>(options_.root);
    operation.process_set = static_cast<uint32_t>(options_.process_set);
    operation.name = options_.name.empty() ? nullptr : options_.name.c_str();
    operation.splits = options_.splits.data();
    operation.split_count = static_cast<int32_t>(options_.splits.size());
    operation.tensors = tensors_.data();
    operation.tensor_count = static_cast<int32_t>(tensors_.size());
    operation.urgent = 1;  // what comes behind it in the program waits for it
    core->submit(core, &operation, &Complete, this);
  }

 private:
  struct Result {
    void* data;
    int64_t bytes;
  };

  void Describe() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Buffer& input = *inputs_[i];
      hvd_tensor tensor{};
      tensor.input = DataOf(input);
      tensor.input_bytes = BytesOf(input);
      if (WrittenByCore(kind_)) {
        tensor.output = results_[i].data;
        tensor.output_bytes = results_[i].bytes;
      }
      tensor.dtype = CoreType(input);
      tensor.dims = static_cast<int32_t>(input.dims);
      tensor.shape = input.shape;
      tensors_.push_back(tensor);
    }
  }

  // Called by the core, through which nothing may be thrown.
  static void Complete(void* given, const hvd_result* result) noexcept {
    const std::unique_ptr<Call> call(static_cast<Call*>(given));
    if (result->code != 0) return call->FailBy(*result);
    if (!WrittenByCore(call->kind_) && !call->CopyResults(*result)) {
      return call->Fail(kFailedPrecondition,
                        "the ranks have other numbers of rows than this function was compiled for; "
                        "inside compiled functions all ranks must bring the same shape");
    }
    FutureArguments arguments{sizeof(FutureArguments), nullptr, call->future_};
    call->api_->complete(&arguments);
  }

  // Elastic training knows by the first word that the generation is lost.
  void FailBy(const hvd_result& result) const {
    const int code = CodeOf(result.code);
    const std::string kind = code == kUnknown ? "HorovodInternalError: " : "";
    Fail(code, (kind + result.message).c_str());
  }

  bool CopyResults(const hvd_result& result) const {
    for (size_t i = 0; i < results_.size(); ++i) {
      if (result.outputs[i].bytes != results_[i].bytes) return false;
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      std::memcpy(results_[i].data, result.outputs[i].data, static_cast<size_t>(results_[i].bytes));
    }
    return true;
  }

  void Fail(int code, const char* message) const {
    FutureErrorArguments arguments{sizeof(FutureErrorArguments), nullptr, future_,
                                   MakeError(*api_, code, message)};
    api_->fail(&arguments);
  }

  const Api* api_;
  const Options options_;
  const OpKind kind_;
  std::vector<const Buffer*> inputs_;
  std::vector<Result> results_;
  std::vector<hvd_tensor> tensors_;
  Future* future_ = nullptr;
};

}  // namespace

Error* Start(hvd_api* core, Frame* frame) {
  try {
    auto call = std::make_unique<Call>(*frame);
    frame->future = call->MakeFuture();
    if (frame->future == nullptr) return MakeError(*frame->api, kInternal, "XLA makes no future");
    call.release()->Submit(core);
    return nullptr;
  } catch (const std::bad_alloc&) {
    return MakeError(*frame->api, kResourceExhausted, "no memory to start an operation of horovod");
  }
}

}  // namespace hvd::xla
