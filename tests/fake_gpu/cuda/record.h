#pragma once

// The list of calls, the ledger of what the program holds, and the end of a program that does what
// it must not.

#include <sstream>
#include <string>

namespace fake_gpu {

void Record(const std::string& line);

inline void Append(std::ostringstream*) {}
template <typename Value, typename... Rest>
void Append(std::ostringstream* line, const char* name, const Value& value, const Rest&... rest) {
  *line << " " << name << "=" << value;
  Append(line, rest...);
}

// One line: Record("cuEventRecord", "event", 3, "stream", 1) is "cuEventRecord event=3 stream=1".
template <typename... Arguments>
void Record(const char* call, const Arguments&... arguments) {
  std::ostringstream line;
  line << call;
  Append(&line, arguments...);
  Record(line.str());
}

// The program broke a rule. Ends the process where the fakes are strict, else returns `code`.
int Fail(int code, const std::string& message);

// An object that the program has to give back, as "stream" and "3".
void Own(const std::string& kind, const std::string& name);
void Disown(const std::string& kind, const std::string& name);

// Counts the calls that a fault may hit. The first is 1; starts anew with fake_gpu_forget().
int CountCall(const std::string& counter);

}  // namespace fake_gpu
