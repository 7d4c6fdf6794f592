// The plain C functions between torch's side (native/observer) and the tools' side (native/sinks).
//
// The observer is compiled on the user's machine against the torch that is installed there. The sinks are built once,
// with the wheel, and know nothing about torch. Both include only this header, so it is C and needs only the standard
// headers. Python calls the functions with ctypes (src/opspan/emit/sinks.py).
#ifndef OPSPAN_SINKS_H
#define OPSPAN_SINKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPSPAN_SINKS_ABI 15
#define OPSPAN_EXPORT __attribute__((visibility("default")))

// The sinks, one on each line, numbered in this order: OPSPAN_NVTX, OPSPAN_ITT, ... The second word is part of the
// names of a sink's variables (native/sinks/sink.h). src/opspan/emit/sink_list.py has the same list. Several captures
// can be on at the same time, and each is a sink.
#define OPSPAN_SINKS(SINK)  \
  SINK(NVTX, Nvtx)          \
  SINK(ITT, Itt)            \
  SINK(CAPTURE, Capture)    \
  SINK(CAPTURE_2, Capture2) \
  SINK(CAPTURE_3, Capture3) \
  SINK(CAPTURE_4, Capture4)

#define OPSPAN_NUMBER(NAME, Name) OPSPAN_##NAME,
enum { OPSPAN_SINKS(OPSPAN_NUMBER) OPSPAN_SINK_COUNT };

// The forms a label can take. Not every sink has every form.
enum {
  OPSPAN_FORM_AUTO = 0,     // the best form that the tool understands
  OPSPAN_FORM_SCHEMA = 1,   // NVTX: domain `opspan`, registered name, extended payload
  OPSPAN_FORM_PAYLOAD = 2,  // NVTX: domain `opspan`, registered name, 64-bit payload = seq
  OPSPAN_FORM_TEXT = 3,     // all data in the name, in opspan's own text form
  OPSPAN_FORM_TORCH = 4,    // exactly what torch's own emitter would write
  OPSPAN_FORM_TASK = 5,     // ITT: name as a handle, ids, metadata, relations
};

// The kinds of ranges, numbered as in capture::Kind and labels.py.
enum {
  OPSPAN_KIND_UNKNOWN = 0,
  OPSPAN_KIND_OP = 1,
  OPSPAN_KIND_BACKWARD = 2,
  OPSPAN_KIND_ENGINE = 3,  // ranges whose names begin with OPSPAN_ENGINE
  OPSPAN_KIND_USER = 4,
  OPSPAN_KIND_MODULE = 5,
  OPSPAN_KIND_STEP = 6,
  OPSPAN_KIND_SCRIPT = 7,
  OPSPAN_KIND_DTYPE = 8,
  OPSPAN_KIND_CLASS = 9,
  OPSPAN_KIND_FEATURE = 10,
  OPSPAN_KIND_LITE = 11,
  OPSPAN_KIND_STATIC_OP = 12,
  OPSPAN_KIND_STATIC_MODEL = 13,
};

#define OPSPAN_ENGINE "autograd::engine::evaluate_function: "

// The inputs of an op, as an array of int64 words with a group of words for each argument. The first word of a group
// describes the argument. The fields of this word, from the lowest bit on:
//   4 bits   TENSOR, LIST (a list that contains a tensor), or NOTHING (undefined tensor, number, string, None ...)
//   4 bits   for a tensor: the strides
//   24 bits  the type, an index into type_names; the name of NONE is ""
//   32 bits  for a tensor: the rank; that many dimensions follow, and that many strides if FOLLOW;
//            for a list: the number of items; a group for each item follows
// Types and strides are set only for OPSPAN_INPUTS_ALL. The items of a list have types and strides only if all of
// them are tensors (TENSOR_LIST).
enum { OPSPAN_INPUT_NOTHING = 0, OPSPAN_INPUT_TENSOR = 1, OPSPAN_INPUT_LIST = 2 };
// USUAL: the strides of a contiguous tensor; the last dimension has stride 1.
enum { OPSPAN_STRIDES_NONE = 0, OPSPAN_STRIDES_USUAL = 1, OPSPAN_STRIDES_FOLLOW = 2 };
enum {
  OPSPAN_TYPE_NONE = 0,
  OPSPAN_TYPE_SCALAR = 1,
  OPSPAN_TYPE_SCALARS = 2,
  OPSPAN_TYPE_TENSOR_LIST = 3,
  OPSPAN_TYPE_TENSORS = 4,  // the type of a tensor is this number plus torch's number of the type
};

