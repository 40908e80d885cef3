#include "mxnet_ops/push.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "mxnet_ops/progress.h"
#include "mxnet_ops/turns.h"

namespace hvd::mxnet {

namespace {

std::atomic<hvd_api*> core{nullptr};
horovod_mxnet_functions functions;  // constant once `core` is set

class Call;

// Never destroyed, as what follows: the engine may outlive the destructors of this library.
Progress& progress() {
  static auto* const instance = new Progress;
  return *instance;
}

Turns<Call>& turns() {
  static auto* const instance = new Turns<Call>;
  return *instance;
}

// Made when the library is bound: for when there is no memory for a better one.
const dmlc::Error& no_memory() {
  static auto* const error =
      new dmlc::Error("this rank ran out of memory when an operation of horovod ended");
  return *error;
}

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

  // Null where MXNet has none for it.
  char* data() const {
    static char nothing;  // of an array without elements: for the core, no address means "allocate"
    void* address = nullptr;
    if (functions.get_data(handle_, &address) != 0) return nullptr;
    return address == nullptr ? &nothing : static_cast<char*>(address);
  }

 private:
  NDArrayHandle handle_ = nullptr;
};

int64_t BytesOf(const hvd_tensor& tensor) {
  auto bytes = static_cast<int64_t>(SizeOf(static_cast<DataType>(tensor.dtype)));
  for (int32_t d = 0; d < tensor.dims; ++d) bytes *= tensor.shape[d];
  return bytes;
}

// One operation, from the push until the engine forgets it.
class Call {
 public:
  Call(const hvd_operation& operation, const horovod_mxnet_arrays& arrays)
      : operation_(operation),
        name_(operation.name),
        splits_(operation.splits, operation.splits + operation.split_count),
        tensors_(operation.tensors, operation.tensors + operation.tensor_count),
        output_bytes_(arrays.output_bytes, arrays.output_bytes + operation.tensor_count),
        sources_(arrays.sources, arrays.sources + operation.split_count) {
    operation_.name = name_.c_str();
    operation_.splits = splits_.data();
    operation_.tensors = tensors_.data();
    shapes_.reserve(tensors_.size());
    for (hvd_tensor& tensor : tensors_) {
      shapes_.emplace_back(tensor.shape, tensor.shape + tensor.dims);
      tensor.shape = shapes_.back().data();
    }
    turns().Enter(turn_, this);
  }

  // Also of one that the engine never starts.
  ~Call() {
    EndTurn();
    progress().Ended(number_);
  }

