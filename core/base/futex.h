#pragma once

#include <atomic>
#include <cstdint>

namespace hvd {

enum class FutexWait { kWoken, kTimeout, kInterrupted };

// Sleeps while word == expected. kWoken also when it was not equal to begin with. timeout_us < 0 = no limit.
// For threads of one process; returns on signals, so that Python can run its handlers.
FutexWait WaitOnFutex(const std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_us);
void WakeFutex(const std::atomic<uint32_t>& word);  // everybody

}  // namespace hvd
