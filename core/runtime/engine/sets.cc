// Process sets that come and go while the engine runs.

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/clock.h"
#include "runtime/engine/rank_engine.h"

namespace hvd {

namespace {

// FNV-1a of their sequence.
uint32_t DigestOf(const std::vector<int>& ranks) {
  uint32_t digest = 2166136261u;
  for (const int rank : ranks) digest = (digest ^ static_cast<uint32_t>(rank)) * 16777619u;
  return digest;
}

}  // namespace

// The sum of one number of every rank; blocks until all have come here. A rank that has joined
// counts 0.
Status RankEngine::Agree(const std::string& what, int64_t mine, int64_t* all) {
  *all = mine;
  Entry entry;
  entry.urgent = true;
  entry.request.reduce_op = ReduceOp::kSum;
  entry.request.name = what;
  entry.request.tensors.push_back({DataType::kInt64, {1}});
  entry.buffers.push_back(TensorBuffer::InPlace(all, sizeof *all));
  HandlePtr handle;
  HVD_RETURN_IF_ERROR(Begin(std::move(entry), &handle));
  return Wait(handle, -1, nullptr);
}

// What all ranks do together cannot be given up by one of them: where there is no memory for it,
// all learn that.
template <typename Work>
Status RankEngine::Together(Work work) {
  Status status;
  if (HasMemoryFor([&] { status = work(); })) return status;
  watcher_->Abort(prepared_.no_memory_for_sets);
  return Status::Aborted(prepared_.no_memory_for_sets.reason);
}

Status RankEngine::CheckMembers(const std::vector<int>& ranks) const {
  if (shut_down_.load()) return AlreadyShutDown();
  const bool ascending = std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<int>());
  if (!ranks.empty() && ascending && ranks.front() >= 0 && ranks.back() < options_.size)
    return Status::Ok();
  return Status::Invalid("a process set has one or more ranks of the job, each once");
}

// From the next round on it takes part in what the others do.
void RankEngine::Open(uint32_t id, const Members& members, std::shared_ptr<ProcessSetWires> wires) {
  cycle_->Post([this, id, members, wires = std::move(wires)] {
    wirer_->Finish(id, members, wires.get());
    cycle_->Own(MakeSet(id, members, std::move(*wires)));
  });
}

Status RankEngine::AddProcessSet(std::vector<int> ranks, uint32_t* id) {
  return Together([&]() -> Status {
    HVD_RETURN_IF_ERROR(CheckMembers(ranks));
    const Members members(ranks);
    HVD_RETURN_IF_ERROR(sets_.Add(members, id));
    sets_.SetClosed(*id, true);
    const std::string name = "process set " + std::to_string(*id);
    const bool member = sets_.Has(*id, rank());
    auto wires = std::make_shared<ProcessSetWires>();
    const Status mine = wirer_->Prepare(*id, members, StartDeadline(), wires.get());
    if (member && mine.ok()) Open(*id, members, wires);
    int64_t successes = 0;
    const Status agreed = Agree("hvd.add_process_set", mine.ok() ? 1 : 0, &successes);
    if (agreed.ok() && successes == options_.size) {
      sets_.SetClosed(*id, false);
      return Status::Ok();
    }
    LetGo(*id);
    if (abort_.is_set()) return abort_.status();
    if (!mine.ok()) return mine;
    return agreed.ok() ? Status(Code::kUnavailable, name + " could not be set up on another rank")
                       : agreed;
  });
}

Status RankEngine::AddOwnProcessSet(std::vector<int> order, int64_t timeout_us,
                                    bool (*interrupted)(), uint32_t* id) {
  return Together([&]() -> Status {
    std::vector<int> ranks = order;
    std::sort(ranks.begin(), ranks.end());
    HVD_RETURN_IF_ERROR(CheckMembers(ranks));
    const Members members(ranks);
    if (!members.Has(rank()))
      return Status::Invalid("the members alone make this process set, and " + Name(rank()) +
                             " is none");
    LetGoOfIdle();
    MeetingOptions meeting = MeetingOf(ranks, timeout_us);
    meeting.order = DigestOf(order);
    meeting.reserve = [&](uint32_t number, std::string* place) {
      return wirer_->Reserve(number, members, place);
    };
    meeting.prepare = [&](uint32_t number, const std::string& place) {
      auto wires = std::make_shared<ProcessSetWires>();
      HVD_RETURN_IF_ERROR(wirer_->PrepareIn(number, members, place, wires.get()));
      HVD_RETURN_IF_ERROR(sets_.AddAs(number, members));
      sets_.SetClosed(number, true);
      Open(number, members, std::move(wires));
      return Status::Ok();
    };
    meeting.discard = [&](uint32_t number) { LetGo(number); };
    meeting.close = [&](const std::string& place) { wirer_->Close(place); };
    meeting.exchange = [&](const PeerOperation& peer, std::string* note, int64_t deadline_us) {
      return Exchange(peer, note, deadline_us, interrupted);
    };
    const Status met = Meet(meeting, id);
    if (met.ok()) sets_.SetClosed(*id, false);
    return met.ok() || !abort_.is_set() ? met : abort_.status();
  });
}

