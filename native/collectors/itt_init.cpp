// Lets a program's ITT find this library. Every copy of ITT in the process (torch's, oneDNN's, a Python package's)
// calls __itt_api_init once, with its own table of calls. The entries of calls that are recorded are set to functions
// of this library; all others are set to functions that do nothing.
#include <string.h>

#include "collectors/itt_calls.h"

namespace opspan::collectors {
namespace {

Stamp get_timestamp() { return static_cast<Stamp>(now()); }
void detach() { pause(); }
const char* api_version() { return "opspan collector"; }

struct Call {
  const char* name;
  void* function;
};

#define CALL(name) {"__itt_" #name, reinterpret_cast<void*>(&name)}

const Call kCalls[] = {
    {"__itt_domain_create", reinterpret_cast<void*>(&create_domain)},
    {"__itt_string_handle_create", reinterpret_cast<void*>(&create_string)},
    {"__itt_clock_domain_create", reinterpret_cast<void*>(&create_clock)},
    {"__itt_clock_domain_reset", reinterpret_cast<void*>(&reset_clocks)},
    CALL(task_begin),
    CALL(task_begin_ex),
    CALL(task_begin_fn),
    CALL(task_begin_fn_ex),
    CALL(task_end),
    CALL(task_end_ex),
    CALL(task_begin_overlapped),
    CALL(task_begin_overlapped_ex),
    CALL(task_end_overlapped),
    CALL(task_end_overlapped_ex),
    CALL(region_begin),
    CALL(region_end),
    CALL(frame_begin_v3),
    CALL(frame_end_v3),
    CALL(frame_submit_v3),
    CALL(marker),
    CALL(marker_ex),
    CALL(event_create),
    CALL(event_start),
    CALL(event_end),
    CALL(metadata_add),
    CALL(metadata_str_add),
    CALL(metadata_add_with_scope),
    CALL(metadata_str_add_with_scope),
    CALL(formatted_metadata_add),
    CALL(formatted_metadata_add_overlapped),
    CALL(relation_add),
    CALL(relation_add_ex),
    CALL(relation_add_to_current),
    CALL(relation_add_to_current_ex),
    CALL(thread_set_name),
    CALL(pause),
    CALL(resume),
    CALL(pause_scoped),
    CALL(resume_scoped),
    CALL(detach),
    CALL(counter_create),
    CALL(counter_create_typed),
    CALL(counter_create_v3),
    CALL(counter_inc),
    CALL(counter_dec),
    CALL(counter_inc_delta),
    CALL(counter_dec_delta),
    CALL(counter_inc_v3),
    CALL(counter_dec_v3),
    CALL(counter_inc_delta_v3),
    CALL(counter_dec_delta_v3),
    CALL(counter_set_value),
    CALL(counter_set_value_ex),
    CALL(counter_set_value_v3),
    CALL(get_timestamp),
    CALL(api_version),
};

#undef CALL

void* function_of(const char* name) {
  for (const Call& call : kCalls) {
    if (strcmp(call.name, name) == 0) return call.function;
  }
  return nullptr;
}

}  // namespace
}  // namespace opspan::collectors

extern "C" __attribute__((visibility("default"))) void __itt_api_init(opspan::itt::Global* global, int groups) {
  using namespace opspan;
  if (!global || memcmp(global->magic, itt::kMagic, sizeof(itt::kMagic)) != 0 || !global->api_list_ptr) return;
  bool is_on = collectors::is_collecting();
  if (is_on) collectors::adopt(*global);
  for (itt::ApiInfo* call = global->api_list_ptr; call->name; ++call) {
    void* function = is_on && (call->group & groups) ? collectors::function_of(call->name) : nullptr;
    if (call->func_ptr) __atomic_store_n(call->func_ptr, function ? function : call->null_func, __ATOMIC_RELEASE);
  }
}
