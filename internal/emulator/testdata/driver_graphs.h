// The checks of captures and graphs; part of driver.cpp.

int32_t status(Handle s) {
    int32_t v = -1;
    CHECK(OK, cuStreamIsCapturing(s, &v));
    return v;
}

// fork_to lets to go on from where from is.
void fork_to(Handle from, Handle to) {
    Handle e = event();
    CHECK(OK, cuEventRecord(e, from));
    CHECK(OK, cuStreamWaitEvent(to, e, 0));
}

// Two branches of a graph wait for each other, so they must run at once; what follows runs after both.
void branches() {
    Address w = words(4);
    Handle a = stream(), b = stream(), graph, exec;
    CHECK(OK, cuStreamBeginCapture_v2(a, 1));
    CHECK(OK, cuMemsetD32Async(w, 0, 4, a));
    fork_to(a, b);
    CHECK(1, status(b));
    CHECK(OK, launch(arrive, a, 1, w, w, 2));
    CHECK(OK, launch(arrive, b, 1, w, w, 2));
    fork_to(b, a);
    CHECK(OK, launch(add, a, 1, w, w + 4, 10));
    CHECK(OK, cuStreamEndCapture(a, &graph));
    CHECK(0, status(b));
    size_t n = 0;
    CHECK(OK, cuGraphGetNodes(graph, nullptr, &n));
    CHECK(4, n);
    CHECK(OK, cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(OK, cuGraphDestroy(graph));
    for (int i = 0; i < 20; i++) {
        word(w + 4) = 0;
        CHECK(OK, cuGraphLaunch(exec, a));
        CHECK(OK, cuGraphLaunch(exec, b));  // waits for the first
        CHECK(OK, cuStreamSynchronize(a));
        CHECK(OK, cuStreamSynchronize(b));
        CHECK(12, word(w + 4));
    }
    CHECK(OK, cuGraphExecDestroy(exec));
    CHECK(INVALID_VALUE, cuGraphLaunch(exec, a));
}

// ended ends a capture that is invalid, after which the stream works.
void ended(Handle s, int32_t want = CAPTURE_INVALIDATED) {
    Handle graph;
    CHECK(want, cuStreamEndCapture(s, &graph));
    CHECK(0, graph);
    CHECK(0, status(s));
    CHECK(OK, cuStreamSynchronize(s));
}

// Calls that a capture does not allow give an error and end it.
void refused() {
    Handle a = stream(), b = stream(), e = event(), graph;
    Address w = words(4), p;
    CHECK(INVALID_VALUE, cuStreamEndCapture(a, &graph));
    CHECK(CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(0, 1));
    for (auto call : {cuStreamSynchronize, cuStreamQuery, cuStreamDestroy_v2}) {
        CHECK(OK, cuStreamBeginCapture_v2(a, 1));
        CHECK(CAPTURE_UNSUPPORTED, call(a));
        CHECK(2, status(a));
        CHECK(CAPTURE_INVALIDATED, launch(add, a, 1, w, w, 1));
        ended(a);
    }
    CHECK(OK, cuStreamBeginCapture_v2(a, 1));
    CHECK(CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&p, 4));
    ended(a);
    CHECK(OK, cuStreamBeginCapture_v2(a, 2));
    CHECK(OK, cuMemAlloc_v2(&p, 4));  // relaxed
    CHECK(OK, cuStreamEndCapture(a, &graph));
    CHECK(0, word(w));

    CHECK(OK, cuEventRecord(e, b));
    CHECK(OK, cuStreamBeginCapture_v2(a, 1));
    CHECK(CAPTURE_ISOLATION, cuStreamWaitEvent(a, e, 0));
    ended(a);

    CHECK(OK, cuStreamBeginCapture_v2(a, 2));
    CHECK(OK, cuEventRecord(e, a));
    CHECK(CAPTURED_EVENT, cuEventQuery(e));
    CHECK(OK, cuStreamBeginCapture_v2(b, 2));
    CHECK(CAPTURE_MERGE, cuStreamWaitEvent(b, e, 0));
    ended(a);
    ended(b);

    CHECK(OK, cuStreamBeginCapture_v2(a, 1));
    fork_to(a, b);
    CHECK(OK, launch(add, b, 1, w, w, 1));
    ended(a, CAPTURE_UNJOINED);
    CHECK(0, status(b));

    CHECK(OK, cuStreamBeginCapture_v2(a, 1));
    fork_to(a, b);
    CHECK(CAPTURE_UNMATCHED, cuStreamEndCapture(b, &graph));
    ended(a);
}

// on_thread runs a call on another thread.
template <class F> int32_t on_thread(F call) {
    int32_t r = -1;
    std::thread([&] {
        CHECK(OK, cuCtxSetCurrent(contexts[0]));
        r = call();
    }).join();
    return r;
}

// A thread-local capture lets other threads allocate, a global one does not; another thread cannot end either.
void captures() {
    Handle s = stream(), graph;
    Address p;
    auto alloc = [&] { return cuMemAlloc_v2(&p, 4); };
    CHECK(OK, cuStreamBeginCapture_v2(s, 1));
    CHECK(OK, on_thread(alloc));
    CHECK(CAPTURE_WRONG_THREAD, on_thread([&] { return cuStreamEndCapture(s, &graph); }));
    CHECK(OK, cuStreamEndCapture(s, &graph));
    CHECK(OK, cuStreamBeginCapture_v2(s, 0));
    CHECK(CAPTURE_UNSUPPORTED, on_thread(alloc));
    ended(s);
    Handle blocking = stream(0);
    Address w = words(2);
    CHECK(OK, cuStreamBeginCapture_v2(blocking, 1));
    CHECK(CAPTURE_IMPLICIT, launch(add, 0, 1, w, w, 1));
}

// An executable takes the parameters of a graph of the same nodes, and says why it does not take others.
void updates() {
    Address w = words(4);
    Handle s = stream(), exec;
    auto graph = [&](uint32_t by, bool set, uint32_t times) {
        Handle g;
        CHECK(OK, cuStreamBeginCapture_v2(s, 1));
        if (set)
            CHECK(OK, cuMemsetD32Async(w, by, 1, s));
        for (uint32_t i = 0; i < times; i++)
            CHECK(OK, launch(add, s, 1, w, w + 4, by));
        CHECK(OK, cuStreamEndCapture(s, &g));
        return g;
    };
    CHECK(OK, cuGraphInstantiateWithFlags(&exec, graph(3, false, 2), 0));
    CHECK(OK, cuGraphLaunch(exec, s));
    UpdateInfo info;
    CHECK(OK, cuGraphExecUpdate_v2(exec, graph(100, false, 2), &info));
    CHECK(OK, cuGraphLaunch(exec, s));
    CHECK(GRAPH_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, graph(1, false, 3), &info));
    CHECK(2, info.result);
    CHECK(GRAPH_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, graph(1, true, 1), &info));
    CHECK(3, info.result);
    CHECK(OK, cuGraphLaunch(exec, s));
    CHECK(OK, cuStreamSynchronize(s));
    CHECK(2 * 3 + 4 * 100, word(w + 4));
}
