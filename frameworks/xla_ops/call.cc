#include "xla_ops/call.h"

#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"
#include "xla_ops/errors.h"
#include "xla_ops/frame.h"

namespace hvd::xla {

namespace {

char nothing;  // where a buffer without elements lies: for the core, no address means "allocate"

void* DataOf(const Buffer& buffer) { return buffer.data == nullptr ? &nothing : buffer.data; }

bool WrittenByCore(OpKind kind) { return kind == OpKind::kAllreduce || kind == OpKind::kBroadcast; }

using Ended = std::function<void(const Failure& failure)>;

// One collective under way. Owns itself once it is submitted: Complete ends its life.
class Call {
 public:
  explicit Call(const Frame& frame)
      : options_(OptionsOf(frame.attributes)),
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

  // `ended` is called once, from any thread, perhaps before this returns.
  void Submit(hvd_api* core, bool awaited, Ended ended) {
    ended_ = std::move(ended);
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
    operation.awaited = awaited ? 1 : 0;
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
    if (kind_ == OpKind::kAlltoall && !options_.splits.empty()) rows_ = {options_.splits.front()};
    if (kind_ != OpKind::kAllgather) return;
    // They travel along: no other rank knows whether its rows are as many.
    for (const Buffer* input : inputs_) rows_.push_back(input->dims > 0 ? input->shape[0] : 0);
    rows_shape_[1] = static_cast<int64_t>(rows_.size());
    const auto bytes = static_cast<int64_t>(rows_.size() * sizeof(int64_t));
    tensors_.push_back(
        {rows_.data(), bytes, nullptr, 0, static_cast<int32_t>(DataType::kInt64), 2, rows_shape_});
  }

  // Called by the core, through which nothing may be thrown.
  static void Complete(void* given, const hvd_result* result) noexcept {
    const std::unique_ptr<Call> call(static_cast<Call*>(given));
    if (result->code != 0) return call->ended_(FailureOf(*result));
    if (!WrittenByCore(call->kind_)) {
      if (const std::string rows = call->UnequalRows(*result); !rows.empty()) {
        return call->ended_(
            {kFailedPrecondition, "the ranks bring " + rows +
                                      " rows; inside compiled functions all must bring equally "
                                      "many, and none may have joined"});
      }
      call->CopyResults(*result);
    }
    call->ended_({});
  }

  // How many each rank brings, where they differ: the same text on every rank. Empty: equally many.
  std::string UnequalRows(const hvd_result& result) const {
    const size_t tensors = rows_.size();
    std::string first = tensors == 0 ? "other numbers of" : "";
    for (size_t t = 0; t < tensors; ++t) {
      const hvd_output& output = result.outputs[results_.size()];
      const auto* counts = static_cast<const int64_t*>(output.data);
      const size_t ranks = static_cast<size_t>(output.bytes) / sizeof(int64_t) / tensors;
      const int64_t each = kind_ == OpKind::kAlltoall ? static_cast<int64_t>(ranks) : 1;
      bool equal = true;
      std::string listed;
      for (size_t r = 0; r < ranks; ++r) {
        equal = equal && counts[r * tensors + t] == counts[t];
        listed += (r == 0 ? "" : ", ") + std::to_string(counts[r * tensors + t] * each);
      }
      if (!equal) return listed;
      if (t == 0) first = listed;
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      if (result.outputs[i].bytes != results_[i].bytes) return first;  // a rank has joined
    }
    return "";
  }

  void CopyResults(const hvd_result& result) const {
    for (size_t i = 0; i < results_.size(); ++i) {
      std::memcpy(results_[i].data, result.outputs[i].data, static_cast<size_t>(results_[i].bytes));
    }
  }

  const Options options_;
  const OpKind kind_;
  std::vector<const Buffer*> inputs_;
  std::vector<Result> results_;
  std::vector<hvd_tensor> tensors_;
  std::vector<int64_t> rows_;  // of each tensor that all ranks must bring equally many of
  int64_t rows_shape_[2] = {1, 0};
  Ended ended_;
};

}  // namespace

Error* Start(hvd_api* core, Frame* frame) {
  try {
    auto call = std::make_unique<Call>(*frame);
    Future* const future = MakeFuture(*frame->api);
    if (future == nullptr) return MakeError(*frame->api, kInternal, "XLA makes no future");
    frame->future = future;
    call.release()->Submit(core, false, [api = frame->api, future](const Failure& failure) {
      if (failure.code != 0) return Fail(*api, future, failure);
      Complete(*api, future);
    });
    return nullptr;
  } catch (const std::bad_alloc&) {
    return MakeError(*frame->api, kResourceExhausted, "no memory to start an operation of horovod");
  }
}

Failure Run(hvd_api* core, const Frame& frame) {
  const auto end = std::make_shared<std::promise<Failure>>();
  auto call = std::make_unique<Call>(frame);
  call.release()->Submit(core, true, [end](const Failure& failure) { end->set_value(failure); });
  return end->get_future().get();
}

}  // namespace hvd::xla
