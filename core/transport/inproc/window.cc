#include "transport/inproc/window.h"

#include <chrono>
#include <string>

namespace hvd::inproc {

namespace {
constexpr auto kPatience = std::chrono::seconds(30);
}  // namespace

SharedWindow::SharedWindow(int size) : members_(size) {}

void SharedWindow::Join(Position member, const Waker& waker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  members_[member.index()].waker =
      std::make_shared<const Descriptor>(Descriptor::Duplicate(waker.fd()));
}

void SharedWindow::Leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  left_ = true;
  changed_.notify_all();
}

Status SharedWindow::Add(Position member, SegmentId id, Mapping segment) {
  std::unique_lock<std::mutex> lock(mutex_);
  members_[member.index()].segments.push_back(std::move(segment));
  changed_.notify_all();
  const auto deadline = std::chrono::system_clock::now() + kPatience;
  const bool met = changed_.wait_until(lock, deadline, [&] { return Complete(id) || left_; });
  if (!met) return Status::Aborted("not every member allocated segment " + std::to_string(id));
  if (!Complete(id)) return Status::Aborted("a member left before segment " + std::to_string(id));
  const size_t bytes = members_[member.index()].segments[id].bytes();
  for (const Member& other : members_) {
    if (other.segments[id].bytes() != bytes)
      return Status::Internal("members allocate different sizes");
  }
  return Status::Ok();
}

bool SharedWindow::Complete(SegmentId id) const {
  for (const Member& member : members_) {
    if (static_cast<int>(member.segments.size()) <= id) return false;
  }
  return true;
}

std::byte* SharedWindow::Span(Position member, SegmentId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return members_[member.index()].segments[id].data();
}

void SharedWindow::Connect(Position member, Doorbell* bell) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Position peer(0); peer.value() < size(); peer = Next(peer)) {
    Member& other = members_[peer.index()];
    if (peer != member) bell->AddPeer(peer, &other.word, other.waker);
  }
}

InprocWindow::InprocWindow(std::shared_ptr<SharedWindow> shared, Position position,
                           const Waker& waker)
    : shared_(std::move(shared)), position_(position) {
  shared_->Join(position, waker);
  bell_.SetOwn(shared_->Word(position));
}

InprocWindow::~InprocWindow() { shared_->Leave(); }

Status InprocWindow::Allocate(size_t bytes, SegmentId* id) {
  const auto next = static_cast<SegmentId>(spans_.size());
  Mapping segment;
  HVD_RETURN_IF_ERROR(Mapping::Anonymous(WholePages(bytes), &segment));
  HVD_RETURN_IF_ERROR(shared_->Add(position_, next, std::move(segment)));
  if (next == 0) shared_->Connect(position_, &bell_);
  std::vector<std::byte*> spans;
  for (Position peer(0); peer.value() < size(); peer = Next(peer))
    spans.push_back(shared_->Span(peer, next));
  spans_.push_back(std::move(spans));
  *id = next;
  return Status::Ok();
}

}  // namespace hvd::inproc
