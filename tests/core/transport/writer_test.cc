// The sending half of a TCP connection by itself.

#include "transport/tcp/writer.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <deque>

#include "check.h"
#include "transport/descriptor.h"

namespace hvd::tcp {
namespace {

constexpr size_t kFrames = 16;
constexpr size_t kEach = 64 << 10;  // together more than goes into one call

// Whose memory may be given back then: nothing of it is in what is sealed later.
TEST(FrameWriter, ForgetsWhatItDiscards) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const Descriptor end(sockets[0]);
  Descriptor peer(sockets[1]);
  FrameWriter writer(1);
  writer.Open(Guard(Integrity::kSealed, Key{}), /*records=*/nullptr);
  void* memory =
      mmap(nullptr, kFrames * kEach, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_TRUE(memory != MAP_FAILED);
  std::deque<Transfer> transfers(kFrames + 1);
  for (size_t i = 0; i < kFrames; ++i)
    writer.Post({{1, i, 0}, static_cast<std::byte*>(memory) + i * kEach, kEach, &transfers[i]});
  bool moved = false;
  EXPECT_TRUE(writer.Progress(end.get(), 1 << 20, &moved).ok());
  peer = Descriptor();
  writer.SetWritable();
  EXPECT_FALSE(writer.Progress(end.get(), 1 << 20, &moved).ok());
  writer.Discard();
  for (size_t i = 0; i < kFrames; ++i) EXPECT_TRUE(transfers[i].done);
  munmap(memory, kFrames * kEach);

  const std::byte last{};
  writer.Post({{1, kFrames, 0}, &last, 1, &transfers.back()});
  EXPECT_FALSE(writer.Progress(end.get(), 1 << 20, &moved).ok());
}

}  // namespace
}  // namespace hvd::tcp
