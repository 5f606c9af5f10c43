package chat

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/steadyrl/steady/internal/jsonl"
)

// ReadMessages reads a list of messages and, unlike UnmarshalJSON, refuses what the template would pass over in silence:
// unknown fields and roles, content that is neither a string nor a list nor null, calls without a name or arguments. The
// template shows a list of parts, as null, as nothing. It fails where there is no message, or the first one is a system message whose
// content is not a string, so these are refused too.
// The fields name and tool_call_id of a message, and id and type of a call, which the template does not show, are
// allowed. Errors: Invalid, naming the field as in messages[2].tool_calls[0].name.
func ReadMessages(raw json.RawMessage) ([]Message, error) {
	list, err := jsonl.Elements("messages", raw)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, jsonl.Bad("messages", "is empty, on which the template fails")
	}
	out := make([]Message, len(list))
	for i, m := range list {
		at := fmt.Sprintf("messages[%d]", i)
		if err := checkMessage(at, m); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(m, &out[i]); err != nil {
			return nil, jsonl.Bad(at, "%w", err)
		}
	}
	if out[0].Role == "system" && out[0].NoContent {
		return nil, jsonl.Bad("messages[0].content", "is not a string, which the template needs in a system message at the begin")
	}
	return out, nil
}

// ReadTools reads a list of tools, which must be objects; null is no tool. Errors: Invalid, naming the field.
func ReadTools(raw json.RawMessage) ([]json.RawMessage, error) {
	if jsonl.Kind(raw) == jsonl.Null {
		return nil, nil
	}
	list, err := jsonl.Elements("tools", raw)
	if err != nil {
		return nil, err
	}
	for i, t := range list {
		if k := jsonl.Kind(t); k != jsonl.Object {
			return nil, jsonl.Bad(fmt.Sprintf("tools[%d]", i), "is %s, want an object", k)
		}
	}
	return list, nil
}

func checkMessage(at string, raw json.RawMessage) error {
	m, err := jsonl.Fields(at, raw, "role", "content?", "reasoning_content?", "tool_calls?", "tool_call_id?", "name?")
	if err != nil {
		return err
	}
	role, err := jsonl.Text(at+".role", m["role"])
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"system", "user", "assistant", "tool"}, role) {
		return jsonl.Bad(at+".role", "is %.40q, want system, user, assistant or tool", role)
	}
	if k := jsonl.Kind(m["content"]); !slices.Contains([]string{jsonl.String, jsonl.List, jsonl.Null, jsonl.Missing}, k) {
		return jsonl.Bad(at+".content", "is %s, want a string, or a list or null, which count as empty", k)
	}
	if k := jsonl.Kind(m["reasoning_content"]); !slices.Contains([]string{jsonl.String, jsonl.Null, jsonl.Missing}, k) {
		return jsonl.Bad(at+".reasoning_content", "is %s, want a string or null", k)
	}
	if k := jsonl.Kind(m["tool_calls"]); k == jsonl.Null || k == jsonl.Missing {
		return nil
	}
	calls, err := jsonl.Elements(at+".tool_calls", m["tool_calls"])
	if err != nil {
		return err
	}
	for i, c := range calls {
		if err := checkCall(fmt.Sprintf("%s.tool_calls[%d]", at, i), c); err != nil {
			return err
		}
	}
	return nil
}

// checkCall checks {"name", "arguments"}, or the same inside "function".
func checkCall(at string, raw json.RawMessage) error {
	m, err := jsonl.Fields(at, raw, "function?", "name?", "arguments?", "id?", "type?")
	if err != nil {
		return err
	}
	if k := jsonl.Kind(m["function"]); k != jsonl.Null && k != jsonl.Missing {
		if m["name"] != nil || m["arguments"] != nil {
			return jsonl.Bad(at, "has a name or arguments beside its function")
		}
		at += ".function"
		if m, err = jsonl.Fields(at, m["function"], "name", "arguments"); err != nil {
			return err
		}
	}
	if _, err := jsonl.Text(at+".name", m["name"]); err != nil {
		return err
	}
	if m["arguments"] == nil {
		return jsonl.Bad(at+".arguments", "is missing")
	}
	return nil
}
