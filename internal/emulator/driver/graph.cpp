#include "graph.h"

#include "device.h"
#include "handles.h"
#include "threads.h"

namespace {
struct Captured {
    Device &device;
    std::shared_ptr<const Nodes> nodes;
};

// Exec runs once at a time.
struct Exec {
    Device &device;
    std::mutex mu;
    std::shared_ptr<const Nodes> nodes;  // under mu
    std::mutex turn;
    Exec(Device &d, std::shared_ptr<const Nodes> n) : device(d), nodes(std::move(n)) {}
};

auto &graphs = *new Handles<Captured>;
auto &execs = *new Handles<Exec>;

bool chain(const Nodes &nodes) {
    for (size_t i = 0; i < nodes.size(); i++)
        if (nodes[i].after.size() != (i ? 1 : 0) || (i && nodes[i].after[0] != i - 1))
            return false;
    return true;
}

// Parallel runs nodes as soon as those in front of them are done: branches may wait for each other.
class Parallel {
  public:
    Parallel(const Nodes &nodes, Device &d) : nodes_(nodes), device_(d), missing_(nodes.size()), followers_(nodes.size()) {
        left_ = uint32_t(nodes.size());
        for (uint32_t i = 0; i < nodes.size(); i++) {
            missing_[i] = uint32_t(nodes[i].after.size());
            for (uint32_t before : nodes[i].after)
                followers_[before].push_back(i);
        }
    }
    void run() {
        std::vector<uint32_t> first;
        for (uint32_t i = 0; i < nodes_.size(); i++)
            if (nodes_[i].after.empty())
                first.push_back(i);
        for (uint32_t i : first)
            pooled([this, i] { carry(i); });
        for (uint32_t left; (left = left_.load()) != 0;)
            park(left_, left);
        std::lock_guard last(mu_);  // whoever ended last has let go of it
    }

  private:
    void carry(uint32_t i) {
        for (;;) {
            nodes_[i].op->run(device_);
            std::vector<uint32_t> ready;
            std::lock_guard lock(mu_);
            for (uint32_t f : followers_[i])
                if (--missing_[f] == 0)
                    ready.push_back(f);
            for (size_t k = 1; k < ready.size(); k++)
                pooled([this, f = ready[k]] { carry(f); });
            if (--left_ == 0)
                wake(left_);
            if (ready.empty())
                return;
            i = ready[0];
        }
    }
    const Nodes &nodes_;
    Device &device_;
    std::mutex mu_;
    std::vector<uint32_t> missing_;  // under mu_
    std::vector<std::vector<uint32_t>> followers_;
    Word left_{0};
};

struct Launched : Op {
    std::shared_ptr<Exec> exec;
    std::shared_ptr<const Nodes> nodes;
    Launched(std::shared_ptr<Exec> e, std::shared_ptr<const Nodes> n) : Op(Graph), exec(std::move(e)), nodes(std::move(n)) {}
    void run(Device &d) override {
        std::lock_guard turn(exec->turn);
        if (!chain(*nodes))
            return Parallel(*nodes, d).run();
        for (const Node &n : *nodes)
            n.op->run(d);
    }
};
}  // namespace

Handle add_graph(Device &device, Nodes nodes) {
    return graphs.add(std::make_shared<Captured>(Captured{device, std::make_shared<const Nodes>(std::move(nodes))}));
}

API cuGraphGetNodes(Handle graph, Handle *nodes, size_t *n) {
    auto g = graphs.get(graph);
    if (g == nullptr || n == nullptr)
        return INVALID_VALUE;
    for (size_t i = 0; nodes != nullptr && i < *n; i++)
        nodes[i] = i < g->nodes->size() ? reinterpret_cast<Handle>(&(*g->nodes)[i]) : 0;
    if (nodes == nullptr || *n > g->nodes->size())
        *n = g->nodes->size();
    return OK;
}

API cuGraphDestroy(Handle graph) { return graphs.take(graph) ? OK : INVALID_VALUE; }

API cuGraphInstantiateWithFlags(Handle *exec, Handle graph, uint64_t flags) {
    auto g = graphs.get(graph);
    if (g == nullptr || flags != 0)
        return INVALID_VALUE;
    *exec = execs.add(std::make_shared<Exec>(g->device, g->nodes));
    return OK;
}

API cuGraphExecDestroy(Handle exec) { return execs.take(exec) ? OK : INVALID_VALUE; }

API cuGraphExecUpdate_v2(Handle exec, Handle graph, UpdateInfo *info) {
    auto e = execs.get(exec);
    auto g = graphs.get(graph);
    if (e == nullptr || g == nullptr || info == nullptr)
        return INVALID_VALUE;
    constexpr int32_t topology = 2, kind = 3;
    *info = {};
    std::lock_guard lock(e->mu);
    const Nodes &a = *e->nodes, &b = *g->nodes;
    if (a.size() != b.size())
        info->result = topology;
    for (size_t i = 0; info->result == 0 && i < a.size(); i++) {
        if (a[i].op->kind != b[i].op->kind)
            info->result = kind;
        else if (a[i].after != b[i].after)
            info->result = topology;
    }
    if (info->result != 0)
        return GRAPH_UPDATE_FAILURE;
    e->nodes = g->nodes;
    return OK;
}

API cuGraphUpload(Handle exec, Handle stream) {
    std::shared_ptr<Stream> s;
    if (execs.get(exec) == nullptr)
        return INVALID_VALUE;
    return stream_of(stream, &s);
}

API cuGraphLaunch(Handle exec, Handle stream) {
    auto e = execs.get(exec);
    if (e == nullptr)
        return INVALID_VALUE;
    std::shared_ptr<const Nodes> nodes;
    {
        std::lock_guard lock(e->mu);
        nodes = e->nodes;
    }
    return submit(stream, &e->device, std::make_shared<Launched>(e, nodes));
}