MeetingOptions RankEngine::MeetingOf(const std::vector<int>& ranks, int64_t timeout_us) {
  MeetingOptions meeting;
  meeting.rank = rank();
  meeting.members = Members(ranks);
  meeting.companions = wirer_->Companions(meeting.members);
  meeting.firsts = wirer_->FirstsOf(meeting.members);
  meeting.timeout_us = timeout_us;
  meeting.number = [this, ranks] {
    const std::lock_guard<std::mutex> lock(meetings_mutex_);
    return meetings_[ranks]++;
  };
  meeting.name = [this](uint32_t* id) { return sets_.Number(options_.size, id); };
  meeting.may_have_named = [first = GlobalRank(ranks.front()), size = options_.size](uint32_t id) {
    return SetRegistry::MayHaveGiven(first, size, id);
  };
  return meeting;
}

// Sends the note, or receives one of as many bytes.
Status RankEngine::Exchange(const PeerOperation& peer, std::string* note, int64_t deadline_us,
                            bool (*interrupted)()) {
  Output memory;
  const auto bytes = static_cast<int64_t>(note->size());
  HVD_RETURN_IF_ERROR(Output::Allocate(DataType::kUint8, {bytes}, &memory));
  std::memcpy(memory.data.get(), note->data(), note->size());
  Entry entry;
  entry.urgent = true;
  entry.peer = peer;
  entry.request.tensors.push_back({DataType::kUint8, {bytes}});
  entry.buffers.push_back(TensorBuffer::InPlace(memory.data.get(), bytes));
  HandlePtr handle;
  HVD_RETURN_IF_ERROR(Begin(std::move(entry), &handle));
  Status status = Wait(handle, std::max<int64_t>(0, deadline_us - NowMicros()), interrupted);
  if (status.code() == Code::kTimeout) status = Leave(handle, status, memory);
  HVD_RETURN_IF_ERROR(status);
  std::memcpy(note->data(), memory.data.get(), note->size());
  return Status::Ok();
}

// What is in flight for ever would fail the job when the other rank ends in good order. How the
// note has fared in the end: it may have come just now. What comes later has its memory.
Status RankEngine::Leave(const HandlePtr& handle, const Status& late, Output memory) {
  cycle_->Post([this, handle, late, memory = std::move(memory)] {
    handle->kept.push_back(memory);
    cycle_->Leave(handle, late);
  });
  loop_->WakeAll();  // another thread may drive, and sleep
  return Wait(handle, -1, nullptr);
}

Status RankEngine::LeaveProcessSet(uint32_t id) {
  return Together([&]() -> Status {
    if (shut_down_.load()) return AlreadyShutDown();
    if (id < SetRegistry::kFirstOwn || !sets_.Close(id)) return NoSuchSet(id);
    {
      const std::lock_guard<std::mutex> lock(meetings_mutex_);
      leaving_.push_back(id);
    }
    LetGoOfIdle();
    return Status::Ok();
  });
}

// One on which something is in flight is looked at again when the next one is made or left.
void RankEngine::LetGoOfIdle() {
  const std::lock_guard<std::mutex> lock(meetings_mutex_);
  const auto idle = [this](uint32_t id) {
    if (queue_.CloseSet(id) > 0) return false;
    LetGo(id);
    return true;
  };
  leaving_.erase(std::remove_if(leaving_.begin(), leaving_.end(), idle), leaving_.end());
  wirer_->Reclaim();
}

void RankEngine::LetGo(uint32_t id) {
  sets_.Remove(id);
  cycle_->Post([this, id] { cycle_->Dismiss(id); });
  loop_->Poke();
}

Status RankEngine::RemoveProcessSet(uint32_t id) {
  return Together([&]() -> Status {
    if (shut_down_.load()) return AlreadyShutDown();
    if (id == 0) return Status::Invalid("the process set of all ranks cannot be removed");
    if (!sets_.SetClosed(id, true)) return NoSuchSet(id);
    int64_t in_flight = 0;
    // Where it is queued, too: another thread may have asked the registry before.
    const auto mine = static_cast<int64_t>(queue_.CloseSet(id));
    const Status agreed = Agree("hvd.remove_process_set", mine, &in_flight);
    if (!agreed.ok() || in_flight > 0) {
      queue_.OpenSet(id);
      sets_.SetClosed(id, false);
    }
    HVD_RETURN_IF_ERROR(agreed);
    if (in_flight > 0) {
      return Status::Invalid("process set " + std::to_string(id) +
                             " cannot be removed: " + std::to_string(in_flight) +
                             " operations are in flight on it; wait for them first");
    }
    LetGo(id);
    // Nobody goes on before everybody has let go of it.
    return Agree("hvd.remove_process_set: end", 0, &in_flight);
  });
}

std::vector<int> RankEngine::MembersOf(uint32_t process_set) const {
  std::vector<int> ranks;
  const Members members = sets_.MembersOf(process_set);
  for (const GlobalRank rank : members.ranks()) ranks.push_back(rank.value());
  return ranks;
}

std::vector<std::string> RankEngine::InFlight(uint32_t process_set) {
  std::vector<std::string> names;
  for (const HandlePtr& handle : queue_.InFlight(process_set)) names.push_back(handle->name());
  return names;
}

}  // namespace hvd
