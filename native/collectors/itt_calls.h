// The functions for the ITT calls that are recorded. Each has the name and signature of its ITT call; itt_init.cpp
// gives them to clients.
#pragma once

#include <stddef.h>

#include "collectors/itt_names.h"

namespace opspan::collectors {

using DomainPtr = const itt::Domain*;
using NamePtr = itt::StringHandle*;
using ClockPtr = itt::ClockDomain*;
using Stamp = unsigned long long;

// defined in itt_tasks.cpp
void task_begin(DomainPtr domain, itt::Id id, itt::Id parent, NamePtr name);
void task_begin_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id, itt::Id parent, NamePtr name);
void task_begin_fn(DomainPtr domain, itt::Id id, itt::Id parent, void* fn);
void task_begin_fn_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id, itt::Id parent, void* fn);
void task_end(DomainPtr domain);
void task_end_ex(DomainPtr domain, ClockPtr clock, Stamp stamp);
void task_begin_overlapped(DomainPtr domain, itt::Id id, itt::Id parent, NamePtr name);
void task_begin_overlapped_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id, itt::Id parent, NamePtr name);
void task_end_overlapped(DomainPtr domain, itt::Id id);
void task_end_overlapped_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id);
void region_begin(DomainPtr domain, itt::Id id, itt::Id parent, NamePtr name);
void region_end(DomainPtr domain, itt::Id id);
void frame_begin_v3(DomainPtr domain, itt::Id* id);
void frame_end_v3(DomainPtr domain, itt::Id* id);
void frame_submit_v3(DomainPtr domain, itt::Id* id, Stamp begin, Stamp end);
void marker(DomainPtr domain, itt::Id id, NamePtr name, int scope);
void marker_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id, NamePtr name, int scope);
int event_create(const char* name, int length);
int event_start(int event);
int event_end(int event);

// Finds the innermost open task of this thread, and sets `place` and `id` to those of the task. If the task has no id
// and `make_id` is true, makes one up. Returns false if no task is open.
bool current_task(capture::Log& log, bool make_id, capture::Place* place, itt::Id* id);
// Finds the open task of this thread that has this id. Returns false if there is none.
bool task_by_id(const itt::Id& id, capture::Place* place);

// defined in itt_data.cpp
void metadata_add(DomainPtr domain, itt::Id id, NamePtr key, int type, size_t count, void* data);
void metadata_str_add(DomainPtr domain, itt::Id id, NamePtr key, const char* data, size_t length);
void metadata_add_with_scope(DomainPtr domain, int scope, NamePtr key, int type, size_t count, void* data);
void metadata_str_add_with_scope(DomainPtr domain, int scope, NamePtr key, const char* data, size_t length);
void formatted_metadata_add(DomainPtr domain, NamePtr format, ...);
void formatted_metadata_add_overlapped(DomainPtr domain, itt::Id id, NamePtr format, ...);
void relation_add(DomainPtr domain, itt::Id head, int relation, itt::Id tail);
void relation_add_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id head, int relation, itt::Id tail);
void relation_add_to_current(DomainPtr domain, int relation, itt::Id tail);
void relation_add_to_current_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, int relation, itt::Id tail);
void thread_set_name(const char* name);
void pause();
void resume();
void pause_scoped(int scope);
void resume_scoped(int scope);

// defined in itt_counters.cpp
struct Counter;
Counter* counter_create(const char* name, const char* domain);
Counter* counter_create_typed(const char* name, const char* domain, int type);
Counter* counter_create_v3(DomainPtr domain, const char* name, int type);
void counter_inc(Counter* counter);
void counter_dec(Counter* counter);
void counter_inc_delta(Counter* counter, unsigned long long delta);
void counter_dec_delta(Counter* counter, unsigned long long delta);
void counter_inc_v3(DomainPtr domain, NamePtr name);
void counter_dec_v3(DomainPtr domain, NamePtr name);
void counter_inc_delta_v3(DomainPtr domain, NamePtr name, unsigned long long delta);
void counter_dec_delta_v3(DomainPtr domain, NamePtr name, unsigned long long delta);
void counter_set_value(Counter* counter, void* value);
void counter_set_value_ex(Counter* counter, ClockPtr clock, Stamp stamp, void* value);
void counter_set_value_v3(Counter* counter, void* value);

}  // namespace opspan::collectors
