// What a node of a graph says of its collective: its attributes, and the training step that it
// belongs to.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tensorflow_ops/tf_c_api.h"

namespace hvd::tensorflow {

// Of a node that several ranks run at different times in any order, the name is what matches them.
constexpr char kUnnamed[] = "*";  // tensor_name of an eager operation that is only counted

struct Attributes {
  std::string name;         // empty: unnamed
  int64_t name_place = -1;  // where the name of an eager operation lies; see eager_names.h
  int64_t reduce_op = 1;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t root_rank = 0;
  int64_t process_set = 0;
  bool urgent = false;
  bool awaited = false;  // see hvd_operation
  std::string step;      // see Step; empty: none
};

// Which of the attributes an op has besides the common ones.
enum class Has { kNothing, kReduction, kRoot };

// False: the construction has failed and says why.
bool ReadAttributes(TF_OpKernelConstruction* construction, Has has, Attributes* attributes);

// The operations of one training step, which reduce its gradients and are best sent together.
//
// Each of its kernels starts once whenever the step runs. Whichever starts last knows that nothing
// more will come, so nobody need wait to see whether it does.
class Step {
 public:
  class Member {
   public:
    explicit Member(std::shared_ptr<Step> step);
    ~Member();

    // To be called at each start. Whether all others have started as often.
    bool IsLast() const;

   private:
    std::shared_ptr<Step> step_;
  };

  // A member of the step of this name; null for no name.
  static std::unique_ptr<Member> MemberOf(const std::string& name);

 private:
  std::atomic<int64_t> members_{0};
  std::atomic<int64_t> starts_{0};
};

}  // namespace hvd::tensorflow
