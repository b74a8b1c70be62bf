// SPDX-License-Identifier: Apache-2.0
#include "golden/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "dsl/check.h"
#include "golden/file_text.h"
#include "golden/nearest.h"

namespace kref {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kMostKeys = 0x7fffffff;

constexpr const char* kFooter =
    R"(Exit status: 0 every output matches, 1 at least one mismatch, 2 the request is wrong,
3 a fault of kref. Several runs are all judged; the status is the largest of theirs.
`kref COMMAND --help` shows a command's options.)";

constexpr const char* kCheckFooter =
    R"(A RUN is a safetensors run file. Separate arrays (.npy, .npz, .safetensors) serve too:
  kref check matmul --in x=x.npy --in y=y.npy --actual z=z.npy
One line a run: ok or MISMATCH, the elements compared, the largest error as a fraction of
its bound; under a mismatch what is wrong and where. --json: one object a line with the keys
  run, op, verdict (ok, mismatch, error), exit, compared, elements, wrong, largest_error,
  outputs: list of output, dtype, shape, elements, wrong, tiles, wrong_tiles, tile_axes,
    first_wrong_tiles (tile, wrong, elements, device), pattern, detail,
    worst (element, index, expected, actual, bound, fraction, tile, step, device),
  error: the message, in place of what follows exit.
Numbers that are not finite are the strings "nan", "inf", "-inf".
With --partial FILE (.npz, .safetensors, or .npy of o) an attention names the block of keys at which
a value departs first: o [N, ..o] and lse [N, ..lse] after each of N blocks, as if there were no more
keys, or acc [N, ..o], m and l [N, ..lse] before the division. --dtype partial.o=bf16 is for them.
  kref check run.safetensors --partial states.npz --block-kv 128
A wrong partial result is a mismatch, also where the outputs are right. --json: under the key partial
  blocks, block_keys, elements, wrong, largest_error, unseen (states of rows, not judged), sinks, first (state,
  index, block, keys, expected, actual, bound, wrong), worst: list of output, index, judged, departs.)";

constexpr const char* kRunFooter =
    R"(Writes by the name of FILE: .safetensors a run file with inputs, options and outputs (its
source is kref), .npz every output, .npy the only output. --out NAME=FILE writes one output.
A probe is a run whose right answer is an exact integer or dyadic number, so that a kernel that reads
a wrong element gives wrong bits: feed its in.* to the kernel, replace out.*, and check.
  kref run attention --probe uniform --shape q=f32[1,4,128,64] --shape k=f32[1,2,128,64]
    --set causal=top_left --set window=[32,null] --out probe.safetensors
  uniform   q = 0: means of what rows see   select   the last key they see, or the first
  position  one key of those they see; values tell position, kv head, batch and column
Of attention and decode_attention. What --shape names is made up (bias, mask, sinks, lengths,
segments too), what --in names is taken; v follows k, k follows q. RUN --probe keeps its shapes.)";

constexpr const char* kCostFooter =
    R"(Prices a run file, or an operation whose inputs are arrays or shapes, step by step: local work by
the unit that takes longest, collectives by bytes or by hops, on the links of a slice:
  kref cost matmul --shape x=bf16[8192,8192] --shape y=bf16[8192,32768] --mesh X=4,Y=4
    --in-spec x=X --in-spec y=None,Y --out-spec z=X,Y --chip v5e
  kref cost mlp.vjp --shape x=bf16[524288,8192] --shape w_in=bf16[8192,28672] --chip v5p
    --slice 4x4x4 --sweep
Chips: v3 v4p v5p v5e v6e, or with other numbers, as v5e:hbm=8.2e11 (keys bf16 int8 hbm hbm_bytes
link pcie dcn vmem clock). Without --slice: the mesh's own shape, else the most cubic one.
--sweep ranks every strategy on every mesh of the slice. A step of a grid (--set tile=[512,512,512])
costs VMEM and scalar unit too.
Then the virtual clocks: the devices of the mesh run the operation's own code on shapes alone, and
each step of each of them takes what it is priced at: the time of this one run, what its longest
chain waits for, and --trace FILE the whole of it for https://ui.perfetto.dev. No number is computed.)";

// What a repeatable NAME=VALUE option collects.
struct Pairs {
  const char* flag;
  std::vector<Assignment>* into;
  std::vector<std::string> texts;
};

