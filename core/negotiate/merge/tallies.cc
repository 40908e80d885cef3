#include "negotiate/merge/tallies.h"

namespace hvd::negotiate {

uint32_t Tallies::FindName(const std::string& text) const {
  const auto found = name_of_.find(text);
  return found == name_of_.end() ? kNoId : found->second;
}

uint32_t Tallies::NameOf(const std::string& text) {
  const uint32_t found = FindName(text);
  if (found != kNoId) return found;
  if (free_names_.empty()) {
    free_names_.push_back(static_cast<uint32_t>(names_.size()));
    names_.emplace_back();
  }
  const uint32_t name = free_names_.back();
  free_names_.pop_back();
  names_[name] = Name{&name_of_.emplace(text, name).first->first, nullptr, false};
  return name;
}

Tally* Tallies::Unnamed(uint64_t ordinal) const {
  const uint64_t at = ordinal - unnamed_base_;
  return at < unnamed_.size() ? unnamed_[at] : nullptr;
}

Tally* Tallies::Begin(uint32_t name, uint64_t ordinal) {
  if (free_.empty()) free_.push_back(&all_.emplace_back(static_cast<uint32_t>(all_.size())));
  Tally* tally = free_.back();
  free_.pop_back();
  tally->name = name;
  tally->ordinal = ordinal;
  tally->order = ++begun_;
  if (ordinal != 0) {
    unnamed_.push_back(tally);
  } else {
    names_[name].tally = tally;
  }
  return tally;
}

void Tallies::End(Tally* tally) {
  if (tally->ordinal != 0) {
    unnamed_[tally->ordinal - unnamed_base_] = nullptr;
    for (; !unnamed_.empty() && unnamed_.front() == nullptr; ++unnamed_base_) unnamed_.pop_front();
  } else if (Name& name = names_[tally->name]; name.kept) {
    name.tally = nullptr;
  } else {
    free_names_.push_back(tally->name);
    name_of_.erase(name_of_.find(*name.text));
  }
  tally->name = tally->id = kNoId;
  tally->ordinal = tally->count = 0;
  tally->latest = -1;
  tally->complete = false;
  tally->details.reset();
  free_.push_back(tally);
}

void Tallies::ForgetNames() {
  name_of_.clear();
  names_.clear();
  free_names_.clear();
}

void Tallies::Drop() {
  const uint64_t base = unnamed_base_;
  ForEach([this](Tally* tally) { End(tally); });
  unnamed_base_ = base;
}

}  // namespace hvd::negotiate
