// SPDX-License-Identifier: Apache-2.0
// The command's two streams: results to standard output, all else to standard error.
#pragma once

#include <string>
#include <string_view>

namespace kref {

// Writes to standard output and flushes, so that results appear as they are found. Error when that
// is impossible (a full disk); BrokenPipe when the reader has gone away.
void print(std::string_view text);

// The reader of standard output has closed it: nobody is left to tell.
class BrokenPipe {};

// "kref: MESSAGE" on standard error; blanks progress first.
void complain(std::string_view message);

// What is being done, on one line of a terminal that the next one replaces; prints nothing when
// standard error is not a terminal.
void progress(const std::string& text);
// Blanks the line.
void end_progress();

}  // namespace kref
