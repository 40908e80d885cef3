// Process sets that come and go while the engine runs.

#include <algorithm>
#include <functional>
#include <new>

#include "runtime/engine/rank_engine.h"

namespace hvd {

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
  HVD_RETURN_IF_ERROR(TrySubmit(std::move(entry), &handle));
  return Wait(handle, -1, nullptr);
}

// What all ranks do together cannot be given up by one of them: where there is no memory for it,
// all learn that.
template <typename Work>
Status RankEngine::Together(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    watcher_->Abort(prepared_.no_memory_for_sets);
    return Status::Aborted(prepared_.no_memory_for_sets.reason);
  }
}

Status RankEngine::AddProcessSet(std::vector<int> ranks, uint32_t* id) {
  return Together([&] { return TryAddProcessSet(ranks, id); });
}

Status RankEngine::RemoveProcessSet(uint32_t id) {
  return Together([&] { return TryRemoveProcessSet(id); });
}

Status RankEngine::TryAddProcessSet(const std::vector<int>& ranks, uint32_t* id) {
  if (shut_down_.load()) return AlreadyShutDown();
  const bool ascending = std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<int>());
  if (ranks.empty() || !ascending || ranks.front() < 0 || ranks.back() >= options_.size) {
    return Status::Invalid(
        "a process set has one or more ranks of the job, each once, in ascending order");
  }
  const Members members(ranks);
  HVD_RETURN_IF_ERROR(sets_.Add(members, id));
  sets_.SetClosed(*id, true);
  const std::string name = "process set " + std::to_string(*id);
  const bool member = sets_.Has(*id, rank());
  auto wires = std::make_shared<ProcessSetWires>();
  const Status mine = wirer_->Prepare(*id, members, StartDeadline(), wires.get());
  if (member && mine.ok()) {
    cycle_->Post([this, set = *id, members, wires] {
      wirer_->Finish(set, members, wires.get());
      cycle_->Own(MakeSet(set, members, std::move(*wires)));
    });
  }
  int64_t successes = 0;
  const Status agreed = Agree("horovod.add_process_set", mine.ok() ? 1 : 0, &successes);
  if (agreed.ok() && successes == options_.size) {
    sets_.SetClosed(*id, false);
    return Status::Ok();
  }
  sets_.Remove(*id);
  cycle_->Post([this, set = *id] { cycle_->Dismiss(set); });
  loop_->Poke();
  if (abort_.is_set()) return abort_.status();
  if (!mine.ok()) return mine;
  return agreed.ok() ? Status(Code::kUnavailable, name + " could not be set up on another rank")
                     : agreed;
}

Status RankEngine::TryRemoveProcessSet(uint32_t id) {
  if (shut_down_.load()) return AlreadyShutDown();
  if (id == 0) return Status::Invalid("the process set of all ranks cannot be removed");
  if (!sets_.SetClosed(id, true)) return NoSuchSet(id);
  int64_t in_flight = 0;
  // Where it is queued, too: another thread may have asked the registry before.
  const auto mine = static_cast<int64_t>(queue_.CloseSet(id));
  const Status agreed = Agree("horovod.remove_process_set", mine, &in_flight);
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
  sets_.Remove(id);
  cycle_->Post([this, id] { cycle_->Dismiss(id); });
  // Nobody goes on before everybody has let go of it.
  return Agree("horovod.removed_process_set", 0, &in_flight);
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
