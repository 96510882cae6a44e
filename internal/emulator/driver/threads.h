// OS threads of the stand-in. They block all signals but faults: Go's runtime must not get its signals on threads that it did
// not make.
#pragma once
#include <functional>

// spawn starts a detached thread with a small stack.
void spawn(std::function<void()> fn);

// pooled runs fn on a thread that did other work before, or on a new one. It never waits: what waits for each other can run.
void pooled(std::function<void()> fn);
