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
	// grace is how long Stop waits after SIGTERM.
	grace = 10 * time.Second
	// tailBytes is how many bytes of a program's last output are shown in errors.
	tailBytes = 4 << 10

	logMode = 0o600
)

// ErrNotBuilt is returned by Start for a program that does not exist.
var ErrNotBuilt = errors.New("the program is not built")

// Built returns the path of a program in the repository's bin/, where make builds it. The path
// of the repository is derived from this file.
func Built(name string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin", name)
}

// Options of a process.
type Options struct {
	// Path of the program; Args are its arguments without its name.
	Path string
	Args []string
	// Root is the directory that the program sees as /, below which Path and Dir are, and User the
	// id of the user and of the group that it runs as. Both need the rights of root. When empty and
	// zero, they are those of this process.
	Root string
	User uint32
	// Env is added to the environment of this process. A program with a Root has nothing but Env.
	Env []string
	// Dir is the working directory; that of this process when empty.
	Dir string
	// Log is the file to which stdout and stderr are appended.
	Log string
}

// Process is a started program.
type Process struct {
	name, log string
	command   *exec.Cmd
	ended     chan struct{} // closed at the end; then err is set
	err       error
	stopped   atomic.Bool
}

// Start runs the program. The error is ErrNotBuilt if the path does not exist.
func Start(o Options) (*Process, error) {
	p := &Process{name: filepath.Base(o.Path), log: o.Log, ended: make(chan struct{})}
	if _, err := os.Stat(filepath.Join(o.Root, o.Path)); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNotBuilt, filepath.Join(o.Root, o.Path))
	}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, logMode)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	defer log.Close() // The child has its own descriptor.

	p.command = &exec.Cmd{
		Path: o.Path, Args: append([]string{o.Path}, o.Args...), Dir: o.Dir,
		Env:    append(os.Environ(), o.Env...),
		Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Chroot: o.Root},
	}
	if o.Root != "" {
		p.command.Env = o.Env
	}
	if o.User != 0 {
		p.command.SysProcAttr.Credential = &syscall.Credential{Uid: o.User, Gid: o.User}
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

// Pid is the id of the process.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Ended returns a channel that is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err returns nil while the program runs, and if Stop or Kill ended it. Otherwise the error says
// how the program ended and what it printed last.
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
	return fmt.Errorf("%s ended by itself (%s); its last output:\n%s", p.name, how, p.Tail())
}

// ExitCode returns the exit code of a program that has ended; -1 while it runs, or if a signal
// ended it.
func (p *Process) ExitCode() int {
	select {
	case <-p.ended:
		return p.command.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Stop sends SIGTERM, waits up to grace, and then kills the program. The error is Err if the
// program had ended by itself before.
func (p *Process) Stop() error {
	if over, err := p.over(); over {
		return err
	}
	p.stopped.Store(true)
	// An error means that the program has already ended.
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

// Kill ends the program at once. The error is as in Stop.
func (p *Process) Kill() error {
	if over, err := p.over(); over {
		return err
	}
	p.stopped.Store(true)
	p.killGroup()
	return nil
}

// over returns whether the program has ended; its process id may be in use by another program.
func (p *Process) over() (bool, error) {
	select {
	case <-p.ended:
		return true, p.Err()
	default:
		return false, nil
	}
}

// killGroup kills the program and its children if they still run, and waits for the program. If
// it has ended a moment ago, its process id is not in use again yet: the system assigns ids in
// ascending order.
func (p *Process) killGroup() {
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// Tail returns the end of the program's output.
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
