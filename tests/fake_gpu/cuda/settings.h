#pragma once

#include <cstddef>

namespace fake_gpu {

// A fault of the n-th collective that this process calls, or that its rank `rank` calls.
struct Fault {
  int at = 0;  // 0: never
  int rank = -1;
};

constexpr int kNobody = -1;
constexpr int kEverybody = -2;

// The environment of the fakes; README.md has the table of its variables.
struct Settings {
  int devices;
  int capability;
  bool strict;
  int delay_us;
  unsigned seed;
  bool init_fails;
  int init_ms;
  size_t no_memory_at;

  int nccl_version;
  int nccl_init_hangs;  // a rank, kNobody or kEverybody
  int nccl_init_fails;
  Fault nccl_fail;
  Fault nccl_async_fail;
  int nccl_abort_ms;
  int nccl_us;
  bool nccl_refuses_duplicates;
};

// As the environment was at the first call, or at the last ReadSettings(): a test may change it
// while threads of the fakes run.
const Settings& TheSettings();
void ReadSettings();

}  // namespace fake_gpu