void split(Pairs& pairs) {
  for (const std::string& text : pairs.texts) {
    const std::size_t eq = text.find('=');
    KREF_CHECK(eq != std::string::npos && eq > 0 && eq + 1 < text.size(), pairs.flag, ' ',
               quote(text), ": expected NAME=VALUE");
    Assignment a{text.substr(0, eq), text.substr(eq + 1)};
    for (const Assignment& other : *pairs.into) {
      KREF_CHECK(other.name != a.name, pairs.flag, ' ', a.name, " is given twice");
    }
    pairs.into->push_back(std::move(a));
  }
}

// One value an occurrence; without this CLI11 takes the words that follow, run files included.
void add_repeated(CLI::App& app, const char* flag, std::vector<std::string>& into, const char* form,
                  const char* help) {
  app.add_option(flag, into, help)->allow_extra_args(false)->type_name(form);
}

// A function, since CLI11 takes an empty text for an option that is not there.
template <class F>
void add_single(CLI::App& app, const char* flag, const char* form, const char* help, F set) {
  app.add_option_function<std::string>(flag, set, help)->type_name(form);
}

// Digits only: strtoull would take "-1", " 7" and "7x".
std::uint64_t natural(const char* flag, const std::string& text, std::uint64_t least,
                      std::uint64_t most) {
  const bool digits =
      !text.empty() && text.size() <= 20 &&
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  errno = 0;
  const std::uint64_t v = digits ? std::strtoull(text.c_str(), nullptr, 10) : 0;
  KREF_CHECK(digits && errno == 0 && v >= least && v <= most, flag, ' ', quote(text),
             ": expected an integer from ", least, " to ", most);
  return v;
}

// The options that `check` and `run` share.
void add_options(CLI::App& app, Request& request, std::vector<Pairs>& pairs) {
  app.add_option("RUN|OP", request.subjects, "run files, or the name of one operation");
  for (Pairs& p : pairs) {
    const std::string flag = p.flag;
    if (flag == "--actual" && app.get_name() != "check") continue;
    if (flag == "--shape" && app.get_name() == "check") continue;
    if (flag == "--shape") {
      add_repeated(app, p.flag, p.texts, "NAME=TYPE[EXTENTS]",
                   app.get_name() == "run"
                       ? "an input that --probe makes up: q=f32[1,4,128,64]"
                       : "an input of which no more is known: x=bf16[8192,8192]");
    }
    if (flag == "--in") add_repeated(app, p.flag, p.texts, "NAME=FILE[:MEMBER]", "an input array");
    if (flag == "--actual") {
      add_repeated(app, p.flag, p.texts, "NAME=FILE[:MEMBER]", "an output array to be judged");
    }
    if (flag == "--set") {
      add_repeated(app, p.flag, p.texts, "KEY=VALUE", "an option; VALUE is JSON or a bare word");
    }
    if (flag == "--dtype") {
      add_repeated(app, p.flag, p.texts, "NAME=TYPE",
                   "the element type of an array whose file does not say (bf16, f8_e4m3, ...)");
    }
    if (flag == "--in-spec" || flag == "--out-spec") {
      add_repeated(app, p.flag, p.texts, "NAME=SPEC",
                   "a partition spec: X,None,(Y,Z) or P('X', None, ('Y', 'Z'))");
    }
  }
  add_single(app, "--mesh", "X=2,Y=4", "device mesh, first axis major",
             [&](const std::string& text) { request.mesh = text; });
  add_single(app, "--threads", "N", "threads to compute with; changes no bit",
             [&](const std::string& text) {
               request.threads = static_cast<int>(natural("--threads", text, 1, kMostThreads));
             });
  add_single(app, "--seed", "N",
             "order of the parallel grid steps under KREF_CHECKS=full; changes no bit",
             [&](const std::string& text) {
               request.seed = natural("--seed", text, 0, ~std::uint64_t{0});
             });
}

void check_verb(const std::string& verb) {
  const std::vector<std::string> known = {"check", "run", "list", "describe", "cost", "version"};
  if (std::find(known.begin(), known.end(), verb) != known.end()) return;
  throw Error(detail::cat("unknown command ", quote(verb), "; commands: ", joined(known),
                          did_you_mean(verb, known)));
}

