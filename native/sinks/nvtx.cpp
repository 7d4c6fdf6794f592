// The NVTX sink. It sends ranges of ops to NVTX, in the form that the tool understands.
#include <errno.h>

#include <mutex>
#include <string>

#include "capture/label.h"
#include "sinks/nvtx_shared.h"
#include "sinks/one_tool.h"
#include "sinks/sink.h"
#include "sinks/tensor_sources.h"
#include "sinks/text.h"

namespace opspan {
namespace nvtx {

constinit LabelTable g_names;

void pop(Thread& here, Frame& frame) {
  if (frame.where == kDirect) {
    const direct::Calls& calls = *g_direct.load(std::memory_order_relaxed);
    calls.end(here.collector_thread(direct::kNvtx, calls));
  }
  if (frame.where == kOpspanDomain) nvtxDomainRangePop(domain());
  if (frame.where == kDefaultDomain) nvtxRangePop();
}

void pop(Frame& frame) { pop(Thread::here(), frame); }

void end_out_of_order(Frame&) {}

}  // namespace nvtx

namespace {

using namespace nvtx;

// Labels that are a name with sizes, and labels that are only sizes. g_names is a table of this type too; here, the
// session sets the limit.
constinit LabelTable g_sized_names, g_sizes;

uint32_t max_strings() { return g_sessions[OPSPAN_NVTX].max_strings(); }

// Sets the label's message to `<name>[, fwd_tid = T]`. The message is a registered string while there is room for
// names.
[[gnu::cold, gnu::noinline]] void make_name(Thread& here, Label* label, const opspan_op& op,
                                            text::ForwardThread forward) {
  auto build = [&](std::string& out) {
    out += text::name_of(op);
    text::append_forward(out, forward);
  };
  // Names of a user's ranges may contain numbers, so there may be many different names. They are sent as texts and not
  // kept.
  if (op.kind != OPSPAN_KIND_USER) {
    Key key(text::name_of(op), forward.named ? uint64_t{forward.tid} + 1 : 0);
    if (auto* entry = g_names.get(key, kMaxNames, build, register_string)) {
      label->registered = handle(entry);
      if (!forward.named) here.handles[direct::kNvtx].add({op.name, op.kind}, entry->handle);
      return;
    }
  }
  here.text.clear();
  build(here.text);
  label->text = here.text.c_str();
}

void set_name(Thread& here, Label* label, const opspan_op& op, text::ForwardThread forward) {
  void* cached = forward.named ? nullptr : here.handles[direct::kNvtx].find({op.name, op.kind});
  if (!cached) [[unlikely]]
    return make_name(here, label, op, forward);
  label->registered = static_cast<nvtxStringHandle_t>(cached);
}

void push_payload(Thread& here, const opspan_op& op, const Label& base) {
  Label label = base;
  text::ForwardThread forward = text::forward_of(here, op);
  if (op.inputs_count) {
    const uint64_t number = forward.named ? uint64_t{forward.tid} + 1 : 0;
    auto build = [&](std::string& out) {
      out += text::name_of(op);
      text::append_forward(out, forward);
      out += ", sizes = ";
      text::append_sizes(out, op.inputs, op.inputs_count);
    };
    auto find = [&] {
      return g_sized_names.get(Key(text::name_of(op), number, op.inputs, op.inputs_count), max_strings(), build,
                               register_string);
    };
    capture::Digest digest = digest_of(op);
    capture::add_text(digest, op.name);
    digest.add(number, 0);
    if (auto* entry = here.find_label(direct::kNvtx, digest, find)) {
      label.registered = handle(entry);
    } else {
      here.counters[OPSPAN_NVTX].sizes_dropped.add();
    }
  }
  if (!label.registered) set_name(here, &label, op, forward);
  if (op.sequence >= 0) {
    label.payload_type = NVTX_PAYLOAD_TYPE_INT64;
    label.payload = static_cast<uint64_t>(op.sequence);
  }
  nvtxEventAttributes_t event = attributes(label);
  nvtxDomainRangePushEx(domain(), &event);
}

const LabelTable::Entry* sizes_of(Thread& here, const opspan_op& op) {
  auto build = [&](std::string& out) { text::append_sizes(out, op.inputs, op.inputs_count); };
  auto find = [&] {
    return g_sizes.get(Key({}, 0, op.inputs, op.inputs_count), max_strings(), build, register_string);
  };
  auto* entry = here.find_label(direct::kNvtx, digest_of(op), find);
  if (!entry) here.counters[OPSPAN_NVTX].sizes_dropped.add();
  return entry;
}

void push_schema(Thread& here, const opspan_op& op, const Label& base) {
  Label label = base;
  label::Payload payload = {op.sequence, op.op_id, 0, op.kind, nullptr};
  if (op.kind == OPSPAN_KIND_BACKWARD) payload.fwd_tid = forward_tid(here, op);
  if (auto* sizes = op.inputs_count ? sizes_of(here, op) : nullptr) payload.sizes = handle(sizes);
  set_name(here, &label, op, {});
  nvtxPayloadData_t data = {schema(), sizeof(payload), &payload};
  label.payload_type = NVTX_PAYLOAD_TYPE_EXT;
  label.payload = reinterpret_cast<uintptr_t>(&data);
  nvtxEventAttributes_t event = attributes(label);
  nvtxDomainRangePushEx(domain(), &event);
}

[[gnu::noinline]] void begin_direct(Thread& here, const opspan_op& op, const direct::Calls& calls) {
  direct::Op message = direct_op(here, op);
  if (auto* sizes = op.inputs_count ? sizes_of(here, op) : nullptr) message.sizes_handle = sizes->handle;
  calls.begin(here.collector_thread(direct::kNvtx, calls), message);
}

[[gnu::cold]] void push_text(Thread& here, const opspan_op& op, const Label& base) {
  text::ForwardThread forward = text::forward_of(here, op);
  here.text.clear();
  text::append_label(here.text, op, forward);
  Label label = base;
  label.text = here.text.c_str();
  nvtxEventAttributes_t event = attributes(label);
  nvtxDomainRangePushEx(domain(), &event);
}

[[gnu::cold]] void push_torch(Thread& here, const opspan_op& op) {
  std::string& out = here.text;
  out = op.name;
  if (op.sequence >= 0) {
    out += ", seq = ";
    text::append_number(out, op.sequence);
  }
  if (op.op_id) {
    out += ", op_id = ";
    text::append_number(out, op.op_id);
  }
  text::append_torch_sizes(out, op.inputs, op.inputs_count);
  tensor_sources::append(out, op.tensors, op.tensor_count);
  nvtxRangePushA(out.c_str());
}

void begin(const void* key, const opspan_op* op) {
  Thread& here = Thread::here();
  here.set_number(op->thread);
  Frames& frames = here.frames[OPSPAN_NVTX];
  frames.pop_ended([&here](Frame& frame) { pop(here, frame); });
  Frame* frame = here.next_frame(OPSPAN_NVTX, key, op->op_id);
  if (!frame) return;
  int form = g_sessions[OPSPAN_NVTX].form();
  if (form) count_range(here, OPSPAN_NVTX);
  const direct::Calls* direct_calls = form == OPSPAN_FORM_SCHEMA ? g_direct.load(std::memory_order_relaxed) : nullptr;
  if (form && silent_for_ops(OPSPAN_TO_NVTX)) {
    frame->where = kNothing;
  } else if (direct_calls) {
    frame->where = kDirect;
    begin_direct(here, *op, *direct_calls);
  } else if (form) {
    Label base;
    base.category = op->kind;
    base.color = color_of(op->kind);
    frame->where = form == OPSPAN_FORM_TORCH ? kDefaultDomain : kOpspanDomain;
    switch (form) {
      case OPSPAN_FORM_SCHEMA:
        push_schema(here, *op, base);
        break;
      case OPSPAN_FORM_PAYLOAD:
        push_payload(here, *op, base);
        break;
      case OPSPAN_FORM_TEXT:
        push_text(here, *op, base);
        break;
      default:
        push_torch(here, *op);
    }
  }
  frames.push();
}

void end(const void* key, uint64_t op_id, uint64_t thread, const uintptr_t* outputs, size_t output_count) {
  if (output_count) tensor_sources::remember(op_id, outputs, output_count);
  Thread& here = Thread::here();
  end_range(here, OPSPAN_NVTX, key, op_id, thread, [&here](Frame& frame) { pop(here, frame); }, end_out_of_order);
}

// --- sessions

bool is_listening() {
  if (!attach()) return false;
  std::lock_guard guard(session_lock());
  compare_tools();
  return true;
}

int start(const opspan_settings& settings, char* message, size_t message_size) {
  std::lock_guard guard(session_lock());
  int form = settings.form;
  if (form < OPSPAN_FORM_AUTO || form > OPSPAN_FORM_TORCH) {
    return fail(EINVAL, "no such form for NVTX: use auto, schema, payload, text or torch", message, message_size);
  }
  if (!attach()) {
    return fail(ENOTCONN, "no NVTX tool is attached to this process: run it under one (nsys profile -t nvtx ...)",
                message, message_size);
  }
  compare_tools();
  if (form == OPSPAN_FORM_SCHEMA && !schema()) {
    return fail(ENOTSUP, "the attached tool does not know NVTX payload schemas: use the form auto or payload", message,
                message_size);
  }
  if (form == OPSPAN_FORM_AUTO) form = schema() ? OPSPAN_FORM_SCHEMA : OPSPAN_FORM_PAYLOAD;
  if (form == OPSPAN_FORM_TORCH) tensor_sources::forget_all();
  return start_session(OPSPAN_NVTX, form, settings.max_strings, message, message_size);
}

}  // namespace

const Sink kNvtx = {"nvtx", {begin, end, nullptr, nullptr}, is_listening, start, nullptr, false};

}  // namespace opspan
