#include "negotiate/agreement.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "base/text.h"

namespace hvd::negotiate {
namespace {

using Show = std::function<std::string(const Request&)>;

// Something on which all members must agree: what it is called in a message, how it is written (two
// are equal if they are written alike), and what to do.
struct Property {
  std::string mismatch;
  Show show;
  const char* advice;
};

std::string Upper(OpKind kind) {
  std::string text = Name(kind);
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// The shortest text that reads back as the same number.
std::string Show17(double value) {
  char text[40];
  for (int digits : {6, 15, 17}) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

std::string ShowShape(const Request& request, size_t t) {
  const Shape& shape = request.tensors[t].shape;
  if (!IsRagged(request.kind) || shape.empty()) return ToString(shape);
  const std::string rest = ToString(Shape(shape.begin() + 1, shape.end()));
  return shape.size() == 1 ? "[*]" : "[*, " + rest.substr(1);
}

std::string Title(const Request& request, uint64_t ordinal) {
  return "'" + (ordinal == 0 ? Shown(request.name) : PublicName(request.kind, ordinal)) + "'";
}

std::string Subject(const Request& request, uint64_t ordinal) {
  return (request.tensors.size() > 1 ? "group " : "tensor ") + Title(request, ordinal);
}

std::string Subject(const Request& request, uint64_t ordinal, size_t t) {
  if (request.tensors.size() == 1) return Subject(request, ordinal);
  return "tensor " + std::to_string(t) + " (counted from 0) of " + Subject(request, ordinal);
}

// "ranks 0, 2 sent [4], rank 1 sent [3]", or nothing if all sent the same.
std::string Differences(const std::vector<Sent>& sent, const Show& show) {
  constexpr size_t kShown = 8;
  std::vector<std::pair<std::string, std::vector<GlobalRank>>> groups;
  for (const Sent& one : sent) {
    const std::string value = show(*one.request);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
    group->second.insert(group->second.end(), one.ranks.begin(), one.ranks.end());
  }
  if (groups.size() < 2) return "";
  std::string text;
  for (size_t g = 0; g < groups.size() && g < kShown; ++g) {
    std::sort(groups[g].second.begin(), groups[g].second.end());
    text += (g > 0 ? ", " : "") + RankList(groups[g].second) + " sent " + groups[g].first;
  }
  if (groups.size() > kShown)
    text += ", and others sent " + std::to_string(groups.size() - kShown) + " more";
  return text;
}

std::string Check(const std::vector<Sent>& sent, const Property& property,
                  const std::string& subject, uint64_t ordinal) {
  const std::string differences = Differences(sent, property.show);
  if (differences.empty()) return "";
  std::string text =
      property.mismatch + " for " + subject + ": " + differences + ". " + property.advice;
  if (ordinal != 0) {
    text +=
        " The operation has no name, so it was matched by its order among the unnamed operations "
        "of each "
        "rank.";
  }
  return text;
}

std::vector<Property> PropertiesOf(OpKind kind) {
  std::vector<Property> all;
  if (HasReduction(kind)) {
    all.push_back({"Mismatched reduction operation",
                   [](const Request& r) { return std::string(Name(r.reduce_op)); },
                   "Every rank must use the same op."});
    all.push_back({"Mismatched prescale and/or postscale factors",
                   [](const Request& r) {
                     return "prescale " + Show17(r.prescale) + " postscale " + Show17(r.postscale);
                   },
                   "Every rank must use the same factors."});
  }
  if (HasRoot(kind)) {
    all.push_back({"Mismatched " + Upper(kind) + " root ranks",
                   [](const Request& r) { return "root " + Name(r.root); },
                   "Every rank must name the same root rank."});
  }
  all.push_back({"Mismatched " + Upper(kind) + " CPU/GPU device selection",
                 [](const Request& r) { return std::string(Name(KindOf(r.device))); },
                 "The tensor must be on the CPU on every rank, or on a GPU on every rank."});
  return all;
}

std::vector<Property> PropertiesOf(OpKind kind, size_t t) {
  const bool ragged = IsRagged(kind);
  return {{"Mismatched data types",
           [t](const Request& r) { return std::string(Name(r.tensors[t].dtype)); },
           "Every rank must submit the same data type."},
          {"Mismatched " + Upper(kind) + " tensor shapes",
           [t](const Request& r) { return ShowShape(r, t); },
           ragged ? "Only the first dimension may differ between ranks."
                  : "Every rank must submit the same shape."}};
}

std::string DifferentOperations(const std::vector<Sent>& sent, uint64_t ordinal) {
  const Property operation{
      "Mismatched operations", [](const Request& r) { return std::string(Name(r.kind)); },
      ordinal == 0 ? "Every rank must submit the same operation under one name."
                   : "Give the operations names, or submit them in the same order everywhere."};
  const std::string subject = ordinal == 0 ? "tensor '" + Shown(sent[0].request->name) + "'"
                                           : "unnamed operation " + std::to_string(ordinal);
  return Check(sent, operation, subject, ordinal);
}

std::string DifferentTensors(const std::vector<Sent>& sent, uint64_t ordinal) {
  const Request& first = *sent[0].request;
  const Property number{"Mismatched number of tensors",
                        [](const Request& r) { return std::to_string(r.tensors.size()); },
                        "Every rank must submit the same tensors in a group."};
  std::string error = Check(sent, number, "group " + Title(first, ordinal), ordinal);
  for (size_t t = 0; error.empty() && t < first.tensors.size(); ++t) {
    for (const Property& property : PropertiesOf(first.kind, t)) {
      if (error.empty()) error = Check(sent, property, Subject(first, ordinal, t), ordinal);
    }
  }
  return error;
}

// What a kind does along the first dimension, so that a 0-dim tensor cannot take part; else
// nothing.
const char* AlongFirstDim(OpKind kind) {
  switch (kind) {
    case OpKind::kAllgather:
      return "gather";
    case OpKind::kAlltoall:
      return "split";
    case OpKind::kReducescatter:
      return "scatter";
    default:
      return nullptr;
  }
}

std::string ZeroDim(const Request& request, uint64_t ordinal) {
  const char* verb = AlongFirstDim(request.kind);
  for (size_t t = 0; verb != nullptr && t < request.tensors.size(); ++t) {
    if (!request.tensors[t].shape.empty()) continue;
    return "The " + std::string(Name(request.kind)) + " of " + Subject(request, ordinal, t) +
           " has a 0-dim tensor, and there is no first dimension to " + verb +
           " along. Reshape it to [1].";
  }
  return "";
}

}  // namespace

std::string Disagreement(std::vector<Sent> sent, uint64_t ordinal) {
  std::sort(sent.begin(), sent.end(),
            [](const Sent& a, const Sent& b) { return a.ranks < b.ranks; });
  std::string error = DifferentOperations(sent, ordinal);
  if (!error.empty()) return error;
  const Request& first = *sent[0].request;
  for (const Property& property : PropertiesOf(first.kind)) {
    if (error.empty()) error = Check(sent, property, Subject(first, ordinal), ordinal);
  }
  if (error.empty()) error = DifferentTensors(sent, ordinal);
  // Not-a-number factors of different bits are written alike.
  if (error.empty()) error = "Mismatched requests for " + Subject(first, ordinal) + ".";
  return error;
}

std::string Objection(const Request& request, uint64_t ordinal, const Members& members) {
  if (request.kind == OpKind::kBarrier) return "";
  const std::string subject = Subject(request, ordinal);
  if (request.tensors.empty())
    return "The " + std::string(Name(request.kind)) + " " + subject + " has no tensors.";
  if (request.kind == OpKind::kBroadcast && !members.Has(request.root)) {
    return "Root " + Name(request.root) + " of " + subject +
           " is not in the process set, which has " + RankList(members.ranks()) + ".";
  }
  if (request.kind == OpKind::kReducescatter && request.reduce_op == ReduceOp::kAdasum) {
    return "The reducescatter of " + subject +
           " cannot use Adasum, which combines whole tensors. Use an allreduce with Adasum, or "
           "another op.";
  }
  if (request.kind == OpKind::kAlltoall && request.tensors.size() != 1) {
    return "The alltoall of " + subject + " has " + std::to_string(request.tensors.size()) +
           " tensors, but one set of splits. Submit one alltoall for each tensor.";
  }
  return ZeroDim(request, ordinal);
}

std::string RootHasJoined(const Request& request, uint64_t ordinal) {
  return "Root " + Name(request.root) + " of " + Subject(request, ordinal) +
         " has joined and has nothing to broadcast. Use a root rank that has not joined, or let " +
         Name(request.root) + " submit this broadcast before it joins.";
}

namespace {

constexpr size_t kListed = 16;

std::string Run(GlobalRank first, GlobalRank last) {
  const std::string from = std::to_string(first.value());
  if (first == last) return from;
  return from + (last.value() == first.value() + 1 ? ", " : "-") + std::to_string(last.value());
}

}  // namespace

std::string RankList(const std::vector<GlobalRank>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t runs = 0;
  for (size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    if (runs++ == kListed) return text + " and " + std::to_string(ranks.size() - begin) + " more";
    end = begin + 1;
    const bool in_runs = ranks.size() > kListed;
    while (in_runs && end < ranks.size() && ranks[end].value() == ranks[end - 1].value() + 1) ++end;
    if (begin > 0) text += ", ";
    text += Run(ranks[begin], ranks[end - 1]);
  }
  return text;
}

}  // namespace hvd::negotiate
