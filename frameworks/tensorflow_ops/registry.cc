// Every op: its attributes, inputs and results, and its kernels. Saved graphs name what is listed
// here.

#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "tensorflow_ops/core.h"
#include "tensorflow_ops/kernels.h"

namespace hvd::tensorflow {

namespace {

// What is known of the results before anything runs.
using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);

constexpr size_t kUnknown = static_cast<size_t>(-1);  // a dimension

bool Ok(TF_Status* status) { return TF_GetCode(status) == TF_OK; }

// False when even the number of dimensions is unknown, or on an error.
bool WithOtherRows(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  const ShapePtr input(TF_NewShapeHandle());
  TF_ShapeInferenceContextGetInput(context, index, input.get(), status);
  if (!Ok(status)) return false;
  if (TF_ShapeInferenceContextRankKnown(context, input.get()) == 0) return false;
  const int64_t rank = TF_ShapeInferenceContextRank(context, input.get());
  if (rank == 0) {
    TF_SetStatus(
        status, TF_INVALID_ARGUMENT,
        "the operation works along the first dimension and a scalar has none; reshape it to (1,)");
    return false;
  }
  const ShapePtr rows(TF_ShapeInferenceContextVectorFromSize(context, kUnknown));
  const ShapePtr others(TF_NewShapeHandle());
  const ShapePtr output(TF_NewShapeHandle());
  TF_ShapeInferenceContextSubshape(context, input.get(), 1, rank, others.get(), status);
  if (!Ok(status)) return false;
  TF_ShapeInferenceContextConcatenateShapes(context, rows.get(), others.get(), output.get(),
                                            status);
  if (!Ok(status)) return false;
  TF_ShapeInferenceContextSetOutput(context, index, output.get(), status);
  return Ok(status);
}

void LikeInputs(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && Ok(status); ++i) {
    const ShapePtr shape(TF_NewShapeHandle());
    TF_ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (Ok(status)) TF_ShapeInferenceContextSetOutput(context, i, shape.get(), status);
  }
}

// All dimensions of the inputs but the first.
void OtherRows(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
  const auto count = static_cast<int>(TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && Ok(status); ++i) WithOtherRows(context, i, status);
}

// Likewise of the first input; the second result is a vector.
void OtherRowsAndCounts(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
  if (Ok(status)) WithOtherRows(context, 0, status);
  if (!Ok(status)) return;
  const ShapePtr counts(TF_ShapeInferenceContextVectorFromSize(context, kUnknown));
  TF_ShapeInferenceContextSetOutput(context, 1, counts.get(), status);
}

void Scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  const ShapePtr scalar(TF_ShapeInferenceContextScalar(context));
  TF_ShapeInferenceContextSetOutput(context, 0, scalar.get(), status);
}

void Nothing(TF_ShapeInferenceContext*, TF_Status*) {}

using Texts = std::initializer_list<const char*>;

constexpr Texts kReductionAttributes = {"reduce_op: int = 1", "prescale_factor: float = 1.0",
                                        "postscale_factor: float = 1.0", "prescale_bits: int = 0",
                                        "postscale_bits: int = 0"};

// One op and its kernels. TensorFlow must not merge, fold or drop a collective, so every op is
// stateful; that tf.function nevertheless does not run them one after the other is seen to in
// horovod/tensorflow/native.py.
class Op {
 public:
  explicit Op(const char* name) : name_(name), definition_(TF_NewOpDefinitionBuilder(name)) {
    TF_OpDefinitionBuilderSetIsStateful(definition_, true);
  }

  Op& Attributes(Texts texts) {
    for (const char* text : texts) TF_OpDefinitionBuilderAddAttr(definition_, text);
    return *this;
  }

  Op& Inputs(Texts texts) {
    for (const char* text : texts) TF_OpDefinitionBuilderAddInput(definition_, text);
    arguments_.insert(arguments_.end(), texts);
    return *this;
  }

  Op& Outputs(Texts texts) {
    for (const char* text : texts) TF_OpDefinitionBuilderAddOutput(definition_, text);
    arguments_.insert(arguments_.end(), texts);
    return *this;
  }

  // `make` makes the builder of a kernel for a device. On a GPU the tensors are asked for in host
  // memory, so TensorFlow copies them in the order of its streams.
  template <typename Make>
  void Register(ShapeFunction shapes, const Make& make) {
    OwnedStatus status;
    TF_OpDefinitionBuilderSetShapeInferenceFunction(definition_, shapes);
    TF_RegisterOpDefinition(definition_, status.get());
    Check(status);
    for (const char* device : {"CPU", "GPU"}) {
      TF_KernelBuilder* builder = make(device);
      for (const std::string argument : arguments_) {
        TF_KernelBuilder_HostMemory(builder, argument.substr(0, argument.find(':')).c_str());
      }
      TF_RegisterKernelBuilder(name_, builder, status.get());
      Check(status);
    }
  }

 private:
  void Check(const OwnedStatus& status) const {
    if (!status.ok()) std::fprintf(stderr, "horovod: op %s: %s\n", name_, TF_Message(status.get()));
  }

  const char* name_;
  TF_OpDefinitionBuilder* definition_;  // TF_RegisterOpDefinition deletes it
  std::vector<const char*> arguments_;  // "name: type"
};

