#include "api/table.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "api/process.h"
#include "api/submit.h"

namespace hvd::api {

namespace {

struct Table : hvd_api {
  std::atomic<int64_t> references{1};
};

void Retain(hvd_api* api) { static_cast<Table*>(api)->references.fetch_add(1, std::memory_order_relaxed); }

void Release(hvd_api* api) {
  auto* table = static_cast<Table*>(api);
  if (table->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete table;
}

void* Keep(const hvd_output* output) {
  return new (std::nothrow) std::shared_ptr<std::byte>(static_cast<const Output*>(output->owner)->data);
}

void Drop(void* share) { delete static_cast<std::shared_ptr<std::byte>*>(share); }

int32_t GetTopology(hvd_api*, hvd_topology* topology) {
  const std::optional<RankIdentity> t = KnownIdentity();
  if (!t) return static_cast<int32_t>(Code::kNotInitialized);
  *topology = {t->rank, t->size, t->local_rank, t->local_size, t->cross_rank, t->cross_size};
  return 0;
}

int32_t GetProcessSet(hvd_api*, uint32_t id, int32_t* size, int32_t* rank) noexcept try {
  const std::shared_ptr<Engine> engine = CurrentEngine();
  const std::optional<RankIdentity> own = KnownIdentity();  // none where the engine is just shut down
  if (engine == nullptr || !own) return static_cast<int32_t>(Code::kNotInitialized);
  const std::vector<int> members = engine->MembersOf(id);
  if (members.empty()) return static_cast<int32_t>(Code::kInvalidArgument);
  const auto place = std::find(members.begin(), members.end(), own->rank);
  *size = static_cast<int32_t>(members.size());
  *rank = place == members.end() ? -1 : static_cast<int32_t>(place - members.begin());
  return 0;
} catch (const std::bad_alloc&) {
  return static_cast<int32_t>(Code::kUnavailable);
}

void SubmitToEngine(hvd_api*, const hvd_operation* operation, hvd_done done, void* context) {
  Submit(CurrentEngine(), *operation, done, context);
}

}  // namespace

hvd_api* AcquireTable() {
  auto* table = new Table;
  table->version = HVD_API_VERSION;
  table->bytes = sizeof(hvd_api);
  table->retain = &Retain;
  table->release = &Release;
  table->submit = &SubmitToEngine;
  table->keep = &Keep;
  table->drop = &Drop;
  table->topology = &GetTopology;
  table->process_set = &GetProcessSet;
  return table;
}

}  // namespace hvd::api
