// Control messages cut out of a stream of bytes, over a ring in shared memory whose counters
// anybody may overwrite: what is sent arrives, whatever the pieces; a length or counter that cannot
// be ends the stream; and what is kept is bounded by what has not been taken.

#include <cstring>
#include <deque>
#include <vector>

#include "runtime/control/stream.h"
#include "target.h"

namespace hvd {
namespace {

using namespace fuzz;

// A string grows by doubling, and half of it may have been taken.
size_t Bound(size_t waiting, size_t piece) { return 4 * (waiting + piece) + 4096; }

// Any bytes in any pieces, against a cutter that keeps everything.
void CheckBytes(Input input) {
  MessageAssembler assembler;
  std::string all;
  size_t cut = 0;
  Memory::Restart();
  const size_t before = Memory::Live();
  while (!input.empty()) {
    const std::string_view piece = input.Text(64);
    const size_t held = all.size();
    std::memcpy(assembler.Extend(piece.size()), piece.data(), piece.size());
    REQUIRE(Memory::Live() - before <= Bound(held - cut, piece.size()) + all.capacity());
    all += piece;
    std::string message;
    MessageAssembler::Next next;
    while ((next = assembler.Take(&message)) == MessageAssembler::Next::kMessage) {
      uint32_t length;
      std::memcpy(&length, all.data() + cut, sizeof length);
      REQUIRE(all.size() - cut - sizeof length >= length);
      REQUIRE(message == all.substr(cut + sizeof length, length));
      cut += sizeof length + length;
    }
    uint32_t length = 0;
    if (all.size() - cut >= sizeof length) std::memcpy(&length, all.data() + cut, sizeof length);
    REQUIRE((next == MessageAssembler::Next::kCorrupt) == (length > kMaxControlMessage));
    if (next == MessageAssembler::Next::kCorrupt) return;
    REQUIRE(all.size() - cut < sizeof length || all.size() - cut - sizeof length < length);
  }
}

// Many messages, none of which ends where a piece does: what was taken does not stay.
void CheckTrickle(Input input) {
  const std::string message(1 + input.Byte(), 'm');
  constexpr int kMessages = 1000;
  constexpr size_t kAllowed = 16 << 10;
  std::string frame;
  AppendMessage(message, &frame);
  const size_t ahead = 1 + input.Byte() % (frame.size() - 1);
  MessageAssembler assembler;
  const size_t before = Memory::Live();
  std::memcpy(assembler.Extend(ahead), frame.data(), ahead);
  const std::string piece = frame.substr(ahead) + frame.substr(0, ahead);
  std::string got;
  for (int i = 0; i < kMessages; ++i) {
    std::memcpy(assembler.Extend(piece.size()), piece.data(), piece.size());
    REQUIRE(assembler.Take(&got) == MessageAssembler::Next::kMessage && got == message);
  }
  REQUIRE(Memory::Live() - before < kAllowed + kMessages);
}

// Messages of every length through a small ring that the reader empties when the input says so.
void CheckRing(Input input) {
  constexpr size_t kCapacity = 48;
  std::byte ring[kCapacity];
  RingWriter writer;
  RingReader reader;
  writer.Attach(ring, kCapacity);
  reader.Attach(ring, kCapacity);
  std::deque<std::string> sent;
  for (int steps = 0; !input.empty() && steps < 200; ++steps) {
    const uint8_t what = input.Byte();
    if ((what & 3) == 0) {
      sent.emplace_back(input.Text(120));
      writer.Append(sent.back());
    } else if ((what & 3) == 1) {
      REQUIRE(writer.Write(reader.head()) - reader.head() <= kCapacity);
    } else if ((what & 3) == 2) {
      REQUIRE(reader.Read(writer.tail()));
      std::string message;
      while (reader.Next(&message) == MessageAssembler::Next::kMessage) {
        REQUIRE(!sent.empty() && message == sent.front());
        sent.pop_front();
      }
    } else if ((what & 4) != 0) {
      // A counter of the other side that says the impossible: nothing is written or read past the
      // ring.
      const uint64_t wrong = input.Number();
      const uint64_t used = writer.tail() - wrong;
      const uint64_t tail = writer.tail();
      if (used > kCapacity) REQUIRE(writer.Write(wrong) == tail);
    } else {
      const uint64_t wrong = input.Number();
      if (wrong - reader.head() > kCapacity) REQUIRE(!reader.Read(wrong));
    }
  }
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvd::CheckBytes({data, size});
  hvd::CheckRing({data, size});
  if (size % 64 == 2) hvd::CheckTrickle({data, size});
  return 0;
}
