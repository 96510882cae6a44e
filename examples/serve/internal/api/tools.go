package api

import (
	"bytes"
	"encoding/json"
	"strings"
)

// tools reads what a request says about functions: which there are, and whether the answer may call them.
func (f *fields) tools(c *Chat) {
	if raw, ok := f.take("tools"); ok && json.Unmarshal(raw, &c.Tools) != nil {
		f.fail("tools", "tools must be a list")
	}
	for i, raw := range c.Tools {
		t, bad := newFields(raw)
		if bad != nil || t.string("type") != "function" || t.object("function").string("name") == "" || t.err != nil {
			f.fail("tools", "tool %d must be {\"type\": \"function\", \"function\": {\"name\": ...}}, not %s", i, clip(raw))
		}
	}
	c.FindCalls = len(c.Tools) > 0
	c.OneCall = !f.bool("parallel_tool_calls", true)
	raw, ok := f.take("tool_choice")
	if !ok {
		return
	}
	switch choice := string(raw); {
	case choice == `"none"`:
		c.FindCalls = false
	case choice != `"auto"`:
		f.fail("tool_choice", "tool_choice %s is not supported: the server cannot make a model call a function; use \"auto\" or \"none\"", clip(raw))
	case !c.FindCalls:
		f.fail("tool_choice", "tool_choice \"auto\" needs tools")
	}
}

// history makes objects of the arguments of the calls in an earlier answer: clients send them as strings of JSON, and templates
// write them as JSON.
func (f *fields) history(i int, raw json.RawMessage) json.RawMessage {
	m, _ := newFields(raw) // the caller has looked
	list, ok := m.take("tool_calls")
	var calls []json.RawMessage
	if ok && json.Unmarshal(list, &calls) != nil {
		f.fail("messages", "message %d: tool_calls must be a list", i)
	}
	if len(calls) == 0 {
		return raw
	}
	for k, call := range calls {
		c, bad := newFields(call)
		var function json.RawMessage
		if bad == nil {
			function = c.raw["function"]
		}
		name, given, ok := parseFunction(function)
		if !ok || name == "" {
			f.fail("messages", "message %d: tool call %d must be {\"function\": {\"name\": ..., \"arguments\": ...}}", i, k)
			return raw
		}
		args := string(given)
		if json.Unmarshal(given, &args) == nil {
			args = strings.TrimSpace(args)
		}
		if args == "" {
			args = "{}"
		}
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(args), &object) != nil || object == nil {
			f.fail("messages", "message %d: the arguments of tool call %d are no JSON object: %s", i, k, clip([]byte(args)))
			return raw
		}
		calls[k] = replaceMember(call, "function", string(replaceMember(function, "arguments", args)))
	}
	list, err := json.Marshal(calls)
	if err != nil {
		f.fail("messages", "message %d: %v", i, err)
	}
	return replaceMember(raw, "tool_calls", string(list))
}

// parseFunction reads the function of a call; args are null, a string, or what was sent instead.
func parseFunction(raw json.RawMessage) (name string, args json.RawMessage, ok bool) {
	m, bad := newFields(raw)
	if bad != nil {
		return "", nil, false
	}
	name = m.string("name")
	args, _ = m.take("arguments")
	if string(args) == "null" {
		args = nil
	}
	return name, args, m.err == nil
}

// replaceMember sets a member of an object, in its place or else at the end.
func replaceMember(object json.RawMessage, name, value string) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return object
	}
	out, done := []byte(`{`), false
	add := func(name string, value []byte) {
		key, _ := json.Marshal(name) // a string always works
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	for d.More() {
		key, err := d.Token()
		var member json.RawMessage
		if err == nil {
			err = d.Decode(&member)
		}
		if err != nil {
			return object
		}
		if key != name {
			add(key.(string), member)
		} else if !done {
			add(name, []byte(value))
			done = true
		}
	}
	if !done {
		add(name, []byte(value))
	}
	return append(out, '}')
}
