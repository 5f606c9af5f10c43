package sandbox

// Outcome says how an untrusted program ended. It is data: none of these is an error.
type Outcome string

// The outcomes.
const (
	OK           Outcome = "ok"
	CompileError Outcome = "compile_error"
	RuntimeError Outcome = "runtime_error"
	TimeLimit    Outcome = "time_limit"
	MemoryLimit  Outcome = "memory_limit"
	OutputLimit  Outcome = "output_limit"
	Policy       Outcome = "policy"
)
