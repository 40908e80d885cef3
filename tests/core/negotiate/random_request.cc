#include "random_request.h"

namespace hvd::negotiate {

Request RandomRequest(Random* random, const std::vector<OpKind>& kinds) {
  Request request;
  request.kind = kinds[random->Below(kinds.size())];
  if (request.kind == OpKind::kBarrier) return request;
  if (random->OneIn(4)) request.reduce_op = ReduceOp::kMax;
  if (random->OneIn(4)) request.prescale = 0.25;
  const bool group = request.kind != OpKind::kAlltoall && random->OneIn(4);
  request.tensors.resize(group ? 1 + random->Below(4) : 1);
  for (TensorMeta& tensor : request.tensors) {
    tensor.dtype = static_cast<DataType>(random->Below(kDataTypes));
    tensor.shape.resize(1 + random->Below(3));
    for (int64_t& dim : tensor.shape) dim = static_cast<int64_t>(random->Below(20));
  }
  return request;
}

}  // namespace hvd::negotiate
