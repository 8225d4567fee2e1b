// Goal    documents that were read ahead are not computed again: not by a question, nor by another
//         reading, nor after a kill; what is asked about them has the words of a run without a
//         store. What cannot be read says why, and does not stop the others.
// Method  the program as a shell starts it, on a tiny model; ten processes killed at random moments
//         on one folder. TARN_INGEST_KILLS asks for more.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/seed.h"
#include "tests/support/slow_build.h"
#include "tests/tools/tarn/kept_world.h"
#include "tools/support/input.h"

namespace tarn::ingest_native_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::has;
using test::run_tarn;
using Words = std::vector<std::string>;

// The number behind the n-th key of this name; ~0 if there is none.
u64 number_in(const Ended& ended, const std::string& name, u32 n = 0) {
  const std::string key = "\"" + name + "\": ";
  size_t at = ended.out.find(key);
  for (; n > 0 && at != std::string::npos; --n) at = ended.out.find(key, at + 1);
  if (at == std::string::npos) return ~u64{0};
  return std::strtoull(ended.out.c_str() + at + key.size(), nullptr, 10);
}

std::string words(u64 seed, u32 n) {
  constexpr const char* kWords[] = {"rook ", "tower ", "moves ", "a ", "queen ", "is ", "lost "};
  test::Random random(seed);
  std::string text;
  for (u32 i = 0; i < n; ++i) text += kWords[random.below(std::size(kWords))];
  return text;
}

