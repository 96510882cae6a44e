// Package toolcall finds the function calls that a model writes into its answer, in the form that the chat templates of Qwen and Hermes
// teach:
//
//	Let me look.                                                        content
//	<tool_call>
//	{"name": "weather", "arguments": {"city": "Kyoto"}}                 a call: weather, {"city": "Kyoto"}
//	</tool_call>
//
// The text comes in pieces, cut anywhere, and what is found does not depend on the cuts. A call is given out whole, once its end tag
// has come, because only then it is known to be JSON. What looks like a call and is none stays in the content to the letter: nothing
// that a model wrote is lost but the white space around calls.
package toolcall
