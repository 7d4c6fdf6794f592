// The ITT sink. It makes a task for every range, either in the domain `opspan` with ids, metadata and relations, or in
// the same way as torch.
#include <errno.h>

#include <cstring>
#include <mutex>
#include <string>

#include "sinks/direct.h"
#include "sinks/itt_calls.h"
#include "sinks/itt_shared.h"
#include "sinks/label_table.h"
#include "sinks/one_tool.h"
#include "sinks/session.h"
#include "sinks/sink.h"
#include "sinks/text.h"
#include "sinks/threads.h"

namespace opspan {
namespace itt {

constinit std::atomic<Domain*> g_domain{nullptr};
constinit std::atomic<const direct::Calls*> g_direct{nullptr};

namespace {
LabelTable g_names;
void* create_handle(const char* text) { return call(g_calls.string_handle_create, text); }
}  // namespace

StringHandle* handle(const char* text, uint32_t limit) {
  auto build = [&](std::string& out) { out += text; };
  auto* entry = g_names.get(Key(text), limit, build, create_handle);
  return entry ? static_cast<StringHandle*>(entry->handle) : nullptr;
}

StringHandle* key(const char* name) { return handle(name, UINT32_MAX); }

void pop(Thread& here, Frame& frame) {
  if (frame.where == kDirect) {
    const direct::Calls& calls = *g_direct.load(std::memory_order_relaxed);
    calls.end(here.collector_thread(direct::kItt, calls));
  }
  if (frame.where == kOpspanDomain) call(g_calls.task_end, g_domain.load(std::memory_order_relaxed));
  if (frame.where == kTorchDomain) call(g_calls.task_end, torch_domain());
}

void pop(Frame& frame) { pop(Thread::here(), frame); }

void end_out_of_order(Frame&) {}

Id parent_of(const Frames& frames) {
  const Frame* top = frames.top();
  return top && (top->where == kOpspanDomain || top->where == kDirect) ? id_of(*top) : kNull;
}

}  // namespace itt

namespace {

using namespace itt;

std::atomic<Domain*> g_torch_domain{nullptr};
std::atomic<bool> g_is_direct{false};  // true if the current tool is opspan's collector
LabelTable g_texts, g_sizes;

// Handles of the keys of metadata. `other` is the name of a task if the table has no room for the task's real name.
struct Handles {
  StringHandle *seq, *op_id, *fwd_tid, *sizes, *name, *other;
} g_handles;

[[gnu::cold, gnu::noinline]] StringHandle* make_name(Thread& here, const capture::OpName& name) {
  StringHandle* created = handle(name.text, kMaxNames);
  if (created) here.handles[direct::kItt].add(name, created);
  return created;
}

StringHandle* name_of(Thread& here, const opspan_op& op) {
  capture::OpName name(op.name, op.kind);
  void* cached = here.handles[direct::kItt].find(name);
  return cached ? static_cast<StringHandle*>(cached) : make_name(here, name);
}

void relate(Thread& here, const opspan_op& op, Domain* domain, Id id) {
  const Thread* thread =
      op.forward_thread == here.number.load(std::memory_order_relaxed) ? &here : thread_of(op.forward_thread);
  uint64_t forward = thread ? thread->forwards.find(op.sequence) : 0;
  if (forward) {
    call(g_calls.relation_add, domain, id, kIsDependentOn, op_id(forward));
  } else {
    here.counters[OPSPAN_ITT].relations_missed.add();
  }
}

// Returns the text of the sizes. It is valid until this thread makes its next text. If the table has no room, the text
// is made again each time.
std::string_view sizes_of(Thread& here, const opspan_op& op, const void** sizes_handle = nullptr) {
  auto build = [&](std::string& out) { text::append_sizes(out, op.inputs, op.inputs_count); };
  auto keep = [](const char* text) -> void* {
    const direct::Calls* calls = g_direct.load(std::memory_order_relaxed);
    return calls ? const_cast<void*>(calls->keep(text)) : nullptr;
  };
  auto find = [&] {
    Key key({}, 0, op.inputs, op.inputs_count);
    return g_sizes.get(key, g_sessions[OPSPAN_ITT].max_strings(), build, keep);
  };
  if (auto* entry = here.find_label(direct::kItt, digest_of(op), find)) {
    if (sizes_handle) *sizes_handle = entry->handle;
    return entry->text;
  }
  here.text.clear();
  build(here.text);
  return here.text;
}

// For a backward op, tells the tool which forward op it belongs to. For a forward op, remembers the op. The op's task
// must have begun.
void relate_forward(Thread& here, const opspan_op& op, Domain* domain, Id id) {
  if (op.sequence < 0) return;
  if (op.kind == OPSPAN_KIND_BACKWARD) {
    relate(here, op, domain, id);
  } else {
    here.forwards.put(op.sequence, op.op_id);
  }
}

void begin_direct(Thread& here, const opspan_op& op, Domain* domain, Id parent) {
  direct::Op message = direct_op(here, op);
  message.parent = parent.d1 | (parent.d3 == label::kUsers ? capture::kUsersParent : 0);
  if (op.inputs_count) {
    std::string_view sizes = sizes_of(here, op, &message.sizes_handle);
    message.sizes = sizes.data();
    message.sizes_length = static_cast<uint32_t>(sizes.size());
  }
  const direct::Calls& calls = *g_direct.load(std::memory_order_relaxed);
  calls.begin(here.collector_thread(direct::kItt, calls), message);
  relate_forward(here, op, domain, op_id(op.op_id));
}

void begin_task(Thread& here, const opspan_op& op, Domain* domain, Id parent) {
  Id id = op_id(op.op_id);
  StringHandle* name = name_of(here, op);
  call(g_calls.task_begin, domain, id, parent, name ? name : g_handles.other);
  if (!name) call(g_calls.metadata_str_add, domain, id, g_handles.name, op.name, std::strlen(op.name));
  if (op.sequence >= 0) {
    int64_t sequence = op.sequence;
    call(g_calls.metadata_add, domain, id, g_handles.seq, kS64, size_t{1}, static_cast<void*>(&sequence));
  }
  uint64_t number = op.op_id;
  call(g_calls.metadata_add, domain, id, g_handles.op_id, kU64, size_t{1}, static_cast<void*>(&number));
  if (op.inputs_count) {
    std::string_view sizes = sizes_of(here, op);
    call(g_calls.metadata_str_add, domain, id, g_handles.sizes, sizes.data(), sizes.size());
  }
  if (uint64_t tid = op.kind == OPSPAN_KIND_BACKWARD ? forward_tid(here, op) : 0) {
    call(g_calls.metadata_add, domain, id, g_handles.fwd_tid, kU64, size_t{1}, static_cast<void*>(&tid));
  }
  relate_forward(here, op, domain, id);
}

void begin_text(Thread& here, const opspan_op& op, Domain* domain) {
  text::ForwardThread forward = text::forward_of(here, op);
  here.text.clear();
  text::append_label(here.text, op, forward);
  auto build = [&](std::string& out) { out = here.text; };
  auto* entry = g_texts.get(Key(here.text), g_sessions[OPSPAN_ITT].max_strings(), build, create_handle);
  StringHandle* name = entry ? static_cast<StringHandle*>(entry->handle) : name_of(here, op);
  if (!entry) here.counters[OPSPAN_ITT].sizes_dropped.add();
  call(g_calls.task_begin, domain, kNull, kNull, name ? name : g_handles.other);
}

void begin_torch(Thread& here, const opspan_op& op, Domain* domain) {
  StringHandle* name = name_of(here, op);
  if (!name) name = call(g_calls.string_handle_create, op.name);
  call(g_calls.task_begin, domain, kNull, kNull, name);
}

void begin(const void* key, const opspan_op* op) {
  Thread& here = Thread::here();
  here.set_number(op->thread);
  Frames& frames = here.frames[OPSPAN_ITT];
  frames.pop_ended([&here](Frame& frame) { pop(here, frame); });
  int form = g_sessions[OPSPAN_ITT].form();
  Id parent = form == OPSPAN_FORM_TASK ? parent_of(frames) : kNull;
  Frame* frame = here.next_frame(OPSPAN_ITT, key, op->op_id);
  if (!frame) return;
  Domain* domain = form == OPSPAN_FORM_TORCH ? torch_domain() : g_domain.load(std::memory_order_relaxed);
  bool labels = form && domain->flags;
  if (labels) count_range(here, OPSPAN_ITT);
  if (labels && !silent_for_ops(OPSPAN_TO_ITT)) {
    frame->where = form == OPSPAN_FORM_TORCH ? kTorchDomain : kOpspanDomain;
    if (form == OPSPAN_FORM_TASK && g_is_direct.load(std::memory_order_relaxed)) {
      frame->where = kDirect;
      begin_direct(here, *op, domain, parent);
    } else if (form == OPSPAN_FORM_TASK) {
      begin_task(here, *op, domain, parent);
    } else if (form == OPSPAN_FORM_TEXT) {
      begin_text(here, *op, domain);
    } else {
      begin_torch(here, *op, domain);
    }
  }
  frames.push();
}

void end(const void* key, uint64_t op_id, uint64_t thread, const uintptr_t*, size_t) {
  Thread& here = Thread::here();
  end_range(here, OPSPAN_ITT, key, op_id, thread, [&here](Frame& frame) { pop(here, frame); }, end_out_of_order);
}

// --- sessions

// Finds out whether the tool is opspan's collector. A task that began by a direct call also ends by a direct call, even
// if the tool has changed in between.
void look_for_collector() {
  static void* checked = nullptr;
  void* function = reinterpret_cast<void*>(g_calls.task_begin.load(std::memory_order_relaxed));
  if (function == checked) return;
  checked = function;
  const direct::Calls* calls = direct::find(function, direct::kItt);
  if (calls) g_direct.store(calls);
  g_is_direct.store(calls != nullptr);
}

// Looks for a collector, and creates the domains and the names that a session needs. Returns false if no collector is
// attached. Requires the session lock.
bool prepare() {
  if (!refresh()) return false;
  compare_tools();
  look_for_collector();
  if (g_domain.load()) return true;
  Domain* torch = call(g_calls.domain_create, "PyTorch");
  Domain* ours = call(g_calls.domain_create, label::kDomain);
  if (!torch || !ours) return false;
  g_handles = {key(label::kSequence), key(label::kOpId), key(label::kForward),
               key(label::kSizes),    key("name"),       key("other")};
  g_torch_domain.store(torch);
  g_domain.store(ours);
  return true;
}

bool is_listening() {
  std::lock_guard guard(session_lock());
  return prepare();
}

int start(const opspan_settings& settings, char* message, size_t message_size) {
  std::lock_guard guard(session_lock());
  int form = settings.form == OPSPAN_FORM_AUTO ? OPSPAN_FORM_TASK : settings.form;
  if (form != OPSPAN_FORM_TASK && form != OPSPAN_FORM_TEXT && form != OPSPAN_FORM_TORCH) {
    return fail(EINVAL, "no such form for ITT: use auto, task, text or torch", message, message_size);
  }
  if (!prepare()) {
    return fail(ENOTCONN, "no ITT collector is attached to this process: run it under one (vtune -collect ...)",
                message, message_size);
  }
  return start_session(OPSPAN_ITT, form, settings.max_strings, message, message_size);
}

}  // namespace

Domain* itt::torch_domain() { return g_torch_domain.load(std::memory_order_relaxed); }

const Sink kItt = {"itt", {begin, end, nullptr, nullptr}, is_listening, start, nullptr, false};

}  // namespace opspan

using namespace opspan;

int opspan_itt_open(const char* library, char* error, size_t error_size) {
  if (const char* why = itt::open(library)) return fail(ENOENT, why, error, error_size);
  std::lock_guard guard(session_lock());
  if (itt::listening()) prepare();
  return 0;
}

void opspan_itt_collect(int on) {
  if (on) {
    itt::call(itt::g_calls.resume);
  } else {
    itt::call(itt::g_calls.pause);
  }
}