// Two documents with one beginning, and what a model says behind the first one.
struct Documents : test::KeptWorld {
  explicit Documents(u32 n_words = 200) {
    const std::string shared = words(1, n_words);
    write(book, shared + words(2, n_words / 2));
    write(faq, shared + words(3, n_words / 2));
    write(question, shared + words(2, n_words / 2) + " What is lost?");
    const Ended ended = ask({});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    answer = tokens_of(ended);
    n_prompt = number_in(ended, "prompt_tokens");
  }
  static void write(const test::TempFile& to, const std::string& text) {
    tools::write_file(to.path(), text.data(), text.size());
  }
  static std::string tokens_of(const Ended& ended) {
    const size_t begin = ended.out.find("\"tokens\"");
    return ended.out.substr(begin, ended.out.find(']', begin) - begin);
  }
  static std::string name(const test::TempFile& of) {
    return fs::path(of.path()).filename().string();
  }
  Ended ask(const Words& more) const {
    Words all = {"run", "-m", model.path(), "-f",          question.path(),
                 "-n",  "12", "--json",     "--ignore-eos"};
    all.insert(all.end(), more.begin(), more.end());
    return run_tarn(all);
  }
  Ended ask_store() const { return ask({"--store", here.path()}); }
  Words ingest_words(const Words& more) const {
    Words all = {"ingest", "-m", model.path(), "--store", here.path(), "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ended ingest(const Words& more) const {
    Words all = ingest_words(more);
    all.insert(all.begin(), {"-n", "1", TARN_PROGRAM});
    return test::run_program("nice", all);  // else it waits for all other tests
  }
  Ended ingest_both() const { return ingest({book.path(), faq.path()}); }

  const test::TempFile book{"book.txt"}, faq{"faq.txt"}, question{"question.txt"};
  std::string answer;
  u64 n_prompt = 0;
};

TEST_CASE("what was read ahead is found by a question, and not read again") {
  Documents world;
  Ended ended = world.ingest_both();
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  const u64 n_book = number_in(ended, "tokens");
  CHECK(number_in(ended, "reused", 0) == 0);
  CHECK(number_in(ended, "reused", 1) > n_book / 2);  // the common beginning
  CHECK(number_in(ended, "bytes_written", 0) > number_in(ended, "bytes_written", 1));
  CHECK(number_in(ended, "bytes_written", 1) > 0);
  CHECK(number_in(ended, "store_bytes") == fs::file_size(world.here.path() + "/sessions.tarn"));
  CHECK(has(world.listed(world.here), Documents::name(world.faq)));

  const Ended asked = world.ask_store();
  CAPTURE(asked.err);
  REQUIRE(asked.exit_code == 0);
  CHECK(number_in(asked, "from_disk") > n_book / 10 * 9);
  CHECK(number_in(asked, "from_memory") == 0);
  CHECK(Documents::tokens_of(asked) == world.answer);
  CHECK_FALSE(fs::exists(world.here.path() + "/kv.tarn"));

  for (const Words& order :
       {Words{world.book.path(), world.faq.path()}, Words{world.faq.path(), world.book.path()}}) {
    ended = world.ingest(order);
    CHECK(ended.exit_code == 0);
    for (u32 i = 0; i < 2; ++i) {
      CHECK(number_in(ended, "reused", i) == number_in(ended, "tokens", i));
      CHECK(number_in(ended, "bytes_written", i) == 0);
    }
  }
  // Under another name it takes a manifest and the page that is not full.
  ended = world.ingest({world.book.path(), "--as", "novel"});
  CHECK(ended.exit_code == 0);
  CHECK(number_in(ended, "reused") > n_book / 10 * 9);
  CHECK(has(world.listed(world.here), "\nnovel "));
  // Others follow, and those before stay.
  const test::TempFile more("more.txt");
  Documents::write(more, words(9, 600));
  CHECK(world.ingest({more.path()}).exit_code == 0);
  ended = world.ingest_both();
  CHECK(number_in(ended, "bytes_written", 0) == 0);
  CHECK(number_in(ended, "bytes_written", 1) == 0);
  CHECK(world.store(world.here, {"check"}).exit_code == 0);
}

TEST_CASE("figures in words") {
  Documents world;
  Words all = world.ingest_words({world.book.path(), world.faq.path()});
  std::erase(all, "--json");
  const Ended ended = run_tarn(all);
  CAPTURE(ended.err);
  CAPTURE(ended.out);
  REQUIRE(ended.exit_code == 0);
  for (const std::string& part :
       {Documents::name(world.book) + ": ", Documents::name(world.faq) + ": ",
        std::string(" tokens, 0 of them reused, "), std::string(" written\n"),
        std::string("files: 2, "), std::string("; sessions.tarn takes ")}) {
    CAPTURE(part);
    CHECK(has(ended.out, part));
  }
}

TEST_CASE("one that cannot be read says why, and the others are read") {
  Documents world;
  const test::TempFile empty("empty.txt"), longer("longer.txt");
  Documents::write(empty, "");
  Documents::write(longer, words(5, 2000));
  Ended ended = world.ingest(
      {"/nowhere/at/all", empty.path(), longer.path(), world.book.path(), "-c", "1024"});
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 74);
  for (const char* part : {"/nowhere/at/all: cannot open", "is empty", "are more than -c 1024",
                           "files that are not in the store: 3 of 4"}) {
    CHECK(has(ended.err, part));
  }
  CHECK(number_in(ended, "tokens", 3) > 0);
  CHECK(has(ended.out, "\"error\": "));
  CHECK(number_in(world.ask_store(), "from_disk") > 0);
  // A conversation of that name stays what it is.
  const std::string book = Documents::name(world.book);
  (void)world.say(world.there, book, "A list:");
  struct Case {
    Words words;
    int exit_code;
    const char* says;
  };
  const std::string there = world.there.path();
  const Case cases[] = {
      {{"-m", world.model.path(), "--store", there, world.book.path()}, 78, "has another text"},
      {{"-m", world.other_model.path(), "--store", there, world.book.path()},
       78,
       "this session is of another model"},
      {{"-m", world.model.path(), world.book.path()}, 64, "--store DIR"},
      {{"-m", world.model.path(), "--store", there}, 64, "FILE"},
      {{"-m", world.model.path(), "--store", there, "--as", "a", world.book.path(),
        world.faq.path()},
       64,
       "--as names one document"},
      {{"-m", world.model.path(), "--store", there, world.book.path(), world.book.path()},
       64,
       "two files have the name"},
      {{"-m", world.model.path(), "--store", there, "/nowhere/at/all"}, 74, "1 of 1"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.says);
    Words all = c.words;
    all.insert(all.begin(), "ingest");
    ended = run_tarn(all);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(has(ended.err, c.says));
  }
  CHECK(has(world.listed(world.there), "\n" + book + " "));
  // No room: the key that makes some, by name.
  const test::TempFile toml("small.toml");
  Documents::write(toml, "store.quota_bytes = '1MiB'\n");
  const test::TempDir small("ingest_small");
  ended = run_tarn({"ingest", "-m", world.model.path(), "--store", small.path(), "--config",
                    toml.path(), world.book.path(), world.faq.path()});
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 78);
  CHECK(has(ended.err, "store.quota_bytes"));
}

// Starts the program and kills it after so long. False: it had ended by itself.
bool kill_after(Words words, u64 us) {
  words.insert(words.begin(), TARN_PROGRAM);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    setpriority(PRIO_PROCESS, 0, 1);
    execv(TARN_PROGRAM, argv.data());
    _exit(127);
  }
  usleep(static_cast<useconds_t>(us));
  kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status);
}