// The ops' names are types of their own (see Create), so they are constants.
constexpr Collective kAllreduce{"HorovodAllreduce", OpKind::kAllreduce, Results::kLikeInputs,
                                Has::kReduction};
constexpr Collective kGroupedAllreduce{"HorovodGroupedAllreduce", OpKind::kAllreduce,
                                       Results::kLikeInputs, Has::kReduction};
constexpr Collective kAllgather{"HorovodAllgather", OpKind::kAllgather, Results::kFromCore,
                                Has::kNothing};
constexpr Collective kGroupedAllgather{"HorovodGroupedAllgather", OpKind::kAllgather,
                                       Results::kFromCore, Has::kNothing};
constexpr Collective kBroadcast{"HorovodBroadcast", OpKind::kBroadcast, Results::kLikeInputs,
                                Has::kRoot};
constexpr Collective kAlltoall{"HorovodAlltoall", OpKind::kAlltoall, Results::kFromCore,
                               Has::kNothing};
constexpr Collective kReducescatter{"HorovodReducescatter", OpKind::kReducescatter,
                                    Results::kFromCore, Has::kReduction};
constexpr Collective kGroupedReducescatter{"HorovodGroupedReducescatter", OpKind::kReducescatter,
                                           Results::kFromCore, Has::kReduction};
constexpr Collective kJoin{"HorovodJoin", OpKind::kJoin, Results::kNone, Has::kNothing};
constexpr Collective kBarrier{"HorovodBarrier", OpKind::kBarrier, Results::kNone, Has::kNothing};

constexpr TopologyOp kRank{"HorovodRank", Question::kRank};
constexpr TopologyOp kLocalRank{"HorovodLocalRank", Question::kLocalRank};
constexpr TopologyOp kLocalSize{"HorovodLocalSize", Question::kLocalSize};
constexpr TopologyOp kSize{"HorovodSize", Question::kSize};
constexpr TopologyOp kIncluded{"HorovodProcessSetIncluded", Question::kIncluded};

template <const Collective& collective>
void RegisterCollective(Op op, ShapeFunction shapes) {
  op.Attributes({"ignore_name_scope: bool = false", "process_set_id: int = 0",
                 "tensor_name: string = ''", "urgent: bool = false", "awaited: bool = false",
                 "step: string = ''"});
  op.Register(shapes, [](const char* device) {
    return TF_NewAsyncKernelBuilder(collective.op, device, &Create<collective>, &StartKernel,
                                    &DeleteKernel);
  });
}

template <const Collective& collective>
void RegisterOneTensor(Texts attributes, const char* output, ShapeFunction shapes) {
  Op op(collective.op);
  op.Attributes({kTypes}).Attributes(attributes).Inputs({"tensor: T"}).Outputs({output});
  RegisterCollective<collective>(op, shapes);
}

template <const Collective& collective>
void RegisterGrouped(Texts attributes, const char* output, ShapeFunction shapes) {
  Op op(collective.op);
  op.Attributes({kTypes, "num_tensors: int >= 1"}).Attributes(attributes);
  op.Inputs({"tensors: num_tensors * T"}).Outputs({output});
  RegisterCollective<collective>(op, shapes);
}

template <const TopologyOp& topology>
void RegisterTopology(Texts attributes, const char* output) {
  Op(topology.op)
      .Attributes(attributes)
      .Outputs({output})
      .Register(&Scalar, [](const char* device) {
        return TF_NewKernelBuilder(topology.op, device, &CreateTopology<topology>,
                                   &RunTopologyKernel, &DeleteTopologyKernel);
      });
}

void RegisterAlltoall() {
  Op op(kAlltoall.op);
  op.Attributes({kTypes}).Inputs({"tensor: T", "splits: int32"});
  op.Outputs({"output: T", "received_splits: int32"});
  RegisterCollective<kAlltoall>(op, &OtherRowsAndCounts);
}

// When the library is loaded.
__attribute__((constructor)) void RegisterAll() {
  RegisterOneTensor<kAllreduce>(kReductionAttributes, "sum: T", &LikeInputs);
  RegisterGrouped<kGroupedAllreduce>(kReductionAttributes, "sum: num_tensors * T", &LikeInputs);
  RegisterOneTensor<kAllgather>({}, "output: T", &OtherRows);
  RegisterGrouped<kGroupedAllgather>({}, "output: num_tensors * T", &OtherRows);
  RegisterOneTensor<kBroadcast>({"root_rank: int"}, "output: T", &LikeInputs);
  RegisterOneTensor<kReducescatter>(kReductionAttributes, "output: T", &OtherRows);
  RegisterGrouped<kGroupedReducescatter>(kReductionAttributes, "output: num_tensors * T",
                                         &OtherRows);
  RegisterAlltoall();
  RegisterCollective<kJoin>(Op(kJoin.op).Outputs({"output_tensor: int32"}), &Scalar);
  RegisterCollective<kBarrier>(Op(kBarrier.op), &Nothing);
  RegisterTopology<kRank>({}, "rank: int32");
  RegisterTopology<kLocalRank>({}, "local_rank: int32");
  RegisterTopology<kLocalSize>({}, "local_size: int32");
  RegisterTopology<kSize>({"process_set_id: int = 0"}, "size: int32");
  RegisterTopology<kIncluded>({"process_set_id: int = 0"}, "included: int32");
}

}  // namespace

}  // namespace hvd::tensorflow
