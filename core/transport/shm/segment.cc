#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

namespace hvd::shm {

namespace {

constexpr uint64_t kMagic = 0x68766473'65670001;  // the last 16 bits are the layout's version
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status Reserve(int memfd, size_t bytes) {
  int result;
  do {
    result = fallocate(memfd, 0, 0, static_cast<off_t>(bytes));
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

struct Segment::Header {
  uint64_t magic;
  Identity identity;
  SleepWord sleep;
};

Segment::Header* Segment::header() const {
  static_assert(sizeof(Header) <= kPageBytes);
  return std::launder(reinterpret_cast<Header*>(mapping_.data()));
}

SleepWord* Segment::sleep_word() const { return &header()->sleep; }

Status Segment::Create(Identity* identity, Segment* out, Descriptor* memfd) {
  const size_t bytes = kPageBytes + WholePages(identity->bytes);
  HVD_RETURN_IF_ERROR(Draw(&identity->nonce));
  Descriptor fd(memfd_create("horovod", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::Errno("memfd_create");
  // Without the reservation a full memory would end the process later with SIGBUS.
  HVD_RETURN_IF_ERROR(Reserve(fd.get(), bytes));
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Status::Errno("cannot seal a memfd");
  Segment segment;
  HVD_RETURN_IF_ERROR(Mapping::Shared(fd.get(), bytes, &segment.mapping_));
  new (segment.mapping_.data()) Header{kMagic, *identity, {}};
  *out = std::move(segment);
  *memfd = std::move(fd);
  return Status::Ok();
}

Status Segment::Attach(const Identity& identity, const Descriptor& memfd, Segment* out) {
  const size_t bytes = kPageBytes + WholePages(identity.bytes);
  struct stat info {};
  if (fstat(memfd.get(), &info) != 0) return Status::Errno("fstat of a peer's segment");
  if (static_cast<size_t>(info.st_size) != bytes) return Status::Aborted("a peer's segment has another size");
  const int seals = fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return Status::Aborted("a peer's segment is not sealed");
  Segment segment;
  HVD_RETURN_IF_ERROR(Mapping::Shared(memfd.get(), bytes, &segment.mapping_));
  const Header* header = segment.header();
  if (header->magic != kMagic || std::memcmp(&header->identity, &identity, sizeof identity) != 0) {
    return Status::Aborted("a peer's segment is not the one that it announced");
  }
  *out = std::move(segment);
  return Status::Ok();
}

}  // namespace hvd::shm
