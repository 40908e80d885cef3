// Runs a fuzz target over the inputs that are kept and over some thousand mutations of them, always
// the same ones, with any compiler. Usage: fuzz_NAME FILE [mutations]

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "target.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

using Bytes = std::vector<uint8_t>;

Bytes current;

// So that whoever sees a failure can keep the input: a line of a corpus file.
void ShowCurrent() {
  std::string line = "the input: ";
  for (const uint8_t byte : current) {
    constexpr char kDigits[] = "0123456789abcdef";
    line += kDigits[byte >> 4];
    line += kDigits[byte & 15];
  }
  line += '\n';
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
}

void OnSignal(int number) {
  ShowCurrent();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

std::vector<Bytes> Read(const char* path) {
  std::vector<Bytes> inputs;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] == '#') continue;
    Bytes& input = inputs.emplace_back();
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      input.push_back(static_cast<uint8_t>(std::stoul(line.substr(i, 2), nullptr, 16)));
    }
  }
  return inputs;
}

class Random {
 public:
  size_t Below(size_t bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<size_t>(state_ % bound);
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15;
};

Bytes Mutated(const std::vector<Bytes>& inputs, Random* random) {
  Bytes input = inputs[random->Below(inputs.size())];
  for (size_t changes = 1 + random->Below(4); changes > 0; --changes) {
    const size_t at = random->Below(input.size() + 1);
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    const Bytes& other = inputs[random->Below(inputs.size())];
    switch (random->Below(5)) {
      case 0:
        if (at < input.size()) input[at] ^= static_cast<uint8_t>(1u << random->Below(8));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<uint8_t>(random->Below(256));
        break;
      case 2:
        input.insert(place, static_cast<uint8_t>(random->Below(256)));
        break;
      case 3:
        if (at < input.size())
          input.erase(place,
                      place + 1 + static_cast<std::ptrdiff_t>(random->Below(input.size() - at)));
        break;
      default:  // the beginning of this one, the end of another
        input.resize(at);
        if (!other.empty()) {
          input.insert(input.end(),
                       other.begin() + static_cast<std::ptrdiff_t>(random->Below(other.size())),
                       other.end());
        }
    }
  }
  return input;
}

void Run(const Bytes& input) {
  current = input;
  // A copy of exactly this size, so that a sanitizer sees a read past its end.
  const Bytes copy(input);
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s FILE [mutations]\n", argv[0]), 2;
  const std::vector<Bytes> inputs = Read(argv[1]);
  const long mutations = argc > 2 ? std::atol(argv[2]) : 0;
  if (inputs.empty()) return std::fprintf(stderr, "%s holds no inputs\n", argv[1]), 1;
  std::signal(SIGABRT, OnSignal);
  std::signal(SIGSEGV, OnSignal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(ShowCurrent);
  for (const Bytes& input : inputs) Run(input);
  Random random;
  for (long i = 0; i < mutations; ++i) Run(Mutated(inputs, &random));
  std::printf("%zu inputs, %ld mutations\n", inputs.size(), mutations);
  return 0;
}
