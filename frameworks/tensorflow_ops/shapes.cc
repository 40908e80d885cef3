#include "tensorflow_ops/shapes.h"

#include "tensorflow_ops/owned.h"

namespace hvd::tensorflow {

namespace {

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
    TF_SetStatus(status, TF_INVALID_ARGUMENT,
                 "the operation works along the first dimension and a scalar has none; reshape it to (1,)");
    return false;
  }
  const ShapePtr rows(TF_ShapeInferenceContextVectorFromSize(context, kUnknown));
  const ShapePtr others(TF_NewShapeHandle());
  const ShapePtr output(TF_NewShapeHandle());
  TF_ShapeInferenceContextSubshape(context, input.get(), 1, rank, others.get(), status);
  if (!Ok(status)) return false;
  TF_ShapeInferenceContextConcatenateShapes(context, rows.get(), others.get(), output.get(), status);
  if (!Ok(status)) return false;
  TF_ShapeInferenceContextSetOutput(context, index, output.get(), status);
  return Ok(status);
}

}  // namespace

void LikeInputs(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && Ok(status); ++i) {
    const ShapePtr shape(TF_NewShapeHandle());
    TF_ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (Ok(status)) TF_ShapeInferenceContextSetOutput(context, i, shape.get(), status);
  }
}

void OtherRows(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
  const auto count = static_cast<int>(TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && Ok(status); ++i) WithOtherRows(context, i, status);
}

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

}  // namespace hvd::tensorflow