// The first word that nothing takes.
[[noreturn]] void refuse_extra(const CLI::App& app) {
  const std::string word = app.remaining(true).at(0);
  std::string verb = "kref";
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands()) {
    verb = sub->get_name();
    for (const CLI::Option* option : sub->get_options()) {
      if (!option->get_positional()) known.push_back(option->get_name());
    }
  }
  if (!word.starts_with('-')) throw Error(verb + ": unexpected argument " + quote(word));
  throw Error(verb + ": unknown option " + quote(word) + did_you_mean(word, known));
}

}  // namespace

ParsedLine parse_command_line(int argc, const char* const* argv) {
  Request request;
  std::vector<Pairs> pairs = {
      {"--in", &request.in, {}},           {"--actual", &request.actual, {}},
      {"--set", &request.set, {}},         {"--dtype", &request.dtype, {}},
      {"--in-spec", &request.in_spec, {}}, {"--out-spec", &request.out_spec, {}},
      {"--shape", &request.shape, {}}};

  CLI::App app("kref: is the output of this TPU kernel right, and if not, which tile is wrong?",
               "kref");
  app.footer(kFooter);
  CLI::App* check = app.add_subcommand("check", "judge one or more run files");
  CLI::App* run = app.add_subcommand("run", "compute an operation and write its outputs");
  CLI::App* list = app.add_subcommand("list", "the operations, one a line");
  CLI::App* describe = app.add_subcommand(
      "describe", "an operation's tensors, options and rules; a run's tensors and plan");
  CLI::App* cost = app.add_subcommand("cost", "what a run takes on a TPU: no number is computed");
  CLI::App* version = app.add_subcommand("version", "the version of kref");
  check->footer(kCheckFooter);
  run->footer(kRunFooter);
  cost->footer(kCostFooter);
  add_options(*check, request, pairs);
  add_options(*run, request, pairs);
  add_options(*cost, request, pairs);
  add_single(*cost, "--chip", "v5e", "the chip: v3, v4p, v5p, v5e, v6e",
             [&](const std::string& text) { request.chip = text; });
  add_single(*cost, "--slice", "4x4", "chips along each axis of the slice",
             [&](const std::string& text) { request.slice = text; });
  add_repeated(*cost, "--network", request.network, "AXIS",
               "an axis of the mesh between slices, over the data-center network");
  add_single(*cost, "--trace", "FILE", "write the virtual clocks as a trace, which Perfetto opens",
             [&](const std::string& text) { request.trace = text; });
  cost->add_flag("--sweep", request.sweep, "rank the strategies and meshes of a layer (mlp)");
  add_single(*run, "--probe", "uniform|select|position", "make up inputs with an exact answer",
             [&](const std::string& text) { request.probe = text; });
  add_repeated(*run, "--out", request.out, "FILE|NAME=FILE[:MEMBER]", "where to write");
  describe->add_option("OP|RUN", request.subjects, "names of operations, run files");
  for (CLI::App* sub : {check, run, list, describe, cost, version}) {
    sub->add_flag("--json", request.json, "one JSON object a line");
  }
  add_repeated(*check, "--partial", request.partial, "FILE|NAME=FILE[:MEMBER]",
               "what an attention held after each key block: o, lse, or acc, m, l");
  add_single(*check, "--block-kv", "N", "keys a block of --partial, where they do not divide S",
             [&](const std::string& text) {
               request.block_kv = static_cast<int>(natural("--block-kv", text, 1, kMostKeys));
             });
  check->add_flag("--quiet", request.quiet, "print nothing for runs that are ok");
  run->add_flag("--quiet", request.quiet, "print nothing");

  if (argc < 2) return {std::nullopt, app.help(), 2};
  // CLI11 answers an unknown word with "arguments were not expected".
  const std::string first = argv[1];
  if (first == "--version") {
    request.verb = "version";
    return {std::move(request), "", 0};
  }
  if (!first.starts_with("-")) check_verb(first);
  app.require_subcommand(1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    for (const CLI::App* sub : app.get_subcommands()) return {std::nullopt, sub->help("kref"), 0};
    return {std::nullopt, app.help(), 0};
  } catch (const CLI::ExtrasError&) {
    refuse_extra(app);
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    throw Error(message);
  }
  for (Pairs& p : pairs) split(p);
  for (const CLI::App* sub : app.get_subcommands()) request.verb = sub->get_name();
  return {std::move(request), "", 0};
}

}  // namespace kref
