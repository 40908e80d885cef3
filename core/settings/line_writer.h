#pragma once

#include <functional>
#include <memory>
#include <string>

namespace hvd {

// Writes lines to a descriptor on a thread of its own, which the first line starts: a terminal that
// is paused, a pipe that nobody reads and a disk that hangs hold up nobody else. What finds no room
// in its queue is lost and counted.
class LineWriter {
 public:
  struct Options {
    int fd = -1;
    bool owns = false;  // closes it at the end
    size_t most_bytes = 256 << 10;
    // The line that tells of so many lost ones, as soon as there is room again; null: none does.
    std::function<std::string(size_t lines)> loss = nullptr;
    // Told once, on the writing thread, why the descriptor takes no more (errno), which gets no
    // more then. Null: nobody is, and the next line is tried all the same.
    std::function<void(int error)> on_error = nullptr;
  };

  explicit LineWriter(Options options);
  ~LineWriter() { Close(); }
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // The line is written when it returns, unless that takes longer than a moment. Throws bad_alloc.
  void Put(std::string line);

  // Waits until all is written, but not for longer than a second.
  void Flush();

 private:
  struct State;
  void Close();

  const std::shared_ptr<State> state_;  // the thread's, too, which may hang in a write for good
};

}  // namespace hvd
