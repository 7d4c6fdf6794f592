// Calls everything of ITT that the collector records, once. Links the copy of ITT that libtorch_cpu exports.
#define INTEL_ITTNOTIFY_API_PRIVATE
#include <ittnotify.h>
#include <stdint.h>
#include <stdio.h>

static __itt_domain* domain;

static __itt_id id(unsigned long long number) { return __itt_id_make((void*)(uintptr_t)number, 9); }
static __itt_string_handle* name(const char* text) { return __itt_string_handle_create(text); }

static void clock_info(__itt_clock_info* info, void* data) {
  info->clock_freq = 1000;  // milliseconds
  info->clock_base = *(unsigned long long*)data;
}

void traced_function(void) {}

static void tasks(void) {
  __itt_task_begin(domain, __itt_null, __itt_null, name("outer"));
  __itt_task_begin(domain, id(1), id(100), name("inner"));
  __itt_task_end(domain);
  __itt_task_end(domain);
  __itt_task_end(domain);  // one too many
  __itt_task_begin_fn(domain, __itt_null, __itt_null, (void*)traced_function);
  __itt_task_end(domain);

  __itt_domain* other = __itt_domain_create("other \u00fc");
  __itt_task_begin(domain, __itt_null, __itt_null, name("of one"));
  __itt_task_begin(other, __itt_null, __itt_null, name("of another"));
  __itt_task_end(domain);
  __itt_task_end(other);

  __itt_task_begin_overlapped(domain, id(2), __itt_null, name("overlapped 2"));
  __itt_task_begin_overlapped(domain, id(3), id(2), name("overlapped 3"));
  __itt_task_end_overlapped(domain, id(2));
  __itt_task_end_overlapped(domain, id(3));
  __itt_region_begin(domain, id(2), __itt_null, name("region"));
  __itt_region_end(domain, id(2));

  unsigned long long base = 5000;
  __itt_clock_domain* clock = __itt_clock_domain_create(clock_info, &base);
  __itt_task_begin_ex(domain, clock, 5001, __itt_null, __itt_null, name("by a clock"));
  __itt_task_end_ex(domain, clock, 5003);
  __itt_task_begin_overlapped_ex(domain, clock, 5002, id(4), __itt_null, name("overlapped by a clock"));
  __itt_task_end_overlapped_ex(domain, clock, 5004, id(4));
  __itt_marker_ex(domain, clock, 5010, __itt_null, name("marker by a clock"), __itt_scope_global);
}

static void frames(void) {
  __itt_frame_begin_v3(domain, NULL);
  __itt_frame_end_v3(domain, NULL);
  __itt_id frame = id(7);
  __itt_frame_begin_v3(domain, &frame);
  __itt_frame_end_v3(domain, &frame);
  __itt_timestamp now = __itt_get_timestamp();
  __itt_frame_submit_v3(domain, NULL, now - 2000, now - 1000);
}

