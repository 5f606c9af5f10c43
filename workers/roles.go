package workers

import (
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// Role is a part of the work that a process can take.
type Role string

// The roles.
const (
	RoleControl Role = "control"
	RoleData    Role = "data"
	RoleRollout Role = "rollout"
	RoleJudge   Role = "judge"
	RoleTrainer Role = "trainer"
	// RoleStandby follows a run and takes it over when its trainer is lost. It needs as much memory as a trainer.
	RoleStandby Role = "standby"
)

// AllRoles returns the roles that a run needs: every one but standby.
func AllRoles() []Role { return []Role{RoleControl, RoleData, RoleRollout, RoleJudge, RoleTrainer} }

// ParseRoles reads a comma-separated list; "all" is every one of AllRoles. Errors: Invalid for an unknown or repeated one.
func ParseRoles(list string) ([]Role, error) {
	if list == "all" {
		return AllRoles(), nil
	}
	var roles []Role
	for name := range strings.SplitSeq(list, ",") {
		r := Role(strings.TrimSpace(name))
		if r != RoleStandby && !slices.Contains(AllRoles(), r) {
			return nil, fault.New(fault.Invalid, "workers.ParseRoles", "unknown role %q", r).
				WithHint("roles are control, data, rollout, judge, trainer, standby, or all of these but standby")
		}
		if slices.Contains(roles, r) {
			return nil, fault.New(fault.Invalid, "workers.ParseRoles", "role %q is given twice", r).
				WithHint("name each role once")
		}
		roles = append(roles, r)
	}
	return roles, nil
}
