// One file because it is one table of calls. Every call of ITT that the collector takes, from several threads, with
// arguments that no client should pass. What cannot be told apart from good arguments (a domain or string that is no
// structure of ITT's) is not among them. Run by tools/sanitize with the collector linked in, and by tests/collectors as
// a client (-DOPSPAN_CLIENT); ends with 0.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capture/label.h"
#include "collectors/itt_abi.h"
#include "hostile.h"

#ifndef OPSPAN_CLIENT
extern "C" void __itt_api_init(opspan::itt::Global* global, int groups);
#endif

namespace {

using namespace opspan;
using Domain = const itt::Domain*;
using Name = itt::StringHandle*;
using Stamp = unsigned long long;

constexpr int kThreads = 4;
#ifndef OPSPAN_ROUNDS
#define OPSPAN_ROUNDS 20000
#endif
constexpr int kRounds = OPSPAN_ROUNDS;

const char* const kNames[] = {
    "domain_create",
    "string_handle_create",
    "clock_domain_create",
    "clock_domain_reset",
    "task_begin",
    "task_begin_ex",
    "task_begin_fn",
    "task_begin_fn_ex",
    "task_end",
    "task_end_ex",
    "task_begin_overlapped",
    "task_begin_overlapped_ex",
    "task_end_overlapped",
    "task_end_overlapped_ex",
    "region_begin",
    "region_end",
    "frame_begin_v3",
    "frame_end_v3",
    "frame_submit_v3",
    "marker",
    "marker_ex",
    "event_create",
    "event_start",
    "event_end",
    "metadata_add",
    "metadata_str_add",
    "metadata_add_with_scope",
    "metadata_str_add_with_scope",
    "formatted_metadata_add",
    "formatted_metadata_add_overlapped",
    "relation_add",
    "relation_add_ex",
    "relation_add_to_current",
    "relation_add_to_current_ex",
    "thread_set_name",
    "pause",
    "resume",
    "pause_scoped",
    "resume_scoped",
    "detach",
    "counter_create",
    "counter_create_typed",
    "counter_create_v3",
    "counter_inc",
    "counter_dec",
    "counter_inc_delta",
    "counter_dec_delta",
    "counter_inc_v3",
    "counter_dec_v3",
    "counter_inc_delta_v3",
    "counter_dec_delta_v3",
    "counter_set_value",
    "counter_set_value_ex",
    "counter_set_value_v3",
    "get_timestamp",
    "api_version",
};
std::map<std::string, void*> calls;

template <typename Result = void, typename... Arguments>
Result call(const char* name, Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(calls.at(name))(arguments...);
}

std::mutex lock;
std::vector<itt::Domain*> domains;
std::vector<Name> names;
std::vector<itt::ClockDomain*> clocks;
std::vector<void*> counters;
itt::ClockDomain early{{0, 7}, nullptr, nullptr, 0, nullptr, nullptr};  // made before the tool was there

template <typename T>
T* any(Hostile& hostile, const std::vector<T*>& all) {
  std::lock_guard guard(lock);
  return all.empty() || hostile.one_in(8) ? nullptr : all[hostile.upto(all.size())];
}

template <typename T>
void keep(std::vector<T*>* all, T* one) {
  std::lock_guard guard(lock);
  if (one && all->size() < 1000) all->push_back(one);
}

// A client's clock that uses ITT while it is asked.
void tell_clock(itt::ClockInfo*, void*) { call<void, Domain, itt::Id, Name, int>("marker", nullptr, {}, nullptr, 0); }
void some_function() {}

struct Client {
  Hostile hostile;
  char bytes[512];
  std::string text_;

  explicit Client(uint64_t seed) : hostile(seed) {}

  itt::Id id() {
    switch (hostile.upto(4)) {
      case 0:
        return {};
      case 1:
        return {hostile.odd(), label::kTag, hostile.upto(3)};
      default:
        return {hostile.odd(), hostile.odd(), hostile.odd()};
    }
  }
  const char* text() {
    static const char* const kTexts[] = {"", label::kDomain, label::kSequence, label::kOpId, label::kSizes, "\xff\xfe"};
    if (hostile.one_in(8)) return nullptr;
    text_ = "text " + std::to_string(hostile.upto(300));
    return hostile.one_in(3) ? kTexts[hostile.upto(std::size(kTexts))] : text_.c_str();
  }
  // A length is true, or one that nobody would believe; true ones reach to the very end of what is there.
  char* data(size_t* length) {
    for (char& byte : bytes) byte = static_cast<char>(1 + hostile.upto(255));
    *length = hostile.upto(sizeof(bytes));
    char* from = bytes + sizeof(bytes) - *length;
    if (!hostile.one_in(4)) return from;
    *length = hostile.odd() | 1 << 21;
    bytes[sizeof(bytes) - 1] = 0;
    return hostile.one_in(8) ? nullptr : from - (from == bytes + sizeof(bytes));
  }
  size_t count() { return hostile.one_in(4) ? hostile.odd() | 1 << 21 : hostile.upto(sizeof(bytes) / 8); }

