#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "transport/doorbell.h"
#include "transport/shm/arena.h"
#include "transport/shm/share_tree.h"
#include "transport/shm/shared_memory.h"
#include "transport/window.h"

namespace hvd::shm {

struct WindowOptions {
  uint32_t set = 0;
  Members members;   // all of them in the tree
  size_t bytes = 0;  // for all that each member will allocate, each rounded up to whole pages
  Deadline deadline = 0;
  // So many of the bytes, from the first on, are reserved now. Each page of the others is taken by
  // Populate, or else when it is first touched; where there is no memory then, the process ends.
  size_t at_once = std::numeric_limits<size_t>::max();
};

// Window among processes, over one memfd for all members or a place in the host's arena: a process
// maps it once, and keeps no descriptor of it.
class ShmWindow : public Window {
 public:
  // Collective among all ranks of the tree and blocking, in one order of windows. Ranks that are no
  // members pass the memory on; for them *out stays null. Every member succeeds in sharing it, or
  // every member gets an error.
  static Status Make(const WindowOptions& options, ShareTree* tree, std::unique_ptr<Window>* out);

  // Two halves of the same that wait for nobody: one member makes the memory, and tells the others
  // where; each of them, this one too, has a window when it has opened it, and nobody may use it
  // before all have (kTimeout: it was closed). The tree tells who wakes whom. No deadline matters.
  static Status MakeIn(Arena* arena, const WindowOptions& options, const ShareTree& tree,
                       Place* place);
  static Status Open(const Arena& arena, const WindowOptions& options, const ShareTree& tree,
                     const Place& place, std::unique_ptr<Window>* out);

  Position position() const override { return position_; }
  int size() const override { return size_; }
  // A part of what is shared already: waits for nobody.
  Status Allocate(size_t bytes, SegmentId* id) override;
  Status Populate(SegmentId id) override;
  std::byte* Span(Position member, SegmentId id) override {
    return segment_.Part(member.value()) + offsets_[id];
  }
  void Post(Flag& flag, uint64_t value, Position reader = kEverybody) override {
    bell_.Post(flag, value, reader);
  }
  void Arm(bool sleeping) override { bell_.Arm(sleeping); }

 private:
  ShmWindow(const WindowOptions& options, Position position)
      : position_(position),
        size_(options.members.size()),
        bytes_(WholePages(options.bytes)),
        reserved_(WholePages(std::min(options.bytes, options.at_once))) {}
  void Connect(const Members& members, const ShareTree& tree);

  const Position position_;
  const int size_;
  const size_t bytes_;
  const size_t reserved_;
  size_t used_ = 0;
  Doorbell bell_;
  SharedMemory segment_;
  std::vector<size_t> offsets_;  // by SegmentId, in everybody's part
};

}  // namespace hvd::shm
