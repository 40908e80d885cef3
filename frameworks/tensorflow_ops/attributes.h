// What the attributes of a node say about its collective.
#pragma once

#include <string>

#include "tensorflow_ops/tf_c_api.h"

namespace hvd::tensorflow {

// Of a node that several ranks run at different times in any order, the name is what matches them.
constexpr char kUnnamed[] = "*";  // tensor_name of an eager operation that is only counted

struct Attributes {
  std::string name;  // empty: unnamed
  int64_t reduce_op = 1;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t root_rank = 0;
  int64_t process_set = 0;
  bool urgent = false;
  bool awaited = false;  // see hvd_operation
  std::string step;      // see step.h; empty: none
};

// Which of the attributes an op has besides the common ones.
enum class Has { kNothing, kReduction, kRoot };

// False: the construction has failed and says why.
bool ReadAttributes(TF_OpKernelConstruction* construction, Has has, Attributes* attributes);

}  // namespace hvd::tensorflow
