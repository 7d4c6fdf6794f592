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
  if (std::memcmp(head, kMagic, sizeof kMagic) != 0) throw Refusal("no SQLite file");
  page_bytes_ = two_bytes(head + 16) == 1 ? 65536 : two_bytes(head + 16);
  if (page_bytes_ < 512 || (page_bytes_ & (page_bytes_ - 1)) != 0) throw Refusal("a page size that is none");
  usable_ = page_bytes_ - head[20];
  if (usable_ < 480) throw Refusal("too many reserved bytes");
  if (head[18] > 2 || head[19] > 2) throw Refusal("a later version of the format");
  if (head[21] != 64 || head[22] != 32 || head[23] != 32) throw Refusal("other fractions of payload");
  constexpr uint32_t kUtf8 = 1;
  if (four_bytes(head + 56) != kUtf8) throw Refusal("texts that are not UTF-8");

  struct stat facts{};
  if (fstat(descriptor_, &facts) != 0) throw Refusal(std::strerror(errno));
  const size_t bytes = static_cast<size_t>(facts.st_size), file_pages = bytes / page_bytes_;
  if (bytes % page_bytes_ != 0 || file_pages > UINT32_MAX - 1) throw Refusal("a part of a page");
  // The header's number of pages is valid only if the program that wrote it also made the last change to the file.
  const bool has_count = four_bytes(head + 24) == four_bytes(head + 92) && four_bytes(head + 28) != 0;
  pages_ = has_count ? four_bytes(head + 28) : static_cast<Page>(file_pages);
  if (pages_ > file_pages) throw Refusal("pages are missing");
}

void File::check(Page page) const {
  constexpr size_t kLockByte = 0x40000000;
  if (page == 0 || page > pages_ || page == kLockByte / page_bytes_ + 1) throw Refusal("a page that is not there");
}

void File::read_at(size_t offset, size_t bytes, Byte* to) const {
  while (bytes > 0) {
    const ssize_t result = pread(descriptor_, to, bytes, static_cast<off_t>(offset));
    if (result < 0 && errno == EINTR) continue;
    if (result <= 0) throw Refusal(result < 0 ? std::strerror(errno) : "the file ends");
    const auto count = static_cast<size_t>(result);
    offset += count;
    to += count;
    bytes -= count;
  }
}

}  // namespace opspan::sqlite
