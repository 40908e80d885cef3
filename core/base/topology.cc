#include "base/topology.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <utility>

#include "base/tree.h"
#include "digest/sha256.h"

namespace hvd {

Topology::Topology(const std::vector<int>& hosts, bool hosts_share_memory,
                   std::vector<std::string> names)
    : names_(std::move(names)), hosts_share_memory_(hosts_share_memory) {
  std::map<int, int> numbers;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const int host = numbers.emplace(hosts[i], static_cast<int>(numbers.size())).first->second;
    if (host == this->hosts()) members_.emplace_back();
    std::vector<Position>& locals = members_[static_cast<size_t>(host)];
    places_.push_back({host, static_cast<int>(locals.size()), 0});
    locals.emplace_back(static_cast<int>(i));
  }
  for (const std::vector<Position>& locals : members_) {
    if (locals.size() > cross_sizes_.size()) cross_sizes_.resize(locals.size(), 0);
    for (size_t local = 0; local < locals.size(); ++local) {
      places_[locals[local].index()].cross_rank = cross_sizes_[local]++;
    }
  }
}

Topology Topology::Of(const Members& members) const {
  std::vector<int> hosts;
  hosts.reserve(members.ranks().size());
  for (const GlobalRank rank : members.ranks()) hosts.push_back(HostOf(Position(rank.value())));
  return {hosts, hosts_share_memory_};
}

// The members of a host of the tree.
std::vector<Position> Topology::TreeHost(int host) const {
  return hosts_share_memory_ ? OnHost(host) : std::vector<Position>{Position(host)};
}

Positions Topology::BelowHosts(int first, int end) const {
  if (!hosts_share_memory_) return Positions::Range(first, end - first);
  std::vector<int> all;
  for (int host = first; host < end; ++host) {
    for (const Position member : OnHost(host)) all.push_back(member.value());
  }
  std::sort(all.begin(), all.end());
  Positions below;
  for (const int member : all) below.Add(Position(member));
  return below;
}

Topology::TreePlace Topology::TreePlaceOf(Position member, int few) const {
  TreePlace place;
  const int host = hosts_share_memory_ ? HostOf(member) : member.value();
  const std::vector<Position> locals = TreeHost(host);
  if (member != locals.front()) {
    place.parent = locals.front();
    return place;
  }
  const bool star = TreeHosts() <= few;
  const Tree tree(host, TreeHosts());
  std::vector<int> children = tree.Children();
  if (star) children.resize(host == 0 ? static_cast<size_t>(TreeHosts() - 1) : 0);
  if (star) std::iota(children.begin(), children.end(), 1);
  if (host != 0) place.parent = TreeHost(star ? 0 : tree.parent()).front();
  if (locals.size() + children.size() == 1 && host != 0) return place;
  for (const Position local : locals) place.children.push_back({local, Positions{local.value()}});
  for (const int child : children) {
    const int end = star ? child + 1 : tree.End(child);
    place.children.push_back({TreeHost(child).front(), BelowHosts(child, end)});
  }
  return place;
}

std::string Topology::Describe(GlobalRank rank) const {
  const size_t host = rank.value() < size() ? HostOf(Position(rank.value())) : 0;
  return hosts() > 1 && host < names_.size() ? Name(rank) + " on " + names_[host] : Name(rank);
}

std::string Topology::DescribeHost(GlobalRank rank) const {
  const size_t host = rank.value() < size() ? HostOf(Position(rank.value())) : 0;
  return host < names_.size() ? names_[host] : "the host of " + Name(rank);
}

bool Topology::OnOneHost(GlobalRank a, GlobalRank b) const {
  if (hosts() <= 1) return true;
  return HostOf(Position(a.value())) == HostOf(Position(b.value()));
}

uint64_t HostIdentity(const std::string& root) {
  std::string text;
  struct stat space {};
  std::ifstream file(root + "/proc/sys/kernel/random/boot_id");
  const bool known =
      std::getline(file, text) && stat((root + "/proc/self/ns/pid").c_str(), &space) == 0;
  if (!known) return 0;
  text += " " + std::to_string(space.st_dev) + " " + std::to_string(space.st_ino);
  Sha256 hash;
  hash.Update(text.data(), text.size());
  const Digest digest = hash.Finish();
  uint64_t identity;
  std::memcpy(&identity, digest.data(), sizeof identity);
  return identity;
}

}  // namespace hvd
