#include <string>

#include "tensorflow_ops/core.h"
#include "tensorflow_ops/kernels.h"

namespace hvd::tensorflow {

namespace {

struct Kernel {
  const TopologyOp* op;
  int64_t process_set;
};

bool OfProcessSet(Question question) {
  return question == Question::kSize || question == Question::kIncluded;
}

// A code of the core's.
int32_t AnswerOf(const Kernel& kernel, int32_t* answer) {
  hvd_topology topology{};
  if (const int32_t code = Core()->topology(Core(), &topology)) return code;
  int32_t size = 0;
  int32_t place = -1;
  if (OfProcessSet(kernel.op->question)) {
    const auto set = static_cast<uint32_t>(kernel.process_set);
    if (const int32_t code = Core()->process_set(Core(), set, &size, &place)) return code;
  }
  switch (kernel.op->question) {
    case Question::kRank:
      *answer = topology.rank;
      break;
    case Question::kLocalRank:
      *answer = topology.local_rank;
      break;
    case Question::kLocalSize:
      *answer = topology.local_size;
      break;
    case Question::kSize:
      *answer = size;
      break;
    case Question::kIncluded:
      *answer = place >= 0 ? 1 : 0;
      break;
  }
  return 0;
}

void Fail(TF_OpKernelContext* context, TF_Code code, const Kernel& kernel) {
  OwnedStatus status;
  const std::string what = code == TF_INVALID_ARGUMENT
                               ? "there is no process set " + std::to_string(kernel.process_set)
                               : "Horovod has not been initialized; use hvd.init().";
  status.Set(code, (std::string(kernel.op->op) + ": " + what).c_str());
  TF_OpKernelContext_Failure(context, status.get());
}

}  // namespace

void* CreateTopologyKernel(const TopologyOp& op, TF_OpKernelConstruction* construction) {
  OwnedStatus status;
  int64_t process_set = 0;
  if (OfProcessSet(op.question)) {
    TF_OpKernelConstruction_GetAttrInt64(construction, "process_set_id", &process_set,
                                         status.get());
  }
  if (status.ok()) return new Kernel{&op, process_set};
  TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

void RunTopologyKernel(void* given, TF_OpKernelContext* context) {
  const auto& kernel = *static_cast<Kernel*>(given);
  int32_t answer = 0;
  if (Core() == nullptr) return Fail(context, TF_FAILED_PRECONDITION, kernel);
  if (const int32_t code = AnswerOf(kernel, &answer)) return Fail(context, CodeOf(code), kernel);
  OwnedStatus status;
  const TensorPtr tensor(
      TF_AllocateOutput(context, 0, TF_INT32, nullptr, 0, sizeof answer, status.get()));
  if (!status.ok()) return TF_OpKernelContext_Failure(context, status.get());
  *static_cast<int32_t*>(TF_TensorData(tensor.get())) = answer;
}

void DeleteTopologyKernel(void* kernel) { delete static_cast<Kernel*>(kernel); }

}  // namespace hvd::tensorflow
