// The kernels of the ops, for the registry: what distinguishes one from the others, and their
// functions.
//
// TensorFlow tells a kernel nothing about its op, so a function that creates one has a type of its
// own for each op: Create<collective>, CreateTopology<op>.
#pragma once

#include "base/types.h"
#include "tensorflow_ops/node.h"

namespace hvd::tensorflow {

// Where the results of a collective go.
enum class Results {
  kNone,
  kLikeInputs,  // into the inputs' memory where nobody else reads it, else into new memory
  kFromCore,    // into memory of the core's, whose size only negotiation tells
};

struct Collective {
  const char* op;
  OpKind kind;
  Results results;
  Has has;
};

void* CreateKernel(const Collective& collective, TF_OpKernelConstruction* construction);
void StartKernel(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);
void DeleteKernel(void* kernel);

template <const Collective& collective>
void* Create(TF_OpKernelConstruction* construction) {
  return CreateKernel(collective, construction);
}

// The kernels that say who this process is. They ask when they run, because a graph may be made
// before init.
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
