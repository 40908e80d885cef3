// What a library of collectives on the host is asked for, and what not.

#include <memory>

#include "backend/library/staged_backend.h"
#include "check.h"

namespace hvd::test {
namespace {

// Has everything.
class AnyLibrary : public LibrarySet {
 public:
  bool Has(OpKind /*kind*/, ReduceOp /*op*/) const override { return true; }
  void BeginToListen(const Waker& /*waker*/, std::shared_ptr<Addresses> /*mine*/) override {}
  void BeginToConnect(std::shared_ptr<const Addresses> /*theirs*/) override {}
  void Begin(LibraryCall /*call*/) override {}
  Step Look() override { return Step::kDone; }
  Status status() const override { return Status::Ok(); }
  void Abandon() noexcept override {}
};

// It reads and writes tensors as memory of the host.
TEST(Staged, TensorsOnAGpuAreNoneOfALibrarysOfTheHost) {
  const auto backend = MakeStagedBackend(std::make_unique<AnyLibrary>(), "any", nullptr, 0, 2);
  CollectiveSpec spec;
  EXPECT_TRUE(backend->Serves(spec));
  spec.device = kStagedDevice;
  EXPECT_TRUE(backend->Serves(spec));
  spec.device = 0;
  EXPECT_FALSE(backend->Serves(spec));
}

}  // namespace
}  // namespace hvd::test
