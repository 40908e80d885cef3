#include "tensorflow_ops/core_link.h"

#include <atomic>

namespace hvd::tensorflow {

namespace {
std::atomic<hvd_api*> core{nullptr};
}  // namespace

hvd_api* Core() { return core.load(std::memory_order_acquire); }

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
