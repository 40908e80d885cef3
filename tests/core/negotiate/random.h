#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace hvd::negotiate {

// splitmix64: the same sequence from a seed with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  uint64_t Below(uint64_t limit) { return Next() % limit; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

  template <typename T>
  void Shuffle(std::vector<T>* list) {
    for (size_t i = list->size(); i > 1; --i) std::swap((*list)[i - 1], (*list)[Below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace hvd::negotiate