// The facts about inputs that a sink gets.
enum {
  OPSPAN_INPUTS_NONE = 0,
  OPSPAN_INPUTS_SIZES = 1,
  OPSPAN_INPUTS_TENSORS = 2,  // sizes, and addresses of input and output tensors: for OPSPAN_FORM_TORCH
  OPSPAN_INPUTS_ALL = 3,      // sizes, types, strides, and the values of inputs other than tensors
};

// The values of inputs, as an array of int64 words with a group of words for each argument. The first word of a group
// is the kind of the value. The words after it are, for
//   INT, BOOL  the value        REAL  the bits of a double        COMPLEX  the bits of two doubles
//   LIST       the number of items, then a group for each
//   NONE       nothing: a tensor, a string, a long list, None ...
enum {
  OPSPAN_VALUE_NONE = 0,
  OPSPAN_VALUE_INT = 1,
  OPSPAN_VALUE_BOOL = 2,
  OPSPAN_VALUE_REAL = 3,
  OPSPAN_VALUE_COMPLEX = 4,
  OPSPAN_VALUE_LIST = 5,
};

// Reads the Python functions that the calling thread is in. Call these functions only while an op of the thread begins.
typedef struct opspan_stacks {
  // Writes words that identify the stack: equal stacks have equal words. Writes at most `room` words
  // (OPSPAN_STACK_WORDS are enough). Returns the number of words that were written.
  size_t (*words)(int64_t* out, size_t room);
  // Writes the text of the stack that these words identify, cut to `size` bytes, without a NUL. The text has one line
  // for each function, the outermost first. Returns the length of the whole text.
  size_t (*text)(const int64_t* words, size_t count, char* out, size_t size);
} opspan_stacks;
enum { OPSPAN_STACK_WORDS = 768 };

// The functions of native/frames, a library for each release of Python, which exports
//   const opspan_frames* opspan_frames_of(int abi);  // null if `abi` is not its OPSPAN_SINKS_ABI
typedef struct opspan_frames {
  // Returns the thread's innermost Python function and its position in that function; null if it runs no Python.
  const void* (*innermost)(int64_t* instruction);
  opspan_stacks stacks;
} opspan_frames;

// One range, as torch's RecordFunction describes it. Pointers are valid only during the call.
typedef struct opspan_op {
  const char* name;        // ended by NUL; the length is not known here
  size_t overload_length;  // length of the overload at the end of the name (aten::add.Tensor); 0: none
  uint32_t kind;
  uint32_t inputs_count;  // number of words in `inputs`; 0 when shapes are off
  const int64_t* inputs;
  // These three fields are set only for OPSPAN_INPUTS_ALL.
  const char* const* type_names;  // valid until the process ends
  const int64_t* values;
  size_t values_count;
  // The thread's innermost Python function, and the position in that function. Both are set only if stacks were asked
  // for and the thread runs Python. If another op begins at the same position while this op runs, it has the same
  // stack.
  const void* python;
  int64_t instruction;
  const opspan_stacks* stacks;
  int64_t sequence;         // -1: none
  uint64_t op_id;           // 0: none
  uint64_t thread;          // torch's logical id of this thread; 0: not known
  uint64_t forward_thread;  // torch's logical id of the forward op's thread; 0: not a backward op
  // Only for OPSPAN_FORM_TORCH with shapes: the addresses for torch's input_op_ids. A tensor has one; a list has one
  // for each tensor in it. An undefined tensor, a list without tensors and any other argument have one, which is 0.
  // (There may be fewer addresses than sizes: torch leaves out undefined tensors in lists.)
  const uintptr_t* tensors;
  size_t tensor_count;
  const char* keywords;  // OPSPAN_INPUTS_ALL: the keyword values as a JSON object, ended by NUL; null: none
} opspan_op;

