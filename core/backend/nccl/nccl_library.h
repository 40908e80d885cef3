#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

// The functions of NCCL, or of RCCL, which has the same. Loaded at run time, from version 2.14 on:
// since then communicators are set up and used without blocking.

namespace hvd::nccl {

// The numbers of nccl.h.
enum Result : int { kSuccess = 0, kInProgress = 7 };
enum NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kHalf = 6,
  kFloat = 7,
  kDouble = 8,
  kBfloat = 9,
  kFloat8e4m3 = 10,  // these two since version 2.24
  kFloat8e5m2 = 11,
};
enum NcclOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

constexpr size_t kUniqueIdBytes = 128;
struct UniqueId {
  char bytes[kUniqueIdBytes];
};

// Of version 2.14: the library takes what it does not find here for unset.
struct CommunicatorConfig {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

struct NcclFunctions {
  int (*version)(int* version);
  int (*unique_id)(UniqueId* id);
  int (*init)(void** comm, int ranks, UniqueId id, int rank, CommunicatorConfig* config);
  int (*async_error)(void* comm, int* error);
  int (*finalize)(void* comm);
  int (*destroy)(void* comm);
  int (*abort)(void* comm);
  const char* (*error_text)(int result);
  const char* (*last_error)(void* comm);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void* send, void* receive, size_t count, int dtype, int op, void* comm,
                    void* stream);
  int (*broadcast)(const void* send, void* receive, size_t count, int dtype, int root, void* comm,
                   void* stream);
  int (*reduce)(const void* send, void* receive, size_t count, int dtype, int op, int root,
                void* comm, void* stream);
  int (*all_gather)(const void* send, void* receive, size_t count, int dtype, void* comm,
                    void* stream);
  int (*reduce_scatter)(const void* send, void* receive, size_t count, int dtype, int op,
                        void* comm, void* stream);
  int (*send)(const void* data, size_t count, int dtype, int peer, void* comm, void* stream);
  int (*receive)(void* data, size_t count, int dtype, int peer, void* comm, void* stream);
  int (*create_scaled_sum)(int* op, void* factor, int dtype, int residence, void* comm);
  int (*destroy_op)(int op, void* comm);
  // Null before version 2.19.
  int (*allocate)(void** memory, size_t bytes);
  int (*free)(void* memory);
  int (*register_memory)(void* comm, void* memory, size_t bytes, void** registration);
  int (*deregister_memory)(void* comm, void* registration);
};

class NcclLibrary {
 public:
  // Loads the library in the file `path`. It stays loaded.
  static Status Load(const std::string& path, std::shared_ptr<const NcclLibrary>* library);

  const NcclFunctions& call() const { return call_; }
  int version() const { return version_; }  // 22703 is 2.27.3
  bool has_float8() const { return version_ >= 22400; }
  bool registers() const;  // memory of ours that it can use without copies

  // What went wrong with a communicator (null: none is concerned).
  Status Error(int result, void* comm, const std::string& doing) const;

 private:
  NcclFunctions call_ = {};
  int version_ = 0;
};

// "2.27.3".
std::string VersionText(int version);

CommunicatorConfig WithoutBlocking();

}  // namespace hvd::nccl
