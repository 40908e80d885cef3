#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace hvd {

// How many meetings of some members under some name a rank has been at, which all members count
// alike. Names may be used once only, as torch.distributed does: of equal members the latest ones
// are remembered, in the order of their first use, which all of them share. A name that comes back
// after so many others begins anew on all of them.
class MeetingNumbers {
 public:
  static constexpr size_t kMostNames = 1024;

  static uint64_t HashOf(const std::string& name) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char letter : name)
      hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
    return hash;
  }

  uint64_t Next(const std::vector<int>& members, uint64_t name) {
    Names& names = by_members_[members];
    const auto [found, fresh] = names.counts.try_emplace(name, 0);
    const uint64_t number = found->second++;
    if (!fresh) return number;
    names.latest.push_back(name);
    if (names.latest.size() <= kMostNames) return number;
    names.counts.erase(names.latest.front());
    names.latest.pop_front();
    return number;
  }

 private:
  struct Names {
    std::unordered_map<uint64_t, uint64_t> counts;
    std::deque<uint64_t> latest;
  };
  std::map<std::vector<int>, Names> by_members_;
};

}  // namespace hvd
