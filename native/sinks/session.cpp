#include "sinks/session.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

#include "sinks/sink.h"

namespace opspan {

constinit Session g_sessions[OPSPAN_SINK_COUNT];

namespace {

// A page of memory with the words of the sessions that a process started. The processes that it forks share this page.
// A forked process that starts sessions makes its own page.
struct Page {
  struct alignas(64) Line {
    SessionWord word{0};
  };
  Line lines[OPSPAN_SINK_COUNT];
  pid_t owner = 0;
  ino_t pids = 0;  // the PID namespace in which `owner` is a process id
};

std::atomic<Page*> g_page{nullptr};
// The number of the last session. A forked process counts on from it, so no process takes another process's session for
// its own.
std::atomic<uint64_t> g_number{0};

std::atomic<opspan_scheduler> g_schedule{nullptr};
std::atomic<opspan_callback> g_callback{nullptr};

ino_t pid_namespace() {
  struct stat status;
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

Page* page() {
  if (Page* known = g_page.load(std::memory_order_acquire)) return known;
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  Page* created = new (memory) Page;
  created->owner = getpid();
  created->pids = pid_namespace();
  Page* other = nullptr;
  if (g_page.compare_exchange_strong(other, created)) return created;
  munmap(memory, sizeof(Page));
  return other;
}

// Returns whether the process has ended, even if nobody has waited for it yet.
bool is_gone(pid_t pid) {
  if (kill(pid, 0) != 0) return errno == ESRCH;
  char path[64], line[512];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
  FILE* file = std::fopen(path, "re");
  if (!file) return false;
  size_t count = std::fread(line, 1, sizeof(line) - 1, file);
  std::fclose(file);
  while (count && line[count - 1] != ')') --count;  // the program's name, in parentheses, may contain any character
  return count + 1 < sizeof(line) - 1 && count && (line[count + 1] == 'Z' || line[count + 1] == 'X');
}

}  // namespace

int Session::sink() const { return static_cast<int>(this - g_sessions); }

bool Session::is_owner() const {
  const Page* own_page = g_page.load(std::memory_order_acquire);
  return own_page && word_.load(std::memory_order_relaxed) == &own_page->lines[sink()].word;
}

bool Session::share(uint64_t form) {
  Page* own_page = page();
  if (!own_page) return false;
  uint64_t number = (g_number.fetch_add(1, std::memory_order_relaxed) + 1) << 8;
  SessionWord& word = own_page->lines[sink()].word;
  word.store(number | form, std::memory_order_release);
  number_.store(number, std::memory_order_relaxed);
  word_.store(&word, std::memory_order_release);
  return true;
}

bool Session::start(int form, uint32_t max_strings) {
  base_ = totals(sink());
  max_strings_.store(max_strings, std::memory_order_relaxed);
  form_ = form;
  return share(static_cast<uint64_t>(form));
}

void Session::forget() {
  word_.store(&g_no_session, std::memory_order_release);
  number_.store(0, std::memory_order_release);
}

void Session::stop(opspan_stats* stats) {
  if (is_owner()) word_.load()->store(0, std::memory_order_release);
  forget();
  auto* stop = kSinks[sink()]->stop;
  uint64_t lost = stop ? stop() : 0;
  if (!stats) return;
  *stats = totals(sink());
  subtract(stats, base_);
  stats->lost = lost;
}

void Session::turn(bool on) {
  if (!is_owner()) return;
  uint64_t number = number_.load(std::memory_order_relaxed);
  word_.load()->store(number | (on ? static_cast<uint64_t>(form_) : 0), std::memory_order_release);
}

bool Session::adopt() {
  if (!begin_change(kOn)) return false;
  bool is_shared = is_owner() || share(word_.load()->load() & kForms);
  finish_change(kOn);
  return is_shared;
}

// Runs in the child, where only this thread exists.
void Session::after_fork() {
  g_page.store(nullptr, std::memory_order_relaxed);
  if (state_.load() == kChanging) {  // the thread that was changing the state is missing here
    forget();
    finish_change(kOff);
  }
  if (state_.load() == kOn) base_ = totals(sink());
}

void Session::check_owner() {
  SessionWord* word = word_.load();
  uint64_t now = word->load();
  if (word == &g_no_session || is_owner()) return;
  const auto* line = reinterpret_cast<const Page::Line*>(word);
  const auto* owner_page = reinterpret_cast<const Page*>(line - sink());
  if (!is_gone(owner_page->owner) || pid_namespace() != owner_page->pids) return;
  word->compare_exchange_strong(now, 0);
}

// Ends the session in this forked process after its owner has ended it. Does nothing while ranges that began on this
// thread are still open, because no ends can be written to a closed file. After the end, calls the program's callback.
// Other threads may be in this function at the same time. Returns 0, the form that means that no labels are wanted.
int Session::end_in_fork() {
  const Thread& here = Thread::here();
  bool is_open = kSinks[sink()]->ends_anywhere && here.frames[sink()].depth() > here.inherited[sink()];
  if (is_open || !begin_change(kOn)) return 0;
  if ((word_.load()->load() ^ number_.load()) <= kForms) {  // another session has begun in between
    finish_change(kOn);
    return 0;
  }
  stop(nullptr);
  finish_change(kOff);
  opspan_callback callback = g_callback.load();
  if (opspan_scheduler schedule = g_schedule.load(); schedule && callback) {
    schedule(callback, reinterpret_cast<void*>(static_cast<intptr_t>(sink())));
  }
  return 0;
}

int start_session(int sink, int form, uint32_t max_strings, char* error, size_t error_size) {
  Session& session = g_sessions[sink];
  if (!session.begin_change(Session::kOff)) {
    return fail(EBUSY, "a session is on already: stop it first", error, error_size);
  }
  bool has_started = session.start(form, max_strings);
  session.finish_change(has_started ? Session::kOn : Session::kOff);
  return has_started ? form : fail(ENOMEM, kNoMemory, error, error_size);
}

void stop_session(int sink, opspan_stats* stats) {
  if (stats) *stats = {};
  Session& session = g_sessions[sink];
  if (!session.begin_change(Session::kOn)) return;
  session.stop(stats);
  session.finish_change(Session::kOff);
}

}  // namespace opspan

using namespace opspan;

namespace {
bool is_sink(int sink) { return sink >= 0 && sink < OPSPAN_SINK_COUNT; }
}  // namespace

void opspan_session_turn(int sink, int on) {
  if (is_sink(sink)) g_sessions[sink].turn(on);
}

int opspan_session_adopt(int sink) { return is_sink(sink) && g_sessions[sink].adopt(); }

void opspan_tell_forks(opspan_scheduler schedule, opspan_callback callback) {
  g_schedule.store(schedule);
  g_callback.store(callback);
}
