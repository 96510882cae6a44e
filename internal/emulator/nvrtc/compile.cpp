// Running the host's compiler. Its headers and the engine's object file lie beside this library: nvrtc/device, nvrtc/engine and
// engine.o in its folder.
#include "program.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fs = std::filesystem;
using std::string;
using std::vector;

extern char **environ;

static fs::path home() {
    Dl_info info;
    if (!dladdr((void *)compile, &info))
        return ".";
    return fs::canonical(info.dli_fname).parent_path();
}

static string read(const fs::path &path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

static bool write(const fs::path &path, const string &text) {
    std::ofstream out(path, std::ios::binary);
    out << text;
    return bool(out.flush());
}

// run runs a command and returns its exit status, its messages in a file.
static int run(const vector<string> &command, const fs::path &messages) {
    vector<char *> args;
    for (const string &s : command)
        args.push_back(const_cast<char *>(s.c_str()));
    args.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t pid;
    int status = 0, error = posix_spawnp(&pid, args[0], &files, nullptr, args.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error) {
        write(messages, command[0] + ": " + strerror(error));
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool looks_for_races() {
    const char *s = getenv("WEFT_EMULATOR_RACES");
    return s && *s && *s != '0';
}

// folder makes a new folder below parent, and removes those that are older than so many days: of compilations that were killed, or
// whose files were kept. It returns an empty path, and errno, if it cannot.
static fs::path folder(const fs::path &parent, int days) {
    std::error_code error, ignored;
    fs::create_directories(parent, error);
    const auto oldest = fs::file_time_type::clock::now() - std::chrono::hours(24 * days);
    for (fs::directory_iterator i(parent, error), end; !error && i != end; i.increment(error)) {
        const auto changed = i->last_write_time(ignored); // another process may have removed it: the least time then
        if (!ignored && changed < oldest)
            fs::remove_all(i->path(), ignored);
    }
    string name = parent / "XXXXXX";
    return mkdtemp(name.data()) ? name : "";
}

bool compile(Program &p, int arch, const vector<string> &options) {
    // Reports of races name the lines of module.so, also those of code that comes from the cache of compiled programs.
    const bool races = looks_for_races();
    fs::path at = home(), dir = races ? folder(at / "races", 30) : folder(at / "programs", 1);
    if (dir.empty()) {
        p.log = "no folder below " + at.string() + ": " + strerror(errno);
        return false;
    }
    fs::path out = dir / "module.so", messages = dir / "messages";
    Source s = translate(p.source);
    string text = "#line 1 \"" + p.name + "\"\n" + s.text + "\n#line 1 \"table of kernels\"\n" + table(s.kernels);
    bool ok = write(dir / "module.cpp", text);
    for (auto &[name, content] : p.headers) {
        fs::create_directories((dir / name).parent_path());
        ok = write(dir / name, content) && ok;
    }
    const char *compiler = getenv("CXX");
    if (!compiler || !*compiler)
        compiler = "g++";
    // Device code reads memory as whatever type it likes, and so does this build of it. Nothing may be fused, and a
    // module's names are its own, so that each load has its own variables. engine/checks.cpp has what -fsanitize calls.
    vector<string> command = {compiler, "-std=c++17", "-O1", "-march=x86-64-v2", "-w", "-c", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing",
                              "-fwrapv", "-fno-exceptions", "-fno-rtti", "-fno-gnu-unique", "-fno-ipa-reference", "-fno-stack-protector",
                              "-fcf-protection=none", "-Wno-narrowing", "-fsanitize=alignment,null,bounds,shift-exponent,integer-divide-by-zero",
                              "-fno-sanitize-recover=all", "-DWEFT_EMULATED=1", "-D__CUDACC__=1", "-D__CUDACC_RTC__=1", "-D__CUDA_ARCH__=" + std::to_string(arch * 10),
                              "-include", at / "nvrtc/device/cuda.h", "-include", at / "nvrtc/device/table.h", "-I", dir};
    if (races)
        command.insert(command.end(), {"-g1", "-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "--param",
                                       "tsan-instrument-func-entry-exit=0", "-DWEFT_EMU_RACES=\"" + out.string() + "\""});
    for (const string &o : options)
        if (o.rfind("-D", 0) == 0 || o.rfind("-I", 0) == 0)
            command.push_back(o);
    command.insert(command.end(), {dir / "module.cpp", "-o", dir / "module.o"});
    ok = ok && run(command, messages) == 0 && run({compiler, "-shared", "-Wl,-Bsymbolic", dir / "module.o", at / "engine.o", "-o", out}, messages) == 0;
    p.log = read(messages);
    p.image = ok ? read(out) : "";
    std::error_code ignored;
    if (!getenv("WEFT_EMULATOR_KEEP") && !races)
        fs::remove_all(dir, ignored);
    return ok && !p.image.empty();
}
