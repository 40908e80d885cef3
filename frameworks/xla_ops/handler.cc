// What XLA calls, and what Python calls to bind this library to the core.

#include <atomic>
#include <cstring>

#include "api/c_api.h"
#include "xla_ops/call.h"
#include "xla_ops/errors.h"
#include "xla_ops/gpu.h"
#include "xla_ops/step.h"
#include "xla_ops/xla_ffi.h"

namespace {

using namespace hvd::xla;

std::atomic<hvd_api*> core{nullptr};

// The first version with what this library uses. Those that ask without a table of functions are
// all of it.
constexpr int kLeastMinor = 1;

// A question of XLA in place of a call; false: it is a call. This library serves every version that
// has what it uses, so it says that it was compiled for the one that asks.
bool Answer(const Frame& frame) {
  for (Extension* extension = frame.extensions; extension != nullptr; extension = extension->next) {
    if (extension->type != kMetadataExtension) continue;
    Metadata* const metadata = reinterpret_cast<MetadataExtension*>(extension)->metadata;
    metadata->version.major = 0;
    metadata->version.minor = frame.api == nullptr ? kLeastMinor : frame.api->version.minor;
    metadata->traits = 0;
    return true;
  }
  return false;
}

Error* Serve(Frame* frame, Error* (*action)(hvd_api*, Frame*)) {
  if (Answer(*frame)) return nullptr;
  if (frame->stage != kExecute) return nullptr;
  // Its numbers, for neither the table nor the frame counts all of its members.
  const bool serves = frame->api->version.major == 0 && frame->api->version.minor >= kLeastMinor;
  if (!serves) {
    return MakeError(*frame->api, kFailedPrecondition,
                     "horovod does not know this version of XLA's foreign functions: JAX 0.5 and "
                     "later have one that it knows");
  }
  return action(core.load(), frame);
}

struct Named {
  const char* name;
  const char* platform;
  Handler handler;
};

}  // namespace

extern "C" {

// Takes over the caller's reference. 0, or the version that this library needs.
__attribute__((visibility("default"))) int horovod_xla_bind(hvd_api* api) {
  if (api->version < HVD_API_VERSION || api->bytes < sizeof(hvd_api)) {
    api->release(api);
    return HVD_API_VERSION;
  }
  core.store(api);
  return 0;
}

// A collective, on the host and on a GPU; and those that travel while their program goes on.
__attribute__((visibility("default"))) Error* horovod_collective(Frame* frame) {
  return Serve(frame, &Start);
}
__attribute__((visibility("default"))) Error* horovod_collective_on_gpu(Frame* frame) {
  return Serve(frame, &RunOnGpu);
}
__attribute__((visibility("default"))) Error* horovod_start(Frame* frame) {
  return Serve(frame, &StartPart);
}
__attribute__((visibility("default"))) Error* horovod_take(Frame* frame) {
  return Serve(frame, &TakeStep);
}

// For a process whose XLA has no call of Python's to register it. `get_api`: what gives its table.
// 0, or 1 where it refuses.
__attribute__((visibility("default"))) int horovod_xla_register(const Api* (*get_api)()) {
  for (const Named& each : {Named{"horovod_collective", "Host", &horovod_collective},
                            Named{"horovod_collective", "CUDA", &horovod_collective_on_gpu},
                            Named{"horovod_start", "Host", &horovod_start},
                            Named{"horovod_take", "Host", &horovod_take}}) {
    HandlerArguments arguments{};
    arguments.bytes = sizeof(HandlerArguments);
    arguments.name = {each.name, std::strlen(each.name)};
    arguments.platform = {each.platform, std::strlen(each.platform)};
    arguments.execute = each.handler;
    if (get_api()->register_handler(&arguments) != nullptr) return 1;
  }
  return 0;
}
}
