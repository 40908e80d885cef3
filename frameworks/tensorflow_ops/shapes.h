// What is known of the results before anything runs.
#pragma once

#include "tensorflow_ops/tf_c_api.h"

namespace hvd::tensorflow {

using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);

void LikeInputs(TF_ShapeInferenceContext* context, TF_Status* status);
// All dimensions of the inputs but the first.
void OtherRows(TF_ShapeInferenceContext* context, TF_Status* status);
// Likewise of the first input; the second result is a vector.
void OtherRowsAndCounts(TF_ShapeInferenceContext* context, TF_Status* status);
void Scalar(TF_ShapeInferenceContext* context, TF_Status* status);
void Nothing(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace hvd::tensorflow
