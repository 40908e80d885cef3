#include "base/host_identity.h"

#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "base/sha256.h"

namespace hvd {

uint64_t HostIdentity(const std::string& root) {
  std::string text;
  struct stat space {};
  std::ifstream file(root + "/proc/sys/kernel/random/boot_id");
  const bool known = std::getline(file, text) && stat((root + "/proc/self/ns/pid").c_str(), &space) == 0;
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
