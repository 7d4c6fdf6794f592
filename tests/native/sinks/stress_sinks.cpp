// Every sink from several threads at once, while sessions start and stop 10,000 times: for the sanitizers, and to see
// that every range that was begun at a tool is ended there, on its own thread, in the order of a stack.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "counting_tools.h"
#include "sinks/sinks.h"

namespace {

constexpr const char* kNames[] = {"aten::linear",
                                  "aten::t",
                                  "aten::addmm",
                                  "autograd::engine::evaluate_function: X",
                                  "AddmmBackward0",
                                  "a user's own, seq = 7",
                                  "h\xc3\xa9llo\n\"quoted\"",
                                  ""};

std::atomic<bool> g_done{false};
std::atomic<uint64_t> g_op_id{0}, g_thread{0}, g_ranges{0};

struct Begun {
  uint64_t op_id;
  uint64_t thread;
};
// Ranges whose end another thread takes over. Their keys are their own addresses.
std::mutex g_handed_lock;
std::deque<Begun*> g_handed;

void end_everywhere(Begun* begun) {
  uintptr_t outputs[2] = {begun->op_id * 64, 0};
  for (int sink = 0; sink < OPSPAN_SINK_COUNT; ++sink) {
    opspan_sink_of(sink)->end(begun, begun->op_id, begun->thread, outputs, 2);
  }
  delete begun;
}

struct Worker {
  std::mt19937 random;
  const uint64_t thread = ++g_thread;
  int64_t sequence = 0;

  explicit Worker(unsigned seed) : random(seed) {}
  unsigned upto(unsigned n) { return random() % n; }

  Begun* begin() {
    auto* begun = new Begun{++g_op_id, thread};
    opspan_op op = {};
    op.name = kNames[upto(std::size(kNames))];
    const bool is_engines = !strncmp(op.name, OPSPAN_ENGINE, strlen(OPSPAN_ENGINE));
    op.kind = is_engines ? OPSPAN_KIND_ENGINE
              : upto(2)  ? OPSPAN_KIND_OP
              : upto(2)  ? OPSPAN_KIND_BACKWARD
                         : OPSPAN_KIND_USER;
    op.sequence = upto(2) ? sequence++ : -1;
    op.op_id = begun->op_id;
    op.thread = thread;
    op.forward_thread = op.kind == OPSPAN_KIND_BACKWARD ? 1 + upto(static_cast<unsigned>(g_thread)) : 0;
    auto head = [](int64_t what, int64_t type, int64_t count) {
      return what | OPSPAN_STRIDES_USUAL << 4 | type << 8 | count << 32;
    };
    static const char* const kTypes[] = {"", "Scalar", "ScalarList", "TensorList", "float"};
    int64_t inputs[] = {head(OPSPAN_INPUT_TENSOR, OPSPAN_TYPE_TENSORS, 2),
                        upto(5),
                        3,
                        OPSPAN_INPUT_NOTHING,
                        head(OPSPAN_INPUT_LIST, OPSPAN_TYPE_TENSOR_LIST, 2),
                        head(OPSPAN_INPUT_TENSOR, 4, 1),
                        upto(50),
                        OPSPAN_INPUT_NOTHING};
    uintptr_t tensors[] = {begun->op_id * 64 - 64, 0};
    if (upto(2)) {
      op.inputs = inputs;
      op.inputs_count = std::size(inputs);
      op.type_names = upto(2) ? kTypes : nullptr;
      op.tensors = tensors;
      op.tensor_count = 2;
    }
    for (int sink = 0; sink < OPSPAN_SINK_COUNT; ++sink) opspan_sink_of(sink)->begin(begun, &op);
    ++g_ranges;
    return begun;
  }

  void nest(int depth) {
    Begun* begun = begin();
    opspan_range range = {};
    range.name = kNames[upto(std::size(kNames))];
    range.name_length = strlen(range.name);
    range.kind = OPSPAN_KIND_USER + upto(3);
    range.category = upto(2) ? "io" : nullptr;
    range.detail = upto(2) ? "Linear" : nullptr;
    range.payload_type = static_cast<int32_t>(upto(4));
    uint32_t to = upto(OPSPAN_TO_ALL + 1);
    bool own = upto(3) == 0;
    if (own) opspan_push(&range, to);
    if (upto(8) == 0) opspan_mark(&range, to);
    uint64_t async = upto(8) ? 0 : opspan_range_start(&range, to);
    for (int children = depth < 6 ? static_cast<int>(upto(3)) : 0; children > 0; --children) nest(depth + 1);
    opspan_range_end(async);
    unsigned order = upto(16);
    if (own && order != 1) opspan_pop(to);
    if (order == 0) {  // the end is left to whoever comes
      std::lock_guard guard(g_handed_lock);
      g_handed.push_back(begun);
    } else {
      end_everywhere(begun);
    }
    if (own && order == 1) opspan_pop(to);  // in the wrong order
  }

