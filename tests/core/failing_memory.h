#pragma once

// Memory that runs out: who links this has an operator new that fails when a test says so, for the
// threads of one rank only.

#include <cstdint>

namespace hvd::test::memory {

constexpr int64_t kOnce = 1;
constexpr int64_t kForGood = INT64_MAX;

// This thread belongs to `rank` from now on, and so do the threads that it starts.
void BelongTo(int rank);

// The n-th allocation from now (from 1) of the rank's threads fails, and so do those behind it,
// `count` in all.
void Fail(int rank, int64_t n, int64_t count);

// There is memory again.
void Restore();

// The n-th thread from now that a thread of the rank starts (from 1) is refused, as by a limit of
// processes.
void RefuseThread(int rank, int n);

// How many have failed since the last call of Fail.
int64_t Failures();

// As long as it lives, this thread has memory: for what the test itself does.
class Exempt {
 public:
  Exempt();
  ~Exempt();
  Exempt(const Exempt&) = delete;
  Exempt& operator=(const Exempt&) = delete;
};

}  // namespace hvd::test::memory