static void metadata(void) {
  __itt_task_begin(domain, id(10), __itt_null, name("described"));
  int64_t s64[] = {-1, 2, 3, 4, 5, 6, -7};
  uint64_t u64 = ~0ULL;
  int32_t s32 = -32;
  uint32_t u32 = 32;
  int16_t s16[] = {-16, 16};
  uint16_t u16 = 16;
  float real32 = 1.5f;
  double real64 = -2.5;
  __itt_metadata_add(domain, __itt_null, name("s64"), __itt_metadata_s64, 7, s64);
  __itt_metadata_add(domain, id(10), name("u64"), __itt_metadata_u64, 1, &u64);
  __itt_metadata_add(domain, id(10), name("s32"), __itt_metadata_s32, 1, &s32);
  __itt_metadata_add(domain, id(10), name("u32"), __itt_metadata_u32, 1, &u32);
  __itt_metadata_add(domain, id(10), name("s16"), __itt_metadata_s16, 2, s16);
  __itt_metadata_add(domain, id(10), name("u16"), __itt_metadata_u16, 1, &u16);
  __itt_metadata_add(domain, id(10), name("float"), __itt_metadata_float, 1, &real32);
  __itt_metadata_add(domain, id(10), name("double"), __itt_metadata_double, 1, &real64);
  __itt_metadata_add(domain, id(10), name("bytes"), __itt_metadata_unknown, 3, "abc");
  __itt_metadata_add(domain, id(10), name("none"), __itt_metadata_u64, 0, &u64);
  __itt_metadata_str_add(domain, id(10), name("text"), "a \"text\"\n\u20ac", (size_t)-1);
  __itt_metadata_str_add(domain, id(10), name("part"), "partial", 4);
  __itt_metadata_str_add_with_scope(domain, __itt_scope_task, name("scoped"), "to the task", (size_t)-1);
  __itt_metadata_str_add_with_scope(domain, __itt_scope_track, name("thread"), "to the thread", (size_t)-1);
  __itt_metadata_add_with_scope(domain, __itt_scope_task, name("scoped number"), __itt_metadata_u64, 1, &u64);
  __itt_formatted_metadata_add(domain, name("step %d of %s"), 3, "many");
  __itt_relation_add_to_current(domain, __itt_relation_is_child_of, id(1));
  __itt_task_end(domain);

  __itt_task_begin(domain, __itt_null, __itt_null, name("without an id"));
  __itt_relation_add_to_current(domain, __itt_relation_is_dependent_on, id(10));
  __itt_task_end(domain);
  __itt_relation_add(domain, id(10), __itt_relation_is_continuation_of, id(1));

  // About what is not an open task of this thread.
  __itt_marker(domain, id(20), name("marker"), __itt_scope_task);
  __itt_metadata_str_add(domain, id(20), name("late"), "by id", (size_t)-1);
}

static void counters(void) {
  __itt_counter counter = __itt_counter_create("items", "shop");
  __itt_counter_inc(counter);
  __itt_counter_inc_delta(counter, 10);
  __itt_counter_dec(counter);
  __itt_counter_dec_delta(counter, 4);
  uint64_t value = 100;
  __itt_counter_set_value(counter, &value);
  __itt_counter again = __itt_counter_create("items", "shop");
  printf("same %d\n", counter == again);
  double loss = 0.75;
  __itt_counter_set_value(__itt_counter_create_typed("loss", "shop", __itt_metadata_double), &loss);
  int32_t below = -3;
  __itt_counter_set_value_v3(__itt_counter_create_v3(domain, "below", __itt_metadata_s32), &below);
  __itt_counter_inc_delta_v3(domain, name("v3"), 5);
  __itt_counter_dec_v3(domain, name("v3"));
}

static void rest(void) {
  __itt_thread_set_name("itt thread");
  __itt_pause();
  __itt_task_begin(domain, __itt_null, __itt_null, name("while paused"));
  __itt_task_end(domain);
  __itt_resume();
  __itt_event event = __itt_event_create("user event!", 10);
  __itt_event_start(event);
  __itt_event_start(event);
  __itt_event_end(event);
  __itt_event_end(event);
  printf("end %d\n", __itt_event_end(event) != 0);
  // Not recorded, and not a crash.
  __itt_id_create(domain, id(1));
  __itt_id_destroy(domain, id(1));
  __itt_thread_ignore();
  __itt_sync_create(domain, "mutex", "m", 0);
  __itt_histogram_create(domain, "histogram", __itt_metadata_u64, __itt_metadata_u64);
  __itt_detach();
}

int main(void) {
  domain = __itt_domain_create("domain");
  printf("string %d\n", name("x") == name("x"));
  tasks();
  __itt_domain* again = __itt_domain_create("domain");
  printf("domain %d\n", domain == again);
  frames();
  metadata();
  counters();
  rest();
  printf("version %s\n", __itt_api_version());
  return 0;
}
