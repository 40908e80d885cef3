#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow_ops/core.h"
#include "tensorflow_ops/eager_names.h"
#include "tensorflow_ops/kernels.h"

namespace hvd::tensorflow {

namespace {

char nothing;  // where a tensor without elements lies: for the core, no address means "allocate"

const void* DataOf(const TensorPtr& tensor) {
  const void* data = TF_TensorData(tensor.get());
  return data == nullptr ? &nothing : data;
}

int64_t BytesOf(const TensorPtr& tensor) {
  return static_cast<int64_t>(TF_TensorByteSize(tensor.get()));
}

std::vector<int64_t> ShapeOf(const TensorPtr& tensor) {
  std::vector<int64_t> shape(static_cast<size_t>(TF_NumDims(tensor.get())));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = TF_Dim(tensor.get(), static_cast<int>(i));
  return shape;
}

struct Kernel {
  const Collective* collective;
  Attributes attributes;
  std::unique_ptr<Step::Member> step;  // may be null
};

// One collective under way, from the start of its kernel to TensorFlow's `done`. Owns itself: Start
// ends its life, at once or from another thread.
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
  const std::string name_;
  TF_OpKernelContext* context_;
  std::function<void()> done_;
  OwnedStatus status_;
  std::vector<TensorPtr> held_;  // inputs and outputs, for as long as the core uses them
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<hvd_tensor> tensors_;
  std::vector<int64_t> splits_;
};

// `done` is the address of a std::function that TensorFlow destroys when this kernel's start
// returns, so it is copied. Its type is no part of the C API: the tests run it on every supported
// version.
Call::Call(const Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done)
    : kernel_(kernel),
      name_(kernel.attributes.name_place < 0 ? kernel.attributes.name
                                             : TakeName(kernel.attributes.name_place)),
      context_(context),
      done_(*reinterpret_cast<std::function<void()>*>(done)) {}

void Call::Start() {
  if (Core() == nullptr) {
    Fail(TF_FAILED_PRECONDITION, "the library is not bound; import horovod.tensorflow");
    return Finish();
  }
  if (!TakeInputs()) return Finish();
  Submit();
}

bool Call::TakeInputs() {
  if (kernel_.collective->results == Results::kNone) return true;
  const bool with_splits = kernel_.collective->kind == OpKind::kAlltoall;
  const int count = TF_NumInputs(context_) - (with_splits ? 1 : 0);
  shapes_.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (!AddTensor(i)) return false;
  }
  return !with_splits || ReadSplits();
}

bool Call::AddTensor(int index) {
  TF_Tensor* tensor = nullptr;
  TF_GetInput(context_, index, &tensor, status_.get());
  if (!status_.ok()) return false;
  TensorPtr input(tensor);
  const int32_t type = CoreType(TF_TensorType(tensor));
  shapes_.push_back(ShapeOf(input));
  const std::vector<int64_t>& shape = shapes_.back();
  const auto dims = static_cast<int>(shape.size());
  void* output = nullptr;
  int64_t output_bytes = 0;
  if (kernel_.collective->results == Results::kLikeInputs) {
    input.reset();  // memory is reused only when nobody holds it, this function included
    int forwarded = -1;
    TensorPtr result(TF_ForwardInputOrAllocateOutput(context_, &index, 1, index, shape.data(), dims,
                                                     &forwarded, status_.get()));
    if (!status_.ok()) return false;
    output = const_cast<void*>(DataOf(result));
    output_bytes = BytesOf(result);
    held_.push_back(std::move(result));
    if (forwarded >= 0) {
      tensors_.push_back({output, output_bytes, output, output_bytes, type, dims, shape.data()});
      return true;
    }
    TF_GetInput(context_, index, &tensor, status_.get());
    if (!status_.ok()) return false;
    input.reset(tensor);
  }
  tensors_.push_back(
      {DataOf(input), BytesOf(input), output, output_bytes, type, dims, shape.data()});
  held_.push_back(std::move(input));
  return true;
}

bool Call::ReadSplits() {
  TF_Tensor* tensor = nullptr;
  TF_GetInput(context_, 1, &tensor, status_.get());
  if (!status_.ok()) return false;
  const TensorPtr splits(tensor);
  if (TF_NumDims(tensor) != 1) return Fail(TF_INVALID_ARGUMENT, "splits is a vector");
  const auto* numbers = static_cast<const int32_t*>(DataOf(splits));
  splits_.assign(numbers, numbers + TF_Dim(tensor, 0));
  if (!splits_.empty()) return true;
  int32_t size = 0;
  int32_t place = 0;
  const auto set = static_cast<uint32_t>(kernel_.attributes.process_set);
  if (Core()->process_set(Core(), set, &size, &place) != 0)
    return true;  // the core says what is wrong
  const std::vector<int64_t>& shape = shapes_.front();
  if (!shape.empty() && shape[0] % size != 0) {
    return Fail(TF_INVALID_ARGUMENT,
                "'" + name_ + "': without splits the first dimension, " + std::to_string(shape[0]) +
                    ", is not divisible by the number of workers, " + std::to_string(size));
  }
  splits_.assign(static_cast<size_t>(size), shape.empty() ? 0 : shape[0] / size);
  return true;
}