u64 n_kills_asked() {
  const char* asked = std::getenv("TARN_INGEST_KILLS");
  if (asked != nullptr) return std::strtoull(asked, nullptr, 10);
  return test::kSlowBuild ? 4 : 10;
}

// What a call takes, in microseconds.
template <class Fn>
u64 us_of(Fn&& fn) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  fn();
  return static_cast<u64>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count());
}

TEST_CASE("killed with -9 at any moment, it goes on where it was, and what it left is whole") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const u64 n_kills = n_kills_asked();
  Documents world(700);
  const test::TempFile toml("often.toml");
  Documents::write(toml, "store.checkpoint_ms = 20\nengine.batch_rows_max = 32\n");
  const Words files{world.book.path(), world.faq.path(), "--config", toml.path()};
  const u64 took_us = us_of([&] { REQUIRE(world.ingest(files).exit_code == 0); });
  world.here.remove();
  u64 n_killed = 0, n_repeats = 0, n_went_on = 0, n_one_whole = 0;
  for (u64 i = 0; n_killed < n_kills; ++i) {
    CAPTURE(i);
    n_killed += kill_after(world.ingest_words(files), random.below(took_us / (1 + i % 3)));
    if (fs::exists(world.here.path())) {
      const Ended checked = world.store(world.here, {"check"});
      CAPTURE(checked.out);
      CHECK(checked.exit_code == 0);
    }
    if (i % 3 != 2) continue;  // the next one is killed on what this one has left
    const Ended again = world.ingest_both();
    CAPTURE(again.err);
    REQUIRE(again.exit_code == 0);
    ++n_repeats;
    n_went_on += number_in(again, "reused", 0) > 0;
    n_one_whole += number_in(again, "bytes_written", 0) == 0;
    const Ended answered = world.ask_store();
    CHECK(number_in(answered, "from_disk") > world.n_prompt / 10 * 9);
    CHECK(Documents::tokens_of(answered) == world.answer);
    world.here.remove();
  }
  if (n_kills >= 10) CHECK(n_went_on > 0);
  MESSAGE(n_killed, " killed; of ", n_repeats, " repeats ", n_went_on, " went on, ", n_one_whole,
          " found the first file whole");
}

