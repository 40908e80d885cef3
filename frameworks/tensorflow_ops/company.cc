#include "tensorflow_ops/company.h"

#include <map>
#include <mutex>
#include <utility>

namespace hvd::tensorflow {

Company::Member::Member(std::shared_ptr<Company> company) : company_(std::move(company)) {
  company_->members_.fetch_add(1);
}

Company::Member::~Member() { company_->members_.fetch_sub(1); }

// A step that was not completed puts the count out of step with the steps: then one that is not the last says
// so, and the last waits for company in vain for a moment. Nothing depends on it.
bool Company::Member::IsLast() const {
  return (company_->starts_.fetch_add(1) + 1) % company_->members_.load() == 0;
}

std::unique_ptr<Company::Member> Company::Join(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Company>> companies;
  if (name.empty()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Company> company = companies[name].lock();
  if (company == nullptr) companies[name] = company = std::make_shared<Company>();
  return std::make_unique<Member>(company);
}

}  // namespace hvd::tensorflow
