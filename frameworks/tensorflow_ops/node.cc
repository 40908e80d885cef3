#include "tensorflow_ops/node.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "tensorflow_ops/eager_names.h"

namespace hvd::tensorflow {

namespace {

bool IsNumber(const std::string& part) {
  return part.size() > 1 && part[0] == '_' &&
         part.find_first_not_of("0123456789", 1) == std::string::npos;
}

// Without the parts that count what TensorFlow has inlined before, as in "cond/then/_24/x": the
// graphs of other ranks may have more or less of that. Names stay distinct, because "cond" is.
std::string WithoutNumbers(const std::string& name) {
  std::string kept;
  for (size_t start = 0; start <= name.size();) {
    const size_t end = std::min(name.find('/', start), name.size());
    const std::string part = name.substr(start, end - start);
    if (!IsNumber(part)) kept += (kept.empty() ? "" : "/") + part;
    start = end + 1;
  }
  return kept;
}

class Reader {
 public:
  explicit Reader(TF_OpKernelConstruction* construction) : construction_(construction) {}

  int64_t Integer(const char* attribute) {
    int64_t value = 0;
    if (status_.ok()) {
      TF_OpKernelConstruction_GetAttrInt64(construction_, attribute, &value, status_.get());
    }
    return value;
  }

  bool Flag(const char* attribute) {
    unsigned char value = 0;
    if (status_.ok()) {
      TF_OpKernelConstruction_GetAttrBool(construction_, attribute, &value, status_.get());
    }
    return value != 0;
  }

  // The attribute is of 32 bits. Where that is not enough, `bits` holds the number itself.
  double Factor(const char* attribute, const char* bits) {
    const int64_t exact = Integer(bits);
    double value = 1.0;
    if (exact != 0) {
      std::memcpy(&value, &exact, sizeof value);
      return value;
    }
    float rounded = 1.0f;
    if (status_.ok()) {
      TF_OpKernelConstruction_GetAttrFloat(construction_, attribute, &rounded, status_.get());
    }
    return rounded;
  }

  std::string Text(const char* attribute) {
    int32_t items = 0;
    int32_t bytes = 0;
    if (status_.ok()) {
      TF_OpKernelConstruction_GetAttrSize(construction_, attribute, &items, &bytes, status_.get());
    }
    std::string text(static_cast<size_t>(bytes > 0 ? bytes : 0), '\0');
    if (status_.ok() && !text.empty()) {
      TF_OpKernelConstruction_GetAttrString(construction_, attribute, text.data(), text.size(),
                                            status_.get());
    }
    return text;
  }

  std::string NodeName(bool without_scope) const {
    const TF_StringView view = TF_OpKernelConstruction_GetName(construction_);
    const std::string name(view.data, view.len);
    return without_scope ? name.substr(name.rfind('/') + 1) : WithoutNumbers(name);
  }

  bool Finish() {
    if (!status_.ok()) TF_OpKernelConstruction_Failure(construction_, status_.get());
    return status_.ok();
  }

 private:
  TF_OpKernelConstruction* construction_;
  OwnedStatus status_;
};

}  // namespace

bool ReadAttributes(TF_OpKernelConstruction* construction, Has has, Attributes* attributes) {
  Reader reader(construction);
  attributes->name = reader.Text("tensor_name");
  const bool without_scope = reader.Flag("ignore_name_scope");
  attributes->name_place = PlaceIn(attributes->name);
  if (attributes->name == kUnnamed || attributes->name_place >= 0) {
    attributes->name.clear();
  } else if (attributes->name.empty()) {
    attributes->name = reader.NodeName(without_scope);
  }
  attributes->process_set = reader.Integer("process_set_id");
  attributes->urgent = reader.Flag("urgent");
  attributes->awaited = reader.Flag("awaited");
  attributes->step = reader.Text("step");
  if (has == Has::kReduction) {
    attributes->reduce_op = reader.Integer("reduce_op");
    attributes->prescale = reader.Factor("prescale_factor", "prescale_bits");
    attributes->postscale = reader.Factor("postscale_factor", "postscale_bits");
  }
  if (has == Has::kRoot) attributes->root_rank = reader.Integer("root_rank");
  return reader.Finish();
}

Step::Member::Member(std::shared_ptr<Step> step) : step_(std::move(step)) {
  step_->members_.fetch_add(1);
}

Step::Member::~Member() { step_->members_.fetch_sub(1); }

// A run of the step that was not completed leaves a part of a count: then one that is not the last
// says that it is, and the last waits for others in vain for a moment. Nothing depends on it.
bool Step::Member::IsLast() const {
  return (step_->starts_.fetch_add(1) + 1) % step_->members_.load() == 0;
}

std::unique_ptr<Step::Member> Step::MemberOf(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Step>> steps;
  if (name.empty()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Step> step = steps[name].lock();
  if (step == nullptr) steps[name] = step = std::make_shared<Step>();
  return std::make_unique<Member>(step);
}

}  // namespace hvd::tensorflow
