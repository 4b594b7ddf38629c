package cli

import (
	"io"

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

func (s *settings) logger(out io.Writer) logr.Logger {
	encoding := zap.JSONEncoder
	if s.encoding == encodingConsole {
		encoding = zap.ConsoleEncoder
	}
	level := uberzap.NewAtomicLevelAt(zapLevels[s.level])
	return zap.New(zap.WriteTo(out), zap.Level(&level), zap.StacktraceLevel(zapcore.PanicLevel),
		encoding(func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.ISO8601TimeEncoder }))
}
