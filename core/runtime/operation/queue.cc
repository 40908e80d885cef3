#include "runtime/operation/queue.h"

#include <algorithm>

#include "base/text.h"

namespace hvd {

namespace {

constexpr size_t kRoom = 16;  // for operations, before the first

// To a number that is written under the lock and read without it.
template <typename Number>
void Add(std::atomic<Number>& number, Number more) {
  number.store(number.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

Status AlreadyShutDown() {
  return {Code::kShutdown, "Horovod has been shut down. Call hvd.init() first."};
}

Status NoSuchSet(uint32_t process_set) {
  return Status::Invalid("process set " + std::to_string(process_set) +
                         " does not exist (any more)");
}

Status Queue::Refusal(const Set& set, const Entry& entry) {
  if (set.closed) return NoSuchSet(entry.process_set);
  if (set.successors > 0 && entry.request.kind == OpKind::kJoin) {
    return Status::Invalid(
        "this rank cannot join (hvd.join()) while operations wait for earlier ones of their names, "
        "which were interrupted. Wait for them first (synchronize)");
  }
  if (set.joined) {
    return Status::Invalid(
        "this rank has joined (hvd.join()) and can submit nothing until all ranks have: " +
        (entry.peer ? "a message" : negotiate::Submission(entry.request)));
  }
  return {Code::kDuplicate,
          "Duplicate tensor name '" + Shown(entry.request.name) +
              "': an operation with this name is still in flight on this rank. Wait for it "
              "(synchronize) or use another name."};
}

// All that needs memory comes before anything is changed.
Status Queue::Push(const HandlePtr& handle) {
  const Entry& entry = handle->entry;
  const bool join = entry.request.kind == OpKind::kJoin;
  const bool named = !join && !entry.request.name.empty();
  const bool counted = !join && !named && !entry.peer;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return AlreadyShutDown();
  Set& set = sets_[entry.process_set];
  if (set.closed || set.joined) return Refusal(set, entry);
  if (join && set.successors > 0) return Refusal(set, entry);
  if (queued_.size() == queued_.capacity()) queued_.reserve(2 * queued_.size() + kRoom);
  if (named) {
    const HandlePtr* const first = AddName(&set, handle);
    if (first != nullptr) return PushBehind(&set, *first, handle);
  }
  if (join) set.joined = true;
  if (counted) handle->ordinal = ++set.unnamed;
  queued_.push_back(handle);
  Begin(handle);
  return Status::Ok();
}

// Null, or the operation that has its name already.
const HandlePtr* Queue::AddName(Set* set, const HandlePtr& handle) {
  const std::string& name = handle->entry.request.name;
  if (set->spare.empty()) {
    const auto [place, added] = set->names.emplace(name, handle);
    return added ? nullptr : &place->second;
  }
  set->spare.key() = name;
  set->spare.mapped() = handle;
  auto inserted = set->names.insert(std::move(set->spare));
  if (inserted.inserted) return nullptr;
  set->spare = std::move(inserted.node);
  set->spare.mapped() = nullptr;
  return &inserted.position->second;
}

// What was interrupted in Python goes on here, where nobody can take it back: the other ranks may
// have its data. The program may well start it again.
Status Queue::PushBehind(Set* set, const HandlePtr& first, const HandlePtr& handle) {
  Handle* last = first.get();
  while (last->abandoned.load() && last->successor != nullptr) last = last->successor.get();
  if (!last->abandoned.load()) return Refusal(*set, handle->entry);
  succeeding_.reserve(succeeding_.size() + successors_ + 1);
  last->successor = handle;
  ++set->successors;
  ++successors_;
  return Status::Ok();
}

HandlePtr Queue::ResumeJoin(uint32_t process_set) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const HandlePtr* at = &in_flight_handles_.first(); *at != nullptr; at = &(*at)->next) {
    const Entry& entry = (*at)->entry;
    const bool is_join = entry.request.kind == OpKind::kJoin && entry.process_set == process_set;
    if (is_join && (*at)->abandoned.exchange(false)) return *at;
  }
  return nullptr;
}

void Queue::Begin(const HandlePtr& handle) noexcept {
  Add(next_id_, uint64_t{1});
  handle->id = submitted();
  in_flight_handles_.Append(handle);
  Add(queued_bytes_, negotiate::BytesOf(handle->entry.request));
  in_flight_.fetch_add(1);
  filled_.store(true, std::memory_order_seq_cst);
}

void Queue::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
}

void Queue::Urge(const HandlePtr& handle) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (HasMemoryFor([&] { urged_.push_back(handle); }))
    filled_.store(true, std::memory_order_seq_cst);
}

