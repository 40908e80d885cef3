#include "base/topology.h"

#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <map>
#include <utility>

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

std::string Topology::Describe(GlobalRank rank) const {
  const size_t host = rank.value() < size() ? HostOf(Position(rank.value())) : 0;
  return hosts() > 1 && host < names_.size() ? Name(rank) + " on " + names_[host] : Name(rank);
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