  void formats(Domain where) {
    static const char* const kFormats[] = {"%d %u",      "%hhn",     "%5.3d %-n", "100%", "%%n %d",
                                           "%1$d %1$hn", "%*d %lln", "%.700d %x", nullptr};
    itt::StringHandle format{kFormats[hostile.upto(std::size(kFormats))], nullptr, 0, nullptr, nullptr};
    alignas(8) static thread_local long long target;
    target = 0;
    call<void, Domain, Name>("formatted_metadata_add", where, nullptr);
    reinterpret_cast<void (*)(Domain, Name, ...)>(calls.at("formatted_metadata_add"))(where, &format, &target, &target);
    reinterpret_cast<void (*)(Domain, itt::Id, Name, ...)>(calls.at("formatted_metadata_add_overlapped"))(
        where, id(), &format, &target, &target);
    if (target) abort();  // written to by the collector
  }

  void counter(Domain where, Name name) {
    int type = hostile.one_in(3) ? static_cast<int>(hostile.odd()) : static_cast<int>(hostile.upto(10));
    if (hostile.one_in(20)) keep(&counters, call<void*>("counter_create", text(), text()));
    if (hostile.one_in(20)) keep(&counters, call<void*>("counter_create_typed", text(), text(), type));
    if (hostile.one_in(20)) keep(&counters, call<void*>("counter_create_v3", where, text(), type));
    void* handle;
    {
      std::lock_guard guard(lock);
      handle = hostile.handle(counters);
    }
    void* value = hostile.one_in(8) ? nullptr : bytes;
    call("counter_inc", handle);
    call("counter_dec", handle);
    call("counter_inc_delta", handle, Stamp{hostile.odd()});
    call("counter_dec_delta", handle, Stamp{hostile.odd()});
    call("counter_set_value", handle, value);
    call("counter_set_value_v3", handle, value);
    call("counter_set_value_ex", handle, any(hostile, clocks), Stamp{hostile.odd()}, value);
    call("counter_inc_v3", where, name);
    call("counter_dec_v3", where, name);
    call("counter_inc_delta_v3", where, name, Stamp{hostile.odd()});
    call("counter_dec_delta_v3", where, name, Stamp{hostile.odd()});
  }