// Unnamed operations keep their order, which is their identity, and nothing may pass a join.
void Queue::SortByPriority(std::vector<HandlePtr>* handles) {
  const auto priority = [](const HandlePtr& handle) {
    return handle->ordinal == 0 ? handle->entry.priority : 0;
  };
  const auto differs = [&](const HandlePtr& handle) { return priority(handle) != 0; };
  const auto joins = [](const HandlePtr& handle) {
    return handle->entry.request.kind == OpKind::kJoin;
  };
  if (std::none_of(handles->begin(), handles->end(), differs)) return;
  if (std::any_of(handles->begin(), handles->end(), joins)) return;
  std::stable_sort(handles->begin(), handles->end(), [&](const HandlePtr& a, const HandlePtr& b) {
    return priority(a) > priority(b);
  });
}

bool Queue::Take(std::vector<HandlePtr>* handles, std::vector<HandlePtr>* urged) {
  if (empty()) return false;
  handles->clear();
  urged->clear();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    handles->swap(queued_);
    // Before what was pushed since, which may be a join: after it nothing more is announced.
    handles->insert(handles->begin(), succeeding_.begin(), succeeding_.end());
    succeeding_.clear();
    urged->swap(urged_);
    queued_bytes_.store(0, std::memory_order_relaxed);
    filled_.store(false, std::memory_order_seq_cst);
  }
  SortByPriority(handles);
  return true;
}

HandlePtr Queue::Find(uint32_t process_set, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto set = sets_.find(process_set);
  if (set == sets_.end()) return nullptr;
  const auto found = set->second.names.find(name);
  return found == set->second.names.end() ? nullptr : found->second;
}

// Its successor takes the place that the name has, so that this needs no memory.
void Queue::RemoveName(Set* set, Handle* handle) noexcept {
  auto place = set->names.extract(handle->entry.request.name);
  if (place.empty()) return;
  if (handle->successor == nullptr) {
    place.mapped() = nullptr;
    set->spare = std::move(place);
    return;
  }
  const HandlePtr next = std::move(handle->successor);
  place.key() = next->entry.request.name;
  place.mapped() = next;
  set->names.insert(std::move(place));
  --set->successors;
  --successors_;
  succeeding_.push_back(next);
  Begin(next);
}

HandlePtr Queue::Remove(Handle* handle) noexcept {
  const bool join = handle->entry.request.kind == OpKind::kJoin;
  const auto found = sets_.find(handle->entry.process_set);  // unless the set is removed
  if (found != sets_.end()) {
    Set& set = found->second;
    if (!join && handle->ordinal == 0) RemoveName(&set, handle);
    if (join) set.joined = false;
    if (join) set.unnamed = 0;
  }
  in_flight_.fetch_sub(1);
  Add(ended_, uint64_t{1});
  return in_flight_handles_.Remove(handle);
}

void Queue::Forget(Handle* handle) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  (void)Remove(handle);
}

HandlePtr Queue::ForgetOldest() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return in_flight_handles_.empty() ? nullptr : Remove(in_flight_handles_.first().get());
}

void Queue::Discard() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  queued_.clear();
  succeeding_.clear();
  urged_.clear();
  queued_bytes_.store(0, std::memory_order_relaxed);
  filled_.store(false, std::memory_order_seq_cst);
}

size_t Queue::CloseSet(uint32_t process_set) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sets_[process_set].closed = true;
  size_t in_flight = 0;
  for (const Handle* at = in_flight_handles_.first().get(); at != nullptr; at = at->next.get()) {
    if (at->entry.process_set == process_set) ++in_flight;
  }
  return in_flight;
}

void Queue::OpenSet(uint32_t process_set) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sets_[process_set].closed = false;
}

void Queue::DropSet(uint32_t process_set) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sets_.find(process_set);
  if (found != sets_.end() && found->second.names.empty()) sets_.erase(found);
}

size_t Queue::sets() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sets_.size();
}

std::vector<HandlePtr> Queue::InFlight() {
  std::vector<HandlePtr> all;
  const std::lock_guard<std::mutex> lock(mutex_);
  all.reserve(in_flight_.load());
  for (const HandlePtr* at = &in_flight_handles_.first(); *at != nullptr; at = &(*at)->next) {
    all.push_back(*at);
  }
  return all;
}

std::vector<HandlePtr> Queue::InFlight(uint32_t process_set) {
  std::vector<HandlePtr> all = InFlight();
  const auto elsewhere = [=](const HandlePtr& handle) {
    return handle->entry.process_set != process_set;
  };
  all.erase(std::remove_if(all.begin(), all.end(), elsewhere), all.end());
  return all;
}

}  // namespace hvd
