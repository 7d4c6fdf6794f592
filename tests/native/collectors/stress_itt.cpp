// Threads use every kind of ITT call at once, through the table that the collector fills, as ITT's static part does.
// Run by tools/sanitize, which sets OPSPAN_CAPTURE_DIR; ends by itself with 0.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "capture/label.h"
#include "collectors/direct.h"
#include "collectors/itt_abi.h"

extern "C" const opspan::direct::Calls* opspan_collector_takes_ops(int version, int protocol);
extern "C" void __itt_api_init(opspan::itt::Global* global, int groups);

namespace {

using namespace opspan;

// Left null by a collector that did not know the name.
itt::Domain* (*domain_create)(const char*);
itt::StringHandle* (*string_handle_create)(const char*);
void (*task_begin)(const itt::Domain*, itt::Id, itt::Id, itt::StringHandle*);
void (*task_end)(const itt::Domain*);
void (*task_begin_overlapped)(const itt::Domain*, itt::Id, itt::Id, itt::StringHandle*);
void (*task_end_overlapped)(const itt::Domain*, itt::Id);
void (*metadata_add)(const itt::Domain*, itt::Id, itt::StringHandle*, int, size_t, void*);
void (*metadata_str_add)(const itt::Domain*, itt::Id, itt::StringHandle*, const char*, size_t);
void (*relation_add)(const itt::Domain*, itt::Id, int, itt::Id);
void (*relation_add_to_current)(const itt::Domain*, int, itt::Id);
void (*marker)(const itt::Domain*, itt::Id, itt::StringHandle*, int);
void* (*counter_create)(const char*, const char*);
void (*counter_inc)(void*);
void (*counter_inc_v3)(const itt::Domain*, itt::StringHandle*);
void (*frame_begin_v3)(const itt::Domain*, itt::Id*);
void (*frame_end_v3)(const itt::Domain*, itt::Id*);
void (*thread_set_name)(const char*);
void (*pause_collection)();
int (*event_create)(const char*, int);
int (*event_start)(int);
int (*event_end)(int);

#define CALL(name) {"__itt_" #name, reinterpret_cast<void**>(&name), nullptr, nullptr, 1}

itt::ApiInfo calls[] = {
    CALL(domain_create),
    CALL(string_handle_create),
    CALL(task_begin),
    CALL(task_end),
    CALL(task_begin_overlapped),
    CALL(task_end_overlapped),
    CALL(metadata_add),
    CALL(metadata_str_add),
    CALL(relation_add),
    CALL(relation_add_to_current),
    CALL(marker),
    CALL(counter_create),
    CALL(counter_inc),
    CALL(counter_inc_v3),
    CALL(frame_begin_v3),
    CALL(frame_end_v3),
    CALL(thread_set_name),
    {"__itt_pause", reinterpret_cast<void**>(&pause_collection), nullptr, nullptr, 1},
    CALL(event_create),
    CALL(event_start),
    CALL(event_end),
    {nullptr, nullptr, nullptr, nullptr, 0},
};

constexpr int kThreads = 4;
constexpr int kRounds = 4000;

// A sanitizer's own run-time library does not survive a fork while other threads allocate.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kForks = false;
#else
constexpr bool kForks = true;
#endif
itt::Domain early{1, "made before the tool was there", nullptr, 0, nullptr, nullptr};

// As opspan's own sink says what an op is, directly, around a range of the user's own.
void labelled(const itt::Domain* own, unsigned long long number, itt::StringHandle* name) {
  static const direct::Calls& ops = *opspan_collector_takes_ops(direct::kVersion, direct::kItt);
  void* here = ops.thread();
  itt::Id op{number + 1, label::kTag, label::kOps};
  auto length = static_cast<uint32_t>(strlen(name->strA));
  ops.begin(here, {name->strA, 1, 0, length, name->strA, nullptr, static_cast<int64_t>(number), op.d1, 0});
  metadata_add(own, op, name, itt::kS64, 1, &number);
  task_begin(own, {number, label::kTag, label::kUsers}, op, name);
  ops.begin(here, {name->strA, 2, 7, 0, nullptr, ops.keep("kept"), -1, number + 2, number | uint64_t{1} << 63});
  relation_add(own, op, 1, op);
  ops.end(here);
  task_end(own);
  ops.end(here);
}

void work(int thread, int rounds) {
  const itt::Domain* own = domain_create(label::kDomain);
  itt::Domain* domain = thread % 2 ? domain_create("domain") : &early;
  void* counter = counter_create("counter", "shared");
  std::string mine = "thread " + std::to_string(thread);
  for (int i = 0; i < rounds; ++i) {
    auto number = static_cast<unsigned long long>(i);
    std::string text = "task " + std::to_string(i % 300);
    itt::StringHandle* name = string_handle_create(text.c_str());
    itt::Id id{number, static_cast<unsigned long long>(thread), 1};
    labelled(own, number, name);
    task_begin(domain, i % 2 ? id : itt::Id{}, {}, name);
    metadata_add(domain, {}, name, itt::kS32, 1, &i);
    metadata_str_add(domain, id, name, text.c_str(), text.size());
    relation_add_to_current(domain, 1, id);
    task_begin_overlapped(domain, id, {}, name);
    relation_add(domain, id, 1, id);
    marker(domain, id, name, 1);
    counter_inc(counter);
    counter_inc_v3(domain, name);
    frame_begin_v3(domain, &id);
    thread_set_name(mine.c_str());
    int event = event_create(text.c_str(), -1);
    event_start(event);
    if (i % 3) event_end(event);
    frame_end_v3(domain, &id);
    task_end_overlapped(domain, id);
    task_end(domain);
    if (thread == 0 && i % (rounds / 4) == 1) {
      std::thread([rounds] { work(1, rounds / 100); }).join();
      if (!kForks) continue;
      pid_t child = fork();
      if (child == 0) {
        for (int k = 0; k < 100; ++k) marker(domain, {}, string_handle_create("in a child"), 1);
        _exit(0);
      }
      waitpid(child, nullptr, 0);
    }
  }
}

}  // namespace

int main() {
  itt::Global first{};
  memcpy(first.magic, itt::kMagic, sizeof(first.magic));
  first.api_list_ptr = calls;
  first.domain_list = &early;
  __itt_api_init(&first, ~0);
  for (const itt::ApiInfo* call = calls; call->name; ++call) {
    if (*call->func_ptr) continue;
    fprintf(stderr, "%s is not taken\n", call->name);
    return 2;
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i, kRounds);
  itt::Global second = first;  // another copy of ITT comes up while the first is in use
  void* taken[std::size(calls)] = {};
  itt::ApiInfo others[std::size(calls)] = {};
  for (size_t i = 0; calls[i].name; ++i) others[i] = {calls[i].name, &taken[i], nullptr, nullptr, 1};
  second.api_list_ptr = others;
  __itt_api_init(&second, ~0);
  for (std::thread& thread : threads) thread.join();
  printf("%d rounds in %d threads\n", kRounds, kThreads);
  return 0;
}
