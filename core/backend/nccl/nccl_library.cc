#include "backend/nccl/nccl_library.h"

#include <dlfcn.h>

#include <utility>

namespace hvd::nccl {

namespace {

constexpr int kOldest = 21400;
constexpr int kRegisters = 21900;
constexpr unsigned kMagic = 0xcafebeef;

struct Name {
  size_t place;
  const char* name;
  bool optional = false;
};

#define HVD_PLACE(member) offsetof(NcclFunctions, member)
constexpr Name kNames[] = {
    {HVD_PLACE(version), "ncclGetVersion"},
    {HVD_PLACE(unique_id), "ncclGetUniqueId"},
    {HVD_PLACE(init), "ncclCommInitRankConfig"},
    {HVD_PLACE(async_error), "ncclCommGetAsyncError"},
    {HVD_PLACE(finalize), "ncclCommFinalize"},
    {HVD_PLACE(destroy), "ncclCommDestroy"},
    {HVD_PLACE(abort), "ncclCommAbort"},
    {HVD_PLACE(error_text), "ncclGetErrorString"},
    {HVD_PLACE(last_error), "ncclGetLastError"},
    {HVD_PLACE(group_start), "ncclGroupStart"},
    {HVD_PLACE(group_end), "ncclGroupEnd"},
    {HVD_PLACE(all_reduce), "ncclAllReduce"},
    {HVD_PLACE(broadcast), "ncclBroadcast"},
    {HVD_PLACE(reduce), "ncclReduce"},
    {HVD_PLACE(all_gather), "ncclAllGather"},
    {HVD_PLACE(reduce_scatter), "ncclReduceScatter"},
    {HVD_PLACE(send), "ncclSend"},
    {HVD_PLACE(receive), "ncclRecv"},
    {HVD_PLACE(create_scaled_sum), "ncclRedOpCreatePreMulSum"},
    {HVD_PLACE(destroy_op), "ncclRedOpDestroy"},
    {HVD_PLACE(allocate), "ncclMemAlloc", true},
    {HVD_PLACE(free), "ncclMemFree", true},
    {HVD_PLACE(register_memory), "ncclCommRegister", true},
    {HVD_PLACE(deregister_memory), "ncclCommDeregister", true},
};
#undef HVD_PLACE

Status TooOld(const std::string& path, const std::string& why) {
  return {Code::kUnavailable, path + " is too old: " + why +
                                  ". NCCL 2.14 or later is needed (pip install "
                                  "nvidia-nccl-cu12, or -cu13)"};
}

Status Find(void* library, const std::string& path, NcclFunctions* call) {
  for (const Name& name : kNames) {
    void* const found = dlsym(library, name.name);
    if (found == nullptr && !name.optional)
      return TooOld(path, std::string("it has no ") + name.name);
    *reinterpret_cast<void**>(reinterpret_cast<char*>(call) + name.place) = found;
  }
  return Status::Ok();
}

}  // namespace

Status NcclLibrary::Load(const std::string& path, std::shared_ptr<const NcclLibrary>* library) {
  auto loaded = std::make_shared<NcclLibrary>();
  void* const file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr)
    return {Code::kUnavailable, std::string("NCCL cannot be loaded: ") + dlerror()};
  HVD_RETURN_IF_ERROR(Find(file, path, &loaded->call_));
  if (loaded->call_.version(&loaded->version_) != kSuccess || loaded->version_ < kOldest) {
    return TooOld(path, "its version code is " + std::to_string(loaded->version_));
  }
  *library = std::move(loaded);
  return Status::Ok();
}

bool NcclLibrary::registers() const {
  return version_ >= kRegisters && call_.allocate != nullptr && call_.free != nullptr &&
         call_.register_memory != nullptr && call_.deregister_memory != nullptr;
}

Status NcclLibrary::Error(int result, void* comm, const std::string& doing) const {
  std::string text = "NCCL failed during " + doing + ": " + call_.error_text(result);
  const char* const more = call_.last_error(comm);
  if (more != nullptr && *more != '\0') text += std::string(" (") + more + ")";
  return Status::Aborted(text + ". NCCL_DEBUG=INFO in the environment of all ranks shows more.");
}

std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

CommunicatorConfig WithoutBlocking() {
  return {sizeof(CommunicatorConfig), kMagic, kOldest, /*blocking=*/0};
}

}  // namespace hvd::nccl
