// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "golden/assemble.h"
#include "golden/commands.h"
#include "golden/console.h"
#include "golden/judge.h"
#include "golden/operation.h"
#include "golden/report_text.h"
#include "golden/verdict_json.h"

namespace kref {
namespace {

// What is wrong with one run takes no more lines than this, however many outputs it has.
constexpr std::size_t kReportLines = 25;

struct Judged {
  std::string op;
  std::vector<Verdict> verdicts;
  std::optional<PartialVerdict> partial = {};
};

struct Totals {
  Index elements = 0, wrong = 0;
  double ratio = 0;  // largest error as a fraction of its bound
};

Totals totals_of(const Judged& judged) {
  Totals t;
  for (const Verdict& v : judged.verdicts) {
    t.elements += v.elements;
    t.wrong += v.wrong;
    if (v.worst.element >= 0) t.ratio = std::max(t.ratio, v.worst.ratio);
  }
  return t;
}

bool is_ok(const Judged& judged) {
  return totals_of(judged).wrong == 0 && (!judged.partial || judged.partial->ok());
}

Judged judge_run(const Request& request, const std::string& subject) {
  const std::optional<PartialStates> states = read_partials(request);
  const Run run = assemble(request, subject);
  const Operation& operation = find_operation(run.op);
  operation.validate(run, true);
  if (states && operation.judge_partials == nullptr) {
    refuse_run(run,
               "--partial is given, but only attention and decode_attention have partial "
               "results");
  }
  Judged judged{run.op, {}};
  for (const Expectation& expected : operation.expect(run)) {
    judged.verdicts.push_back(judge(expected, run.out.at(expected.output)));
  }
  if (states) judged.partial = operation.judge_partials(run, *states, judged.verdicts);
  return judged;
}

// Appends at most `most` lines of `text` to `out`, indented; returns how many lines that took.
std::size_t append_lines(const std::string& text, std::size_t most, std::string& out) {
  std::size_t lines = 0;
  for (std::size_t at = 0; at < text.size() && lines < most; ++lines) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.append("  ").append(text, at, end - at).append("\n");
    at = end + 1;
  }
  return lines;
}

// The reports of the wrong outputs within kReportLines: each has its first line at least, which
// says how many elements are wrong; the earlier ones have the rest of the room.
std::string reports(const Judged& judged) {
  std::size_t wrong = 0, used = 0;
  for (const Verdict& v : judged.verdicts) wrong += v.ok() ? 0 : 1;
  std::string out, partial;
  const std::size_t kept =
      judged.partial
          ? append_lines(partial_report(*judged.partial, wrong == 0), kReportLines, partial)
          : 0;
  for (const Verdict& v : judged.verdicts) {
    if (v.ok()) continue;
    --wrong;
    used += append_lines(report(v), kReportLines - kept - used - wrong, out);
  }
  return out + partial;
}

std::string fraction(double ratio) {
  return "largest error " + detail::number(ratio, 3) + " of its bound";
}

std::string text_of(const std::string& subject, const Judged& judged, bool quiet) {
  const Totals t = totals_of(judged);
  const bool ok = is_ok(judged);
  if (ok && quiet) return "";
  const std::string named = subject == judged.op ? subject : subject + ": " + judged.op;
  std::string line = detail::cat(ok ? "ok        " : "MISMATCH  ", named, ": ", t.elements, " of ",
                                 t.elements, " elements compared, ");
  if (t.wrong > 0) line += detail::cat(t.wrong, " wrong, ");
  line += fraction(t.ratio);
  if (!ok) return line + "\n" + reports(judged);
  if (judged.partial) {
    const PartialVerdict& p = *judged.partial;
    line += detail::cat("; after ", p.blocks, " key blocks ", p.elements, " elements right, ",
                        fraction(p.ratio));
    if (p.unseen > 0) {
      line += detail::cat(", ", p.unseen, " states of rows that had seen no key not judged");
    }
  }
  return line + "\n";
}

nlohmann::ordered_json head(const std::string& subject, const std::string& op, const char* verdict,
                            int status) {
  nlohmann::ordered_json out = {
      {"run", subject}, {"op", op}, {"verdict", verdict}, {"exit", status}};
  if (op.empty()) out["op"] = nullptr;
  return out;
}

std::string json_of(const std::string& subject, const Judged& judged) {
  const Totals t = totals_of(judged);
  const bool ok = is_ok(judged);
  nlohmann::ordered_json out = head(subject, judged.op, ok ? "ok" : "mismatch", ok ? 0 : 1);
  out["compared"] = t.elements;
  out["elements"] = t.elements;
  out["wrong"] = t.wrong;
  out["largest_error"] = number_json(t.ratio);
  out["outputs"] = nlohmann::ordered_json::array();
  for (const Verdict& v : judged.verdicts) out["outputs"].push_back(to_json(v));
  if (judged.partial) out["partial"] = to_json(*judged.partial);
  return json_line(out);
}

int check_one(const Request& request, const std::string& subject) {
  Judged judged;
  try {
    judged = judge_run(request, subject);
  } catch (...) {
    // A bad run does not keep the others from being judged.
    const Failure failure = failure_of(std::current_exception(), subject);
    complain(failure.message);
    if (request.json) {
      nlohmann::ordered_json out =
          head(subject, names_operation(subject) ? subject : "", "error", failure.status);
      out["error"] = failure.message;
      print(json_line(out));
    }
    return failure.status;
  }
  const bool ok = is_ok(judged);
  if (!request.json) {
    print(text_of(subject, judged, request.quiet));
  } else if (!ok || !request.quiet) {
    print(json_of(subject, judged));
  }
  return ok ? 0 : 1;
}

}  // namespace

int check_command(const Request& request) {
  check_subjects(request);
  set_execution(request);
  const std::size_t count = request.subjects.size();
  int status = 0;
  for (std::size_t i = 0; i < count; ++i) {
    progress(detail::cat("checking ", i + 1, " of ", count, ": ", request.subjects[i]));
    status = std::max(status, check_one(request, request.subjects[i]));
  }
  end_progress();
  return status;
}

}  // namespace kref