void Call::Submit() {
  const Attributes& attributes = kernel_.attributes;
  hvd_operation operation{};
  operation.kind = static_cast<int32_t>(kernel_.collective->kind);
  operation.reduce_op = static_cast<int32_t>(attributes.reduce_op);
  operation.prescale = attributes.prescale;
  operation.postscale = attributes.postscale;
  operation.root = static_cast<int32_t>(attributes.root_rank);
  operation.process_set = static_cast<uint32_t>(attributes.process_set);
  operation.name = name_.empty() ? nullptr : name_.c_str();
  operation.splits = splits_.data();
  operation.split_count = static_cast<int32_t>(splits_.size());
  operation.tensors = tensors_.data();
  operation.tensor_count = static_cast<int32_t>(tensors_.size());
  const bool last = kernel_.step != nullptr && kernel_.step->IsLast();
  operation.urgent = attributes.urgent || last ? 1 : 0;
  operation.awaited = attributes.awaited ? 1 : 0;
  Core()->submit(Core(), &operation, &Complete, this);
}

// Called by the core, through which nothing may be thrown.
void Call::Complete(void* given, const hvd_result* result) noexcept {
  auto* call = static_cast<Call*>(given);
  try {
    if (result->code == 0) {
      call->Deliver(*result);
    } else {
      call->Fail(CodeOf(result->code), result->message);
    }
  } catch (const std::bad_alloc&) {
    call->status_.Set(TF_RESOURCE_EXHAUSTED, call->kernel_.collective->op);
  }
  call->Finish();
}

void Call::Deliver(const hvd_result& result) {
  if (kernel_.collective->kind == OpKind::kJoin) return Store32(0, result.outputs[0], true);
  if (kernel_.collective->results != Results::kFromCore) return;
  const auto count = static_cast<int>(tensors_.size());
  for (int i = 0; i < count && status_.ok(); ++i) Adopt(i, result.outputs[i]);
  if (kernel_.collective->kind == OpKind::kAlltoall && status_.ok())
    Store32(1, result.outputs[1], false);
}

// The tensor shares the core's memory: nothing is copied.
void Call::Adopt(int output, const hvd_output& given) {
  const auto drop = [](void*, size_t, void* share) { Core()->drop(share); };
  void* const share = Core()->keep(&given);
  if (share == nullptr) throw std::bad_alloc();
  const TensorPtr tensor(TF_NewTensor(TensorFlowType(given.dtype), given.shape, given.dims,
                                      given.data, static_cast<size_t>(given.bytes), drop, share));
  TF_SetOutput(context_, output, tensor.get(), status_.get());
}

void Call::Store32(int output, const hvd_output& numbers, bool scalar) {
  const int64_t count = scalar ? 1 : numbers.shape[0];
  const auto bytes = static_cast<size_t>(count) * sizeof(int32_t);
  const TensorPtr tensor(
      TF_AllocateOutput(context_, output, TF_INT32, &count, scalar ? 0 : 1, bytes, status_.get()));
  if (!status_.ok()) return;
  auto* to = static_cast<int32_t*>(TF_TensorData(tensor.get()));
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<int32_t>(static_cast<const int64_t*>(numbers.data)[i]);
  }
}

bool Call::Fail(TF_Code code, const std::string& message) {
  status_.Set(code, (std::string(kernel_.collective->op) + ": " + message).c_str());
  return false;
}

void Call::Finish() {
  if (!status_.ok()) TF_OpKernelContext_Failure(context_, status_.get());
  const std::function<void()> done = std::move(done_);
  delete this;
  done();
}

}  // namespace

void* CreateKernel(const Collective& collective, TF_OpKernelConstruction* construction) {
  auto kernel = std::make_unique<Kernel>();
  kernel->collective = &collective;
  if (!ReadAttributes(construction, collective.has, &kernel->attributes)) return nullptr;
  kernel->step = Step::MemberOf(kernel->attributes.step);
  return kernel.release();
}

void StartKernel(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  (new Call(*static_cast<Kernel*>(kernel), context, done))->Start();
}

void DeleteKernel(void* kernel) { delete static_cast<Kernel*>(kernel); }

}  // namespace hvd::tensorflow
