#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "sim/world.h"
#include "transport/window.h"

namespace hvd::sim {

// The memory that the members of one window share, made as they ask for it.
class SharedMemory {
 public:
  explicit SharedMemory(std::vector<int> ranks) : ranks_(std::move(ranks)) {}

  const std::vector<int>& ranks() const { return ranks_; }
  Position PositionOf(int rank) const {
    const auto place = std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin();
    return Position(static_cast<int>(place));
  }
  std::byte* Span(size_t member, SegmentId id, size_t bytes) {
    const auto segment = static_cast<size_t>(id);
    if (segments_.size() <= segment) segments_.resize(segment + 1);
    while (segments_[segment].size() < ranks_.size()) {
      segments_[segment].push_back(Make(bytes));
    }
    return segments_[segment][member].get();
  }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* memory) const { munmap(memory, bytes); }
  };
  using Pages = std::unique_ptr<std::byte, Unmap>;
  // Zero, and no memory before it is written.
  static Pages Make(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return Pages(static_cast<std::byte*>(memory), Unmap{bytes});
  }

  const std::vector<int> ranks_;
  std::vector<std::vector<Pages>> segments_;  // by id and member
};

// One rank's view of it. Who is posted to acts a moment later.
class SimWindow : public Window {
 public:
  SimWindow(World* world, std::shared_ptr<SharedMemory> shared, int rank)
      : world_(world), shared_(std::move(shared)), position_(shared_->PositionOf(rank)) {}

  Position position() const override { return position_; }
  int size() const override { return static_cast<int>(shared_->ranks().size()); }

  Status Allocate(size_t bytes, SegmentId* id) override {
    *id = static_cast<SegmentId>(bytes_.size());
    bytes_.push_back(bytes);
    return Status::Ok();
  }
  std::byte* Span(Position member, SegmentId id) override {
    return shared_->Span(member.index(), id, bytes_[static_cast<size_t>(id)]);
  }

  void Post(Flag& flag, uint64_t value, Position reader = kEverybody) override {
    if (value < flag.load(std::memory_order_relaxed)) Violate("a flag in shared memory goes back");
    flag.store(value, std::memory_order_release);
    if (reader.known()) return Ring(reader.index());
    for (size_t member = 0; member < shared_->ranks().size(); ++member) Ring(member);
  }
  void Arm(bool /*sleeping*/) override {}

 private:
  void Ring(size_t member) {
    if (member == position_.index()) return;
    const Nanos moment = 100 + static_cast<Nanos>(world_->random().Below(2000));
    const Nanos posted = world_->FreeAt(shared_->ranks()[position_.index()]);
    world_->Wake(shared_->ranks()[member], posted + moment);
  }

  World* world_;
  std::shared_ptr<SharedMemory> shared_;
  const Position position_;
  std::vector<size_t> bytes_;  // by segment
};

}  // namespace hvd::sim
