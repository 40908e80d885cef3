#include "settings/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "check.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

struct TemporaryFolder {
  TemporaryFolder() {
    std::string name = fs::temp_directory_path() / "hvd_output_XXXXXX";
    path = mkdtemp(name.data());
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  std::string File(const std::string& name, const std::string& content) const {
    std::ofstream(path / name) << content;
    return path / name;
  }
  fs::path path;
};

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The error of opening `path`; empty when it was opened, and then written to.
std::string ErrorOf(const std::string& path) {
  int fd = -1;
  const Status status = OpenOutputFile(path, "a log", &fd);
  if (!status.ok()) return status.message();
  EXPECT_EQ(write(fd, "new", 3), 3);
  EXPECT_TRUE((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  close(fd);
  return "";
}

bool Says(const std::string& text, const std::string& part) {
  return text.find("a log: ") == 0 && text.find(part) != std::string::npos;
}

TEST(output_file, MakesOrEmptiesAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.File("log", "old content");
  EXPECT_EQ(ErrorOf(path), "");
  EXPECT_EQ(Content(path), "new");
  EXPECT_EQ(ErrorOf(folder.path / "fresh"), "");
  EXPECT_EQ(Content(folder.path / "fresh"), "new");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  EXPECT_EQ(ErrorOf("here"), "");
  fs::current_path(before);
  EXPECT_EQ(Content(folder.path / "here"), "new");
}

TEST(output_file, FollowsALinkToTheFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path / "logs");
  fs::create_directory_symlink(folder.path / "logs", folder.path / "link");
  EXPECT_EQ(ErrorOf(folder.path / "link" / "log"), "");
  EXPECT_EQ(Content(folder.path / "logs" / "log"), "new");
}

TEST(output_file, RefusesLinks) {
  const TemporaryFolder folder;
  const std::string victim = folder.File("victim", "precious");
  fs::create_symlink(victim, folder.path / "symbolic");
  fs::create_symlink("nowhere", folder.path / "dangling");
  fs::create_hard_link(victim, folder.path / "hard");
  EXPECT_TRUE(Says(ErrorOf(folder.path / "symbolic"), "symbolic link"));
  EXPECT_TRUE(Says(ErrorOf(folder.path / "dangling"), "symbolic link"));
  EXPECT_TRUE(Says(ErrorOf(folder.path / "hard"), "hard link"));
  EXPECT_EQ(Content(victim), "precious");
  EXPECT_FALSE(fs::exists(folder.path / "nowhere"));
}

TEST(output_file, NeverWaits) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(Says(ErrorOf(pipe), "no regular file"));
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_TRUE(Says(ErrorOf(pipe), "no regular file"));
  close(reader);
  EXPECT_TRUE(Says(ErrorOf("/dev/full"), "no regular file"));
  EXPECT_TRUE(Says(ErrorOf(folder.path), "directory"));
  EXPECT_TRUE(Says(ErrorOf(folder.path.string() + "/"), ""));
  EXPECT_TRUE(Says(ErrorOf(folder.path / "no" / "log"), "No such file"));
}

// As in /tmp: the folder is root's, and another user was there first.
TEST(output_file, RefusesAFileOfAnotherUser) {
  if (geteuid() != 0) return;
  const TemporaryFolder folder;
  const std::string path = folder.File("log", "theirs");
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(Says(ErrorOf(path), "another user"));
  EXPECT_EQ(Content(path), "theirs");
  // A folder whose owner is mapped to another user: what was written there before may be replaced.
  ASSERT_EQ(chown(folder.path.c_str(), 12345, 12345), 0);
  EXPECT_EQ(ErrorOf(path), "");
}

}  // namespace
}  // namespace hvd
