#include "transport/inproc/window.h"

#include <chrono>
#include <string>

namespace hvd::inproc {

namespace {
constexpr auto kPatience = std::chrono::seconds(30);
}  // namespace

Board::Board(int size) : members_(size) {}

void Board::Join(int rank, const Waker& waker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  members_[rank].waker = std::make_shared<const Descriptor>(Descriptor::Duplicate(waker.fd()));
}

void Board::Leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  left_ = true;
  changed_.notify_all();
}

Status Board::Add(int rank, SegmentId id, Mapping segment) {
  std::unique_lock<std::mutex> lock(mutex_);
  members_[rank].segments.push_back(std::move(segment));
  changed_.notify_all();
  const auto deadline = std::chrono::system_clock::now() + kPatience;
  const bool met = changed_.wait_until(lock, deadline, [&] { return Complete(id) || left_; });
  if (!met) return Status::Aborted("not every member allocated segment " + std::to_string(id));
  if (!Complete(id)) return Status::Aborted("a member left before segment " + std::to_string(id));
  const size_t bytes = members_[rank].segments[id].bytes();
  for (const Member& member : members_) {
    if (member.segments[id].bytes() != bytes) return Status::Internal("members allocate different sizes");
  }
  return Status::Ok();
}

bool Board::Complete(SegmentId id) const {
  for (const Member& member : members_) {
    if (static_cast<int>(member.segments.size()) <= id) return false;
  }
  return true;
}

std::byte* Board::Span(int rank, SegmentId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return members_[rank].segments[id].data();
}

void Board::Connect(int rank, Doorbell* bell) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int peer = 0; peer < size(); ++peer) {
    Member& member = members_[peer];
    if (peer != rank) bell->AddPeer(peer, &member.word, member.waker);
  }
}

InprocWindow::InprocWindow(std::shared_ptr<Board> board, int rank, const Waker& waker)
    : board_(std::move(board)), rank_(rank) {
  board_->Join(rank, waker);
  bell_.SetOwn(board_->Word(rank));
}

InprocWindow::~InprocWindow() { board_->Leave(); }

Status InprocWindow::Allocate(size_t bytes, SegmentId* id) {
  const auto next = static_cast<SegmentId>(spans_.size());
  Mapping segment;
  HVD_RETURN_IF_ERROR(Mapping::Anonymous(WholePages(bytes), &segment));
  HVD_RETURN_IF_ERROR(board_->Add(rank_, next, std::move(segment)));
  if (next == 0) board_->Connect(rank_, &bell_);
  std::vector<std::byte*> spans;
  for (int peer = 0; peer < size(); ++peer) spans.push_back(board_->Span(peer, next));
  spans_.push_back(std::move(spans));
  *id = next;
  return Status::Ok();
}

}  // namespace hvd::inproc
