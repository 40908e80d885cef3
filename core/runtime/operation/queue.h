#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/operation/handle.h"

namespace hvd {

// Why nothing can be submitted any more.
Status AlreadyShutDown();
// Why nothing can be submitted to a set.
Status NoSuchSet(uint32_t process_set);

// Between the threads that submit and the one that drives. Submitting takes this lock only, never
// the progress lock. It also knows the names in flight, so that a duplicate fails before anything
// is sent.
class Queue {
 public:
  // Names the operation (ordinal) and queues it. Where its name is in flight in its set: behind
  // that one, if that is abandoned; else kDuplicate. kInvalidArgument when this rank has joined in
  // its set or the set is closed, kShutdown once everything is. Where it throws (std::bad_alloc),
  // nothing is queued.
  Status Push(const HandlePtr& handle);

  // A join of the set that is in flight and abandoned, which somebody waits for again; else null.
  HandlePtr ResumeJoin(uint32_t process_set);

  // Nothing more is taken in: from now on less and less is in flight.
  void Close();

  // Somebody is blocked on `handle`. Without memory it is not hurried, which costs time only.
  void Urge(const HandlePtr& handle) noexcept;

  // Moves everything queued to the driver. False when there was nothing.
  bool Take(std::vector<HandlePtr>* handles, std::vector<HandlePtr>* urged);

  // The operation in flight under this name, for decisions that carry a name. Null if none.
  HandlePtr Find(uint32_t process_set, const std::string& name);

  // Completed: the name may be used again. After a join, unnamed operations are counted from 1
  // again.
  void Forget(Handle* handle) noexcept;
  // Likewise, of the oldest that is not completed yet; null if none.
  HandlePtr ForgetOldest() noexcept;
  // Nobody will take what is queued: all of it is forgotten, or will be.
  void Discard() noexcept;

  // Nothing more is taken in for a set, so that what is in flight on it only becomes less: so many
  // operations.
  size_t CloseSet(uint32_t process_set);
  void OpenSet(uint32_t process_set);

  // A set that is removed: nothing is kept of it once nothing of it is in flight.
  void DropSet(uint32_t process_set);
  size_t sets();

  bool empty() const { return !filled_.load(std::memory_order_seq_cst); }
  size_t in_flight() const { return in_flight_.load(std::memory_order_seq_cst); }
  // How many operations were submitted.
  uint64_t submitted() const { return next_id_.load(std::memory_order_relaxed); }
  // How many have ended.
  uint64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  // Bytes queued since the last Take.
  int64_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }

  // Everything not completed yet, oldest first.
  std::vector<HandlePtr> InFlight();
  std::vector<HandlePtr> InFlight(uint32_t process_set);

 private:
  struct Set {
    uint64_t unnamed = 0;
    bool joined = false;
    bool closed = false;
    size_t successors = 0;  // operations that wait for another of their name
    std::unordered_map<std::string_view, HandlePtr> names;  // keys lie in the handles
    // The place of the latest name that has gone, without handle, for the next: most programs wait
    // for one operation before they submit another.
    decltype(names)::node_type spare;
  };

  static void SortByPriority(std::vector<HandlePtr>* handles);
  static Status Refusal(const Set& set, const Entry& entry);
  Status PushBehind(Set* set, const HandlePtr& first, const HandlePtr& handle);
  void Begin(const HandlePtr& handle) noexcept;
  void RemoveName(Set* set, Handle* handle) noexcept;
  static const HandlePtr* AddName(Set* set, const HandlePtr& handle);
  HandlePtr Remove(Handle* handle) noexcept;

  std::mutex mutex_;                        // guards what follows
  std::unordered_map<uint32_t, Set> sets_;  // those of the registry, at most
  HandleChain in_flight_handles_;           // oldest first
  std::vector<HandlePtr> queued_;
  std::vector<HandlePtr>
      succeeding_;         // likewise, in the place of another; has room for all of them
  size_t successors_ = 0;  // of all sets
  std::vector<HandlePtr> urged_;
  bool closed_ = false;

  std::atomic<bool> filled_{false};
  std::atomic<size_t> in_flight_{0};
  std::atomic<uint64_t> next_id_{0};
  std::atomic<uint64_t> ended_{0};
  std::atomic<int64_t> queued_bytes_{0};
};

}  // namespace hvd
