#include "failing_memory.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace hvd::test::memory {

namespace {

constexpr int kNobody = -1;

thread_local int own_rank = kNobody;
thread_local int exempt = 0;
std::atomic<int> victim{kNobody};
std::atomic<int64_t> allocations{0};  // of the victim since Fail
std::atomic<int64_t> failures{0};
int64_t first_failure = 0;  // this and the next are constant while there is a victim
int64_t last_failure = 0;

bool Fails() {
  if (own_rank == kNobody || exempt > 0 || victim.load(std::memory_order_acquire) != own_rank)
    return false;
  const int64_t n = allocations.fetch_add(1) + 1;
  if (n < first_failure || n > last_failure) return false;
  failures.fetch_add(1);
  return true;
}

std::atomic<int> threads_left{0};

bool Refused() {
  if (own_rank == kNobody || victim.load(std::memory_order_acquire) != own_rank) return false;
  return threads_left > 0 && --threads_left == 0;
}

struct Start {
  void* (*body)(void*);
  void* argument;
  int rank;
};

void* Run(void* given) {
  const Start start = *static_cast<Start*>(given);
  std::free(given);
  own_rank = start.rank;
  return start.body(start.argument);
}

}  // namespace

void BelongTo(int rank) { own_rank = rank; }

void Fail(int rank, int64_t n, int64_t count) {
  allocations = 0;
  failures = 0;
  first_failure = n;
  last_failure = count == kForGood ? kForGood : n - 1 + count;
  victim.store(rank, std::memory_order_release);
}

void RefuseThread(int rank, int n) {
  Fail(rank, kForGood, 0);
  threads_left = n;
}

void Restore() { victim.store(kNobody); }

int64_t Failures() { return failures.load(); }

Exempt::Exempt() { ++exempt; }
Exempt::~Exempt() { --exempt; }

}  // namespace hvd::test::memory

void* operator new(size_t bytes) {
  void* const memory = hvd::test::memory::Fails() ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return hvd::test::memory::Fails() ? nullptr : std::malloc(bytes);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

// In front of the system's: a thread inherits the rank of who starts it.
extern "C" __attribute__((visibility("default"))) int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  using hvd::test::memory::Start;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (hvd::test::memory::Refused()) return EAGAIN;
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  auto* const start = static_cast<Start*>(std::malloc(sizeof(Start)));
  *start = {body, argument, hvd::test::memory::own_rank};
  return create(thread, attributes, &hvd::test::memory::Run, start);
}
