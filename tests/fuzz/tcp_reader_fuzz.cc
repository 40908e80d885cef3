// The receiving half of a connection, fed through a pipe: frames with sound and with wrong seals,
// lengths and tags, whole or in pieces, before and after a receive is posted for them. A payload
// arrives exactly where and as it was sent; a frame that cannot be right ends the connection with a
// reason.

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "target.h"
#include "transport/tcp/reader.h"

namespace hvd {
namespace {

using namespace fuzz;
using tcp::Guard;
using tcp::Integrity;

constexpr Key kKey{1};
constexpr uint32_t kGeneration = 7;
constexpr size_t kMost = 300;

struct Pipe {
  int read_end;
  int write_end;
  Pipe() {
    int ends[2];
    REQUIRE(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    read_end = ends[0];
    write_end = ends[1];
  }
};

// One for all inputs: making one costs more than everything else. Emptied at the end of each.
Pipe& ThePipe() {
  static Pipe& pipe = *new Pipe;
  return pipe;
}

struct Posted {
  FrameTag tag;
  std::vector<std::byte> memory;
  Transfer transfer;
};

class Peer {
 public:
  Peer(Integrity integrity, Input* input)
      : input_(input), guard_(integrity, kKey), reader_(kGeneration, IdRanges()) {
    reader_.Open(Guard(integrity, kKey), nullptr);
  }
  ~Peer() {
    char bytes[4096];
    while (read(ThePipe().read_end, bytes, sizeof bytes) > 0) {
    }
  }

  // False: the connection has ended.
  bool Step() {
    switch (input_->Below(5)) {
      case 0:
      case 1:
        return Frame();
      case 2:
        return Post();
      case 3:
        return Move();
      default:
        if (input_->Below(8) == 0) {
          forgets_ = true;
          reader_.Forget(static_cast<uint32_t>(input_->Below(3)));
        }
        return true;
    }
  }

  bool Move() {
    bool moved = false;
    reader_.SetReadable();
    const Status status = reader_.Progress(ThePipe().read_end, 1 << 20, &moved);
    Check();
    if (status.ok()) return CheckArrival(), true;
    REQUIRE(status.code() == Code::kAborted && !status.message().empty());
    REQUIRE_THAT(!sound_ || Contains(status.message(), "are expected"), status.message());
    return false;
  }

 private:
  FrameTag Tag() {
    return {static_cast<uint32_t>(input_->Below(3)), input_->Below(4),
            static_cast<uint32_t>(input_->Below(2))};
  }

  bool Frame() {
    tcp::FrameHeader header;
    header.generation = kGeneration;
    header.tag = Tag();
    std::string payload(input_->Text(kMost));
    header.length = static_cast<uint32_t>(payload.size());
    const uint8_t wrong = input_->Byte();
    if ((wrong & 0xE0) == 0x20) header.length = static_cast<uint32_t>(input_->Number());
    if ((wrong & 0xE0) == 0x40) header.generation = static_cast<uint32_t>(input_->Number());
    const tcp::Prefix prefix = tcp::Encode(header, &guard_);
    std::string bytes(reinterpret_cast<const char*>(prefix.data()), prefix.size());
    if (!payload.empty()) {
      guard_.Add(reinterpret_cast<const std::byte*>(payload.data()), payload.size());
      const tcp::Trailer trailer = guard_.Finish();
      bytes += payload;
      bytes.append(reinterpret_cast<const char*>(trailer.data()), trailer.size());
    }
    if ((wrong & 0xE0) == 0x60)
      bytes[input_->Number() % bytes.size()] ^= static_cast<char>(1 << (wrong & 7));
    if ((wrong & 0xE0) == 0x80) bytes = input_->Text(64);
    if (wrong >= 0x20) sound_ = false;
    if (sound_) sent_.push_back({header.tag, payload});
    // In two pieces, with a look in between.
    const size_t first = input_->Below(256) * bytes.size() / 256;
    Put(std::string_view(bytes).substr(0, first));
    whole_ = false;
    if ((wrong & 1) != 0 && !Move()) return false;
    Put(std::string_view(bytes).substr(first));
    whole_ = true;
    return true;
  }

  void Put(std::string_view bytes) {
    if (bytes.empty()) return;
    const ssize_t written = write(ThePipe().write_end, bytes.data(), bytes.size());
    if (written != static_cast<ssize_t>(bytes.size())) sound_ = false;  // the pipe is full
  }

  bool Post() {
    posted_.push_back(std::make_unique<Posted>());
    Posted& one = *posted_.back();
    one.tag = Tag();
    one.memory.resize(input_->Below(4) == 0 ? input_->Below(64) : kMost);
    const Status status =
        reader_.Post({one.tag, one.memory.data(), one.memory.size(), &one.transfer});
    Check();
    if (status.ok()) return true;
    REQUIRE(status.code() == Code::kAborted && Contains(status.message(), "are expected"));
    return false;
  }

  // The first frame does arrive, once all of it is sent and its receive is posted first.
  void CheckArrival() const {
    if (!sound_ || forgets_ || !whole_ || sent_.empty() || posted_.empty()) return;
    if (sent_.front().first == posted_.front()->tag) REQUIRE(posted_.front()->transfer.done);
  }

  // What has arrived was sent so, as long as everything sent was sound.
  void Check() const {
    for (const auto& one : posted_) {
      if (!one->transfer.done) continue;
      REQUIRE(one->transfer.bytes <= one->memory.size());
      if (!sound_) continue;
      bool found = false;
      for (const auto& [tag, payload] : sent_) {
        found |= tag == one->tag && payload.size() == one->transfer.bytes &&
                 (payload.empty() ||
                  std::memcmp(payload.data(), one->memory.data(), payload.size()) == 0);
      }
      REQUIRE(found);
    }
  }

  Input* input_;
  Guard guard_;
  tcp::FrameReader reader_;
  std::deque<std::pair<FrameTag, std::string>> sent_;
  std::vector<std::unique_ptr<Posted>> posted_;
  bool sound_ = true;  // so far, everything sent
  bool whole_ = true;  // no frame is half sent
  bool forgets_ = false;
};

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  fuzz::Input input(data, size);
  const auto integrity = input.Byte() & 1 ? tcp::Integrity::kSealed : tcp::Integrity::kChecksum;
  Peer peer(integrity, &input);
  bool more = true;
  for (int steps = 0; more && !input.empty() && steps < 16; ++steps) more = peer.Step();
  if (more) peer.Move();
  return 0;
}
