// The functions of libopspan_columns. They nest, attribute and link ranges that are rows of columns. All are C
// functions with one signature.
//
// A function takes one or two frames and a number, and returns a frame as an Arrow struct array. A frame is a stream
// with at most one batch of rows, and its columns are found by name. A function returns 0, or -1 with a sentence in
// `error`. The caller still owns the streams. A column may hold any values. It is an error of the caller if a column is
// missing or has another type. Only the columns `rank`, `pid` and by0, by1, ... may be missing. If `rank` or `pid` is
// missing in all frames of a call, it is the same in all rows and takes no memory. by0, by1, ... divide the rows into
// groups. opspan.native is the Python side; docs/analysis.md says what the results mean.
#pragma once

#include "columns/arrow.h"

extern "C" {

// Returns the version of this interface, which grows with every change that an older Python side would not understand.
int opspan_columns_abi(void);

typedef int opspan_columns_call(ArrowArrayStream* first, ArrowArrayStream* second, int64_t number, ArrowSchema* schema,
                                ArrowArray* array, char* error, size_t error_size);

// Each comment says what the first frame holds, what the second frame holds ("-": it is not used), and what the number
// is. For events, the first frame holds the address of a part of a Chrome trace. The number is the reader's state times
// 2, plus 1 for the last part.
opspan_columns_call opspan_columns_nest;          // ranges; -; end of the trace
opspan_columns_call opspan_columns_enclose;       // events
opspan_columns_call opspan_columns_innermost;     // ranges; points
opspan_columns_call opspan_columns_cover;         // spans; more spans
opspan_columns_call opspan_columns_covered;       // spans; stretches
opspan_columns_call opspan_columns_within;        // points; stretches
opspan_columns_call opspan_columns_cut;           // stretches; ranges, and spans of kinds
opspan_columns_call opspan_columns_match;         // calls; work
opspan_columns_call opspan_columns_nearest;       // parents with marked rows
opspan_columns_call opspan_columns_rollup;        // parents; work
opspan_columns_call opspan_columns_link;          // ranges with seq and parent; names
opspan_columns_call opspan_columns_labels;        // texts; -; threads to use
opspan_columns_call opspan_columns_events;        // part of a Chrome trace; keys of args; state
opspan_columns_call opspan_columns_metadata;      // texts; -; threads to use
opspan_columns_call opspan_columns_json_objects;  // texts; -; threads to use
opspan_columns_call opspan_columns_protobuf;      // rows; -; field number of the rows
opspan_columns_call opspan_columns_timeline;      // slices of tracks
opspan_columns_call opspan_columns_places;        // shapes of lanes; -; rows of a lane
opspan_columns_call opspan_columns_blocks;        // shapes in the order in which they are drawn; -; the most blocks
opspan_columns_call opspan_columns_latest;        // points; candidate rows, in order; 1: strictly before
opspan_columns_call opspan_columns_replay;        // work, then edges; joins; how many of the rows are work
opspan_columns_call opspan_columns_sqlite;        // columns of a table; the table; the file's descriptor

// Starts writing the rows of a frame as items of a JSON list; returns null on an error. Each call of `next` writes some
// of the items and returns the number of bytes, 0 if there are no more items, or -1 on an error. The bytes are valid
// until the next call.
void* opspan_json_items(ArrowArrayStream* rows, int is_first, char* error, size_t error_size);
int64_t opspan_json_items_next(void* items, const char** bytes, char* error, size_t error_size);
void opspan_json_items_end(void* items);

// Writes the name of a C++ function as its source has it, without a 0 at its end. Returns its length, or -1 if the name
// is not a mangled name, cannot be parsed, or does not fit.
int64_t opspan_demangle(const char* mangled, char* buffer, size_t size);
}

namespace opspan::columns {

Output nest(const Input& ranges, int64_t trace_end);
Output enclose(const Input& events);
Output innermost(const Input& ranges, const Input& points);
Output cover(const Input& spans, const Input& others);
Output covered(const Input& spans, const Input& stretches);
Output within(const Input& points, const Input& stretches);
Output cut(const Input& stretches, const Input& spans);
Output match(const Input& calls, const Input& work);
Output nearest(const Input& ranges);
Output rollup(const Input& ranges, const Input& work);
Output link(const Input& ranges, const Input& names);
Output labels(const Input& texts, int64_t workers);
Output events(const Input& piece, const Input& keys, int64_t number);
Output metadata(const Input& texts, int64_t workers);
Output json_objects(const Input& texts, int64_t workers);
Output protobuf(const Input& frame, int64_t number);
Output timeline(const Input& slices);
Output places(const Input& shapes, int64_t rows_of_lane);
Output blocks(const Input& shapes, int64_t most);
Output latest(const Input& points, const Input& candidates, int64_t is_strict);
Output replay(const Input& work, const Input& joins, int64_t count);
// This one is in native/sqlite.
Output sqlite(const Input& wanted, const Input& table, int64_t descriptor);

}  // namespace opspan::columns
