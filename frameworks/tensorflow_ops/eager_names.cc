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

struct Place {
  std::optional<std::string> name;
  int64_t uses = 0;  // so far, with this one
};

std::mutex mutex;
std::vector<Place>& Places() {  // never destroyed: kernels may run at exit
  static auto* const places = new std::vector<Place>;
  return *places;
}

bool IsFree(const Place& place) { return !place.name; }

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
  std::optional<std::string>& name = places[static_cast<size_t>(place)].name;
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
    auto place = std::find_if(places.begin(), places.end(), hvd::tensorflow::IsFree);
    if (place == places.end()) place = places.insert(place, hvd::tensorflow::Place());
    place->name = std::move(kept);
    return (++place->uses << 32) + (place - places.begin());
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

void horovod_tensorflow_take_back_name(int64_t use) {
  const std::lock_guard<std::mutex> lock(hvd::tensorflow::mutex);
  hvd::tensorflow::Place& place = hvd::tensorflow::Places()[static_cast<uint32_t>(use)];
  if (place.uses == use >> 32) place.name.reset();
}
