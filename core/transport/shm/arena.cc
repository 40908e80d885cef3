#include "transport/shm/arena.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/rank.h"

namespace hvd::shm {

namespace {

constexpr uint64_t kRangeBytes = uint64_t{1} << 40;  // of each rank, where files may be so large
constexpr int kMostLooks = 32;                       // at places of the own range, at a time

// A limit of the shell (ulimit -f) holds for this file, too.
Status CreateFor(uint64_t ranks, uint64_t least, Descriptor* memfd) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return Status::Errno("getrlimit");
  const uint64_t allowed = limit.rlim_cur / ranks / PageBytes() * PageBytes();
  if (allowed < least)
    return {Code::kUnavailable,
            "files may be too small here for shared memory: ulimit -f unlimited"};
  return SharedMemory::CreateFile(ranks * std::min(allowed, kRangeBytes), memfd);
}

}  // namespace

Status Arena::Make(ShareTree* tree, Deadline deadline, std::unique_ptr<Arena>* out) {
  const auto ranks = static_cast<size_t>(tree->tree().size());
  Identity all;
  all.generation = tree->generation();
  all.members = static_cast<uint32_t>(ranks);
  Fault fault;
  Descriptor memfd;
  if (tree->tree().is_root())
    fault.Keep(CreateFor(ranks, kLeastBytes, &memfd), Outcome::kCannot, tree->rank());
  tree->Spread(&all, &memfd, deadline, &fault);
  size_t bytes = 0;
  if (fault.status.ok())
    fault.Keep(SharedMemory::CheckFile(memfd.get(), &bytes), Outcome::kCannot, tree->rank());
  HVD_RETURN_IF_ERROR(tree->Agree(all, std::move(fault), deadline));
  const size_t range = bytes / ranks;
  const size_t begin = range * static_cast<size_t>(tree->tree().position());
  out->reset(new Arena(std::move(memfd), bytes, begin, begin + range));
  return Status::Ok();
}

Status Arena::Make(Identity identity, Place* place) {
  Reclaim();
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t bytes = SharedMemory::Bytes(identity);
  std::vector<size_t>& again = again_[bytes];
  if (again.empty() && bytes > end_ - next_)
    return {Code::kUnavailable, "this rank has made as many windows as it can"};
  place->offset = again.empty() ? next_ : again.back();
  HVD_RETURN_IF_ERROR(SharedMemory::CreateWithin(memfd_, place->offset, &identity));
  place->identity = identity;
  given_.push_back(*place);
  if (again.empty()) {
    next_ += bytes;
  } else {
    again.pop_back();
  }
  return Status::Ok();
}

void Arena::Close(const Place& place) const {
  SharedMemory::Close(memfd_, place.offset, place.identity);
}

// There may be very many that are in use.
void Arena::Reclaim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int looks = 0; looks < kMostLooks && !given_.empty(); ++looks) {
    looked_ = looked_ < given_.size() ? looked_ : 0;
    Place& place = given_[looked_];
    if (!SharedMemory::Deserted(memfd_, place.offset, place.identity)) {
      ++looked_;
      continue;
    }
    if (SharedMemory::Release(memfd_, place.offset, place.identity))
      again_[SharedMemory::Bytes(place.identity)].push_back(place.offset);
    place = given_.back();
    given_.pop_back();
  }
}

Status Arena::Attach(const Identity& expected, const Place& place, int member, size_t reserved,
                     SharedMemory* out) const {
  Identity same = place.identity;
  same.nonce = expected.nonce;
  const size_t bytes = SharedMemory::Bytes(expected);
  const bool fits =
      place.offset % PageBytes() == 0 && bytes <= bytes_ && place.offset <= bytes_ - bytes;
  if (std::memcmp(&same, &expected, sizeof same) != 0 || !fits)
    return Status::Aborted("the place of shared memory that was announced is not for this window");
  const Status attached =
      SharedMemory::Attach(place.identity, memfd_, place.offset, member, reserved, out);
  if (attached.code() != Code::kAborted) return attached;
  return {Code::kTimeout, "its place in shared memory is closed"};
}

}  // namespace hvd::shm
