#include "transport/shm/window.h"

#include <algorithm>

#include "digest/crc32c.h"
#include "transport/shm/shared_memory.h"

namespace hvd::shm {

namespace {

// All members reserve at the same moment, so the memory must do for all of them.
Status CheckMemory(size_t bytes, size_t members) {
  const uint64_t available = AvailableMemory();
  if (bytes < available / members) return Status::Ok();
  return {Code::kUnavailable, "cannot reserve shared memory: " + std::to_string(members) +
                                  " ranks need " + std::to_string(bytes) + " bytes each, " +
                                  std::to_string(available) + " are available"};
}

Identity IdentityOf(const WindowOptions& options, uint64_t generation) {
  const std::vector<GlobalRank>& ranks = options.members.ranks();
  Identity identity;
  identity.generation = generation;
  identity.bytes = options.bytes;
  identity.set = options.set;
  identity.members = static_cast<uint32_t>(ranks.size());
  identity.digest = Crc32c(ranks.data(), ranks.size() * sizeof ranks[0]);
  return identity;
}

}  // namespace

Status ShmWindow::Make(const WindowOptions& options, ShareTree* tree,
                       std::unique_ptr<Window>* out) {
  Identity identity = IdentityOf(options, tree->generation());
  const Position position = options.members.Find(tree->rank());
  const bool is_member = position.known();
  const bool whole = options.at_once >= options.bytes;
  const size_t reserved = whole ? options.bytes : options.at_once;
  std::unique_ptr<ShmWindow> window(is_member ? new ShmWindow(options, position) : nullptr);

  Fault fault;
  Descriptor memfd;
  if (is_member)
    fault.Keep(CheckMemory(reserved, identity.members), Outcome::kCannot, tree->rank());
  if (tree->tree().is_root() && fault.status.ok()) {
    fault.Keep(SharedMemory::Create(&identity, &memfd), Outcome::kCannot, tree->rank());
  }
  tree->Spread(&identity, &memfd, options.deadline, &fault);
  if (is_member && fault.status.ok()) {
    fault.Keep(SharedMemory::Check(identity, memfd.get()), Outcome::kCannot, tree->rank());
  }
  if (is_member && fault.status.ok()) {
    fault.Keep(
        SharedMemory::Attach(identity, memfd, 0, position.value(), reserved, &window->segment_),
        Outcome::kCannot, tree->rank());
  }
  HVD_RETURN_IF_ERROR(tree->Agree(identity, std::move(fault), options.deadline));
  if (!is_member) return Status::Ok();
  if (whole) window->segment_.Touch();
  window->Connect(options.members, *tree);
  *out = std::move(window);
  return Status::Ok();
}

Status ShmWindow::MakeIn(Arena* arena, const WindowOptions& options, const ShareTree& tree,
                         Place* place) {
  return arena->Make(IdentityOf(options, tree.generation()), place);
}

Status ShmWindow::Open(const Arena& arena, const WindowOptions& options, const ShareTree& tree,
                       const Place& place, std::unique_ptr<Window>* out) {
  const Identity identity = IdentityOf(options, tree.generation());
  const Position position = options.members.Find(tree.rank());
  std::unique_ptr<ShmWindow> window(new ShmWindow(options, position));
  const size_t reserved = window->reserved_;
  HVD_RETURN_IF_ERROR(CheckMemory(reserved, identity.members));
  HVD_RETURN_IF_ERROR(arena.Attach(identity, place, position.value(), reserved, &window->segment_));
  window->Connect(options.members, tree);
  *out = std::move(window);
  return Status::Ok();
}

void ShmWindow::Connect(const Members& members, const ShareTree& tree) {
  bell_.SetOwn(segment_.SleepWordOf(position_.value()));
  for (Position peer(0); peer.value() < size_; peer = Next(peer)) {
    if (peer == position_) continue;
    bell_.AddPeer(peer, segment_.SleepWordOf(peer.value()), tree.WakerOf(members[peer]));
  }
}

Status ShmWindow::Populate(SegmentId id) {
  const size_t begin = offsets_[id];
  const auto next = static_cast<size_t>(id) + 1;
  const size_t end = next < offsets_.size() ? offsets_[next] : used_;
  if (end <= reserved_) return Status::Ok();
  HVD_RETURN_IF_ERROR(CheckMemory(end - begin, static_cast<size_t>(size_)));
  return Mapping::Populate(Span(position_, id), end - begin);
}

Status ShmWindow::Allocate(size_t bytes, SegmentId* id) {
  if (bytes > bytes_ || WholePages(bytes) > bytes_ - used_) {
    return Status::Internal("a window of " + std::to_string(bytes_) + " bytes has no room for " +
                            std::to_string(bytes) + " more");
  }
  *id = static_cast<SegmentId>(offsets_.size());
  offsets_.push_back(used_);
  used_ += WholePages(bytes);
  return Status::Ok();
}

}  // namespace hvd::shm
