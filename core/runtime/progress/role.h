#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

namespace hvd {

// Who drives the cycle, and what the driver does just now: a waiter, which is a thread of the
// program that waits for an operation; the background thread; or nobody. Only the holder of the
// progress lock changes it; whoever submits reads it without.
//
//   from               to                 when
//   nobody             waiter awake       a thread waits, and takes the lock
//                      background awake   work is in flight and nobody waits
//   waiter awake       waiter asleep      nothing moved while it spun; it sleeps with the lock
//                      callbacks          something that has a callback is complete
//                      nobody             its operation is complete, or its time is up
//   waiter asleep      waiter awake       woken, or the last look before sleeping found something
//                      callbacks          the last look completed something that has a callback
//   background awake   collecting, asleep nothing moved while it spun; it lets go of the lock and
//   sleeps
//                      callbacks          as above
//                      nobody             no work is left, a waiter wants to drive, or the engine
//                      stops
//   collecting, asleep background awake   woken, and no waiter has the lock
//                      waiter awake       a waiter takes the lock, which is free
//                      callbacks          as above
//   callbacks          waiter awake       the lock is free meanwhile: either drives next, the one
//   that calls
//                      background awake   them or another
//
// Collecting: asleep for a moment, to let submissions gather.
enum class Role : uint8_t {
  kNobody,
  kWaiterAwake,
  kWaiterAsleep,
  kBackgroundAwake,
  kBackgroundCollecting,
  kBackgroundAsleep,
  kCallbacks,
};
constexpr int kRoles = 7;

constexpr bool IsAsleep(Role role) {
  return role == Role::kWaiterAsleep || role == Role::kBackgroundAsleep ||
         role == Role::kBackgroundCollecting;
}

// The table above; a role may also be confirmed.
constexpr bool MayFollow(Role from, Role to) {
  if (from == to) return true;
  switch (to) {
    case Role::kWaiterAwake:
      return from != Role::kBackgroundAwake;
    case Role::kBackgroundAwake:
      return from != Role::kWaiterAwake && from != Role::kWaiterAsleep;
    case Role::kWaiterAsleep:
      return from == Role::kWaiterAwake;
    case Role::kBackgroundCollecting:
    case Role::kBackgroundAsleep:
      return from == Role::kBackgroundAwake;
    case Role::kNobody:
      return from == Role::kWaiterAwake || from == Role::kBackgroundAwake;
    case Role::kCallbacks:
      return from != Role::kNobody;
  }
  return false;
}

// What a submission needs so that it is looked at. `enough`: somebody is about to wait for it, or
// so much is queued that there is nothing to gather for.
enum class Nudge : uint8_t { kNone, kWakeDriver, kStartBackground };
constexpr Nudge NudgeFor(Role role, bool enough) {
  if (role == Role::kNobody) return Nudge::kStartBackground;
  if (role == Role::kBackgroundCollecting) return enough ? Nudge::kWakeDriver : Nudge::kNone;
  return IsAsleep(role) ? Nudge::kWakeDriver : Nudge::kNone;
}

class RoleCell {
 public:
  Role now() const { return role_.load(std::memory_order_seq_cst); }

  // With the progress lock. Before a driver sleeps it says so and then looks once more, so that
  // either it sees a submission or the submitter sees that it sleeps.
  void Become(Role next) {
    assert(MayFollow(role_.load(std::memory_order_relaxed), next));
    role_.store(next, std::memory_order_seq_cst);
  }

 private:
  std::atomic<Role> role_{Role::kNobody};
};

}  // namespace hvd
