package rendezvous

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

func vars(text string) map[string]string {
	m := map[string]string{}
	for _, f := range strings.Fields(text) {
		k, v, _ := strings.Cut(f, "=")
		m[k] = v
	}
	return m
}

func read(m map[string]string) (Job, string, error) {
	var log bytes.Buffer
	job, err := fromEnv(func(name string) string { return m[name] }, slog.New(slog.NewTextHandler(&log, nil)))
	return job, log.String(), err
}

const (
	weftVars  = "WEFT_RANK=3 WEFT_SIZE=4 WEFT_LOCAL_RANK=1 WEFT_LOCAL_SIZE=2 WEFT_STORE=n0:4444 WEFT_TOKEN=secret WEFT_STORE_SERVED=1"
	torchVars = "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none"
	ompiVars  = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1234"
	slurmVars = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=2(x2),3 SLURM_STEP_NODELIST=gpu[03-05]"
	mpichVars = "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2"
	lwsVars   = "LWS_LEADER_ADDRESS=moe-0.moe.default LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1"
)

func TestFromEnv(t *testing.T) {
	slurmPort := derivedPort("77.0")
	tests := []struct {
		name, vars string
		want       Job
	}{
		{"nothing", "", Job{Size: 1, LocalSize: 1, Family: "single"}},
		{"weft", weftVars, Job{3, 4, 1, 2, "n0:4444", "secret", "weft", true}},
		{"weft without a launcher", weftVars + " WEFT_STORE_SERVED=0", Job{3, 4, 1, 2, "n0:4444", "secret", "weft", false}},
		{"torchrun on several nodes", torchVars, Job{3, 8, 1, 2, "n0:29637", "no secret: torchrun n0:29500 none", "torchrun", false}},
		{"torchrun on one node", torchVars + " WORLD_SIZE=2 RANK=1", Job{1, 2, 1, 2, "127.0.0.1:29637", "no secret: torchrun n0:29500 none", "torchrun", false}},
		{"torchrun, high port", torchVars + " MASTER_PORT=65500", Job{3, 8, 1, 2, "n0:65363", "no secret: torchrun n0:65500 none", "torchrun", false}},
		{"torchrun, IPv6", torchVars + " MASTER_ADDR=fd00::1", Job{3, 8, 1, 2, "[fd00::1]:29637", "no secret: torchrun fd00::1:29500 none", "torchrun", false}},
		{"WEFT_STORE and WEFT_TOKEN hold for every launcher", torchVars + " WEFT_STORE=x:1 WEFT_TOKEN=s", Job{3, 8, 1, 2, "x:1", "s", "torchrun", false}},
		{"openmpi on one node", ompiVars, Job{1, 2, 1, 2, "127.0.0.1:" + derivedPort("1234"), "no secret: openmpi 1234", "openmpi", false}},
		{"openmpi on several nodes", ompiVars + " OMPI_COMM_WORLD_SIZE=4 WEFT_STORE=n0:1 WEFT_TOKEN=s", Job{1, 4, 1, 2, "n0:1", "s", "openmpi", false}},
		{"openmpi beside torch", ompiVars + " OMPI_COMM_WORLD_SIZE=4 MASTER_ADDR=n0 MASTER_PORT=1000", Job{1, 4, 1, 2, "n0:1137", "no secret: openmpi 1234", "openmpi", false}},
		{"mpich", mpichVars, Job{1, 2, 1, 2, "127.0.0.1:29637", "no secret: mpich ", "mpich", false}},
		{"slurm", slurmVars, Job{5, 7, 1, 3, "gpu03:" + slurmPort, "no secret: slurm 77.0", "slurm", false}},
		{"slurm on one node", slurmVars + " SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=1 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=3 SLURM_STEP_NODELIST=gpu03", Job{1, 3, 1, 3, "127.0.0.1:" + slurmPort, "no secret: slurm 77.0", "slurm", false}},
		{"a batch script is no step", "SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0", Job{Size: 1, LocalSize: 1, Family: "single"}},
		{"lws", lwsVars, Job{1, 2, 0, 1, "moe-0.moe.default:29637", "no secret: lws moe-0.moe.default", "lws", false}},
		{"addresses alone mean nothing", "MASTER_ADDR=a MASTER_PORT=1 WEFT_STORE=b:2 WEFT_TOKEN=s", Job{Size: 1, LocalSize: 1, Family: "single"}},
		{"a job of one", torchVars + " RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", Job{0, 1, 0, 1, "", "", "torchrun", false}},
		{"a job of one under weft launch", weftVars + " WEFT_RANK=0 WEFT_SIZE=1 WEFT_LOCAL_RANK=0 WEFT_LOCAL_SIZE=1", Job{0, 1, 0, 1, "n0:4444", "secret", "weft", true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job, log, err := read(vars(tt.vars))
			require.NoError(t, err)
			require.Equal(t, tt.want, job)
			require.NotContains(t, log, "secret ")
			if job.Family != "single" {
				require.Contains(t, log, "launcher="+job.Family)
			}
		})
	}
}

