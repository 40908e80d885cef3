#include "runtime/control/control.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/control/stream.h"

namespace hvd {

namespace {

constexpr size_t kLine = 64;
constexpr size_t kRingBytes = 256 << 10;
constexpr size_t kMaxMembers = 1024;
constexpr Position kParent(0);  // in the window

// What one member writes. The parent streams responses to everybody, the others stream
// announcements to it. `consumed[m]` counts what this member has read of m's stream.
struct ControlBlock {
  alignas(kLine) Flag written;
  alignas(kLine) Flag consumed[kMaxMembers];
  alignas(kLine) std::byte ring[kRingBytes];
};

class WindowControl : public Control {
 public:
  WindowControl(Window* window, std::vector<Position> local, SegmentId id)
      : window_(window), local_(std::move(local)), readers_(window->size()), rung_(window->size()) {
    for (int m = 0; m < window->size(); ++m) {
      blocks_.push_back(reinterpret_cast<ControlBlock*>(window->Span(Position(m), id)));
      readers_[m].Attach(blocks_[m]->ring, kRingBytes);
    }
    writer_.Attach(mine().ring, kRingBytes);
  }

  void Announce(const std::string& message) override { Send(message); }
  void Publish(const std::string& message) override { Send(message); }
  bool Take(Position neighbour, std::string* message) override {
    const auto found = std::lower_bound(local_.begin(), local_.end(), neighbour);
    const Position member(static_cast<int>(found - local_.begin()));
    RingReader& reader = readers_[member.index()];
    const uint64_t tail = Window::Try(blocks_[member.index()]->written);
    if (tail != reader.head()) {
      if (!reader.Read(tail)) return Broken(member);
      Acknowledge(member, tail);
    }
    const MessageAssembler::Next next = reader.Next(message);
    if (next == MessageAssembler::Next::kCorrupt) return Broken(member);
    return next == MessageAssembler::Next::kMessage;
  }
  bool idle() const override { return writer_.idle(); }

  Position corrupt() const override {
    return corrupt_.known() ? local_[corrupt_.index()] : Position();
  }
  void Progress(bool* moved) override {
    if (!writer_.idle()) *moved |= Flush();
  }

 private:
  ControlBlock& mine() { return *blocks_[window_->position().index()]; }
  bool leads() const { return window_->position() == kParent; }

  void Send(const std::string& message) {
    writer_.Append(message);
    Flush();
  }

  bool Flush() {
    const uint64_t before = writer_.tail();
    const uint64_t tail = writer_.Write(SlowestReader());
    if (tail == before) return false;
    window_->Post(mine().written, tail, leads() ? Window::kEverybody : kParent);
    return true;
  }

  // How far everybody who reads this rank's stream has come.
  uint64_t SlowestReader() {
    if (!leads()) return HeadOf(kParent);
    uint64_t slowest = writer_.tail();
    for (Position m(1); m.value() < window_->size(); m = Next(m))
      slowest = std::min(slowest, HeadOf(m));
    return slowest;
  }

  uint64_t HeadOf(Position reader) {
    const uint64_t head =
        Window::Try(blocks_[reader.index()]->consumed[window_->position().index()]);
    if (!writer_.Possible(head)) corrupt_ = reader;
    return head;
  }

  // A writer can only sleep for room when the ring is full, and then more than half of it is read
  // at once: smaller steps need not ring it.
  void Acknowledge(Position member, uint64_t head) {
    Flag& consumed = mine().consumed[member.index()];
    if (head - rung_[member.index()] < kRingBytes / 2) {
      consumed.store(head, std::memory_order_release);
      return;
    }
    rung_[member.index()] = head;
    window_->Post(consumed, head, member);
  }

  bool Broken(Position member) {
    corrupt_ = member;
    return false;
  }

  Window* window_;
  const std::vector<Position> local_;  // by position in the window
  std::vector<ControlBlock*> blocks_;
  std::vector<RingReader> readers_;
  std::vector<uint64_t> rung_;  // by member: the head at which it was last rung
  RingWriter writer_;
  Position corrupt_;  // in the window
};

}  // namespace

size_t WindowControlBytes() { return sizeof(ControlBlock); }

Status MakeWindowControl(Window* window, std::vector<Position> local,
                         std::unique_ptr<Control>* control) {
  if (window->size() > static_cast<int>(kMaxMembers)) {
    return Status::Invalid("a process set of one host holds at most " +
                           std::to_string(kMaxMembers) + " ranks");
  }
  SegmentId id;
  HVD_RETURN_IF_ERROR(window->Allocate(sizeof(ControlBlock), &id));
  *control = std::make_unique<WindowControl>(window, std::move(local), id);
  return Status::Ok();
}

}  // namespace hvd
