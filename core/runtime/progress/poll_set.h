#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace hvd {

// What a driver sleeps on: its waker and its transports, which are few. It needs no memory, for a rank that
// has none left must still sleep until it is told how the generation ended.
class PollSet {
 public:
  static constexpr size_t kMost = 4;

  // What is beyond kMost is left out.
  void Add(int fd) noexcept {
    if (count_ < kMost) fds_[count_++] = {fd, POLLIN, 0};
  }

  // Until one is readable or, on the clock of NowMicros, `until_us`; -1 = no limit. As poll.
  int Wait(int64_t until_us) noexcept {
    const int64_t left = until_us < 0 ? 0 : std::max<int64_t>(0, until_us - NowMicros());
    const timespec timeout{static_cast<time_t>(left / 1000000), static_cast<long>(left % 1000000 * 1000)};
    return ppoll(fds_.data(), count_, until_us < 0 ? nullptr : &timeout, nullptr);
  }

 private:
  std::array<pollfd, kMost> fds_;
  size_t count_ = 0;
};

}  // namespace hvd
