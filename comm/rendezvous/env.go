package rendezvous

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/envknob"
)

// PortOffset is how far weft's store is from torchrun's: torchrun's own store holds MASTER_PORT.
const PortOffset = 137

// DefaultPort is the store's where the environment says nothing of ports: torchrun's default of 29500, and PortOffset.
const DefaultPort = 29500 + PortOffset

var (
	envRank      = envknob.Register("WEFT_RANK", "number of this process in its job; weft launch sets it")
	envSize      = envknob.Register("WEFT_SIZE", "number of processes of the job; weft launch sets it")
	envLocalRank = envknob.Register("WEFT_LOCAL_RANK", "number of this process on its node; weft launch sets it")
	envLocalSize = envknob.Register("WEFT_LOCAL_SIZE", "number of processes on this node; weft launch sets it")
	envStore     = envknob.Register("WEFT_STORE", "host:port of the job's store, which process 0 serves; over what any launcher says")
	envToken     = envknob.Register("WEFT_TOKEN", "secret that the processes of a job share; who does not know it is not let in")
	envServed    = envknob.Register("WEFT_STORE_SERVED", "1: weft launch serves the store, not process 0", "", "0", "1")
)

// environment is where variables are read; tests give a map.
type environment func(name string) string

// family is one launcher's way to tell a process who it is.
type family struct {
	name string
	// numbers are the variables of rank, size, local rank and local size; "A|B" is A, else B; "" when read finds it.
	numbers [4]string
	// means are the variables whose presence means this launcher; nil is the first two numbers.
	means []string
	// also are the others that must be set.
	also []string
	// read fills what the numbers do not, and a name of the job for its port and token.
	read func(env environment, f *found) error
}

// found is a complete family.
type found struct {
	Job
	id string // tells this job from others; "" when the launcher has no such thing
}

// four are the fields of family.numbers.
func (f *found) four() [4]*int { return [4]*int{&f.Rank, &f.Size, &f.LocalRank, &f.LocalSize} }

