#include "tensorflow_ops/eager_names.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace hvd::tensorflow {

namespace {

constexpr char kMark = '*';

std::mutex mutex;
std::vector<std::optional<std::string>>& Places() {  // never destroyed: kernels may run at exit
  static auto* const places = new std::vector<std::optional<std::string>>;
  return *places;
}

}  // namespace

int64_t PlaceIn(const std::string& tensor_name) {
  if (tensor_name.size() < 2 || tensor_name[0] != kMark) return -1;
  int64_t place = 0;
  for (size_t i = 1; i < tensor_name.size(); ++i) {
    if (tensor_name[i] < '0' || tensor_name[i] > '9' || place > INT32_MAX) return -1;
    place = 10 * place + (tensor_name[i] - '0');
  }
  return place;
}

std::string TakeName(int64_t place) {
  const std::lock_guard<std::mutex> lock(mutex);
  auto& places = Places();
  if (place < 0 || place >= static_cast<int64_t>(places.size())) return "";
  std::optional<std::string>& name = places[static_cast<size_t>(place)];
  std::string taken = name ? std::move(*name) : "";
  name.reset();
  return taken;
}

}  // namespace hvd::tensorflow

int64_t horovod_tensorflow_put_name(const char* name, int64_t bytes) {
  using hvd::tensorflow::Places;
  try {
    std::string kept(name, static_cast<size_t>(bytes));
    const std::lock_guard<std::mutex> lock(hvd::tensorflow::mutex);
    auto& places = Places();
    auto place = std::find(places.begin(), places.end(), std::nullopt);
    if (place == places.end()) place = places.insert(place, std::nullopt);
    *place = std::move(kept);
    return place - places.begin();
  } catch (const std::bad_alloc&) {
    return -1;
  }
}
