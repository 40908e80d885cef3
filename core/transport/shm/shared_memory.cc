#include "transport/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <vector>

namespace hvd::shm {

namespace {

constexpr uint64_t kLayout = 0x68766473'65670003;  // the last 16 bits are the layout's version
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // of a file

struct Header {
  uint64_t layout;
  Identity identity;
};

// The header, and a seat for each member.
size_t HeadBytes(const Identity& identity) {
  return WholePages(sizeof(Header) + identity.members * sizeof(Seat::Word));
}

Seat::Word* SeatsOf(const Mapping& head) {
  return std::launder(reinterpret_cast<Seat::Word*>(head.data() + sizeof(Header)));
}

size_t PartBytes(const Identity& identity) { return PageBytes() + WholePages(identity.bytes); }

bool FitsFile(const Identity& identity) {
  return identity.members > 0 && identity.bytes <= kMostBytes / identity.members;
}

// Without the reservation a full memory would end the process later with SIGBUS.
Status Reserve(int memfd, size_t offset, size_t bytes) {
  int result;
  do {
    result = fallocate(memfd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return Status::Ok();
  return Status::Errno("cannot reserve " + std::to_string(bytes) + " bytes of shared memory");
}

// Where the limit of the shell is less, the kernel would end the process with SIGXFSZ.
Status CheckLimit(size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return Status::Ok();
  return {Code::kUnavailable, "cannot make " + std::to_string(bytes) +
                                  " bytes of shared memory, as no file may have more than " +
                                  std::to_string(limit.rlim_cur) + ": ulimit -f unlimited"};
}

Status Draw(std::array<uint8_t, 16>* nonce) {
  const ssize_t drawn = getrandom(nonce->data(), nonce->size(), 0);
  if (drawn != static_cast<ssize_t>(nonce->size())) return Status::Errno("getrandom");
  return Status::Ok();
}

}  // namespace

size_t SharedMemory::Bytes(const Identity& identity) {
  return HeadBytes(identity) + identity.members * PartBytes(identity);
}

size_t SharedMemory::OffsetOf(const Identity& identity, int member) {
  return HeadBytes(identity) + PageBytes() + static_cast<size_t>(member) * PartBytes(identity);
}

// Never 0, which is what memory holds that was given back; the lowest bits tell the states apart.
uint64_t Seat::Free(const Identity& identity) {
  uint64_t drawn = 0;
  std::memcpy(&drawn, identity.nonce.data(), sizeof drawn);
  return (drawn | 4) & ~uint64_t{3};
}

bool Seat::Take(Word* word, const Identity& identity) {
  uint64_t free = Free(identity);
  if (!word->compare_exchange_strong(free, free + 1)) return false;
  word_ = word;
  left_ = Left(identity);
  return true;
}

Status SharedMemory::CreateFile(size_t bytes, Descriptor* memfd) {
  HVD_RETURN_IF_ERROR(CheckLimit(bytes));
  Descriptor fd(memfd_create("horovod", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::Errno("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::Errno("cannot make " + std::to_string(bytes) + " bytes of shared memory");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Status::Errno("cannot seal a memfd");
  *memfd = std::move(fd);
  return Status::Ok();
}

Status SharedMemory::CheckFile(int memfd, size_t* bytes) {
  struct stat info {};
  if (fstat(memfd, &info) != 0) return Status::Errno("fstat of the shared segment");
  *bytes = static_cast<size_t>(info.st_size);
  const int seals = fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return Status::Aborted("the shared segment is not sealed");
  return Status::Ok();
}

Status SharedMemory::Create(Identity* identity, Descriptor* memfd) {
  if (!FitsFile(*identity)) return {Code::kUnavailable, "no file can hold so much shared memory"};
  HVD_RETURN_IF_ERROR(CreateFile(Bytes(*identity), memfd));
  return CreateWithin(*memfd, 0, identity);
}

Status SharedMemory::CreateWithin(const Descriptor& memfd, size_t offset, Identity* identity) {
  HVD_RETURN_IF_ERROR(Draw(&identity->nonce));
  HVD_RETURN_IF_ERROR(Reserve(memfd.get(), offset, HeadBytes(*identity)));
  const Header header{kLayout, *identity};
  const std::vector<uint64_t> seats(identity->members, Seat::Free(*identity));
  const auto at = static_cast<off_t>(offset);
  const auto behind = at + static_cast<off_t>(sizeof header);
  const size_t bytes = seats.size() * sizeof seats[0];
  if (pwrite(memfd.get(), &header, sizeof header, at) != sizeof header ||
      pwrite(memfd.get(), seats.data(), bytes, behind) != static_cast<ssize_t>(bytes))
    return Status::Errno("pwrite to a memfd");
  return Status::Ok();
}

void SharedMemory::Close(const Descriptor& memfd, size_t offset, const Identity& identity) {
  Mapping head;
  if (!Mapping::Shared(memfd.get(), HeadBytes(identity), &head, offset).ok()) return;
  for (uint32_t member = 0; member < identity.members; ++member) {
    uint64_t free = Seat::Free(identity);
    SeatsOf(head)[member].compare_exchange_strong(free, Seat::Left(identity));
  }
}

bool SharedMemory::Deserted(const Descriptor& memfd, size_t offset, const Identity& identity) {
  std::vector<uint64_t> seats(identity.members);
  const auto bytes = static_cast<ssize_t>(seats.size() * sizeof seats[0]);
  const auto at = static_cast<off_t>(offset + sizeof(Header));
  if (pread(memfd.get(), seats.data(), static_cast<size_t>(bytes), at) != bytes) return false;
  const uint64_t left = Seat::Left(identity);
  return std::all_of(seats.begin(), seats.end(), [=](uint64_t seat) { return seat == left; });
}

bool SharedMemory::Release(const Descriptor& memfd, size_t offset, const Identity& identity) {
  return fallocate(memfd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(offset), static_cast<off_t>(Bytes(identity))) == 0;
}

Status SharedMemory::Check(const Identity& identity, int memfd) {
  size_t bytes = 0;
  HVD_RETURN_IF_ERROR(CheckFile(memfd, &bytes));
  if (bytes == Bytes(identity)) return Status::Ok();
  return Status::Aborted("the shared segment has another size");
}

Status SharedMemory::Attach(const Identity& identity, const Descriptor& memfd, size_t offset,
                            int member, size_t reserved, SharedMemory* out) {
  SharedMemory segment;
  segment.head_bytes_ = HeadBytes(identity);
  segment.part_bytes_ = PartBytes(identity);
  HVD_RETURN_IF_ERROR(Mapping::Shared(memfd.get(), Bytes(identity), &segment.mapping_, offset));
  const auto* header = reinterpret_cast<const Header*>(segment.mapping_.data());
  const bool same =
      header->layout == kLayout && std::memcmp(&header->identity, &identity, sizeof identity) == 0;
  if (!same || !segment.seat_.Take(SeatsOf(segment.mapping_) + member, identity))
    return Status::Aborted("the shared segment is not the one that was announced");
  const size_t part = segment.head_bytes_ + static_cast<size_t>(member) * segment.part_bytes_;
  HVD_RETURN_IF_ERROR(Reserve(memfd.get(), offset + part, PageBytes() + WholePages(reserved)));
  new (segment.mapping_.data() + part) SleepWord;
  *out = std::move(segment);
  return Status::Ok();
}

SleepWord* SharedMemory::SleepWordOf(int member) const {
  return std::launder(reinterpret_cast<SleepWord*>(Part(member) - PageBytes()));
}

std::byte* SharedMemory::Part(int member) const {
  return mapping_.data() + head_bytes_ + PageBytes() + static_cast<size_t>(member) * part_bytes_;
}

namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The number after `key` in a file of "key value" lines; `missing` without one.
uint64_t Lookup(const std::string& path, const std::string& key, uint64_t missing) {
  std::ifstream file(path);
  for (std::string name; file >> name; file.ignore(1 << 12, '\n')) {
    uint64_t value;
    if (name == key && file >> value) return value;
    file.clear();
  }
  return missing;
}

// A file that holds one number; `missing` when it is absent or holds the word "max".
uint64_t Number(const std::string& path, uint64_t missing) {
  std::ifstream file(path);
  uint64_t value;
  return file >> value ? value : missing;
}

// What one cgroup leaves; the page cache that it can drop counts as free.
uint64_t Headroom(const std::string& folder, const char* limit_file, const char* usage_file,
                  const char* cache_key) {
  const uint64_t limit = Number(folder + limit_file, kUnlimited);
  if (limit == kUnlimited) return kUnlimited;
  const uint64_t usage = Number(folder + usage_file, 0);
  const uint64_t cache = Lookup(folder + "/memory.stat", cache_key, 0);
  const uint64_t used = usage - std::min(cache, usage);
  return limit - std::min(used, limit);
}

// The cgroup's folder below its mount, from a line "0::/a/b" (version 2) or "5:memory:/a/b"
// (version 1).
std::string CgroupPath(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t mark = line.find(":" + controller + ":/");
    if (mark != std::string::npos) return line.substr(mark + controller.size() + 2);
  }
  return "/";
}

// The least that any cgroup from `path` up to the mount leaves.
template <typename Leaves>
uint64_t LeastUpwards(std::string path, const Leaves& leaves) {
  uint64_t least = leaves("");
  while (path.size() > 1) {
    least = std::min(least, leaves(path));
    path.resize(path.rfind('/'));
  }
  return least;
}

}  // namespace

uint64_t AvailableMemory(const std::string& root) {
  const uint64_t kib = Lookup(root + "/proc/meminfo", "MemAvailable:", kUnlimited);
  const uint64_t machine = kib == kUnlimited ? kUnlimited : kib * 1024;
  const uint64_t v2 = LeastUpwards(CgroupPath(root, ""), [&](const std::string& path) {
    return Headroom(root + "/sys/fs/cgroup" + path, "/memory.max", "/memory.current",
                    "inactive_file");
  });
  const uint64_t v1 = LeastUpwards(CgroupPath(root, "memory"), [&](const std::string& path) {
    return Headroom(root + "/sys/fs/cgroup/memory" + path, "/memory.limit_in_bytes",
                    "/memory.usage_in_bytes", "total_inactive_file");
  });
  return std::min({machine, v2, v1});
}

}  // namespace hvd::shm
