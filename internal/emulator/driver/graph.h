// Graphs: captured work that runs as a whole.
#pragma once
#include "capture.h"

Handle add_graph(Device &device, Nodes nodes);
