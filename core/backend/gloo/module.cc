#include <gloo/config.h>

#include <string>
#include <utility>

#include "backend/gloo/calls.h"
#include "backend/gloo/mesh.h"
#include "backend/library/library.h"
#include "backend/library/worker.h"

#define HVD_TEXT(value) #value
#define HVD_VALUE(value) HVD_TEXT(value)

namespace hvd::gloo_backend {

namespace {

constexpr char kVersion[] = HVD_VALUE(GLOO_VERSION_MAJOR) "." HVD_VALUE(
    GLOO_VERSION_MINOR) "." HVD_VALUE(GLOO_VERSION_PATCH);

class GlooSet : public LibrarySet {
 public:
  GlooSet(const LibraryOptions& options, int rank, int size)
      : options_(options),
        mesh_(std::make_shared<Mesh>(rank, size)),
        worker_("hvd-gloo", options.linger_us, [mesh = mesh_] { mesh->Close(); }) {}

  // Gloo has no reducescatter of parts of unequal size, and no Adasum.
  bool Has(OpKind kind, ReduceOp op) const override {
    if (kind == OpKind::kAllreduce) return op != ReduceOp::kAdasum;
    return kind == OpKind::kAllgather || kind == OpKind::kBroadcast || kind == OpKind::kAlltoall ||
           kind == OpKind::kBarrier;
  }

  void BeginToListen(const Waker& waker, std::shared_ptr<Addresses> mine) override {
    waker_ = &waker;
    BeginJob([mesh = mesh_, options = options_, mine = std::move(mine)] {
      mesh->Listen(options.address, options.timeout_us, mine.get());
    });
  }
  void BeginToConnect(std::shared_ptr<const Addresses> theirs) override {
    BeginJob([mesh = mesh_, combine = options_.combine, theirs = std::move(theirs)] {
      mesh->Connect(*theirs);
      // A member that is connected may end before another one has seen that it is.
      LibraryCall barrier;
      barrier.kind = OpKind::kBarrier;
      Run(mesh, barrier, combine);
    });
  }
  void Begin(LibraryCall call) override {
    BeginJob([mesh = mesh_, combine = options_.combine, call = std::move(call)] {
      Run(mesh, call, combine);
    });
  }

  Step Look() override { return worker_.Look(); }
  Status status() const override { return worker_.status(); }
  void Abandon() noexcept override { worker_.Abandon(); }

 private:
  void BeginJob(std::function<void()> job) { worker_.Begin(*waker_, std::move(job)); }

  const LibraryOptions options_;
  const std::shared_ptr<Mesh> mesh_;
  const Waker* waker_ = nullptr;
  Worker worker_;
};

class Gloo : public Library {
 public:
  explicit Gloo(LibraryOptions options) : options_(std::move(options)) {}
  const char* name() const override { return "Gloo"; }
  std::unique_ptr<LibrarySet> MakeSet(uint32_t /*id*/, int rank, int size) override {
    return std::make_unique<GlooSet>(options_, rank, size);
  }

 private:
  const LibraryOptions options_;
};

}  // namespace

}  // namespace hvd::gloo_backend

#define HVD_EXPORT extern "C" __attribute__((visibility("default")))

HVD_EXPORT const hvd::LibraryModule hvd_library_module = {
    HVD_LIBRARY_STAMP,
    [](const hvd::LibraryOptions& options) -> hvd::Library* {
      return new hvd::gloo_backend::Gloo(options);
    },
};

// For Python, which asks it without an engine.
HVD_EXPORT const char* hvd_library_version() { return hvd::gloo_backend::kVersion; }