enum { OPSPAN_MEMORY_TAKEN = 0, OPSPAN_MEMORY_GIVEN_BACK = 1, OPSPAN_MEMORY_FAILED = 2 };

// Memory that torch allocated, freed, or could not allocate.
typedef struct opspan_memory {
  uint32_t what;
  int32_t device_type;   // as torch numbers them; 0: the host
  int32_t device_index;  // -1: the host
  uint64_t address;      // 0 if the allocation failed
  int64_t bytes;
  int64_t total;  // bytes in use after this event; only allocations that were seen count
} opspan_memory;

// The functions that the observer calls for each range. `key` is the address of torch's RecordFunction. No two open
// ranges have the same key.
typedef struct opspan_sink {
  void (*begin)(const void* key, const opspan_op* op);
  // `thread` is torch's id of the thread on which begin was called; end may be called on another thread (async ops).
  // `outputs` are the addresses of the output tensors (0: not a tensor); only for OPSPAN_FORM_TORCH with shapes.
  void (*end)(const void* key, uint64_t op_id, uint64_t thread, const uintptr_t* outputs, size_t output_count);
  void (*memory)(const opspan_memory* memory);  // null: this sink takes no memory events
  // Tells the sink the id of torch's range that belongs to the user's own range which this thread pushes next. null:
  // this sink writes no ids.
  void (*announce)(uint64_t op_id);
} opspan_sink;

OPSPAN_EXPORT int opspan_sinks_abi(void);
OPSPAN_EXPORT const opspan_sink* opspan_sink_of(int sink);
OPSPAN_EXPORT const char* opspan_sink_name(int sink);

typedef struct opspan_stats {
  uint64_t ranges;            // number of ranges that began during this session
  uint64_t late_ends;         // number of ranges that another thread ended; their own thread pops them later
  uint64_t sizes_dropped;     // number of sizes left out, because the table of distinct strings was full
  uint64_t relations_missed;  // number of backward ops whose forward op was no longer in the table
  uint64_t lost;              // capture: number of units that could not be written
  uint64_t given_up;          // number of ranges that stay open, because their thread opened 16,384 more inside them
  uint64_t fields_dropped;    // number of a user's ranges with fields (category, colour ...) that the form cannot hold
} opspan_stats;

// --- sessions: a sink has at most one
typedef struct opspan_settings {
  int form;              // OPSPAN_FORM_AUTO, or a form that the sink has
  uint32_t max_strings;  // the most distinct names with sizes that are passed to a tool
  const char* folder;    // for a capture: an existing folder for the file; forked processes use it too
  // The limits of a rolling capture. Older data may be dropped as soon as the newer data reach one of the limits. 0: no
  // limit.
  int64_t keep_ns;
  uint64_t keep_bytes;
  uint64_t keep_steps;
} opspan_settings;

// Returns 1 if a tool is listening, else 0. The question makes a tool attach. A sink without a tool always listens.
OPSPAN_EXPORT int opspan_listening(int sink);
// Starts a session. Returns the form of its labels (> 0), and writes to `message` what the sink reports (a capture: the
// path of its file). On an error, returns -errno and writes a sentence to `message`.
OPSPAN_EXPORT int opspan_start(int sink, const opspan_settings* settings, char* message, size_t message_size);
OPSPAN_EXPORT void opspan_stop(int sink, opspan_stats* stats);

// Opens the library that contains ITT (libtorch_cpu, or the ittapi package). It need not be loaded yet.
OPSPAN_EXPORT int opspan_itt_open(const char* library, char* error, size_t error_size);
// Tells ITT's collector to collect (1) or not to collect (0), by ITT's calls resume and pause. NVTX has no such calls.
OPSPAN_EXPORT void opspan_itt_collect(int on);

// Returns 1 if NVTX and ITT both reach opspan's own library (`opspan run`), else 0. If both do, a range that goes to
// both is sent only once: through the protocol whose session began to label last, or through NVTX if neither has such a
// session.
OPSPAN_EXPORT int opspan_one_tool(void);
// Tells the sink whether the observer passes ops to it from now on (1: yes, 0: no).
OPSPAN_EXPORT void opspan_labelling(int sink, int on);