// families by precedence. MPI comes before Slurm, since mpirun inside an allocation leaves Slurm's variables of its daemons.
var families = []family{
	{"weft", [4]string{envRank.Name, envSize.Name, envLocalRank.Name, envLocalSize.Name}, nil, []string{envStore.Name, envToken.Name}, readWeft},
	{"torchrun", [4]string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, nil, []string{"MASTER_ADDR", "MASTER_PORT"}, readTorchrun},
	{"openmpi", [4]string{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}, nil, nil, readOpenMPI},
	// Others set PMI_RANK, too, and leave out who is local.
	{"mpich", [4]string{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, []string{"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, nil, readMPICH},
	// A batch script has a SLURM_PROCID, too, but is no task of a step.
	{"slurm", [4]string{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS|SLURM_NTASKS", "SLURM_LOCALID", ""}, []string{"SLURM_STEP_ID"},
		[]string{"SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE|SLURM_TASKS_PER_NODE", "SLURM_STEP_NODELIST|SLURM_JOB_NODELIST"}, readSlurm},
	{"lws", [4]string{"LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "", ""}, nil, []string{"LWS_LEADER_ADDRESS"}, readLWS},
}

// needs are all variables that must be set.
func (fam *family) needs() []string {
	return slices.DeleteFunc(slices.Concat(fam.numbers[:], fam.also), func(name string) bool { return name == "" })
}

// FromEnv says who this process is, by the variables of whoever started it: weft launch, torchrun, Open MPI, MPICH, Slurm or
// LeaderWorkerSet, in this order of precedence; without any of them it is the only one. It logs which family won, and which
// others say something else. A family that is half set, before one that is complete and says the same as far as it goes, is
// Invalid, with what is missing. log nil is slog.Default().
func FromEnv(log *slog.Logger) (Job, error) {
	if log == nil {
		log = slog.Default()
	}
	return fromEnv(os.Getenv, log)
}

func fromEnv(env environment, log *slog.Logger) (Job, error) {
	var won *found
	var half []error
	var halves []*family
	for i := range families {
		fam := &families[i]
		f, missing, err := fam.find(env)
		switch {
		case f == nil && missing == nil && err == nil:
		case won != nil && f != nil:
			if f.Rank != won.Rank || f.Size != won.Size {
				log.Warn("launchers disagree on who this process is", "used", won.Family, "rank", won.Rank, "size", won.Size,
					"ignored", fam.name, "its rank", f.Rank, "its size", f.Size)
			}
		case won != nil:
			log.Debug("a launcher's variables are incomplete and not used", "used", won.Family, "ignored", fam.name, "missing", missing, "error", err)
		case err != nil:
			return Job{}, comm.Errorf("environment", fam.rank(env), comm.Invalid, "%s: %w", fam.name, err)
		case missing != nil:
			halves = append(halves, fam)
			set, is := fam.present(env), "is"
			if len(set) > 1 {
				is = "are"
			}
			half = append(half, comm.Errorf("environment", fam.rank(env), comm.Invalid, "%s %s set, as %s does, but not %s; set all of them or none",
				strings.Join(set, ", "), is, fam.name, strings.Join(missing, ", ")))
		default:
			won = f
		}
	}
	for i, fam := range halves {
		if won == nil || !fam.agrees(env, won) {
			return Job{}, half[i]
		}
		log.Warn("a launcher's variables are incomplete; as far as they go they say the same", "used", won.Family, "ignored", fam.name)
	}
	if won == nil {
		log.Debug("no launcher's variables are set: a job of one process")
		return Job{Size: 1, LocalSize: 1, Family: "single"}, nil
	}
	if err := won.complete(env, log); err != nil {
		return Job{}, comm.Errorf("environment", won.Rank, comm.Invalid, "%s: %w", won.Family, err)
	}
	log.Info("this process is part of a job", "launcher", won.Family, "rank", won.Rank, "size", won.Size,
		"local rank", won.LocalRank, "local size", won.LocalSize, "store", won.Address)
	return won.Job, nil
}

// find reads one family. All results are nil when it is not meant.
func (fam *family) find(env environment) (f *found, missing []string, err error) {
	means := fam.means
	if means == nil {
		means = fam.numbers[:2]
	}
	if !slices.ContainsFunc(means, func(name string) bool { return env(name) != "" }) {
		return nil, nil, nil
	}
	for _, need := range fam.needs() {
		if env.first(need) == "" && !(env(envStore.Name) != "" && need == "LWS_LEADER_ADDRESS") {
			missing = append(missing, strings.ReplaceAll(need, "|", " or "))
		}
	}
	if missing != nil {
		return nil, missing, nil
	}
	f = &found{}
	f.Family = fam.name
	for i, p := range f.four() {
		if fam.numbers[i] != "" {
			if *p, err = env.number(fam.numbers[i]); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := fam.read(env, f); err != nil {
		return nil, nil, err
	}
	if f.Size < 1 || f.Rank < 0 || f.Rank >= f.Size || f.LocalSize < 1 || f.LocalSize > f.Size || f.LocalRank < 0 || f.LocalRank >= f.LocalSize {
		return nil, nil, fmt.Errorf("process %d of %d, and %d of %d on its node, cannot be", f.Rank, f.Size, f.LocalRank, f.LocalSize)
	}
	return f, nil, nil
}

// rank is the number of this process as far as the family tells, for errors; else 0.
func (fam *family) rank(env environment) int {
	n, err := env.number(fam.numbers[0])
	if err != nil {
		return 0
	}
	return n
}

// agrees reports whether the numbers that are set are those of f.
func (fam *family) agrees(env environment, f *found) bool {
	for i, p := range f.four() {
		if env.first(fam.numbers[i]) == "" {
			continue
		}
		if n, err := env.number(fam.numbers[i]); err != nil || n != *p {
			return false
		}
	}
	return true
}

// present lists the variables of the family that are set.
func (fam *family) present(env environment) []string {
	var names []string
	for _, need := range slices.Concat(fam.means, fam.needs()) {
		for name := range strings.SplitSeq(need, "|") {
			if env(name) != "" && !slices.Contains(names, name) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// first returns the value of the first of names, separated by "|", that is set.
func (env environment) first(names string) string {
	for name := range strings.SplitSeq(names, "|") {
		if v := env(name); v != "" {
			return v
		}
	}
	return ""
}

// number reads a variable.
func (env environment) number(names string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(env.first(names)))
	if err != nil {
		return 0, fmt.Errorf("%s=%q is no number", names, env.first(names))
	}
	return n, nil
}

// complete fills the store's address and the token of the family that won.
func (f *found) complete(env environment, log *slog.Logger) error {
	if f.Size == 1 && !f.Served { // nobody else comes
		f.Address = ""
		return nil
	}
	if s := env(envStore.Name); s != "" {
		f.Address = s
	} else if f.Size > 1 && f.Size == f.LocalSize { // nobody else needs to reach it
		_, port, err := net.SplitHostPort(f.Address)
		if f.Address == "" {
			port, err = derivedPort(f.id), nil
		}
		if err != nil {
			return err
		}
		f.Address = net.JoinHostPort("127.0.0.1", port)
	}
	if f.Size > 1 && f.Address == "" {
		return fmt.Errorf("%d processes on several nodes need the address of a store: pass WEFT_STORE=host:port, with a host of process 0, to all of them", f.Size)
	}
	if f.Token = env(envToken.Name); f.Token == "" && f.Size > 1 {
		f.Token = "no secret: " + f.Family + " " + f.id
		if f.Size > f.LocalSize {
			log.Warn("WEFT_TOKEN is not set: jobs are told apart, but whoever reaches the store can join", "store", f.Address)
		}
	}
	return nil
}
