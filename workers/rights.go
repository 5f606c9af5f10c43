package workers

import (
	"path"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
)

// restrict gives a process that only judges a store in which it can write its results and nothing else. It serves untrusted programs.
func restrict(o *Options) {
	if slices.Equal(o.Roles, []Role{RoleJudge}) {
		o.Store = artifact.Guard(o.Store, string(RoleJudge), JudgeWrites)
	}
}

// JudgeWrites reports whether a name of the store is a result of the role judge: verdicts, events and the record of the worker, all below a lineage of
// a run. docs/deployment.md gives the same as a policy of a bucket.
func JudgeWrites(name string) bool {
	const lineage = 3 // runs, run, lineage
	parts := strings.Split(name, "/")
	if parts[0] != "runs" || len(parts) <= lineage+1 {
		return false
	}
	return parts[lineage] == "events" || parts[lineage] == "workers" || path.Base(name) == "verdicts.json"
}
