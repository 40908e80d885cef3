#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

// The whole text is one value of the kind, within the bounds; else false and *value is untouched.
bool ParseInteger(const std::string& text, int64_t lowest, int64_t highest, int64_t* value);
bool ParseNumber(const std::string& text, double lowest, double highest, double* value);
bool ParseFlag(const std::string& text, bool* value);               // 1/0, true/false, yes/no, on/off
bool ParseList(const std::string& text, std::vector<int>* values);  // "0,2,4"

}  // namespace hvd