// What is said behind two files as chunks, of pages that are short enough for their passages.
struct ChunkWorld : Documents {
  ChunkWorld() {
    write(toml, "kv.page_tokens = 16\nstore.checkpoint_ms = 20\nengine.batch_rows_max = 32\n");
  }
  Words options(const Words& more) const {
    Words all = {"-m", model.path(), "--config", toml.path(), "--chunk-tokens", "60", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Words keep_words() const {
    Words all = options({"--store", here.path(), "--chunks", book.path(), faq.path()});
    all.insert(all.begin(), "ingest");
    return all;
  }
  Words ask_words(const test::TempFile& first, const test::TempFile& second) const {
    Words all = options({"--chunk", first.path(), "--chunk", second.path(), "--recompute", "0.2",
                         "-p", "What is lost?", "-n", "12", "--ignore-eos"});
    all.insert(all.begin(), "run");
    return all;
  }
  static Words with_store(Words all, const ChunkWorld& world) {
    all.insert(all.end(), {"--store", world.here.path()});
    return all;
  }
  const test::TempFile toml{"chunks.toml"};
};

TEST_CASE("chunks that were kept are found in any order, and nothing is said otherwise") {
  const ChunkWorld world;
  const Ended kept = run_tarn(world.keep_words());
  CAPTURE(kept.err);
  REQUIRE(kept.exit_code == 0);
  CHECK(has(kept.out, Documents::name(world.book) + "#2"));
  CHECK(has(kept.out, Documents::name(world.faq) + "#1"));
  for (const auto& words :
       {world.ask_words(world.book, world.faq), world.ask_words(world.faq, world.book)}) {
    const Ended cold = run_tarn(words), found = run_tarn(ChunkWorld::with_store(words, world));
    CAPTURE(found.err);
    REQUIRE(found.exit_code == 0);
    CHECK(number_in(found, "placed") > 100);
    CHECK(number_in(found, "placed") == number_in(cold, "placed"));
    CHECK(Documents::tokens_of(found) == Documents::tokens_of(cold));
  }
  const Ended again = run_tarn(world.keep_words());
  CHECK(number_in(again, "bytes_written") == 0);
}

TEST_CASE("chunks stand in a chat's message, too: kept ones are found behind any template") {
  const ChunkWorld world;
  REQUIRE(run_tarn(world.keep_words()).exit_code == 0);
  for (const char* chat_template : {"chatml", "llama2"}) {
    Words words = world.ask_words(world.faq, world.book);
    words.insert(words.end(),
                 {"--chat", "--chat-template", chat_template, "--system", "Be brief."});
    const Ended cold = run_tarn(words), found = run_tarn(ChunkWorld::with_store(words, world));
    CAPTURE(found.err);
    REQUIRE(found.exit_code == 0);
    CHECK(number_in(found, "placed") > 100);
    CHECK(number_in(found, "placed") == number_in(cold, "placed"));
    CHECK(Documents::tokens_of(found) == Documents::tokens_of(cold));
    // All of them anew are the message without marks.
    Words all = words;
    *std::find(all.begin(), all.end(), "0.2") = "all";
    const Ended exact = run_tarn(all);
    CHECK(number_in(exact, "placed") == 0);
    CHECK(number_in(exact, "prompt_tokens") == number_in(found, "prompt_tokens"));
  }
  const test::TempFile marked("marked.txt");
  Documents::write(marked, "a text with \xEF\xB7\x90 in it");
  Words words = world.ask_words(world.faq, marked);
  words.insert(words.end(), {"--chat", "--chat-template", "chatml"});
  const Ended refused = run_tarn(words);
  CHECK(refused.exit_code == 78);
  CHECK(has(refused.err, "U+FDD0"));
}

TEST_CASE("chunks that were computed in full for want of a record are told, and how to change it") {
  const ChunkWorld world;
  const struct {
    const char* recompute;
    int code;
    bool is_told;
  } kRows[] = {{"auto", 0, true},  {"all", 0, false},  {"1", 0, false},    {"0.5", 0, false},
               {"off", 64, false}, {"1.5", 64, false}, {"nan", 64, false}, {"", 64, false}};
  for (const auto& row : kRows) {
    CAPTURE(std::string(row.recompute));
    Words words = world.ask_words(world.faq, world.book);
    *std::find(words.begin(), words.end(), "0.2") = row.recompute;
    const Ended ended = run_tarn(words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == row.code);
    CHECK(has(ended.err, "computed in full: no record") == row.is_told);
    if (row.code != 0) CHECK(has(ended.err, "all, or a share"));
  }
}

TEST_CASE("a document whose text has changed takes the place of the old one, where that is asked") {
  Documents world;
  const std::string book = Documents::name(world.book);
  REQUIRE(world.ingest({world.book.path()}).exit_code == 0);
  const std::string text = tools::read_file(world.book.path());
  Documents::write(world.book, text.substr(0, text.size() / 2) + " And then all was otherwise.");
  const Ended refused = world.ingest({world.book.path()});
  CHECK(refused.exit_code == 78);
  CHECK(has(refused.err, "--replace"));
  const Ended replaced = world.ingest({world.book.path(), "--replace"});
  CAPTURE(replaced.err);
  CHECK(replaced.exit_code == 0);
  CHECK(number_in(replaced, "reused") > 0);  // of the common beginning
  CHECK(has(world.listed(world.here), "\n" + book + " "));
  CHECK(world.store(world.here, {"check"}).exit_code == 0);
  const Ended again = world.ingest({world.book.path(), "--replace"});
  CHECK(again.exit_code == 0);
  CHECK(number_in(again, "bytes_written") == 0);
}

TEST_CASE("killed with -9 while chunks are kept or blended, what is left says the same") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  ChunkWorld world;
  const Words asked = world.ask_words(world.faq, world.book);
  const Words asked_store = ChunkWorld::with_store(asked, world);
  const std::string answer = Documents::tokens_of(run_tarn(asked));
  const u64 keep_us = us_of([&] { REQUIRE(run_tarn(world.keep_words()).exit_code == 0); });
  const u64 ask_us = us_of([&] { REQUIRE(run_tarn(asked_store).exit_code == 0); });
  world.here.remove();
  u64 n_killed = 0;
  for (u64 i = 0; n_killed < n_kills_asked(); ++i) {
    CAPTURE(i);
    const bool keeps = i % 2 == 0;
    n_killed += kill_after(keeps ? world.keep_words() : asked_store,
                           random.below(keeps ? keep_us : ask_us));
    if (i % 4 != 3) continue;
    if (fs::exists(world.here.path())) CHECK(world.store(world.here, {"check"}).exit_code == 0);
    const Ended ended = run_tarn(asked_store);
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(Documents::tokens_of(ended) == answer);
    world.here.remove();
  }
  MESSAGE(n_killed, " killed");
}

}  // namespace
}  // namespace tarn::ingest_native_test
