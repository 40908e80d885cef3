// The operations of one training step, which reduce its gradients and are best sent together.
#pragma once

#include <atomic>
#include <memory>
#include <string>

namespace hvd::tensorflow {

// Each of its kernels starts once whenever the step runs. Whichever starts last knows that nothing more will
// come, so nobody need wait to see whether it does.
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