// The first of several families wins, and the log says who is ignored.
func TestPrecedence(t *testing.T) {
	order := []struct{ name, vars string }{{"weft", weftVars}, {"torchrun", torchVars}, {"openmpi", ompiVars}, {"mpich", mpichVars}, {"slurm", slurmVars}, {"lws", lwsVars}}
	m := map[string]string{}
	for i := len(order) - 1; i >= 0; i-- {
		maps.Copy(m, vars(order[i].vars))
		job, log, err := read(m)
		require.NoError(t, err)
		require.Equal(t, order[i].name, job.Family)
		for _, ignored := range order[i+1:] {
			if o, _, _ := read(vars(ignored.vars)); o.Rank != job.Rank || o.Size != job.Size {
				require.Contains(t, log, "ignored="+ignored.name)
			}
		}
	}
	_, log, err := read(vars(ompiVars + " " + mpichVars))
	require.NoError(t, err)
	require.NotContains(t, log, "disagree", "they say the same")
	// A half-set family after the one that won does no harm; before it, nobody can know what is meant.
	_, _, err = read(vars(torchVars + " SLURM_STEP_ID=0"))
	require.NoError(t, err)
	_, _, err = read(vars(slurmVars + " RANK=1"))
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "RANK is set, as torchrun does, but not WORLD_SIZE")
	// A habit in batch scripts: torch's names for the size and the master, exported for srun.
	job, log, err := read(vars(slurmVars + " WORLD_SIZE=7 MASTER_ADDR=gpu03 MASTER_PORT=29500"))
	require.NoError(t, err)
	require.Equal(t, Job{5, 7, 1, 3, "gpu03:29637", "no secret: slurm 77.0", "slurm", false}, job)
	require.Contains(t, log, "ignored=torchrun")
	_, _, err = read(vars(slurmVars + " WORLD_SIZE=3"))
	require.ErrorContains(t, err, "WORLD_SIZE is set, as torchrun does, but not RANK")
}

func TestHalfSet(t *testing.T) {
	tests := []struct{ vars, want string }{
		{"RANK=0", "RANK is set, as torchrun does, but not WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; set all of them or none"},
		{"WEFT_SIZE=2 WEFT_RANK=0 WEFT_LOCAL_RANK=0 WEFT_LOCAL_SIZE=1 WEFT_STORE=a:1", "but not WEFT_TOKEN"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "but not OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE"},
		{"RANK=5 WORLD_SIZE=8", "environment: rank 5: invalid: RANK, WORLD_SIZE are set, as torchrun does, but not LOCAL_RANK"},
		{"SLURM_STEP_ID=0", "SLURM_STEP_ID is set, as slurm does, but not SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS"},
		{"LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=0", "but not LWS_LEADER_ADDRESS"},
		{"MPI_LOCALRANKID=0 PMI_RANK=0", "but not PMI_SIZE, MPI_LOCALNRANKS"},
		{torchVars + " RANK=x", `torchrun: RANK="x" is no number`},
		{torchVars + " RANK=8", "environment: rank 8: invalid: torchrun: process 8 of 8, and 1 of 2 on its node, cannot be"},
		{torchVars + " LOCAL_RANK=2", "2 of 2 on its node"},
		{torchVars + " LOCAL_WORLD_SIZE=9", "1 of 9 on its node"},
		{torchVars + " MASTER_PORT=0", `MASTER_PORT="0" is no port`},
		{slurmVars + " SLURM_STEP_NODELIST=gpu[", "is no range of numbers"},
		{slurmVars + " SLURM_NODEID=3", "has no node 3"},
		{ompiVars + " OMPI_COMM_WORLD_SIZE=4", "pass WEFT_STORE=host:port"},
	}
	for _, tt := range tests {
		_, _, err := read(vars(tt.vars))
		require.ErrorIs(t, err, comm.Invalid, tt.vars)
		require.ErrorContains(t, err, tt.want)
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"n1": "n1", "n1,n2": "n1", "gpu[3-5]": "gpu3", "gpu[003,7-9],x": "gpu003", "gpu[12]-ib,y": "gpu12-ib",
		"r[1-2]n[04-09]": "r1n04", "a-b.c,d": "a-b.c", "login,gpu[1-2]": "login",
		"": "", "[": "", "a[b]": "", "a[1": "", "a]b": "", ",b": "", "a[]": "",
	} {
		host, err := firstHost(list)
		require.Equal(t, want, host, list)
		require.Equal(t, want == "", err != nil, list)
	}
	for list, want := range map[string][]int{"4": {4}, "2(x3),1": {2, 2, 2, 1}, "1,2(x2)": {1, 2, 2}} {
		for node, n := range want {
			got, err := tasksOf(list, node)
			require.NoError(t, err)
			require.Equal(t, n, got)
		}
		_, err := tasksOf(list, len(want))
		require.Error(t, err)
	}
	for _, list := range []string{"", "x", "2(x0)", "2(xa)", "-1"} {
		_, err := tasksOf(list, 0)
		require.Error(t, err, list)
	}
}

func FuzzFirstHost(f *testing.F) {
	f.Add("gpu[003,7-9]-ib,x")
	f.Fuzz(func(t *testing.T, list string) {
		host, err := firstHost(list)
		require.Equal(t, err != nil, host == "")
		require.NotContains(t, host, ",")
		require.NotContains(t, host, "[")
	})
}
