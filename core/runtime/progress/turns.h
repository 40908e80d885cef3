#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/waker.h"
#include "runtime/operation/handle.h"

namespace hvd {

// The threads that wait for operations while another one drives. Each sleeps on a word of its own,
// so that nobody is woken but whom it concerns: who waits for what has ended, and one to drive when
// the driver leaves.
class Turns {
 public:
  // How often the turn was passed; read before a thread finds that another one drives.
  uint32_t number() const { return number_.load(); }

  // Sleeps until woken, if `handle` is not done and the turn was not passed since it had this
  // number. As WaitOnFutex.
  FutexWait Await(uint32_t number, const Handle& handle, int64_t timeout_us) noexcept;

  // The driver leaves, or sleeps without the lock: another one may drive.
  void Pass() noexcept;
  // Operations have ended, before this call.
  void WakeDone() noexcept;
  void WakeAll() noexcept;

 private:
  struct Sleeper {
    const Handle* handle;
    std::atomic<uint32_t> woken{0};  // futex; the waker's last access, unless it is still listed
    Sleeper* previous = nullptr;
    Sleeper* next = nullptr;
  };

  bool List(uint32_t number, Sleeper* sleeper) noexcept;
  void Unlist(Sleeper* sleeper) noexcept;
  void Wake(Sleeper* sleeper) noexcept;

  std::atomic<uint32_t> number_{0};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;  // guards the list
  Sleeper* first_ = nullptr;
  Sleeper* last_ = nullptr;
};

}  // namespace hvd