  bool Hold(const horovod_mxnet_arrays& arrays) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      inputs_.emplace_back();
      outputs_.emplace_back();
      if (!inputs_.back().CopyOf(arrays.inputs[i])) return false;
      if (!outputs_.back().CopyOf(arrays.outputs[i])) return false;
    }
    return true;
  }

  // The engine owns this from here on, unless it returns an error. Ends the life of this also where
  // the engine cannot start it.
  int Push(int priority) {
    const Context cpu{1, 0};
    std::set<const void*> memory;  // a second view of it would make the operation wait for itself
    std::vector<NDArrayHandle> written = Distinct(outputs_, &memory);
    std::vector<NDArrayHandle> read = Distinct(inputs_, &memory);
    const auto delete_call = [](void* call) { delete static_cast<Call*>(call); };
    return functions.push(&Start, this, delete_call, &cpu, read.data(),
                          static_cast<int>(read.size()), written.data(),
                          static_cast<int>(written.size()), &kAsync, priority, "horovod", false);
  }

  void ToUsualLayout() const {
    if (functions.to_usual_layout == nullptr) return;
    for (const Array& input : inputs_) functions.to_usual_layout(input.handle());
  }

 private:
  static std::vector<NDArrayHandle> Distinct(const std::vector<Array>& arrays,
                                             std::set<const void*>* memory) {
    std::vector<NDArrayHandle> handles;
    for (const Array& array : arrays) {
      if (memory->insert(MemoryOf(array.handle())).second) handles.push_back(array.handle());
    }
    return handles;
  }

  static void Start(void*, void* on_complete, void* given) {
    auto* call = static_cast<Call*>(given);
    call->on_complete_ =
        *static_cast<OnComplete*>(on_complete);  // the engine's, only while this runs
    if (!call->Locate())
      return call->Finish("MXNet has no memory for an array of '" + call->name_ + "'.");
    if (turns().Ready(call->turn_, call)) Submit(call);
  }

  bool Locate() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].input = inputs_[i].data();
      tensors_[i].input_bytes = BytesOf(tensors_[i]);
      results_.push_back(outputs_[i].data());
      if (WrittenByCore()) tensors_[i].output = results_.back();
      if (WrittenByCore()) tensors_[i].output_bytes = output_bytes_[i];
      if (tensors_[i].input == nullptr || results_.back() == nullptr) return false;
    }
    return true;
  }

  // Those whose turn comes while one is submitted on this thread, because that has failed at once,
  // are next; not nested in each other.
  static void Submit(Call* call) {
    thread_local bool submits = false;
    thread_local Call* first = nullptr;  // of those that wait, linked by `behind_`
    thread_local Call* last = nullptr;
    (first == nullptr ? first : last->behind_) = call;
    last = call;
    if (submits) return;
    submits = true;
    while (first != nullptr) {
      Call* const next = std::exchange(first, first->behind_);
      const uint64_t number = next->number_;  // it may be complete, and gone, before submit returns
      core.load()->submit(core.load(), &next->operation_, &Complete, next);
      progress().Submitted(number);
    }
    submits = false;
  }

  void EndTurn() {
    if (Call* const next = turns().Leave(turn_, this)) Submit(next);
  }

  // Called by the core, through which nothing may be thrown.
  static void Complete(void* given, const hvd_result* result) noexcept {
    auto* call = static_cast<Call*>(given);
    std::string problem;
    try {
      problem = result->code == 0 ? call->CopyResults(*result) : call->Problem(*result);
    } catch (const std::bad_alloc&) {
      return call->End(&no_memory());
    }
    call->Finish(problem);
  }

  // The error is met where an array is read, so it says of which operation it is. MXNet has one
  // type of errors; elastic training knows by the first word that the generation is lost.
  std::string Problem(const hvd_result& result) const {
    const std::string message = result.message;
    const auto code = static_cast<Code>(result.code);
    const bool is_lost = code == Code::kAborted || code == Code::kShutdown;
    const std::string kind = is_lost ? "HorovodInternalError: " : "";
    if (message.find(name_) != std::string::npos) return kind + message;
    return kind + "'" + name_ + "' was not completed: " + message;
  }

  // No `problem`: success.
  void Finish(const std::string& problem) noexcept {
    if (problem.empty()) return End(nullptr);
    std::optional<dmlc::Error> error;
    try {
      error.emplace(problem);
    } catch (const std::bad_alloc&) {
      return End(&no_memory());
    }
    End(&*error);
  }

  // The engine deletes this. No `error`: success.
  void End(const dmlc::Error* error) noexcept {
    EndTurn();
    const OnComplete on_complete = on_complete_;
    on_complete(error);
  }

  bool WrittenByCore() const {
    const auto kind = static_cast<OpKind>(operation_.kind);
    return kind == OpKind::kAllreduce || kind == OpKind::kBroadcast;
  }

  // Why it cannot be done; empty when it is.
  std::string CopyResults(const hvd_result& result) const {
    if (WrittenByCore()) return "";
    if (static_cast<OpKind>(operation_.kind) == OpKind::kAlltoall) return PlaceRows(result);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const hvd_output& output = result.outputs[i];
      if (output.bytes != output_bytes_[i]) return WrongSize();
      std::memcpy(results_[i], output.data, static_cast<size_t>(output_bytes_[i]));
    }
    return "";
  }

  std::string PlaceRows(const hvd_result& result) const {
    const hvd_output& rows = result.outputs[0];
    const auto* sent = static_cast<const int64_t*>(result.outputs[1].data);
    const int64_t total = rows.shape[0];
    const int64_t row_bytes = total == 0 ? 0 : rows.bytes / total;
    const char* from = static_cast<const char*>(rows.data);
    char* to = results_[0];
    std::memset(to, 0, static_cast<size_t>(output_bytes_[0]));
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (sent[i] != 0 && sent[i] != sources_[i]) return WrongSize();
      std::memcpy(to, from, static_cast<size_t>(sent[i] * row_bytes));
      from += sent[i] * row_bytes;
      to += sources_[i] * row_bytes;
    }
    return "";
  }

  std::string WrongSize() const {
    return "The result of '" + name_ +
           "' has another size than the ranks have told each other before.";
  }

  hvd_operation operation_;
  const std::string name_;
  const Turns<Call>::Name turn_{operation_.process_set, name_};
  const std::vector<int64_t> splits_;
  std::vector<hvd_tensor> tensors_;
  const std::vector<int64_t> output_bytes_;
  const std::vector<int64_t> sources_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<Array> inputs_;
  std::vector<Array> outputs_;
  std::vector<char*> results_;
  OnComplete on_complete_;
  Call* behind_ = nullptr;  // that is submitted next on the same thread
  const uint64_t number_ = progress().Begin(operation_.process_set);
};

}  // namespace

}  // namespace hvd::mxnet

int horovod_mxnet_bind(hvd_api* api, const horovod_mxnet_functions* given,
                       uint64_t operation_bytes) {
  const bool knows_operations = operation_bytes == sizeof(hvd_operation) + sizeof(hvd_tensor);
  if (!knows_operations || api->version < HVD_API_VERSION || api->bytes < sizeof(hvd_api)) {
    api->release(api);
    return HVD_API_VERSION;
  }
  (void)hvd::mxnet::no_memory();
  hvd::mxnet::functions = *given;
  hvd::mxnet::core.store(api);
  return 0;
}

int horovod_mxnet_push(const hvd_operation* operation, const horovod_mxnet_arrays* arrays,
                       int priority) {
  auto call = std::make_unique<hvd::mxnet::Call>(*operation, *arrays);
  if (!call->Hold(*arrays)) return -1;
  call->ToUsualLayout();
  const int status = call->Push(priority);
  (void)call.release();  // the engine's
  return status;
}

int horovod_mxnet_await_readers(void** arrays, int count) {
  // As an operation that claims to write them.
  const auto complete = [](void*, void* on_complete, void*) {
    (*static_cast<hvd::mxnet::OnComplete*>(on_complete))(nullptr);
  };
  const hvd::mxnet::Context cpu{1, 0};
  return hvd::mxnet::functions.push(complete, nullptr, nullptr, &cpu, nullptr, 0, arrays, count,
                                    &hvd::mxnet::kAsync, 0, "horovod", false);
}

uint64_t horovod_mxnet_last() { return hvd::mxnet::progress().last(); }

uint64_t horovod_mxnet_await_submitted(uint64_t last, double seconds) {
  return hvd::mxnet::progress().AwaitSubmitted(last, seconds);
}

uint64_t horovod_mxnet_await_ended(uint64_t last, int64_t process_set, double seconds) {
  return hvd::mxnet::progress().AwaitEnded(last, process_set, seconds);
}