// Turns labelling on or off, for a schedule. Labelling is on when a session starts. The session belongs to the process
// that started it, its owner. Processes that are forked during the session share it: they follow what the owner does,
// and their own calls do nothing. A stop in a forked process ends the session only there. If the forked process then
// starts a session, it is that session's owner.
OPSPAN_EXPORT void opspan_session_turn(int sink, int on);
// Makes this forked process the owner of the session that it got from its parent. Returns 1, or 0 if there is no
// session.
OPSPAN_EXPORT int opspan_session_adopt(int sink);
// For a rolling capture. opspan_capture_step counts a training step. opspan_capture_hold(sink, 1) keeps the files while
// somebody copies them. Call opspan_capture_hold(sink, 0) once the copy is done, as often as it was called with 1.
OPSPAN_EXPORT void opspan_capture_step(int sink);
OPSPAN_EXPORT void opspan_capture_hold(int sink, int on);
// Sets the functions for a forked process that finds out that its session is over. The process first stops its own
// part of the session, and then calls schedule(callback, sink). `schedule` is Python's Py_AddPendingCall, which calls
// callback(sink) as soon as possible.
typedef int (*opspan_callback)(void* sink);
typedef int (*opspan_scheduler)(opspan_callback callback, void* sink);
OPSPAN_EXPORT void opspan_tell_forks(opspan_scheduler schedule, opspan_callback callback);

// --- a user's own ranges: they go to every sink that is on, and to NVTX and ITT whenever a tool listens there
typedef struct opspan_range {
  const char* name;  // UTF-8, any length, ended by NUL
  size_t name_length;
  uint32_t kind;         // OPSPAN_KIND_USER, _MODULE, _STEP
  uint32_t color;        // ARGB; 0: none
  const char* category;  // or null
  const char* detail;    // a module's class, a record_function's args, or null
  int32_t payload_type;  // 0: none, 1: int64, 2: uint64, 3: double
  union {
    int64_t i;
    uint64_t u;
    double d;
  } payload;
} opspan_range;

// Each sink has a bit: OPSPAN_TO_NVTX, OPSPAN_TO_ITT, ...
#define OPSPAN_BIT(NAME, Name) OPSPAN_TO_##NAME = 1 << OPSPAN_##NAME,
enum { OPSPAN_SINKS(OPSPAN_BIT) OPSPAN_TO_ALL = (1 << OPSPAN_SINK_COUNT) - 1 };
// Limits a range to sinks with a session in which labelling is on. (Ranges of modules need this.) If `to` contains the
// product of a sink's bit and this number, the sink gets the range only while labelling is on there.
enum { OPSPAN_IN_SESSION = 1 << OPSPAN_SINK_COUNT };

// Begins a range. Returns its zero-based depth on this thread; -1 if nobody listens. Each sink counts the depth
// separately; the result is the depth at the first sink in `to` that takes the range.
OPSPAN_EXPORT int opspan_push(const opspan_range* range, uint32_t to);
// Ends this thread's innermost range at each sink in `to`. Call it only for ranges for which opspan_push returned a
// depth, with the same `to`. Returns the zero-based depth of the ended range at the first sink that had taken it; -1 if
// no range was open. A range ends at every sink to which it was pushed, even if the session has stopped since.
OPSPAN_EXPORT int opspan_pop(uint32_t to);
// Takes this thread's innermost range off the ranges that opspan_pop ends: it lasts until opspan_end_detached is called
// with the returned number and `thread`, on any thread. Returns 0 if no range is open.
OPSPAN_EXPORT uint64_t opspan_detach(uint32_t to, uint64_t* thread);
OPSPAN_EXPORT void opspan_end_detached(uint64_t number, uint64_t thread, uint32_t to);
OPSPAN_EXPORT void opspan_mark(const opspan_range* range, uint32_t to);
// Starts a range that may end on any thread. Returns its id; 0: nobody listens.
OPSPAN_EXPORT uint64_t opspan_range_start(const opspan_range* range, uint32_t to);
OPSPAN_EXPORT void opspan_range_end(uint64_t id);

#ifdef __cplusplus
}
#endif
#endif
