#include "api/c_api.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/process.h"
#include "base/text.h"

namespace hvd::api {

namespace {

struct Caller {
  hvd_done done;
  void* context;
};

// Said where there is no memory for more.
constexpr char kNoMemory[] = "this rank ran out of memory while it started or ended an operation";

void Tell(const Caller& caller, Code code, const char* text) noexcept {
  const hvd_result result{static_cast<int32_t>(code), text, 0, nullptr};
  caller.done(caller.context, &result);
}

void Fail(const Caller& caller, const Status& status) noexcept {
  std::string text;
  const bool whole = HasMemoryFor([&] { text = Escaped(status.message(), true); });
  Tell(caller, status.code(), whole ? text.c_str() : kNoMemory);
}

void Deliver(const Caller& caller, const std::vector<Output>& given) noexcept {
  std::vector<hvd_output> outputs;
  if (!HasMemoryFor([&] { outputs.reserve(given.size()); }))
    return Tell(caller, Code::kUnavailable, kNoMemory);
  for (const Output& output : given) {
    outputs.push_back({output.data.get(), output.bytes, static_cast<int32_t>(output.dtype),
                       static_cast<int32_t>(output.shape.size()), output.shape.data(), &output});
  }
  const hvd_result result{0, "", static_cast<int32_t>(outputs.size()), outputs.data()};
  caller.done(caller.context, &result);
}

Status ReadTensors(const hvd_operation& operation, Entry* entry) {
  for (int32_t i = 0; i < operation.tensor_count; ++i) {
    const hvd_tensor& tensor = operation.tensors[i];
    if (tensor.dtype < 0 || tensor.dtype >= kDataTypes)
      return Status::Invalid("unknown element type");
    if (tensor.dims < 0) return Status::Invalid("a negative number of dimensions");
    entry->request.tensors.push_back(
        {static_cast<DataType>(tensor.dtype), Shape(tensor.shape, tensor.shape + tensor.dims)});
    entry->buffers.push_back({static_cast<const std::byte*>(tensor.input), tensor.input_bytes,
                              static_cast<std::byte*>(tensor.output), tensor.output_bytes});
  }
  return Status::Ok();
}

Status ReadEntry(const hvd_operation& operation, Entry* entry) {
  if (operation.kind < 0 || operation.kind >= kOpKinds || operation.reduce_op < 0 ||
      operation.reduce_op >= kReduceOps) {
    return Status::Invalid("unknown operation or reduction");
  }
  negotiate::Request& request = entry->request;
  request.kind = static_cast<OpKind>(operation.kind);
  request.reduce_op = static_cast<ReduceOp>(operation.reduce_op);
  request.prescale = operation.prescale;
  request.postscale = operation.postscale;
  request.root = GlobalRank(operation.root);
  if (operation.name != nullptr) request.name = operation.name;
  request.splits.assign(operation.splits, operation.splits + operation.split_count);
  entry->process_set = operation.process_set;
  entry->urgent = operation.urgent != 0 || operation.awaited != 0;
  entry->awaited = operation.awaited != 0;
  entry->priority = operation.priority;
  return ReadTensors(operation, entry);
}

// This rank's process sets that all ranks have made. Those that their members alone have made
// belong to others (torch.distributed), which go on: not all of their members join.
std::vector<uint32_t> SetsToJoin(const Engine& engine) {
  std::vector<uint32_t> sets = engine.ProcessSets();
  const auto own = std::lower_bound(sets.begin(), sets.end(), kFirstOwnSet);
  sets.erase(own, sets.end());
  return sets;
}

// Their joins, delivered as one: that of all ranks, once the last is complete.
class Joining {
 public:
  Joining(const Caller& caller, size_t joins)
      : caller_(caller), left_(joins), no_memory_(Code::kUnavailable, kNoMemory) {}

  void Complete(uint32_t process_set, const Status& status, const Handle* handle) noexcept {
    bool last;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!status.ok() && failure_.ok()) failure_ = status;
      const bool gives = process_set == 0 && handle != nullptr;
      const bool kept = !gives || HasMemoryFor([&] { outputs_ = handle->outputs; });
      if (!kept && failure_.ok()) failure_ = no_memory_;
      last = --left_ == 0;
    }
    if (!last) return;
    if (!failure_.ok()) return Fail(caller_, failure_);
    Deliver(caller_, outputs_);
  }

