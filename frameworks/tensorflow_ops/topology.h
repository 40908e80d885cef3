// The kernels that say who this process is. They ask when they run, because a graph may be made before init.
#pragma once

#include "tensorflow_ops/tf_c_api.h"

namespace hvd::tensorflow {

enum class Question { kRank, kLocalRank, kLocalSize, kSize, kIncluded };

struct TopologyOp {
  const char* op;
  Question question;
};

void* CreateTopologyKernel(const TopologyOp& op, TF_OpKernelConstruction* construction);
void RunTopologyKernel(void* kernel, TF_OpKernelContext* context);
void DeleteTopologyKernel(void* kernel);

template <const TopologyOp& op>
void* CreateTopology(TF_OpKernelConstruction* construction) {
  return CreateTopologyKernel(op, construction);
}

}  // namespace hvd::tensorflow
