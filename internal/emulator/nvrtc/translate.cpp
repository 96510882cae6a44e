// CUDA C++ is C++ but for three things that a header cannot change: arrays of dynamic shared memory, inline PTX that reads a
// special register, and the list of kernels. They are found by their text. Lines keep their numbers.
#include "program.h"

#include <regex>

using std::regex;
using std::smatch;
using std::string;

// body returns the text of the function whose parameters begin at source[at].
static string body(const string &source, size_t at) {
    size_t open = source.find('{', at), end = source.find(';', at);
    if (open == string::npos || end < open)
        return "";
    int depth = 0;
    for (size_t i = open; i < source.size(); i++) {
        depth += source[i] == '{' ? 1 : source[i] == '}' ? -1 : 0;
        if (depth == 0)
            return source.substr(open, i - open);
    }
    return "";
}

// shared_bytes returns the expression of the bytes of a kernel's own __shared__ variables.
static string shared_bytes(const string &body) {
    static const regex variables(R"(__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?([\w:]+)\s+([^;]+);)");
    string sum = "0";
    for (std::sregex_iterator i(body.begin(), body.end(), variables), end; i != end; i++) {
        string names = (*i)[2].str() + ",";
        static const regex variable(R"(\s*\w+\s*((?:\[[^\]]*\])*)\s*,)");
        for (std::sregex_iterator v(names.begin(), names.end(), variable); v != end; v++)
            sum += " + sizeof(" + (*i)[1].str() + (*v)[1].str() + ")";
    }
    return sum;
}

Source translate(const string &source) {
    static const regex dynamic(R"(extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?([\w:]+)\s+(\w+)\s*\[\s*\]\s*;)");
    static const regex special(R"(asm\s*(?:volatile)?\s*\(\s*"mov\.\w+ %0, %+(\w+);"\s*:\s*"=\w"\s*\((\w+)\)\s*\))");
    static const regex kernel(R"(extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\(([^()]*)\)\s*)?(\w+)\s*\()");
    Source s;
    s.text = std::regex_replace(source, dynamic, "static const weft_emu_dynamic<$1> $2;");
    s.text = std::regex_replace(s.text, special, "$2 = weft_emu_register_$1()");
    for (std::sregex_iterator i(s.text.begin(), s.text.end(), kernel), end; i != end; i++)
        s.kernels.push_back({(*i)[2].str(), (*i)[1].matched ? (*i)[1].str() : "1024", shared_bytes(body(s.text, i->position() + i->length()))});
    return s;
}

string table(const std::vector<Kernel> &kernels) {
    string bodies, rows;
    for (const Kernel &k : kernels) {
        string type = "weft_emu::Kernel<decltype(" + k.name + "), " + k.name + ">";
        bodies += "    " + type + "::body,\n";
        rows += "    " + type + "::row(\"" + k.name + "\", " + k.shared + ", weft_emu::first(" + k.bounds + ")),\n";
    }
    return "\n#ifndef WEFT_EMU_RACES\n#define WEFT_EMU_RACES nullptr\n#endif\nextern \"C\" const char *const weft_emu_races = WEFT_EMU_RACES;\nextern \"C\" void (*const weft_emu_bodies[])(void *const *) = {\n" + bodies + "    nullptr};\n"
           "static const weft_emu_kernel weft_emu_rows[] = {\n" + rows + "    {}};\n"
           "extern \"C\" __attribute__((visibility(\"default\"), no_sanitize(\"thread\"))) const weft_emu_kernel *weft_emu_kernels(uint32_t *n) {\n"
           "    *n = " + std::to_string(kernels.size()) + ";\n    return weft_emu_rows;\n}\n";
}
