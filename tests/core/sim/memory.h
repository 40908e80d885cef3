#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "sim/world.h"
#include "transport/window.h"

namespace hvd::sim {

// The memory that the members of one window share, made as they ask for it.
class SharedMemory {
 public:
  explicit SharedMemory(std::vector<int> ranks) : ranks_(std::move(ranks)) {}

  const std::vector<int>& ranks() const { return ranks_; }
  std::byte* Span(size_t member, SegmentId id, size_t bytes) {
    const auto segment = static_cast<size_t>(id);
    if (segments_.size() <= segment) segments_.resize(segment + 1);
    if (segments_[segment].empty()) segments_[segment].resize(ranks_.size());
    Pages& pages = segments_[segment][member];
    if (pages == nullptr) pages = Make(bytes);
    return pages.get();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Pages = std::unique_ptr<std::byte, Free>;
  // A cache line is all that flags ask for.
  static Pages Make(size_t bytes) {
    constexpr size_t kPage = 4096;
    const size_t whole = (bytes + kPage - 1) / kPage * kPage;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPage, whole));
    std::fill(memory, memory + whole, std::byte{0});
    return Pages(memory);
  }

  const std::vector<int> ranks_;
  std::vector<std::vector<Pages>> segments_;  // by id and member
};

// One rank's view of it. Who is posted to acts a moment later.
class SimWindow : public Window {
 public:
  SimWindow(World* world, std::shared_ptr<SharedMemory> shared, Position position)
      : world_(world), shared_(std::move(shared)), position_(position) {}

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
    world_->Wake(shared_->ranks()[member], world_->now() + moment);
  }

  World* world_;
  std::shared_ptr<SharedMemory> shared_;
  const Position position_;
  std::vector<size_t> bytes_;  // by segment
};

}  // namespace hvd::sim
