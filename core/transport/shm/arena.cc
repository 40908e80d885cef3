#include "transport/shm/arena.h"

#include <cstring>
#include <utility>

#include "base/rank.h"

namespace hvd::shm {

namespace {

constexpr uint64_t kRangeBytes = uint64_t{1} << 40;  // of each rank

}  // namespace

Arena::Arena(Descriptor memfd, const Identity& all, int place)
    : memfd_(std::move(memfd)),
      bytes_(SharedMemory::Bytes(all)),
      end_(SharedMemory::OffsetOf(all, place) + kRangeBytes),
      next_(end_ - kRangeBytes) {}

Status Arena::Make(ShareTree* tree, Deadline deadline, std::unique_ptr<Arena>* out) {
  Identity all;
  all.generation = tree->generation();
  all.bytes = kRangeBytes;
  all.members = static_cast<uint32_t>(tree->tree().size());
  Fault fault;
  Descriptor memfd;
  if (tree->tree().is_root())
    fault.Keep(SharedMemory::Create(&all, &memfd), Outcome::kCannot, tree->rank());
  tree->Spread(&all, &memfd, deadline, &fault);
  if (fault.status.ok())
    fault.Keep(SharedMemory::Check(all, memfd.get()), Outcome::kCannot, tree->rank());
  HVD_RETURN_IF_ERROR(tree->Agree(all, std::move(fault), deadline));
  out->reset(new Arena(std::move(memfd), all, tree->tree().position()));
  return Status::Ok();
}

Status Arena::Make(Identity identity, Place* place) {
  const size_t bytes = SharedMemory::Bytes(identity);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > end_ - next_)
      return {Code::kUnavailable, "this rank has made as many windows as it can"};
    place->offset = next_;
    next_ += bytes;
  }
  HVD_RETURN_IF_ERROR(SharedMemory::CreateWithin(memfd_, place->offset, &identity));
  place->identity = identity;
  return Status::Ok();
}

Status Arena::Attach(const Identity& expected, const Place& place, int member, size_t reserved,
                     SharedMemory* out) const {
  Identity same = place.identity;
  same.nonce = expected.nonce;
  const size_t bytes = SharedMemory::Bytes(expected);
  const bool fits = place.offset % kPageBytes == 0 && place.offset <= bytes_ - bytes;
  if (std::memcmp(&same, &expected, sizeof same) != 0 || !fits)
    return Status::Aborted("the place of shared memory that was announced is not for this window");
  return SharedMemory::Attach(place.identity, memfd_, place.offset, member, reserved, out);
}

}  // namespace hvd::shm
