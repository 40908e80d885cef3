// NCCL's functions for communicators, and for what belongs to one.

#include <cstdio>
#include <cstring>
#include <string>

#include "cuda/context.h"
#include "cuda/handle_table.h"
#include "cuda/record.h"
#include "cuda/settings.h"
#include "nccl/abi.h"
#include "nccl/group.h"

namespace fake_gpu {
namespace {

HandleTable<Communicator>& Communicators() {
  static auto* table = new HandleTable<Communicator>(0x40000000);
  return *table;
}

// A range that a communicator was told of.
struct Registration {
  int number;
  CommunicatorPtr communicator;
  BlockPtr block;
};

HandleTable<Registration>& Registrations() {
  static auto* table = new HandleTable<Registration>(0x50000000);
  return *table;
}

constexpr int kUndefined = -2147483647 - 1;  // a member of the config that the program has not set
constexpr size_t kLeastConfig = 24;

bool IsBlocking(const Config* config) {
  return config == nullptr || config->blocking == kUndefined || config->blocking != 0;
}

void Withdraw(const std::shared_ptr<Registration>& registration) {
  Register(registration->block, -1);
  Disown("registration", std::to_string(registration->number));
}

void Forget(const void* comm) {
  const CommunicatorPtr communicator = Communicators().Take(comm);
  if (communicator != nullptr) Disown("communicator", communicator->Name());
}

// An abort takes with it what the communicator had.
void DropAll(const CommunicatorPtr& communicator) {
  communicator->DropOps();
  const auto is_of_it = [&](const Registration& r) { return r.communicator == communicator; };
  for (const auto& registration : Registrations().TakeAll(is_of_it)) Withdraw(registration);
}

}  // namespace

CommunicatorPtr FindCommunicator(const char* call, void* handle, int* result) {
  CommunicatorPtr communicator = Communicators().Find(handle);
  *result = kSuccess;
  if (communicator == nullptr) {
    *result = Fail(kInvalidArgument,
                   std::string(call) + " of a communicator that was destroyed or aborted");
  }
  return communicator;
}

CommunicatorPtr Ready(const char* call, void* handle, int* result) {
  CommunicatorPtr communicator = FindCommunicator(call, handle, result);
  if (communicator == nullptr) return nullptr;
  *result = communicator->state();
  if (*result == kInProgress) {
    *result = Fail(kInvalidUsage, std::string(call) + " while communicator " +
                                      communicator->Name() + " is in progress");
  } else if (*result == kSuccess && communicator->IsFinalized()) {
    *result = Fail(kInvalidUsage, std::string(call) + " after ncclCommFinalize");
  }
  return *result == kSuccess ? communicator : nullptr;
}

}  // namespace fake_gpu

using namespace fake_gpu;

int ncclGetVersion(int* version) {
  *version = TheSettings().nccl_version;
  return kSuccess;
}

int ncclGetUniqueId(UniqueId* id) {
  Record("ncclGetUniqueId");
  const std::string name = Exchange::Create();
  if (name.empty() || name.size() >= sizeof id->text) return kSystem;
  std::memset(id->text, 0, sizeof id->text);
  std::memcpy(id->text, name.data(), name.size());
  return kSuccess;
}

int ncclCommInitRankConfig(void** comm, int nranks, UniqueId id, int rank, Config* config) {
  const int device = CurrentDevice();
  Record("ncclCommInitRankConfig", "nranks", nranks, "rank", rank, "device", device, "blocking",
         IsBlocking(config));
  if (device < 0) return Fail(kUnhandledCuda, "ncclCommInitRankConfig without a current context");
  if (config != nullptr && (config->magic != kConfigMagic || config->size < kLeastConfig)) {
    return Fail(kInvalidArgument, "ncclCommInitRankConfig: the config has a wrong magic or size");
  }
  if (nranks < 1 || nranks > kMaxRanks || rank < 0 || rank >= nranks) {
    return Fail(kInvalidArgument, "ncclCommInitRankConfig: rank " + std::to_string(rank) + " of " +
                                      std::to_string(nranks));
  }
  *comm = Communicators().Add([&](int number) {
    return std::make_shared<Communicator>(number, nranks, rank, device, IsBlocking(config));
  });
  const CommunicatorPtr communicator = Communicators().Find(*comm);
  Own("communicator", communicator->Name());
  StartGroup();
  communicator->Init(std::string(id.text, strnlen(id.text, sizeof id.text)));
  AddInit(communicator);
  const int result = EndGroup();
  if (result == kSuccess || result == kInProgress) return result;
  Forget(*comm);
  *comm = nullptr;
  return result;
}

