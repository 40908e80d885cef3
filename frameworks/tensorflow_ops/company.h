// Operations that are best sent together, such as the gradients of one training step.
#pragma once

#include <atomic>
#include <memory>
#include <string>

namespace hvd::tensorflow {

// Of the kernels of one company each starts once per step. Whichever starts last knows that nothing more will
// come, so nobody need wait to see whether it does.
class Company {
 public:
  class Member {
   public:
    explicit Member(std::shared_ptr<Company> company);
    ~Member();

    // To be called at each start. Whether all others have started as often.
    bool IsLast() const;

   private:
    std::shared_ptr<Company> company_;
  };

  // A member of the company of this name; null for no name.
  static std::unique_ptr<Member> Join(const std::string& name);

 private:
  std::atomic<int64_t> members_{0};
  std::atomic<int64_t> starts_{0};
};

}  // namespace hvd::tensorflow