 private:
  const Caller caller_;
  std::mutex mutex_;  // guards what follows
  size_t left_;
  const Status no_memory_;
  Status failure_;
  std::vector<Output> outputs_;
};

// Where it throws, nothing has been delivered, nor will be.
void SubmitJoins(Engine* engine, const Caller& caller) {
  const std::vector<uint32_t> sets = SetsToJoin(*engine);
  const auto joining = std::make_shared<Joining>(caller, sets.size());
  for (const uint32_t set : sets) {
    Entry entry;
    entry.process_set = set;
    entry.request.kind = OpKind::kJoin;
    entry.urgent = true;
    entry.on_complete = [=](const Handle& handle) {
      joining->Complete(set, handle.status, &handle);
    };
    HandlePtr handle;
    const Status status = engine->Submit(std::move(entry), &handle);
    if (!status.ok()) joining->Complete(set, status, nullptr);
  }
}

// An error, or an exception, means that `caller` has not been told anything, nor will be.
Status Start(Engine* engine, const hvd_operation& operation, const Caller& caller) {
  if (engine == nullptr) return NotRunning();
  Entry entry;
  HVD_RETURN_IF_ERROR(ReadEntry(operation, &entry));
  if (entry.request.kind == OpKind::kJoin) {
    SubmitJoins(engine, caller);
    return Status::Ok();
  }
  entry.on_complete = [caller](const Handle& handle) {
    if (!handle.status.ok()) return Fail(caller, handle.status);
    Deliver(caller, handle.outputs);
  };
  HandlePtr handle;
  return engine->Submit(std::move(entry), &handle);
}

// `done` is called exactly once, whatever happens, also without memory.
void Submit(hvd_api*, const hvd_operation* operation, hvd_done done, void* context) noexcept {
  const std::shared_ptr<Engine> engine = CurrentEngine();
  const Caller caller{done, context};
  Status status;
  if (!HasMemoryFor([&] { status = Start(engine.get(), *operation, caller); }))
    return Tell(caller, Code::kUnavailable, kNoMemory);
  if (!status.ok()) Fail(caller, status);
}

struct Table : hvd_api {
  std::atomic<int64_t> references{1};
};

void Retain(hvd_api* api) {
  static_cast<Table*>(api)->references.fetch_add(1, std::memory_order_relaxed);
}

void Release(hvd_api* api) {
  auto* table = static_cast<Table*>(api);
  if (table->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete table;
}

void* Keep(const hvd_output* output) {
  return new (std::nothrow)
      std::shared_ptr<std::byte>(static_cast<const Output*>(output->owner)->data);
}

void Drop(void* share) { delete static_cast<std::shared_ptr<std::byte>*>(share); }

int32_t GetTopology(hvd_api*, hvd_topology* topology) {
  const std::optional<RankIdentity> t = KnownIdentity();
  if (!t) return static_cast<int32_t>(Code::kNotInitialized);
  *topology = {t->rank, t->size, t->local_rank, t->local_size, t->cross_rank, t->cross_size};
  return 0;
}

int32_t GetProcessSet(hvd_api*, uint32_t id, int32_t* size, int32_t* rank) noexcept {
  const std::shared_ptr<Engine> engine = CurrentEngine();
  const std::optional<RankIdentity> own =
      KnownIdentity();  // none where the engine is just shut down
  if (engine == nullptr || !own) return static_cast<int32_t>(Code::kNotInitialized);
  std::vector<int> members;
  if (!HasMemoryFor([&] { members = engine->MembersOf(id); }))
    return static_cast<int32_t>(Code::kUnavailable);
  if (members.empty()) return static_cast<int32_t>(Code::kInvalidArgument);
  const auto place = std::find(members.begin(), members.end(), own->rank);
  *size = static_cast<int32_t>(members.size());
  *rank = place == members.end() ? -1 : static_cast<int32_t>(place - members.begin());
  return 0;
}

}  // namespace

hvd_api* AcquireTable() {
  auto* table = new Table;
  table->version = HVD_API_VERSION;
  table->bytes = sizeof(hvd_api);
  table->retain = &Retain;
  table->release = &Release;
  table->submit = &Submit;
  table->keep = &Keep;
  table->drop = &Drop;
  table->topology = &GetTopology;
  table->process_set = &GetProcessSet;
  return table;
}

}  // namespace hvd::api
