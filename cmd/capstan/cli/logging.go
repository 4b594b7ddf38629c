package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Levels and encodings have the names that Flux's controllers use.
const (
	levelTrace = "trace"
	levelDebug = "debug"
	levelInfo  = "info"
	levelError = "error"

	encodingJSON    = "json"
	encodingConsole = "console"
)

var (
	levels    = []string{levelTrace, levelDebug, levelInfo, levelError}
	encodings = []string{encodingJSON, encodingConsole}

	// zapLevels: logr's V(n) is zap's -n.
	zapLevels = map[string]zapcore.Level{levelTrace: -2, levelDebug: zapcore.DebugLevel, levelInfo: zapcore.InfoLevel, levelError: zapcore.ErrorLevel}
)

// logger returns the log of the process, and sets logLevel, by which its level is changed.
func (s *settings) logger(out io.Writer) logr.Logger {
	encoding := zap.JSONEncoder
	if s.encoding == encodingConsole {
		encoding = zap.ConsoleEncoder
	}
	s.logLevel = &logLevel{uberzap.NewAtomicLevelAt(zapLevels[s.level])}
	return zap.New(zap.WriteTo(out), zap.Level(&s.logLevel.level), zap.StacktraceLevel(zapcore.PanicLevel),
		encoding(func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.ISO8601TimeEncoder }))
}

// logLevel implements diagnostics.Level.
type logLevel struct{ level uberzap.AtomicLevel }

// Name implements diagnostics.Level.
func (l *logLevel) Name() string {
	for name, level := range zapLevels {
		if level == l.level.Level() {
			return name
		}
	}
	return l.level.String() // Cannot happen: only Set changes it.
}

// Set implements diagnostics.Level.
func (l *logLevel) Set(name string) error {
	level, known := zapLevels[name]
	if !known {
		return fmt.Errorf("%q is not a log level: use %s", name, strings.Join(levels, ", "))
	}
	l.level.SetLevel(level)
	return nil
}
