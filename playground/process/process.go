package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// grace is what a program gets to end in after it was asked to.
	grace = 10 * time.Second
	// tailBytes of what a program printed last are shown in errors.
	tailBytes = 4 << 10

	logMode = 0o600
)

// ErrNotBuilt is returned by Start for a program that is not there.
var ErrNotBuilt = errors.New("the program is not built")

// Built is the path of a program in the repository's bin/, where make builds it; the
// repository is found from this file's place.
func Built(name string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin", name)
}

// Options of a process.
type Options struct {
	// Path of the program, and its arguments without its name.
	Path string
	Args []string
	// Env is added to this process's own environment.
	Env []string
	// Dir is the working directory; this process's own when empty.
	Dir string
	// Log is the file that stdout and stderr are appended to.
	Log string
}

// Process is a program that was started.
type Process struct {
	name, log string
	command   *exec.Cmd
	ended     chan struct{} // closed when it has; then err is set
	err       error
	stopped   atomic.Bool
}

// Start runs the program. The error is ErrNotBuilt if there is none at the path.
func Start(o Options) (*Process, error) {
	p := &Process{name: filepath.Base(o.Path), log: o.Log, ended: make(chan struct{})}
	if _, err := os.Stat(o.Path); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNotBuilt, o.Path)
	}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, logMode)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	defer log.Close() // The child has its own descriptor of it.

	p.command = &exec.Cmd{
		Path: o.Path, Args: append([]string{o.Path}, o.Args...), Dir: o.Dir,
		Env:    append(os.Environ(), o.Env...),
		Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err is nil while the program runs and when Stop or Kill ended it; otherwise it
// tells how the program ended and what it printed last.
func (p *Process) Err() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	if p.stopped.Load() {
		return nil
	}
	how := "with success"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended by itself (%s); it said last:\n%s", p.name, how, p.Tail())
}

// ExitCode of a program that has ended; -1 when it runs, or a signal ended it.
func (p *Process) ExitCode() int {
	select {
	case <-p.ended:
		return p.command.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Stop asks the program to end, waits, and kills it when it does not. The error is
// that of a program that had ended by itself before.
func (p *Process) Stop() error {
	if over, err := p.over(); over {
		return err
	}
	p.stopped.Store(true)
	// That it is gone already is what was wanted.
	_ = p.command.Process.Signal(syscall.SIGTERM)
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-p.ended:
	case <-patience.C:
	}
	p.killGroup()
	return nil
}

// Kill ends the program at once. The error is as of Stop.
func (p *Process) Kill() error {
	if over, err := p.over(); over {
		return err
	}
	p.stopped.Store(true)
	p.killGroup()
	return nil
}

// over: the program has ended; its number may be another's.
func (p *Process) over() (bool, error) {
	select {
	case <-p.ended:
		return true, p.Err()
	default:
		return false, nil
	}
}

// killGroup ends what still runs of the program and its children, and waits for the
// program. Should it have ended just now, its number is not another's yet: the
// system hands numbers out in turn.
func (p *Process) killGroup() {
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// Tail is the end of what the program printed.
func (p *Process) Tail() string {
	file, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	tail := make([]byte, min(info.Size(), tailBytes))
	n, _ := file.ReadAt(tail, info.Size()-int64(len(tail)))
	return strings.TrimSpace(string(tail[:n]))
}
