// Records every call of a Python function, and of a C function that Python calls, as a range of the kind kPython. Each
// thread of Python has a slot for a profile function, which Python calls at the begin and end of a call. Here this
// function is on_event.
//
// Ranges of ops need not nest with calls: a generator can begin a range and yield. So calls have a stack of their own,
// and the unit of a call has the number of the outer call's unit. The end of a call is matched with its begin by the
// Python frame, because some calls have no begin here: they began before opspan had the slot.
#include "sinks/python_calls.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

#include "capture/clock.h"
#include "sinks/python_names.h"
#include "sinks/session.h"
#include "sinks/sinks.h"
#include "sinks/threads.h"

namespace opspan::python {
namespace {

// A turn is a time in which the open calls of a capture belong together. Each start, stop and fork begins a new turn.
// All fields are changed under the GIL, except in after_fork.
struct Turns {
  uint32_t turn = 0;
  int64_t began_ns = 0;
  int64_t stopped_ns = 0;
};
Turns g_turns[capture::kWriters];
std::atomic<uint32_t> g_on{0};  // bits of the captures that get calls

int writer_of(int sink) {
  const int writer = sink - OPSPAN_CAPTURE;
  return writer >= 0 && writer < static_cast<int>(capture::kWriters) ? writer : -1;
}

void give_up(const OpenCall& call) {
  if (call.place) capture::give_up_range(call.place);
}

void end(Thread& here, const OpenCall& call, int64_t end_ns = 0) {
  if (call.place) capture::end_range(call.place, end_ns, here.logs);
}

// Opens a call. `name` is null for a call that is not recorded.
void begin(Thread& here, uint32_t writer, const Frame* frame, bool is_c, capture::Constant* name,
           int64_t start_ns = 0) {
  std::vector<OpenCall>& calls = here.python[writer].calls;
  if (calls.size() >= kMostOpen) [[unlikely]] {
    for (const OpenCall& call : calls) give_up(call);
    calls.clear();
  }
  OpenCall call{frame, {}, 0, is_c};
  if (!calls.empty()) [[likely]] {
    call.recorded = calls.back().recorded;
    call.is_edge = calls.back().is_edge;
  }
  if (name && !call.is_edge && g_sessions[OPSPAN_CAPTURE + static_cast<int>(writer)].form()) [[likely]] {
    if (capture::Log* log = capture::log(writer, here.logs)) {
      capture::BriefRange range;
      range.flags = capture::kValueNone;
      range.name = log->intern(*name);
      range.category = static_cast<uint32_t>(capture::Kind::kPython);
      range.extra = 0;
      range.value = 0;
      range.id = call.recorded >> 32 ? 0 : call.recorded;  // larger numbers have no room in half a line
      range.start_ns = start_ns ? start_ns : log->now();
      call.place = log->append(range);
      if (call.place) call.recorded = call.place.number + 1;
    }
  }
  calls.push_back(call);
}

void begin(Thread& here, uint32_t writer, Frame* frame, int64_t start_ns = 0) {
  Function& function = function_of(frame);
  capture::Constant* name = &function.name;
  if (function.kind != Function::kUsual) [[unlikely]] {
    const std::vector<OpenCall>& calls = here.python[writer].calls;
    const bool is_of_ours = !calls.empty() && !calls.back().place;
    if (function.kind == Function::kOurs || (function.kind == Function::kOfLibrary && is_of_ours)) name = nullptr;
    capture::Constant* module = function.kind == Function::kModuleCall ? module_name(frame) : nullptr;
    if (module) name = module;
    if (function.kind == Function::kRangeEdge) name = nullptr;
  }
  begin(here, writer, frame, false, name, start_ns);
  if (function.kind == Function::kRangeEdge) [[unlikely]]
    here.python[writer].calls.back().is_edge = true;
}

void begin_c(Thread& here, uint32_t writer, Frame* frame, const Object* c_function) {
  const std::vector<OpenCall>& calls = here.python[writer].calls;
  // C functions that opspan's functions call are left out, too.
  const bool is_ours = !calls.empty() && calls.back().frame == frame && !calls.back().place;
  begin(here, writer, frame, true, is_ours ? nullptr : &name_of_c_function(c_function));
}

void end(Thread& here, uint32_t writer, const Frame* frame, bool is_c) {
  std::vector<OpenCall>& calls = here.python[writer].calls;
  auto is_it = [&](const OpenCall& call) { return call.frame == frame && call.is_c == is_c; };
  size_t at = calls.size();
  while (at > 0 && !is_it(calls[at - 1])) --at;
  if (at == 0) return;
  // The ends of the calls inside this call were missed.
  for (size_t inner = calls.size(); inner > at; --inner) give_up(calls[inner - 1]);
  end(here, calls[at - 1]);
  calls.resize(at - 1);
}

// Ends all open calls of a thread.
void end_all(Thread& here, OpenCalls& open, int64_t end_ns) {
  for (; !open.calls.empty(); open.calls.pop_back()) end(here, open.calls.back(), end_ns);
}

// Returns `frame` and the frames around it, the innermost first. Takes over the caller's reference to `frame`.
std::vector<Reference> frames_from(Frame* frame) {
  std::vector<Reference> frames;
  for (; frame; frame = PyFrame_GetBack(frame)) frames.emplace_back(frame);
  return frames;
}

// Ends the calls of an earlier turn. Then opens the calls that the thread is in: the calls around `frame`, and the call
// of `frame` itself if it has begun.
[[gnu::cold]] void begin_turn(Thread& here, uint32_t writer, Frame* frame, bool has_begun) {
  OpenCalls& open = here.python[writer];
  const Turns& turns = g_turns[writer];
  end_all(here, open, turns.stopped_ns);
  open.turn = turns.turn;
  const std::vector<Reference> frames = frames_from(PyFrame_GetBack(frame));
  const int64_t began_ns = std::max(turns.began_ns, open.joined_ns);
  for (auto at = frames.rbegin(); at != frames.rend(); ++at) begin(here, writer, at->frame(), began_ns);
  if (has_begun) begin(here, writer, frame, began_ns);
}

void take(Thread& here, uint32_t writer, Frame* frame, int what, Object* argument) {
  if (here.python[writer].turn != g_turns[writer].turn) [[unlikely]]
    begin_turn(here, writer, frame, what != kCall);
  switch (what) {
    case kCall:
      return begin(here, writer, frame);
    case kReturn:
      return end(here, writer, frame, false);
    case kCallC:
      return begin_c(here, writer, frame, argument);
    case kReturnFromC:
    case kExceptionInC:
      return end(here, writer, frame, true);
  }
}

// Python's profile function. It never fails, because a failure would become an exception of the program.
int on_event(Object*, Frame* frame, int what, Object* argument) {
  const uint32_t on = g_on.load(std::memory_order_relaxed);
  if (!on) [[unlikely]] {
    PyEval_SetProfile(nullptr, nullptr);  // recording has stopped, but this thread still had the slot
    return 0;
  }
  try {
    Thread& here = Thread::here();
    for (uint32_t writer = 0; writer < capture::kWriters; ++writer) {
      if (on >> writer & 1) take(here, writer, frame, what, argument);
    }
  } catch (...) {
    // Out of memory: the call is lost.
  }
  return 0;
}

// Takes the slots of the other threads that are in Python. Before 3.12, a thread that has a profile function keeps it.
// From 3.12 on, all slots are taken in one call, which does not tell whether a thread had a profile function.
void arm_other_threads(Object* hook, Object* get_profile, Object* none) {
  if (PyEval_SetProfileAllThreads) return PyEval_SetProfileAllThreads(on_event, hook);
  _ts* own = PyThreadState_Get();
  for (_ts* thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); thread;
       thread = PyThreadState_Next(thread)) {
    if (thread == own || !Reference(PyThreadState_GetFrame(thread))) continue;
    PyThreadState_Swap(thread);
    {
      const Reference profile(PyObject_CallObject(get_profile, nullptr));
      if (profile.get() == none) PyEval_SetProfile(on_event, hook);
    }
    PyThreadState_Swap(own);
  }
}

// Gives up the calls of this thread that ended while another profiler had the slot. Nobody knows when they ended.
void drop_ended_calls(std::vector<OpenCall>& calls) {
  if (calls.empty()) return;
  const std::vector<Reference> frames = frames_from(PyThreadState_GetFrame(PyThreadState_Get()));
  auto is_open = [&](const OpenCall& call) {
    return !call.is_c && std::any_of(frames.begin(), frames.end(),
                                     [&](const Reference& frame) { return frame.frame() == call.frame; });
  };
  for (; !calls.empty() && !is_open(calls.back()); calls.pop_back()) give_up(calls.back());
}

// In a forked process, begins a new turn, in which the calls that the process is in begin now.
void after_fork() {
  for (Turns& turns : g_turns) {
    ++turns.turn;
    turns.began_ns = capture::now_ns();
  }
}

}  // namespace
}  // namespace opspan::python