  void round() {
    Domain where = any(hostile, domains);
    Name name = any(hostile, names);
    itt::ClockDomain* clock = any(hostile, clocks);
    Stamp stamp = hostile.odd();
    itt::Id one = id(), other = id();
    itt::Id* frame = hostile.one_in(3) ? nullptr : &one;
    int scope = static_cast<int>(hostile.odd()), number = static_cast<int>(hostile.odd());
    size_t length;
    char* from = data(&length);
    switch (hostile.upto(26)) {
      case 0:
        keep(&domains, call<itt::Domain*>("domain_create", text()));
        keep(&names, call<Name>("string_handle_create", text()));
        break;
      case 1:
        if (hostile.one_in(50)) {
          auto fn = hostile.one_in(2) ? &tell_clock : nullptr;
          keep(&clocks, call<itt::ClockDomain*>("clock_domain_create", fn, static_cast<void*>(nullptr)));
        }
        if (hostile.one_in(50)) call("clock_domain_reset");
        break;
      case 2:
        call("task_begin_ex", where, clock, stamp, one, other, name);
        break;
      case 3:
        call("task_begin_fn", where, one, other, hostile.one_in(2) ? reinterpret_cast<void*>(&some_function) : from);
        break;
      case 4:
        call("task_begin_fn_ex", where, clock, stamp, one, other, static_cast<void*>(nullptr));
        break;
      case 5:
        call("task_end_ex", where, clock, stamp);
        break;
      case 6:
        call("task_begin_overlapped", where, one, other, name);
        call("task_begin_overlapped_ex", where, clock, stamp, one, one, name);
        break;
      case 7:
        call("task_end_overlapped", where, one);
        call("task_end_overlapped_ex", where, clock, stamp, one);
        break;
      case 8:
        call("region_begin", where, one, other, name);
        call("region_end", where, hostile.one_in(2) ? one : other);
        break;
      case 9:
        call("frame_begin_v3", where, frame);
        call("frame_end_v3", where, frame);
        call("frame_submit_v3", where, frame, stamp, Stamp{hostile.odd()});
        break;
      case 10:
        call("marker", where, one, name, scope);
        call("marker_ex", where, clock, stamp, one, name, scope);
        break;
      case 11:
        number = hostile.one_in(2)
                     ? call<int, const char*, int>("event_create", from,
                                                   from ? static_cast<int>(std::min(length, sizeof(bytes))) : number)
                     : number;
        if (hostile.one_in(4)) number = call<int, const char*, int>("event_create", text(), -1);
        call<int>("event_start", number);
        call<int>("event_end", hostile.one_in(2) ? number : scope);
        break;
      case 12:
        call("metadata_add", where, one, name, hostile.one_in(4) ? number : static_cast<int>(hostile.upto(10)), count(),
             static_cast<void*>(hostile.one_in(8) ? nullptr : bytes));
        break;
      case 13:
        call("metadata_str_add", where, one, name, static_cast<const char*>(from), length);
        break;
      case 14:
        call("metadata_add_with_scope", where, scope, name, static_cast<int>(hostile.upto(10)), count(),
             static_cast<void*>(hostile.one_in(8) ? nullptr : bytes));
        call("metadata_str_add_with_scope", where, scope, name, static_cast<const char*>(from), length);
        break;
      case 15:
        formats(where);
        break;
      case 16:
        call("relation_add", where, one, number, other);
        call("relation_add_ex", where, clock, stamp, one, number, one);
        call("relation_add_to_current", where, number, other);
        call("relation_add_to_current_ex", where, clock, stamp, number, other);
        break;
      case 17:
        call("thread_set_name", text());
        call<Stamp>("get_timestamp");
        call<const char*>("api_version");
        break;
      case 18:
        call("pause");
        call("resume");
        call("pause_scoped", scope);
        call("resume_scoped", scope);
        if (hostile.one_in(100)) call("detach");
        break;
      case 19:
        counter(where, name);
        break;
      case 20:
      case 21:
        call("task_end", where);
        break;
      default:
        call("task_begin", where, one, other, name);
    }
  }
};

void work(uint64_t seed) {
  Client client(seed);
  for (int i = 0; i < kRounds; ++i) client.round();
}

}  // namespace

int main() {
  auto init = [] {
#ifdef OPSPAN_CLIENT
    const char* path = getenv("INTEL_LIBITTNOTIFY64");
    void* library = dlopen(path ? path : "", RTLD_NOW);
    return reinterpret_cast<void (*)(itt::Global*, int)>(library ? dlsym(library, "__itt_api_init") : nullptr);
#else
    return &__itt_api_init;
#endif
  }();
  if (!init) return 2;
  std::vector<itt::ApiInfo> table;
  std::vector<std::string> full;
  std::vector<void*> taken(std::size(kNames));
  full.reserve(std::size(kNames));
  for (size_t i = 0; i < std::size(kNames); ++i) {
    full.push_back("__itt_" + std::string(kNames[i]));
    table.push_back({full[i].c_str(), &taken[i], nullptr, nullptr, 1});
  }
  table.push_back({"__itt_no_such_call", nullptr, nullptr, nullptr, 1});
  table.push_back({nullptr, nullptr, nullptr, nullptr, 0});
  itt::Global global{};
  init(nullptr, ~0);
  init(&global, ~0);  // not ITT's
  memcpy(global.magic, itt::kMagic, sizeof(global.magic));
  init(&global, ~0);  // without a table
  itt::Domain circle{1, "in a circle", nullptr, 0, nullptr, nullptr};
  circle.next = &circle;
  itt::StringHandle endless{nullptr, nullptr, 0, nullptr, nullptr};
  endless.next = &endless;
  global.domain_list = &circle;
  global.string_list = &endless;
  global.api_list_ptr = table.data();
  init(&global, ~0);
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (!taken[i]) fprintf(stderr, "%s is not taken\n", kNames[i]);
    if (!taken[i]) return 2;
    calls[kNames[i]] = taken[i];
  }
  domains.push_back(call<itt::Domain*>("domain_create", "domain"));
  names.push_back(call<Name>("string_handle_create", "name"));
  clocks.push_back(&early);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  itt::Id none{};
  call("task_begin", Domain{domains[0]}, none, none, call<Name>("string_handle_create", "still recorded"));
  call("task_end", Domain{domains[0]});
  printf("%d hostile rounds in %d threads, served on\n", kRounds, kThreads);
  return 0;
}