  bool end_a_handed_one() {
    Begun* begun = nullptr;
    {
      std::lock_guard guard(g_handed_lock);
      if (g_handed.empty()) return false;
      begun = g_handed.front();
      g_handed.pop_front();
    }
    end_everywhere(begun);
    return true;
  }

  void run(int rounds) {
    for (int i = 0; i < rounds && !g_done; ++i) {
      nest(0);
      end_a_handed_one();
    }
  }

  // Begins and ends once more: whatever others have ended since is ended at the tools now.
  void settle() { end_everywhere(begin()); }
};

constexpr int kLongLived = 3;

// Lives for the whole run, and checks that nothing of it is left open at the tools.
void long_lived(unsigned seed) {
  static std::atomic<int> run{0}, ended{0};
  Worker worker(seed);
  worker.run(1 << 30);
  for (++run; run < kLongLived;) std::this_thread::yield();
  while (worker.end_a_handed_one()) {
  }
  for (++ended; ended < kLongLived;) std::this_thread::yield();
  worker.settle();
  CHECK(t_nvtx_depth == 0);
  CHECK(t_itt_depth == 0);
}

// Thread states are used again, with what they know of other threads still being asked for.
void short_lived(std::atomic<bool>* done) {
  for (unsigned seed = 1000; !*done; ++seed) {
    std::thread([seed] { Worker(seed).run(3); }).join();
  }
}

// A sanitizer's own run-time library does not survive a fork while other threads allocate.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kForks = false;
#else
constexpr bool kForks = true;
#endif

void fork_once() {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    Worker worker(77);
    for (int i = 0; i < 20; ++i) worker.nest(0);
    opspan_stats stats;
    opspan_stop(OPSPAN_NVTX, &stats);
    opspan_stop(OPSPAN_CAPTURE, &stats);
    _exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

int main(int argc, char** argv) {
  int cycles = argc > 1 ? atoi(argv[1]) : 10000;
  unsetenv("NVTX_INJECTION64_PATH");
  attach_itt();
  CHECK(opspan_listening(OPSPAN_NVTX));
  CHECK(opspan_listening(OPSPAN_ITT));

  char folder[] = "/tmp/opspan-stress-XXXXXX";
  CHECK(mkdtemp(folder));
  std::atomic<bool> short_done{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < kLongLived; ++seed) threads.emplace_back(long_lived, seed);
  threads.emplace_back(short_lived, &short_done);

  char said[512];
  opspan_stats stats;
  uint64_t counted = 0;
  constexpr int kNvtxForms[] = {OPSPAN_FORM_AUTO, OPSPAN_FORM_TEXT, OPSPAN_FORM_TORCH, OPSPAN_FORM_PAYLOAD};
  constexpr int kIttForms[] = {OPSPAN_FORM_TASK, OPSPAN_FORM_TEXT, OPSPAN_FORM_TORCH, OPSPAN_FORM_AUTO};
  for (int i = 0; i < cycles; ++i) {
    opspan_settings nvtx = {kNvtxForms[i % 4], i % 3 ? 65536u : 20u, folder};
    opspan_settings itt = {kIttForms[i % 4], 256, folder};
    CHECK(opspan_start(OPSPAN_NVTX, &nvtx, said, sizeof(said)) > 0);
    CHECK(opspan_start(OPSPAN_ITT, &itt, said, sizeof(said)) > 0);
    CHECK(opspan_start(OPSPAN_ITT, &itt, said, sizeof(said)) < 0);
    bool capture = i % 50 == 0;
    if (capture) {
      int started = opspan_start(OPSPAN_CAPTURE, &nvtx, said, sizeof(said));
      if (started < 0) fprintf(stderr, "%s\n", said);
      CHECK(started > 0);
    }
    if (kForks && i % 500 == 250) fork_once();
    std::this_thread::yield();
    if (capture) {
      opspan_stop(OPSPAN_CAPTURE, &stats);
      unlink(said);
    }
    opspan_stop(OPSPAN_NVTX, &stats);
    counted += stats.ranges;
    opspan_stop(OPSPAN_ITT, &stats);
  }
  short_done = true;
  threads.back().join();
  threads.pop_back();
  g_done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(counted > 0);
  CHECK(g_itt_begun > 0);
  std::string command = std::string("rm -r ") + folder;
  CHECK(system(command.c_str()) == 0);
  printf("%d cycles, %llu ranges, %llu of them under a session\n", cycles,
         static_cast<unsigned long long>(g_ranges.load()), static_cast<unsigned long long>(counted));
}
