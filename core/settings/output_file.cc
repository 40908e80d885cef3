#include "settings/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace hvd {

namespace {

constexpr int kFlags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
constexpr mode_t kMode = 0666;  // less the umask
constexpr int kTries = 8;

// Closes itself.
struct Folder {
  int fd = -1;
  ~Folder() {
    if (fd >= 0) close(fd);
  }
};

// The file made by this call, or an existing one. Somebody may make or remove it between the two
// attempts.
int OpenOrMake(int folder, const char* name, bool* made) {
  int fd = -1;
  for (int i = 0; i < kTries && fd < 0; ++i) {
    fd = openat(folder, name, kFlags | O_CREAT | O_EXCL, kMode);
    *made = fd >= 0;
    if (fd >= 0 || errno != EEXIST) break;
    fd = openat(folder, name, kFlags);
    if (fd < 0 && errno != ENOENT) break;
  }
  return fd;
}

// Why an existing file must not be emptied; null: it may.
const char* Objection(int folder, int fd) {
  struct stat file {};
  struct stat around {};
  if (fstat(fd, &file) != 0 || fstat(folder, &around) != 0) return "its owner cannot be told";
  if (!S_ISREG(file.st_mode)) return "it is no regular file";
  if (file.st_nlink > 1) return "it has a second name (a hard link), whose content would be lost";
  if (file.st_uid != geteuid() && file.st_uid != around.st_uid) return "it belongs to another user";
  return nullptr;
}

Status Refused(const std::string& what, const std::string& path, const std::string& why) {
  return {Code::kUnavailable,
          what + ": " + path + " is not written: " + why + ". Name another file"};
}

}  // namespace

Status OpenOutputFile(const std::string& path, const std::string& what, int* fd) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const Folder folder{open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd < 0) return Status::Errno(what + ": cannot open the folder of " + path);
  bool made = false;
  const int opened = OpenOrMake(folder.fd, name.c_str(), &made);
  if (opened < 0 && errno == ELOOP) return Refused(what, path, "it is a symbolic link");
  if (opened < 0 && errno == ENXIO) return Refused(what, path, "it is no regular file");
  if (opened < 0) return Status::Errno(what + ": cannot write " + path);
  const char* objection = made ? nullptr : Objection(folder.fd, opened);
  if (objection == nullptr && (made || ftruncate(opened, 0) == 0)) {
    *fd = opened;
    return Status::Ok();
  }
  const Status status = objection != nullptr ? Refused(what, path, objection)
                                             : Status::Errno(what + ": cannot empty " + path);
  close(opened);
  return status;
}

}  // namespace hvd
