package obs

import (
	"strings"
	"unicode"

	"go.temporal.io/sdk/log"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/contract"
)

// SDKLogger gives the Temporal SDK a zap logger. Keys of the SDK ("TaskQueue", "ActivityType") become snake_case, and those that tell
// of the chain of ids become it: of a workflow id run, lineage, step and group, as far as it has them, and of a task queue the
// role. Temporal's own id of an execution is execution_id, because a run is something else here; an activity's type is activity.
func SDKLogger(l *zap.Logger) log.Logger { return sdkLogger{l} }

type sdkLogger struct{ zap *zap.Logger }

func (l sdkLogger) Debug(msg string, keyvals ...any) { l.zap.Debug(msg, fields(keyvals)...) }
func (l sdkLogger) Info(msg string, keyvals ...any)  { l.zap.Info(msg, fields(keyvals)...) }
func (l sdkLogger) Warn(msg string, keyvals ...any)  { l.zap.Warn(msg, fields(keyvals)...) }

// Error tells of an attempt that failed at debug level only: the activity has told of it, with kind and hint, and an error is logged once.
func (l sdkLogger) Error(msg string, keyvals ...any) {
	if msg == activityFailed {
		l.zap.Debug(msg, fields(keyvals)...)
		return
	}
	l.zap.Error(msg, fields(keyvals)...)
}

// activityFailed is the SDK's line about an attempt whose function returned an error.
const activityFailed = "Activity error."

// With returns a logger that adds keyvals to every line.
func (l sdkLogger) With(keyvals ...any) log.Logger { return sdkLogger{l.zap.With(fields(keyvals)...)} }

// fields turns alternating keys and values into fields. A key that is not text, or a value without a key, is kept
// under the key "extra" rather than lost.
func fields(keyvals []any) []zap.Field {
	out := make([]zap.Field, 0, (len(keyvals)+1)/2)
	var extra []any
	for i := 0; i < len(keyvals); i += 2 {
		key, ok := keyvals[i].(string)
		if !ok || i+1 == len(keyvals) {
			extra = append(extra, keyvals[i:min(i+2, len(keyvals))]...)
			continue
		}
		if err, ok := keyvals[i+1].(error); ok {
			out = append(out, Err(err))
			continue
		}
		switch text, _ := keyvals[i+1].(string); key {
		case "WorkflowID":
			out = append(append(out, zap.String("workflow_id", text)), Chain(contract.ChainOfID(text))...)
		case "TaskQueue":
			out = append(out, zap.String("task_queue", text), zap.String("role", contract.RoleOf(text)))
		case "RunID":
			out = append(out, zap.String("execution_id", text))
		case "ActivityType":
			out = append(out, zap.String("activity", text))
		default:
			out = append(out, zap.Any(snake(key), keyvals[i+1]))
		}
	}
	if len(extra) > 0 {
		out = append(out, zap.Any("extra", extra))
	}
	return out
}

// snake turns CamelCase with Go's acronyms into snake_case: WorkflowID into workflow_id.
func snake(key string) string {
	var b strings.Builder
	runes := []rune(key)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 {
			afterLower := !unicode.IsUpper(runes[i-1]) && runes[i-1] != '_'
			beforeLower := i+1 < len(runes) && unicode.IsLower(runes[i+1]) && runes[i-1] != '_'
			if afterLower || beforeLower {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
