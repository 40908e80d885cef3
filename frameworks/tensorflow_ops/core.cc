#include "tensorflow_ops/core.h"

#include <atomic>

#include "base/status.h"
#include "base/types.h"

namespace hvd::tensorflow {

const char kTypes[] =
    "T: {uint8, int8, uint16, int16, int32, int64, float16, float32, float64, bool, bfloat16, "
    "uint32, "
    "uint64}";

namespace {

std::atomic<hvd_api*> core{nullptr};

constexpr auto kNone = static_cast<TF_DataType>(0);  // no operation takes it

constexpr TF_DataType kByCoreType[kDataTypes] = {
    TF_UINT8,  TF_INT8, TF_UINT16,   TF_INT16,  TF_INT32,  TF_INT64, TF_HALF, TF_FLOAT,
    TF_DOUBLE, TF_BOOL, TF_BFLOAT16, TF_UINT32, TF_UINT64, kNone,    kNone,
};

}  // namespace

hvd_api* Core() { return core.load(std::memory_order_acquire); }

int32_t CoreType(TF_DataType type) {
  for (int32_t i = 0; i < kDataTypes; ++i) {
    if (kByCoreType[i] == type) return i;
  }
  return -1;
}

TF_DataType TensorFlowType(int32_t type) { return kByCoreType[type]; }

// UNKNOWN is what elastic training takes for a lost generation. UNAVAILABLE would say it better,
// but tf.function turns that into INTERNAL.
TF_Code CodeOf(int32_t code) {
  switch (static_cast<Code>(code)) {
    case Code::kOk:
      return TF_OK;
    case Code::kInvalidArgument:
    case Code::kDuplicate:
      return TF_INVALID_ARGUMENT;
    case Code::kMismatch:
    case Code::kNotInitialized:
      return TF_FAILED_PRECONDITION;
    case Code::kAborted:
    case Code::kShutdown:
      return TF_UNKNOWN;
    default:
      return TF_INTERNAL;
  }
}

}  // namespace hvd::tensorflow

int horovod_tensorflow_bind(hvd_api* api) {
  if (api->version < HVD_API_VERSION || api->bytes < sizeof(hvd_api)) {
    api->release(api);
    return HVD_API_VERSION;
  }
  // An operation may be using the old table at this moment: its reference is never given back.
  hvd::tensorflow::core.store(api, std::memory_order_release);
  return 0;
}