int ncclCommGetAsyncError(void* comm, int* error) {
  int result;
  const auto communicator = FindCommunicator("ncclCommGetAsyncError", comm, &result);
  if (communicator != nullptr) *error = communicator->state();
  return result;
}

int ncclCommFinalize(void* comm) {
  int result;
  const auto communicator = Ready("ncclCommFinalize", comm, &result);
  if (communicator == nullptr) return result;
  Record("ncclCommFinalize", "comm", communicator->Name());
  return communicator->Finalize();
}

int ncclCommDestroy(void* comm) {
  int result;
  const auto communicator = FindCommunicator("ncclCommDestroy", comm, &result);
  if (communicator == nullptr) return result;
  Record("ncclCommDestroy", "comm", communicator->Name());
  if (communicator->state() == kInProgress) {
    return Fail(kInvalidUsage, "ncclCommDestroy while a communicator is in progress");
  }
  communicator->Destroy();
  Forget(comm);
  return kSuccess;
}

int ncclCommAbort(void* comm) {
  const CommunicatorPtr communicator = Communicators().Take(comm);
  if (communicator == nullptr) {
    return Fail(kInvalidArgument, "ncclCommAbort of a communicator that was destroyed or aborted");
  }
  Record("ncclCommAbort", "comm", communicator->Name());
  communicator->Abort();
  DropAll(communicator);
  Disown("communicator", communicator->Name());
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  static const char* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return result >= kSuccess && result <= kInProgress ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(void* comm) {
  static thread_local std::string text;
  const CommunicatorPtr communicator = Communicators().Find(comm);
  text = communicator == nullptr ? "" : communicator->LastError();
  return text.c_str();
}

int ncclCommCount(void* comm, int* count) {
  int result;
  const auto communicator = Ready("ncclCommCount", comm, &result);
  if (communicator != nullptr) *count = communicator->nranks();
  return result;
}

int ncclCommUserRank(void* comm, int* rank) {
  int result;
  const auto communicator = Ready("ncclCommUserRank", comm, &result);
  if (communicator != nullptr) *rank = communicator->rank();
  return result;
}

int ncclCommRegister(void* comm, void* address, size_t bytes, void** handle) {
  int result;
  const auto communicator = Ready("ncclCommRegister", comm, &result);
  if (communicator == nullptr) return result;
  Record("ncclCommRegister", "comm", communicator->Name(), "memory",
         NameOf(reinterpret_cast<uint64_t>(address)), "bytes", bytes);
  std::string why;
  const BlockPtr block =
      FindBlock(reinterpret_cast<uint64_t>(address), bytes, communicator->device(), &why);
  if (block == nullptr) return Fail(kInvalidArgument, "ncclCommRegister: " + why);
  Register(block, 1);
  *handle = Registrations().Add([&](int number) {
    Own("registration", std::to_string(number));
    return std::make_shared<Registration>(Registration{number, communicator, block});
  });
  return kSuccess;
}

int ncclCommDeregister(void* comm, void* handle) {
  int result;
  const auto communicator = Ready("ncclCommDeregister", comm, &result);
  if (communicator == nullptr) return result;
  Record("ncclCommDeregister", "comm", communicator->Name());
  const auto registration = Registrations().Take(handle);
  if (registration == nullptr || registration->communicator != communicator) {
    return Fail(kInvalidArgument, "ncclCommDeregister of what the communicator does not know");
  }
  if (IsInUse(registration->block)) {
    return Fail(kInvalidUsage, "ncclCommDeregister of " + registration->block->Name() +
                                   " while a call of NCCL runs on it");
  }
  Withdraw(registration);
  return kSuccess;
}