using opspan::python::g_on;
using opspan::python::g_turns;
using opspan::python::on_event;
using opspan::python::writer_of;

int opspan_python_start(int sink, const opspan_python* python) {
  const int writer = writer_of(sink);
  if (writer < 0) return -EINVAL;
  if (!PyEval_SetProfile || !PyFrame_GetBack) return -ENOTSUP;
  [[maybe_unused]] static const int handler = pthread_atfork(nullptr, nullptr, opspan::python::after_fork);
  if (!g_on) opspan::python::describe_program(*python);
  auto& turns = g_turns[writer];
  ++turns.turn;
  turns.began_ns = opspan::capture::now_ns();
  g_on |= 1u << writer;
  auto* hook = static_cast<_object*>(python->hook);
  opspan::python::arm_other_threads(hook, static_cast<_object*>(python->get_profile),
                                    static_cast<_object*>(python->none));
  PyEval_SetProfile(on_event, hook);
  return 0;
}

void opspan_python_join(void* hook) {
  if (g_on) {
    try {
      for (auto& open : opspan::Thread::here().python) {
        open.joined_ns = opspan::capture::now_ns();
        opspan::python::drop_ended_calls(open.calls);
      }
    } catch (...) {
      // Out of memory: the ended calls stay open until their callers end.
    }
    PyEval_SetProfile(on_event, static_cast<_object*>(hook));
  } else {
    PyEval_SetProfile(nullptr, nullptr);
  }
}

int opspan_python_stop(int sink) {
  const int writer = writer_of(sink);
  if (writer < 0 || !(g_on >> writer & 1)) return g_on != 0;
  g_on &= ~(1u << writer);
  auto& turns = g_turns[writer];
  turns.stopped_ns = opspan::capture::now_ns();
  opspan::Thread& here = opspan::Thread::here();
  auto& open = here.python[writer];
  if (open.turn == turns.turn) opspan::python::end_all(here, open, turns.stopped_ns);
  ++turns.turn;
  if (!g_on) opspan::python::forget_names();
  return g_on != 0;
}
