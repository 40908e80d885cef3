// The kernel of every collective op.
#pragma once

#include "base/types.h"
#include "tensorflow_ops/attributes.h"

namespace hvd::tensorflow {

// Where results go.
enum class Results {
  kNone,
  kLikeInputs,  // into the inputs' memory where nobody else reads it, else into new memory
  kFromCore,    // into memory of the core's, whose size only negotiation tells
};

// What distinguishes one op from the others.
struct Collective {
  const char* op;
  OpKind kind;
  Results results;
  Has has;
};

// The three functions of a kernel. Create<collective> has a type of its own for each op, because TensorFlow
// tells a kernel nothing about its op.
void* CreateKernel(const Collective& collective, TF_OpKernelConstruction* construction);
void StartKernel(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);
void DeleteKernel(void* kernel);

template <const Collective& collective>
void* Create(TF_OpKernelConstruction* construction) {
  return CreateKernel(collective, construction);
}

}  // namespace hvd::tensorflow
