package obs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/steadyrl/steady/internal/fault"
)

// Options say where log lines go.
type Options struct {
	// Level is debug, info, warn or error; default info.
	Level string
	// Console, if not nil, gets short lines for people.
	Console io.Writer
	// ConsoleLevel is the level of Console; default Level. ConsoleFormat is how its lines look; default Text.
	ConsoleLevel  string
	ConsoleFormat Format
	// File, if not empty, gets one JSON object a line and is appended to; its folder is created.
	File string
	// OnLost, which may be nil, is told of the first line that File could not take, on a full disk for example. The logger goes on,
	// without that file if need be.
	OnLost func(error)
}

// Format is how log lines look.
type Format int

// Text is short lines for people; JSON is one object a line, as in a log file.
const (
	Text Format = iota
	JSON
)

// NewLogger returns a logger and a function that flushes and closes it.
//
// Errors: Invalid for an unknown level or a file that cannot be opened. Concurrency: safe for any goroutine.
func NewLogger(o Options) (*zap.Logger, func() error, error) {
	const op = "obs.NewLogger"
	level, err := parseLevel(o.Level, zapcore.InfoLevel)
	if err != nil {
		return nil, nil, err
	}
	consoleLevel, err := parseLevel(o.ConsoleLevel, level)
	if err != nil {
		return nil, nil, err
	}
	var cores []zapcore.Core
	closeFile := func() error { return nil }
	if o.Console != nil {
		encoder := zapcore.NewConsoleEncoder(consoleEncoding())
		if o.ConsoleFormat == JSON {
			encoder = zapcore.NewJSONEncoder(fileEncoding())
		}
		cores = append(cores, zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(o.Console)), consoleLevel))
	}
	if o.File != "" {
		if err := os.MkdirAll(filepath.Dir(o.File), 0o755); err != nil {
			return nil, nil, fault.New(fault.Invalid, op, "%w", err).WithHint("choose a writable log file")
		}
		f, err := os.OpenFile(o.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, nil, fault.New(fault.Invalid, op, "%w", err).WithHint("choose a writable log file")
		}
		closeFile = func() error { return errors.Join(f.Sync(), f.Close()) }
		cores = append(cores, zapcore.NewCore(zapcore.NewJSONEncoder(fileEncoding()), zapcore.Lock(&sink{WriteSyncer: f, lost: o.OnLost}), level))
	}
	// A console that is closed has nobody to tell; by default zap would write to standard error, into the display of a run.
	return zap.New(zapcore.NewTee(cores...), zap.ErrorOutput(zapcore.AddSync(io.Discard))), closeFile, nil
}

// Counting returns a logger that tells of the level of every line that l writes.
func Counting(l *zap.Logger, line func(level string)) *zap.Logger {
	return l.WithOptions(zap.Hooks(func(e zapcore.Entry) error {
		line(e.Level.String())
		return nil
	}))
}

func parseLevel(text string, standard zapcore.Level) (zapcore.Level, error) {
	switch text {
	case "":
		return standard, nil
	case "debug":
		return zapcore.DebugLevel, nil
	case "info":
		return zapcore.InfoLevel, nil
	case "warn":
		return zapcore.WarnLevel, nil
	case "error":
		return zapcore.ErrorLevel, nil
	}
	return 0, fault.New(fault.Invalid, "obs.NewLogger", "log level must be debug, info, warn or error, got %q", text)
}

func fileEncoding() zapcore.EncoderConfig {
	return zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "message", NameKey: "logger", StacktraceKey: "stack",
		EncodeTime:  func(t time.Time, e zapcore.PrimitiveArrayEncoder) { e.AppendString(t.UTC().Format(time.RFC3339Nano)) },
		EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.SecondsDurationEncoder, EncodeName: zapcore.FullNameEncoder,
	}
}

func consoleEncoding() zapcore.EncoderConfig {
	c := fileEncoding()
	c.ConsoleSeparator = " "
	c.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05")
	c.EncodeDuration = zapcore.StringDurationEncoder
	return c
}

// Err returns the fields of an error: its text, and where they are known its kind and its hint.
func Err(err error) zap.Field {
	if err == nil {
		return zap.Skip()
	}
	return zap.Inline(faultFields{err})
}

type faultFields struct{ err error }

// MarshalLogObject adds the fields of the error to e.
func (f faultFields) MarshalLogObject(e zapcore.ObjectEncoder) error {
	e.AddString("error", f.err.Error())
	if _, ok := errors.AsType[*fault.Error](f.err); ok {
		e.AddString("kind", string(fault.KindOf(f.err)))
	}
	if hint := fault.HintOf(f.err); hint != "" {
		e.AddString("hint", hint)
	}
	return nil
}
