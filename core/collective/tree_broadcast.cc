#include <algorithm>
#include <array>

#include "base/tree.h"
#include "collective/piece_stream.h"
#include "collective/transport_collectives.h"
#include "settings/failpoint.h"

namespace hvd {

namespace {

class TreeBroadcast : public StepMachine {
 public:
  TreeBroadcast(const Communicator& comm, const CollectiveSpec& spec)
      : comm_(comm),
        sequence_(spec.sequence),
        is_root_(comm.position == spec.root),
        stream_(spec.pieces),
        frames_(static_cast<size_t>((stream_.bytes() + kFrameBytes - 1) / kFrameBytes)) {
    const int node = (comm_.rank() - spec.root.value() + comm_.size()) % comm_.size();
    const Tree tree(node, comm_.size());  // around the root
    parent_ = (tree.parent() + spec.root.value()) % comm_.size();
    // The child with the largest subtree first, because its way is the longest.
    const std::vector<int> children = tree.Children();
    for (auto child = children.rbegin(); child != children.rend(); ++child) {
      children_.push_back({(*child + spec.root.value()) % comm_.size(), 0, 0, {}});
    }
    // One tensor is received and passed on where it lies; frames of several are put together first.
    if (stream_.Single() == nullptr)
      status_ = comm_.scratch->Borrow(kSlots * kFrameBytes, &scratch_);
  }

  Status status() const override { return status_; }

  Step Advance() override {
    if (!status_.ok()) return Step::kFailed;
    const bool posted = PostReceives();
    if (TakeNext()) return status_.ok() ? Step::kProgressed : Step::kFailed;
    bool sent = false;
    bool done = ready_ == frames_;
    for (Child& child : children_) {
      sent |= PostSends(&child);
      done &= child.done == frames_;
    }
    if (done) return Step::kDone;
    return posted || sent ? Step::kProgressed : Step::kBlocked;
  }

 private:
  struct Child {
    int position;
    size_t sent;  // frames posted
    size_t done;
    std::array<Transfer, kInFlight> sending;
  };

  // Frames of several tensors that may be on hold here until all children have them.
  static constexpr size_t kSlots = 4 * kInFlight;

  // Where a frame is received and sent from.
  std::byte* Place(size_t frame) const {
    const Piece* piece = stream_.Single();
    return piece != nullptr ? piece->output + Begin(frame)
                            : scratch_.data() + frame % kSlots * kFrameBytes;
  }

  // Whether its slot is free: every child has the frame that had it before.
  bool HasSlot(size_t frame) const {
    return frame < kSlots ||
           std::all_of(children_.begin(), children_.end(),
                       [&](const Child& child) { return child.done > frame - kSlots; });
  }

  int64_t Begin(size_t frame) const { return static_cast<int64_t>(frame) * kFrameBytes; }
  int64_t End(size_t frame) const { return std::min(Begin(frame) + kFrameBytes, stream_.bytes()); }
  size_t Bytes(size_t frame) const { return static_cast<size_t>(End(frame) - Begin(frame)); }

  bool PostReceives() {
    if (is_root_) return false;
    bool posted = false;
    while (receive_posted_ < std::min(ready_ + kInFlight, frames_) && HasSlot(receive_posted_)) {
      Transfer& transfer = receiving_[receive_posted_ % kInFlight] = {};
      comm_.Recv(parent_, sequence_, static_cast<uint32_t>(receive_posted_), Place(receive_posted_),
                 Bytes(receive_posted_), &transfer);
      ++receive_posted_;
      posted = true;
    }
    return posted;
  }

  // Makes the next frame ready to be passed on (or fails); false when it is not here yet.
  bool TakeNext() {
    if (ready_ == frames_) return false;
    const bool here = is_root_ ? HasSlot(ready_)
                               : ready_ < receive_posted_ && receiving_[ready_ % kInFlight].done;
    if (!here) return false;
    if (!is_root_) {
      status_ = comm_.Check(receiving_[ready_ % kInFlight], Bytes(ready_), parent_);
      if (!status_.ok()) return true;
    }
    failpoint::Hit("chunk");
    MoveNext();
    ++ready_;
    return true;
  }

  void MoveNext() const {
    const int64_t begin = Begin(ready_);
    const int64_t end = End(ready_);
    if (is_root_) stream_.Keep(begin, end);
    if (stream_.Single() != nullptr) return;
    if (is_root_) {
      stream_.Pack(begin, end, Place(ready_));
    } else {
      stream_.Unpack(begin, end, Place(ready_));
    }
  }

  bool PostSends(Child* child) {
    while (child->done < child->sent && child->sending[child->done % kInFlight].done) ++child->done;
    bool posted = false;
    for (; child->sent < std::min(ready_, child->done + kInFlight); ++child->sent) {
      Transfer& transfer = child->sending[child->sent % kInFlight] = {};
      comm_.Send(child->position, sequence_, static_cast<uint32_t>(child->sent), Place(child->sent),
                 Bytes(child->sent), &transfer);
      posted = true;
    }
    return posted;
  }

  const Communicator comm_;
  const uint64_t sequence_;
  const bool is_root_;
  const PieceStream stream_;
  const size_t frames_;
  int parent_ = 0;
  std::vector<Child> children_;
  ScratchPool::Lease scratch_;
  Status status_;
  size_t ready_ = 0;  // frames that may be passed on
  size_t receive_posted_ = 0;
  std::array<Transfer, kInFlight> receiving_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeTreeBroadcast(const Communicator& comm,
                                               const CollectiveSpec& spec) {
  return std::make_unique<TreeBroadcast>(comm, spec);
}

}  // namespace hvd
