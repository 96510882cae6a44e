package rendezvous

import (
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"strings"
)

func readWeft(env environment, f *found) error {
	f.Served = env(envServed.Name) == "1"
	return nil
}

func readTorchrun(env environment, f *found) (err error) {
	f.id = env("MASTER_ADDR") + ":" + env("MASTER_PORT") + " " + env("TORCHELASTIC_RUN_ID")
	f.Address, err = besideMaster(env)
	return err
}

func readOpenMPI(env environment, f *found) (err error) {
	f.id = env.first("PMIX_NAMESPACE|OMPI_MCA_ess_base_jobid")
	f.Address, err = besideMaster(env)
	return err
}

// readMPICH reads what MPICH's mpiexec sets. It names no job.
func readMPICH(env environment, f *found) (err error) {
	f.Address, err = besideMaster(env)
	return err
}

func readSlurm(env environment, f *found) error {
	f.id = env("SLURM_JOB_ID") + "." + env("SLURM_STEP_ID")
	node, err := env.number("SLURM_NODEID")
	if err != nil {
		return err
	}
	if f.LocalSize, err = tasksOf(env.first("SLURM_STEP_TASKS_PER_NODE|SLURM_TASKS_PER_NODE"), node); err != nil {
		return err
	}
	if f.Address, err = besideMaster(env); err != nil || f.Address != "" {
		return err
	}
	host, err := firstHost(env.first("SLURM_STEP_NODELIST|SLURM_JOB_NODELIST"))
	f.Address = net.JoinHostPort(host, derivedPort(f.id))
	return err
}

// readLWS reads what LeaderWorkerSet sets: a process is a pod of the group.
func readLWS(env environment, f *found) error {
	f.id = env("LWS_LEADER_ADDRESS")
	f.LocalRank, f.LocalSize = 0, 1
	f.Address = net.JoinHostPort(f.id, strconv.Itoa(DefaultPort))
	return nil
}

// besideMaster is the store's address beside torch's, by MASTER_ADDR and MASTER_PORT, which other launchers' users set too;
// "" without the former.
func besideMaster(env environment) (string, error) {
	host, text := env("MASTER_ADDR"), env("MASTER_PORT")
	if host == "" {
		return "", nil
	}
	port := DefaultPort
	if text != "" {
		master, err := strconv.Atoi(text)
		if err != nil || master < 1 || master > 65535 {
			return "", fmt.Errorf("MASTER_PORT=%q is no port", text)
		}
		if port = master + PortOffset; port > 65535 {
			port = master - PortOffset
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// derivedPort is a port that follows from the name of a job, below those that systems give to outgoing connections.
func derivedPort(id string) string {
	if id == "" {
		return strconv.Itoa(DefaultPort)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return strconv.Itoa(20000 + int(h.Sum32()%9000))
}

// firstHost returns the first host of a Slurm node list, such as "gpu[007-010,12]-ib,login": "gpu007-ib".
func firstHost(list string) (string, error) {
	var b strings.Builder
	for rest := list; ; {
		i := strings.IndexAny(rest, "[,")
		if i < 0 || rest[i] == ',' {
			if i < 0 {
				i = len(rest)
			}
			b.WriteString(rest[:i])
			break
		}
		b.WriteString(rest[:i])
		ranges, after, closed := strings.Cut(rest[i+1:], "]")
		first := ranges
		if j := strings.IndexAny(ranges, ",-"); j >= 0 {
			first = ranges[:j]
		}
		if _, err := strconv.ParseUint(first, 10, 32); err != nil || !closed {
			return "", fmt.Errorf("node list %q: %q is no range of numbers", list, ranges)
		}
		b.WriteString(first)
		rest = after
	}
	if b.Len() == 0 || strings.ContainsAny(b.String(), "]: /") {
		return "", fmt.Errorf("node list %q begins with no host", list)
	}
	return b.String(), nil
}

// tasksOf reads the tasks of a node from Slurm's list, such as "4(x2),3": 4, 4, 3.
func tasksOf(list string, node int) (int, error) {
	at := 0
	for item := range strings.SplitSeq(list, ",") {
		count, times, repeated := strings.Cut(strings.TrimSuffix(item, ")"), "(x")
		n, err := strconv.Atoi(count)
		k := 1
		if repeated && err == nil {
			k, err = strconv.Atoi(times)
		}
		if err != nil || n < 0 || k < 1 {
			return 0, fmt.Errorf("tasks per node %q: %q is no count", list, item)
		}
		if at += k; node >= 0 && node < at {
			return n, nil
		}
	}
	return 0, fmt.Errorf("tasks per node %q has no node %d", list, node)
}
