#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/doorbell.h"
#include "transport/mapping.h"
#include "transport/window.h"

namespace hvd::inproc {

// What the members of one window share. They are threads, so a segment is a mapping like any other.
class SharedWindow {
 public:
  explicit SharedWindow(int size);

  int size() const { return static_cast<int>(members_.size()); }
  void Join(Position member, const Waker& waker);
  void Leave();

  // Adds a member's next segment and waits until every member has added its own of the same size.
  Status Add(Position member, SegmentId id, Mapping segment);

  SleepWord* Word(Position member) { return &members_[member.index()].word; }
  std::byte* Span(Position member, SegmentId id);
  void Connect(Position member, Doorbell* bell);

 private:
  struct Member {
    SleepWord word;
    std::shared_ptr<const Descriptor> waker;
    std::vector<Mapping> segments;
  };
  bool Complete(SegmentId id) const;

  std::mutex mutex_;  // guards members_ (but not the sleep words) and left_
  std::condition_variable changed_;
  std::vector<Member> members_;
  bool left_ = false;
};

class InprocWindow : public Window {
 public:
  InprocWindow(std::shared_ptr<SharedWindow> shared, Position position, const Waker& waker);
  ~InprocWindow() override;

  Position position() const override { return position_; }
  int size() const override { return shared_->size(); }
  Status Allocate(size_t bytes, SegmentId* id) override;
  std::byte* Span(Position member, SegmentId id) override { return spans_[id][member.index()]; }
  void Post(Flag& flag, uint64_t value, Position reader = kEverybody) override {
    bell_.Post(flag, value, reader);
  }
  void Arm(bool sleeping) override { bell_.Arm(sleeping); }

 private:
  std::shared_ptr<SharedWindow> shared_;
  Position position_;
  Doorbell bell_;
  std::vector<std::vector<std::byte*>> spans_;  // [segment][position]
};

}  // namespace hvd::inproc
