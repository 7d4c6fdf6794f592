#include "sqlite/pages.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace opspan::sqlite {
namespace {

constexpr size_t kHeaderBytes = 100;
constexpr char kMagic[] = "SQLite format 3";  // with the 0 at its end

}  // namespace

File::File(int descriptor) : descriptor_(descriptor) {
  Byte head[kHeaderBytes];
  read_at(0, sizeof head, head);
  if (std::memcmp(head, kMagic, sizeof kMagic) != 0) throw Declined("no SQLite file");
  page_bytes_ = two_bytes(head + 16) == 1 ? 65536 : two_bytes(head + 16);
  if (page_bytes_ < 512 || (page_bytes_ & (page_bytes_ - 1)) != 0) throw Declined("a page size that is none");
  usable_ = page_bytes_ - head[20];
  if (usable_ < 480) throw Declined("too many reserved bytes");
  if (head[18] > 2 || head[19] > 2) throw Declined("a later version of the format");
  if (head[21] != 64 || head[22] != 32 || head[23] != 32) throw Declined("other fractions of payload");
  constexpr uint32_t kUtf8 = 1;
  if (four_bytes(head + 56) != kUtf8) throw Declined("texts that are not UTF-8");

  struct stat facts{};
  if (fstat(descriptor_, &facts) != 0) throw Declined(std::strerror(errno));
  const size_t bytes = static_cast<size_t>(facts.st_size), there = bytes / page_bytes_;
  if (bytes % page_bytes_ != 0 || there > UINT32_MAX - 1) throw Declined("a part of a page");
  // The number of pages counts only if the program that wrote it made the last change, too.
  const bool is_said = four_bytes(head + 24) == four_bytes(head + 92) && four_bytes(head + 28) != 0;
  pages_ = is_said ? four_bytes(head + 28) : static_cast<Page>(there);
  if (pages_ > there) throw Declined("pages are missing");
}

void File::check(Page page) const {
  constexpr size_t kLockByte = 0x40000000;
  if (page == 0 || page > pages_ || page == kLockByte / page_bytes_ + 1) throw Declined("a page that is not there");
}

void File::read_at(size_t offset, size_t bytes, Byte* to) const {
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Declined(got < 0 ? std::strerror(errno) : "the file ends");
    const auto count = static_cast<size_t>(got);
    offset += count;
    to += count;
    bytes -= count;
  }
}

}  // namespace opspan::sqlite
