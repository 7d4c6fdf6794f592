#include <algorithm>
#include <limits>
#include <utility>

#include "columns/parallel.h"
#include "sqlite/pages.h"

namespace opspan::sqlite {
namespace {

constexpr Byte kInterior = 5, kLeaf = 13;
// The size of a leaf's header. The header of an interior page has 4 bytes more, with the number of its last child.
constexpr size_t kBegin = 8;
constexpr size_t kDeepest = 20;
constexpr size_t kPagesOfThread = 2048;

using Level = std::vector<Leaf>;

// Reads how many cells each page of a level has. Returns the kind of the pages; all pages must have the same kind.
Byte kind_of(const File& file, Level& level, size_t threads) {
  const size_t count = std::min(threads, level.size() / kPagesOfThread + 1);
  const size_t pages_per_thread = level.size() / count + 1;
  std::vector<Byte> kinds(count);
  columns::run_parallel(count, [&](size_t n) {
    for (size_t at = n * pages_per_thread; at < std::min(level.size(), (n + 1) * pages_per_thread); ++at) {
      Byte head[kBegin];
      file.read_begin(level[at].page, sizeof head, head);
      if (kinds[n] == 0) kinds[n] = head[0];
      level[at].cells = two_bytes(head + 3);
      if (head[0] != kinds[n]) throw Refusal("pages of two kinds on one level");
      if (level[at].cells > (file.page_bytes() - kBegin) / 6) throw Refusal("more cells than a page has room for");
      if (level[at].cells == 0 && level.size() > 1) throw Refusal("a page without cells");
    }
  });
  for (Byte kind : kinds) {
    if (kind != 0 && kind != kinds[0]) throw Refusal("pages of two kinds on one level");
  }
  return kinds[0];
}

class Children {
 public:
  Children(const File& file, Page root) : file_(file), has_seen_(file.pages() + size_t{1}), bytes_(file.page_bytes()) {
    has_seen_[root] = true;
  }

  void add(const Leaf& parent, Level& to) {
    if (parent.cells == 0) throw Refusal("a page without cells");
    file_.read(parent.page, 1, bytes_.data());
    const Byte* head = bytes_.data() + File::header_of(parent.page);
    const Byte* end = bytes_.data() + file_.usable();
    const Byte* pointers = head + kBegin + 4;
    if (pointers + 2 * size_t{parent.cells} > end) throw Refusal("more cells than a page has room for");
    Leaf child = parent;
    for (size_t cell = 0; cell < parent.cells; ++cell) {
      const Byte* at = bytes_.data() + two_bytes(pointers + 2 * cell);
      uint64_t key = 0;
      if (at < pointers || at + 4 >= end || varint(at + 4, end, key) == nullptr) throw Refusal("a cell outside");
      child.page = four_bytes(at);
      child.most = static_cast<int64_t>(key);
      if ((child.has_above && child.most <= child.above) || child.most > parent.most)
        throw Refusal("keys out of order");
      push(child, to);
      child.above = child.most;
      child.has_above = true;
    }
    child.page = four_bytes(head + kBegin);
    child.most = parent.most;
    push(child, to);
  }

 private:
  void push(const Leaf& child, Level& to) {
    file_.check(child.page);
    if (has_seen_[child.page]) throw Refusal("a page that is there twice");
    has_seen_[child.page] = true;
    to.push_back(child);
  }

  const File& file_;
  std::vector<bool> has_seen_;
  std::vector<Byte> bytes_;
};

}  // namespace

std::vector<Leaf> leaves(const File& file, Page root, size_t threads) {
  file.check(root);
  Level level{{root, 0, 0, std::numeric_limits<int64_t>::max(), false}};
  Children children(file, root);
  for (size_t depth = 0; depth < kDeepest; ++depth) {
    const Byte kind = kind_of(file, level, threads);
    if (kind == kLeaf) return level;
    if (kind != kInterior) throw Refusal("a page of no table with row ids");
    Level below;
    for (const Leaf& parent : level) children.add(parent, below);
    level = std::move(below);
  }
  throw Refusal("a tree that is too deep");
}

}  // namespace opspan::sqlite
