#include "tensorflow_ops/collective.h"

#include <memory>

#include "tensorflow_ops/call.h"

namespace hvd::tensorflow {

void* CreateKernel(const Collective& collective, TF_OpKernelConstruction* construction) {
  auto kernel = std::make_unique<Kernel>();
  kernel->collective = &collective;
  if (!ReadAttributes(construction, collective.has, &kernel->attributes)) return nullptr;
  kernel->step = Step::MemberOf(kernel->attributes.step);
  return kernel.release();
}

void StartKernel(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  (new Call(*static_cast<Kernel*>(kernel), context, done))->Start();
}

void DeleteKernel(void* kernel) { delete static_cast<Kernel*>(kernel); }

}  // namespace hvd::tensorflow
