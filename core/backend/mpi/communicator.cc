#include "backend/mpi/communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "backend/mpi/process.h"

namespace hvd::mpi_backend {

namespace {

// What a member tells the others: where it is in MPI_COMM_WORLD.
struct Address {
  int32_t world_size;
  int32_t world_rank;
};

std::vector<int> WorldRanks(const LibrarySet::Addresses& addresses) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> ranks;
  for (size_t at = 0; at < addresses.size(); at += LibrarySet::kAddressBytes) {
    Address address{};
    std::memcpy(&address, addresses.data() + at, sizeof(address));
    const bool taken = std::find(ranks.begin(), ranks.end(), address.world_rank) != ranks.end();
    if (address.world_size != size || address.world_rank < 0 || address.world_rank >= size ||
        taken) {
      throw std::runtime_error(
          "the ranks are not of one MPI job: start all of them with one mpirun");
    }
    ranks.push_back(address.world_rank);
  }
  return ranks;
}

// Tells sets apart that share members and make their communicators at the same time: two with one
// tag would take each other's messages, and wait for ever or crash. So it is no digest of the
// members. Programs that make communicators of their own begin at 0.
int TagOf(uint32_t id) {
  constexpr uint32_t kLargest = 32767;  // that every MPI has
  return static_cast<int>(kLargest - id % kLargest);
}

MPI_Comm Make(const std::vector<int>& ranks, uint32_t id) {
  const Uninterruptible waits;
  const ErrorsReturned returned;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  Check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  Check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &members),
        "MPI_Group_incl");
  Check(MPI_Comm_create_group(MPI_COMM_WORLD, members, TagOf(id), &made), "MPI_Comm_create_group");
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  Check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return made;
}

// The other members may wait for this one in a call that it has left by an error.
MPI_Comm MakeOrGiveUp(const std::vector<int>& ranks, uint32_t id) try {
  return Make(ranks, id);
} catch (...) {
  GiveUp();
  throw;
}

}  // namespace

void WriteAddress(int members, LibrarySet::Addresses* mine) {
  if (given_up()) throw std::runtime_error("MPI was given up before in this process");
  Address own{};
  Check(MPI_Comm_size(MPI_COMM_WORLD, &own.world_size), "MPI_Comm_size");
  Check(MPI_Comm_rank(MPI_COMM_WORLD, &own.world_rank), "MPI_Comm_rank");
  for (int member = 0; member < members; ++member) {
    const size_t at = static_cast<size_t>(member) * LibrarySet::kAddressBytes;
    std::memcpy(mine->data() + at, &own, sizeof(own));
  }
}

MPI_Comm CommunicatorOf(const LibrarySet::Addresses& addresses, uint32_t id) {
  static std::mutex mutex;
  static std::map<std::vector<int>, MPI_Comm> kept;
  const std::vector<int> ranks = WorldRanks(addresses);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = kept.find(ranks);
    if (found != kept.end()) return found->second;
  }
  const MPI_Comm made = MakeOrGiveUp(ranks, id);  // other sets may make theirs meanwhile
  const std::lock_guard<std::mutex> lock(mutex);
  return kept[ranks] = made;
}

}  // namespace hvd::mpi_backend
