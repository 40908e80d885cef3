#pragma once

#include <cstdint>
#include <map>

namespace fake_gpu {

// What is known to come before: of each stream, by its key, how many pieces of work. A stream knows
// its own and what it has waited for, a thread of the program what it has waited for.
class Order {
 public:
  bool Has(int stream, uint64_t piece) const {
    const auto found = pieces_.find(stream);
    return found != pieces_.end() && found->second >= piece;
  }
  uint64_t Of(int stream) const {
    const auto found = pieces_.find(stream);
    return found == pieces_.end() ? 0 : found->second;
  }
  void Next(int stream) { ++pieces_[stream]; }
  void Add(const Order& other) {
    for (const auto& [stream, piece] : other.pieces_) {
      uint64_t& known = pieces_[stream];
      known = piece > known ? piece : known;
    }
  }

 private:
  std::map<int, uint64_t> pieces_;
};

// Of the calling thread.
inline Order& OrderOfThread() {
  static thread_local Order order;
  return order;
}

}  // namespace fake_gpu
