package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// job is the processes of this node.
type job struct {
	cfg   Config
	hub   *hub
	out   *output
	ranks []*rank
	exits chan *rank // each once, when its process has ended
}

// rank is one process.
type rank struct {
	number int
	cmd    *exec.Cmd
	pipes  []*os.File // our ends
	lines  sync.WaitGroup
	err    error // of its Wait

	mu     sync.Mutex
	reaped bool // its number may be somebody else's now
}

// reap waits for the process and ends whatever it has started.
func (r *rank) reap() {
	if !awaitExit(r.cmd.Process.Pid) {
		r.err = r.cmd.Wait()
		_ = signalGroup(r.cmd.Process.Pid, killSignal)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reaped = true
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = signalGroup(r.cmd.Process.Pid, killSignal)
	r.err = r.cmd.Wait()
	r.reaped = true
}

func (r *rank) signal(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reaped {
		_ = signalGroup(r.cmd.Process.Pid, s)
	}
}

// start starts all processes. After an error none is left.
func (j *job) start(env []string) error {
	for local := range j.cfg.PerNode {
		number := j.cfg.Node*j.cfg.PerNode + local
		n, l := strconv.Itoa(number), strconv.Itoa(local)
		r := &rank{number: number, cmd: exec.Command(j.cfg.Command[0], j.cfg.Command[1:]...)}
		r.cmd.Env = append(append([]string{}, env...), "WEFT_RANK="+n, "WEFT_LOCAL_RANK="+l, "RANK="+n, "LOCAL_RANK="+l)
		ownGroup(r.cmd)
		if err := j.launch(r); err != nil {
			j.signal(killSignal)
			for _, r := range j.ranks {
				<-j.exits
				r.lines.Wait()
			}
			return fmt.Errorf("start %s: %w", j.cfg.Command[0], err)
		}
		j.ranks = append(j.ranks, r)
	}
	return nil
}

// launch starts one process with its output in our pipes.
func (j *job) launch(r *rank) error {
	prefix := ""
	if !j.cfg.NoPrefix {
		prefix = fmt.Sprintf("[%*d] ", len(strconv.Itoa(j.cfg.size()-1)), r.number)
	}
	var theirs []*os.File
	for _, to := range []io.Writer{j.cfg.Stdout, j.cfg.Stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			closeAll(append(r.pipes, theirs...))
			return err
		}
		r.pipes, theirs = append(r.pipes, read), append(theirs, write)
		r.lines.Go(func() { j.out.copy(to, prefix, read) })
	}
	r.cmd.Stdout, r.cmd.Stderr = theirs[0], theirs[1]
	err := r.cmd.Start()
	closeAll(theirs)
	if err != nil {
		r.lines.Wait()
		closeAll(r.pipes)
		return err
	}
	go func() {
		r.reap()
		// A descendant that left the group may hold the pipes: it gets a moment, and then loses them.
		for _, p := range r.pipes {
			_ = p.SetReadDeadline(time.Now().Add(time.Second))
		}
		r.lines.Wait()
		closeAll(r.pipes)
		j.exits <- r
	}()
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// signal sends s to the process groups of all ranks.
func (j *job) signal(s os.Signal) {
	for _, r := range j.ranks {
		r.signal(s)
	}
}

// wait sees all processes to their end and returns the exit code.
func (j *job) wait(ctx context.Context, signals <-chan os.Signal) int {
	var failed []*rank // in order
	var grace, unexplained <-chan time.Time
	asked, signaled := false, false // SIGTERM was sent; a signal was passed on
	stop := func() {
		if grace == nil && !asked {
			grace = time.After(j.cfg.Grace)
		}
	}
	dead, cancelled := j.hub.dead(), ctx.Done()
	for left := len(j.ranks); left > 0; {
		select {
		case r := <-j.exits:
			left--
			if r.err == nil {
				continue
			}
			why := fmt.Sprintf("rank %d (pid %d) %s", r.number, r.cmd.Process.Pid, describe(r.err))
			if failed = append(failed, r); len(failed) == 1 && left > 0 {
				j.say("%s; %d more on this node have %v to end", why, left, j.cfg.Grace)
			} else {
				j.say("%s", why)
			}
			j.hub.blame(r.number, errors.New("the launcher saw that "+why))
			stop()
		case <-dead:
			dead = nil
			unexplained = time.After(300 * time.Millisecond) // the store hears of a killed process before its parent
			stop()
		case <-unexplained:
			if len(failed) == 0 {
				j.say("%v; %d on this node have %v to end", j.hub.err(), left, j.cfg.Grace)
			}
		case s := <-signals:
			if signaled {
				j.say("a second signal (%v): killing %d processes", s, left)
				j.signal(killSignal)
				continue
			}
			signaled = true
			j.say("%v: passed on to %d processes; once more kills them", s, left)
			j.signal(s)
		case <-cancelled:
			cancelled = nil
			j.signal(killSignal)
		case <-grace:
			if asked {
				j.say("killing %d processes that did not end within %v of SIGTERM", left, j.cfg.Grace)
				j.signal(killSignal)
				continue
			}
			asked = true
			j.signal(endSignal)
			grace = time.After(j.cfg.Grace)
		}
	}
	return j.code(failed)
}

// code is the launcher's exit code: that of the rank that the store blames, if it failed, else of the first that failed. A
// killed process is known to the store and to the others a moment before its end is known here.
func (j *job) code(failed []*rank) int {
	if len(failed) == 0 {
		if j.hub.err() != nil {
			return 1
		}
		return 0
	}
	first := failed[0]
	for _, r := range failed {
		if r.number == j.hub.culprit() {
			first = r
			break
		}
	}
	return exitCode(first.err)
}

func (j *job) say(format string, args ...any) {
	j.out.write(j.cfg.Stderr, []byte("weft launch: "+fmt.Sprintf(format, args...)+"\n"))
}
