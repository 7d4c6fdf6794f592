#include "sinks/threads.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <deque>
#include <new>
#include <string_view>
#include <vector>

#include "capture/thread_key.h"
#include "sinks/session.h"
#include "sinks/sink.h"

namespace opspan {
namespace {

static_assert(std::string_view(OPSPAN_ENGINE) == capture::OpName::kEngine);

// A thread, in a table by torch's number. Torch numbers threads from 1, in the order in which they first run an op.
struct NumberEntry {
  std::atomic<Thread*> thread{nullptr};
  std::atomic<uint32_t> tid{0};
};
constexpr uint64_t kNumbersPerBlock = 1024;
constexpr uint64_t kNumberBlocks = 4096;
std::atomic<NumberEntry*> g_number_blocks[kNumberBlocks];

// The number of ended threads whose state (forward ops, open frames) stays readable. When more threads have ended, a
// new thread gets the oldest state.
constexpr size_t kRetired = 64;

struct Registry {
  std::mutex sessions;
  std::mutex lock;
  std::vector<Thread*> all;
  std::deque<Thread*> retired;
  pthread_key_t at_exit;
};

// The registry is on the heap and is never freed: while a process exits, threads may live longer than its static
// objects.
Registry& registry();

std::atomic<uint32_t> g_process_id{0};

NumberEntry* entry_of(uint64_t number, bool add) {
  if (number >= kNumbersPerBlock * kNumberBlocks) return nullptr;
  std::atomic<NumberEntry*>& block = g_number_blocks[number / kNumbersPerBlock];
  NumberEntry* entries = block.load(std::memory_order_acquire);
  if (!entries && add) {
    std::lock_guard guard(slow_lock());
    entries = block.load(std::memory_order_acquire);
    if (!entries) block.store(entries = new NumberEntry[kNumbersPerBlock], std::memory_order_release);
  }
  return entries ? entries + number % kNumbersPerBlock : nullptr;
}

uint32_t os_tid() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

}  // namespace

constinit thread_local Thread* Thread::t_here = nullptr;

void forget_thread(void* pointer) {
  Thread::t_here = nullptr;
  std::lock_guard guard(slow_lock());
  registry().retired.push_back(static_cast<Thread*>(pointer));
}

// Runs in the child, where only this thread exists.
void after_fork() {
  g_process_id.store(static_cast<uint32_t>(getpid()), std::memory_order_relaxed);
  if (Thread* thread = Thread::t_here) {
    thread->tid = os_tid();
    thread->number.store(0, std::memory_order_relaxed);  // so that it is registered again, with the new tid
    for (int sink = 0; sink < OPSPAN_SINK_COUNT; ++sink) thread->inherited[sink] = thread->frames[sink].depth();
  }
  slow_lock().unlock();
  session_lock().unlock();
  for (Session& session : g_sessions) session.after_fork();
}

namespace {

void before_fork() {
  session_lock().lock();
  slow_lock().lock();
}

void after_fork_in_parent() {
  slow_lock().unlock();
  session_lock().unlock();
}

Registry& registry() {
  static Registry* instance = [] {
    auto* registry = new Registry;
    registry->at_exit = capture::make_key(forget_thread);
    g_process_id.store(static_cast<uint32_t>(getpid()), std::memory_order_relaxed);
    return registry;
  }();
  [[maybe_unused]] static const int handlers = pthread_atfork(before_fork, after_fork_in_parent, after_fork);
  return *instance;
}

}  // namespace

std::mutex& session_lock() { return registry().sessions; }
std::mutex& slow_lock() { return registry().lock; }

uint32_t process_id() {
  uint32_t pid = g_process_id.load(std::memory_order_relaxed);
  return pid ? pid : (registry(), g_process_id.load(std::memory_order_relaxed));
}

Thread& Thread::enter() {
  Registry& all = registry();
  Thread* thread = nullptr;
  {
    std::lock_guard guard(all.lock);
    if (all.retired.size() >= kRetired) {
      thread = all.retired.front();
      all.retired.pop_front();
    } else {
      thread = new Thread;
      all.all.push_back(thread);
    }
  }
  thread->number.store(0, std::memory_order_release);
  thread->forwards.clear();
  for (Frames& frames : thread->frames) frames.clear();
  for (python::OpenCalls& open : thread->python) open = {};
  for (int& depth : thread->user_depth) depth = 0;
  for (uint32_t& depth : thread->inherited) depth = 0;
  for (void*& thread_state : thread->collector_threads_) thread_state = nullptr;
  thread->tid = os_tid();
  thread->logs = capture::t_logs;
  t_here = thread;
  // Uses a pthread key and not a C++ destructor. Destructors of other thread-locals may run ops after the key's
  // destructor, and then the thread is registered again.
  pthread_setspecific(all.at_exit, thread);
  return *thread;
}

void Thread::give_up(int sink, Frame& frame) {
  End end = frame.end.load(std::memory_order_relaxed);
  if (!kSinks[sink]->ends_anywhere || end == End::kNone) counters[sink].given_up.add();
  if (frame.where && end != End::kHere) capture::give_up_range(frame.place);
}

void Thread::register_number(uint64_t torch_number) {
  if (NumberEntry* entry = entry_of(torch_number, true)) {
    entry->tid.store(tid, std::memory_order_relaxed);
    entry->thread.store(this, std::memory_order_release);
  }
  number.store(torch_number, std::memory_order_release);
}

Thread* thread_of(uint64_t torch_number) {
  NumberEntry* entry = entry_of(torch_number, false);
  Thread* thread = entry ? entry->thread.load(std::memory_order_acquire) : nullptr;
  // This Thread may already be in use for another thread.
  return thread && thread->number.load(std::memory_order_acquire) == torch_number ? thread : nullptr;
}

uint32_t tid_of(uint64_t torch_number) {
  NumberEntry* entry = entry_of(torch_number, false);
  return entry ? entry->tid.load(std::memory_order_relaxed) : 0;
}

opspan_stats totals(int sink) {
  opspan_stats sum = {};
  std::lock_guard guard(slow_lock());
  for (const Thread* thread : registry().all) {
    const Counters& counters = thread->counters[sink];
    sum.ranges += counters.ranges.value.load(std::memory_order_relaxed);
    sum.late_ends += counters.late_ends.value.load(std::memory_order_relaxed);
    sum.sizes_dropped += counters.sizes_dropped.value.load(std::memory_order_relaxed);
    sum.relations_missed += counters.relations_missed.value.load(std::memory_order_relaxed);
    sum.given_up += counters.given_up.value.load(std::memory_order_relaxed);
    sum.fields_dropped += counters.fields_dropped.value.load(std::memory_order_relaxed);
  }
  return sum;
}

void subtract(opspan_stats* from, const opspan_stats& what) {
  from->ranges -= what.ranges;
  from->late_ends -= what.late_ends;
  from->sizes_dropped -= what.sizes_dropped;
  from->relations_missed -= what.relations_missed;
  from->given_up -= what.given_up;
  from->fields_dropped -= what.fields_dropped;
}

Frame* Frames::begin_block(uint64_t depth) {
  std::atomic<Frame*>& place = blocks_[depth / kBlock % kBlocks];
  Frame* block = place.load(std::memory_order_relaxed);
  if (block) return block;
  block = new (std::nothrow) Frame[kBlock];
  if (block) place.store(block, std::memory_order_release);
  return block;
}

Forwards::Entry* Forwards::allocate() {
  void* memory = mmap(nullptr, kEntries * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* entries = static_cast<Entry*>(memory);
  entries_.store(entries, std::memory_order_release);
  return entries;
}

void Forwards::put(int64_t sequence, uint64_t op_id) {
  Entry* entries = entries_.load(std::memory_order_relaxed);
  if (!entries && !(entries = allocate())) return;
  Entry& entry = entries[static_cast<uint64_t>(sequence) % kEntries];
  uint64_t tag = static_cast<uint64_t>(sequence) + 1;
  if (entry.sequence.load(std::memory_order_relaxed) != tag) {
    // A reader that sees the new op must not see the old sequence number with it.
    entry.sequence.store(0, std::memory_order_relaxed);
    entry.op_id.store(op_id, std::memory_order_release);
    entry.sequence.store(tag, std::memory_order_release);
  } else {
    entry.op_id.store(op_id, std::memory_order_release);
  }
}

uint64_t Forwards::find(int64_t sequence) const {
  const Entry* entries = entries_.load(std::memory_order_acquire);
  if (!entries) return 0;
  const Entry& entry = entries[static_cast<uint64_t>(sequence) % kEntries];
  uint64_t tag = static_cast<uint64_t>(sequence) + 1;
  if (entry.sequence.load(std::memory_order_acquire) != tag) return 0;
  uint64_t op_id = entry.op_id.load(std::memory_order_acquire);
  return entry.sequence.load(std::memory_order_relaxed) == tag ? op_id : 0;
}

// Another thread may be reading, so the memory stays mapped, and only its pages are replaced with empty ones.
void Forwards::clear() {
  if (Entry* entries = entries_.load(std::memory_order_relaxed)) {
    madvise(entries, kEntries * sizeof(Entry), MADV_DONTNEED);
  }
}

}  // namespace opspan
