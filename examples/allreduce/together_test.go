package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if args := os.Getenv("WEFT_TEST_ALLREDUCE"); args != "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
		return
	}
	os.Exit(m.Run())
}

// processes runs this program size times, each with the variables of env, and returns what each printed.
func processes(t *testing.T, size int, args string, env func(rank int) []string) ([]string, []error) {
	out, errs := make([]string, size), make([]error, size)
	var wg sync.WaitGroup
	for rank := range size {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(append(os.Environ(), "WEFT_TEST_ALLREDUCE="+args), env(rank)...)
		wg.Go(func() {
			var b bytes.Buffer
			cmd.Stdout, cmd.Stderr = &b, &b
			errs[rank] = cmd.Run()
			out[rank] = b.String()
		})
	}
	wg.Wait()
	return out, errs
}

func port(t *testing.T, offset int) string {
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		p := l.Addr().(*net.TCPAddr).Port + offset
		require.NoError(t, l.Close())
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", p)); err == nil {
			require.NoError(t, l.Close())
			return strconv.Itoa(p - offset)
		}
	}
	t.Fatal("no free port")
	return ""
}

// The same program, started as each launcher starts it. A GPU is not used: there may be none, and no more than one.
func TestTogether(t *testing.T) {
	weft, torch := port(t, 0), port(t, 137)
	for name, env := range map[string]func(rank int) string{
		"weft": func(r int) string {
			return fmt.Sprintf("WEFT_RANK=%d WEFT_SIZE=3 WEFT_LOCAL_RANK=%d WEFT_LOCAL_SIZE=3 WEFT_TOKEN=t WEFT_STORE=127.0.0.1:%s", r, r, weft)
		},
		"torchrun": func(r int) string {
			return fmt.Sprintf("RANK=%d WORLD_SIZE=3 LOCAL_RANK=%d LOCAL_WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=%s", r, r, torch)
		},
		"openmpi": func(r int) string {
			return fmt.Sprintf("OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=%d OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_NAMESPACE=%d", r, r, os.Getpid())
		},
		"slurm": func(r int) string {
			return fmt.Sprintf("SLURM_JOB_ID=%d SLURM_STEP_ID=0 SLURM_PROCID=%d SLURM_NTASKS=3 SLURM_LOCALID=%d SLURM_NODEID=0 SLURM_TASKS_PER_NODE=3 SLURM_JOB_NODELIST=n[1]", os.Getpid(), r, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs := processes(t, 3, "-ranks 4 -gpu 1000", func(rank int) []string { return strings.Fields(env(rank)) })
			for rank := range 3 {
				require.NoError(t, errs[rank], out[rank])
			}
			require.Contains(t, out[0], "12 ranks of 3 processes, the sum of {1, rank, rank*rank} is [12 66 506], by the store")
			require.Contains(t, out[0], "the processes add through their store")
			require.Contains(t, out[1], "launcher="+name)
		})
	}
}

// A process that cannot run tells the others why.
func TestTogetherFails(t *testing.T) {
	p := port(t, 0)
	start := time.Now()
	out, errs := processes(t, 2, "-gpu 1000 -ranks 4", func(rank int) []string {
		env := fmt.Sprintf("WEFT_RANK=%d WEFT_SIZE=2 WEFT_LOCAL_RANK=%d WEFT_LOCAL_SIZE=2 WEFT_TOKEN=t WEFT_STORE=127.0.0.1:%s", rank, rank, p)
		if rank == 1 {
			env += " WEFT_TEST_ALLREDUCE=-ranks=65"
		}
		return strings.Fields(env)
	})
	require.Error(t, errs[0])
	require.Error(t, errs[1])
	require.Contains(t, out[1], "65 ranks")
	require.Contains(t, out[0], "process 1 (")
	require.Contains(t, out[0], "65 ranks")
	require.Less(t, time.Since(start), 20*time.Second)
}

// Launchers themselves, where they are: WEFT_TEST_MPIRUN=mpirun WEFT_TEST_TORCHRUN=torchrun go test ./examples/allreduce.
func TestLaunchers(t *testing.T) {
	for variable, args := range map[string]string{
		"WEFT_TEST_MPIRUN":   "--allow-run-as-root --oversubscribe -n 3",
		"WEFT_TEST_TORCHRUN": "--standalone --nproc-per-node 3 --no-python",
	} {
		t.Run(variable, func(t *testing.T) {
			launcher := os.Getenv(variable)
			if launcher == "" {
				t.Skip(variable + " is not set: the path of that launcher")
			}
			cmd := exec.CommandContext(t.Context(), launcher, append(strings.Fields(args), os.Args[0])...)
			cmd.Env = append(os.Environ(), "WEFT_TEST_ALLREDUCE=-ranks 2 -gpu 1000")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "6 ranks of 3 processes, the sum of {1, rank, rank*rank} is [6 15 55]")
			require.Contains(t, string(out), "launcher=")
		})
	}
}
