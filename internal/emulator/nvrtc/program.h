// What the parts of the stand-in of libnvrtc share.
#pragma once
#include <string>
#include <utility>
#include <vector>

// Program is what nvrtcProgram points at.
struct Program {
    std::string source, name, log, image;
    std::vector<std::pair<std::string, std::string>> headers; // name, text
};

// Kernel is a kernel's name, the expression of its __launch_bounds__, and those of the bytes of its __shared__ variables.
struct Kernel {
    std::string name, bounds, shared;
};

// Source is a program's text with what C++ cannot say rewritten, line for line, and the kernels in it.
struct Source {
    std::string text;
    std::vector<Kernel> kernels;
};

Source translate(const std::string &source);

// table returns the C++ text that makes the table of module.h, for the end of the translation unit.
std::string table(const std::vector<Kernel> &kernels);

// looks_for_races says whether WEFT_EMULATOR_RACES asks for it: the code is another one then.
bool looks_for_races();

// compile makes a shared object of a program for an architecture such as 90. It returns whether it could; the log is the
// compiler's.
bool compile(Program &p, int arch, const std::vector<std::string> &options);
