#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <string>

namespace hvd::shm {

namespace {

constexpr uint64_t kLayout = 0x68766473'65670002;  // the last 16 bits are the layout's version
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // of a file

struct Header {
  uint64_t layout;
  Identity identity;
};
static_assert(sizeof(Header) <= kPageBytes);

size_t PartBytes(const Identity& identity) { return kPageBytes + WholePages(identity.bytes); }
size_t FileBytes(const Identity& identity) { return kPageBytes + identity.members * PartBytes(identity); }

// Without the reservation a full memory would end the process later with SIGBUS.
Status Reserve(int memfd, size_t offset, size_t bytes) {
  int result;
  do {
    result = fallocate(memfd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return Status::Ok();
  return Status::Errno("cannot reserve " + std::to_string(bytes) + " bytes of shared memory");
}

Status Draw(std::array<uint8_t, 16>* nonce) {
  const ssize_t drawn = getrandom(nonce->data(), nonce->size(), 0);
  if (drawn != static_cast<ssize_t>(nonce->size())) return Status::Errno("getrandom");
  return Status::Ok();
}

}  // namespace

Status Segment::Create(Identity* identity, Descriptor* memfd) {
  if (identity->members == 0 || identity->bytes > kMostBytes / identity->members) {
    return {Code::kUnavailable, "no file can hold so much shared memory"};
  }
  HVD_RETURN_IF_ERROR(Draw(&identity->nonce));
  Descriptor fd(memfd_create("horovod", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::Errno("memfd_create");
  const size_t bytes = FileBytes(*identity);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::Errno("cannot make " + std::to_string(bytes) + " bytes of shared memory");
  }
  HVD_RETURN_IF_ERROR(Reserve(fd.get(), 0, kPageBytes));
  const Header header{kLayout, *identity};
  if (pwrite(fd.get(), &header, sizeof header, 0) != sizeof header) return Status::Errno("pwrite to a memfd");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Status::Errno("cannot seal a memfd");
  *memfd = std::move(fd);
  return Status::Ok();
}

Status Segment::Check(const Identity& identity, int memfd) {
  struct stat info {};
  if (fstat(memfd, &info) != 0) return Status::Errno("fstat of the shared segment");
  if (static_cast<size_t>(info.st_size) != FileBytes(identity)) {
    return Status::Aborted("the shared segment has another size");
  }
  const int seals = fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return Status::Aborted("the shared segment is not sealed");
  return Status::Ok();
}

Status Segment::Attach(const Identity& identity, const Descriptor& memfd, int member, Segment* out) {
  HVD_RETURN_IF_ERROR(Check(identity, memfd.get()));
  Segment segment;
  segment.part_bytes_ = PartBytes(identity);
  HVD_RETURN_IF_ERROR(Mapping::Shared(memfd.get(), FileBytes(identity), &segment.mapping_));
  const auto* header = reinterpret_cast<const Header*>(segment.mapping_.data());
  if (header->layout != kLayout || std::memcmp(&header->identity, &identity, sizeof identity) != 0) {
    return Status::Aborted("the shared segment is not the one that was announced");
  }
  const auto offset = kPageBytes + static_cast<size_t>(member) * segment.part_bytes_;
  HVD_RETURN_IF_ERROR(Reserve(memfd.get(), offset, segment.part_bytes_));
  new (segment.mapping_.data() + offset) SleepWord;
  *out = std::move(segment);
  return Status::Ok();
}

SleepWord* Segment::SleepWordOf(int member) const {
  return std::launder(reinterpret_cast<SleepWord*>(Part(member) - kPageBytes));
}

std::byte* Segment::Part(int member) const {
  return mapping_.data() + 2 * kPageBytes + static_cast<size_t>(member) * part_bytes_;
}

}  // namespace hvd::shm
