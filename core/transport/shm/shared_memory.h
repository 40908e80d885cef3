#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"
#include "transport/descriptor.h"
#include "transport/doorbell.h"
#include "transport/mapping.h"

namespace hvd::shm {

// What is shared. The nonce is random and travels over the sockets as well as in the segment's own
// header: only who reads both from the same memory shares a host with the ranks that the segment
// comes from.
struct Identity {
  uint64_t generation = 0;
  uint64_t bytes = 0;  // each member's, given to the user
  uint32_t set = 0;
  uint32_t members = 0;  // how many
  uint32_t digest = 0;   // of who they are
  uint32_t unused = 0;   // no padding: the struct is sent as it lies
  std::array<uint8_t, 16> nonce{};
};

// Whether a member may still come to shared memory, is there, or has left it: a word in the
// memory's head. The values are the memory's own, drawn with its nonce, so that nobody takes a seat
// of what lies there later.
class Seat {
 public:
  using Word = std::atomic<uint64_t>;
  static_assert(Word::is_always_lock_free, "seats are shared between processes");

  static uint64_t Free(const Identity& identity);
  static uint64_t Left(const Identity& identity) { return Free(identity) + 2; }

  Seat() = default;
  Seat(Seat&& other) noexcept
      : word_(std::exchange(other.word_, nullptr)), left_(std::exchange(other.left_, 0)) {}
  Seat& operator=(Seat&& other) noexcept {
    std::swap(word_, other.word_);
    std::swap(left_, other.left_);
    return *this;
  }
  // Leaves it: the member touches the memory no more.
  ~Seat() {
    if (word_ != nullptr) word_->store(left_, std::memory_order_release);
  }

  // False: it is not free.
  bool Take(Word* word, const Identity& identity);

 private:
  Word* word_ = nullptr;
  uint64_t left_ = 0;
};

// One memfd for all members, or a piece of one, mapped once: a head of our own, then each member's
// part, which begins with a page for its sleep word. A memfd has no name, so nothing remains of it
// when the last process that maps it is gone, however it went.
class SharedMemory {
 public:
  // Makes a zeroed memfd of a size that is sealed. Its pages are still to be reserved.
  static Status CreateFile(size_t bytes, Descriptor* memfd);
  // The size of such a file, if it cannot shrink under us.
  static Status CheckFile(int memfd, size_t* bytes);

  // Makes one for `identity`, which gets its nonce.
  static Status Create(Identity* identity, Descriptor* memfd);
  // Checks that it has the size that `identity` says.
  static Status Check(const Identity& identity, int memfd);

  // Makes shared memory of a part of a memfd, from byte `offset` on, that nobody has used.
  static Status CreateWithin(const Descriptor& memfd, size_t offset, Identity* identity);

  // Of such a part: nobody comes to it from now on who is not there already.
  static void Close(const Descriptor& memfd, size_t offset, const Identity& identity);
  // Whether nobody touches it any more, or ever will: each member has left, or cannot come.
  static bool Deserted(const Descriptor& memfd, size_t offset, const Identity& identity);
  // Gives its memory back to the system. It is as if nobody had used it. False: it cannot.
  static bool Release(const Descriptor& memfd, size_t offset, const Identity& identity);

  // Maps what lies at byte `offset` of a memfd that was checked, if that is what `identity` says
  // (kAborted: it is not, or not any more), and reserves the first bytes of the part of `member`,
  // for so many given to the user: each its own, so that the pages lie in memory near to it.
  static Status Attach(const Identity& identity, const Descriptor& memfd, size_t offset, int member,
                       size_t reserved, SharedMemory* out);

  // What all of it takes of a file.
  static size_t Bytes(const Identity& identity);
  // Where in it the memory of a member begins that is given to the user.
  static size_t OffsetOf(const Identity& identity, int member);

  // Makes all pages present; once every member has reserved its part.
  void Touch() const { mapping_.Touch(); }

  SleepWord* SleepWordOf(int member) const;
  std::byte* Part(int member) const;

 private:
  Mapping mapping_;
  Seat seat_;  // left before the memory is unmapped
  size_t head_bytes_ = 0;
  size_t part_bytes_ = 0;
};

// How many bytes of memory this process may still take without another being killed for it: what
// the kernel calls available, or what the memory cgroup leaves when that is less. A memfd is
// bounded by nothing else: to reserve too much would summon the OOM killer instead of failing.
// `root` is put before every path.
uint64_t AvailableMemory(const std::string& root = "");

}  // namespace hvd::shm
