#include "cuda/settings.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace fake_gpu {
namespace {

const char* Text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == 0 ? nullptr : value;
}

long long Number(const char* name, long long otherwise) {
  const char* value = Text(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

int Rank(const char* name) {
  const char* value = Text(name);
  if (value == nullptr) return kNobody;
  return std::strcmp(value, "all") == 0 ? kEverybody : std::atoi(value);
}

// "3", or "3:1" for the third of rank 1.
Fault ReadFault(const char* name) {
  Fault fault;
  const char* value = Text(name);
  if (value == nullptr) return fault;
  fault.at = std::atoi(value);
  const char* rank = std::strchr(value, ':');
  if (rank != nullptr) fault.rank = std::atoi(rank + 1);
  return fault;
}

const Settings* Read() {
  auto* settings = new Settings;
  settings->devices = static_cast<int>(Number("FAKE_GPU_DEVICES", 2));
  settings->capability = static_cast<int>(Number("FAKE_GPU_CAPABILITY", 9));
  settings->strict = Number("FAKE_GPU_STRICT", 1) != 0;
  settings->delay_us = static_cast<int>(Number("FAKE_GPU_DELAY_US", 0));
  settings->seed = static_cast<unsigned>(Number("FAKE_GPU_SEED", 1));
  settings->init_fails = Number("FAKE_CUDA_INIT_FAILS", 0) != 0;
  settings->init_ms = static_cast<int>(Number("FAKE_CUDA_INIT_MS", 0));
  const long long limit = Number("FAKE_CUDA_NO_MEMORY_AT", -1);
  settings->no_memory_at = limit < 0 ? std::numeric_limits<size_t>::max() : limit;
  settings->nccl_version = static_cast<int>(Number("FAKE_NCCL_VERSION", 22703));
  settings->nccl_init_hangs = Rank("FAKE_NCCL_INIT_HANGS");
  settings->nccl_init_fails = Rank("FAKE_NCCL_INIT_FAILS");
  settings->nccl_fail = ReadFault("FAKE_NCCL_FAIL_AT");
  settings->nccl_async_fail = ReadFault("FAKE_NCCL_ASYNC_FAIL_AT");
  settings->nccl_us = static_cast<int>(Number("FAKE_NCCL_US", 0));
  settings->nccl_abort_ms = static_cast<int>(Number("FAKE_NCCL_ABORT_MS", 0));
  settings->nccl_refuses_duplicates = Number("FAKE_NCCL_REFUSES_DUPLICATES", 0) != 0;
  return settings;
}

// An older one is never freed: a thread may still read it.
std::atomic<const Settings*>& Slot() {
  static std::atomic<const Settings*> slot{Read()};
  return slot;
}

}  // namespace

const Settings& TheSettings() { return *Slot().load(); }
void ReadSettings() { Slot().store(Read()); }

}  // namespace fake_gpu
