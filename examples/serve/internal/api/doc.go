// Package api is the wire format of the server: what OpenAI's and vLLM's clients send, and what they get.
//
//	JSON ── ParseCompletion, ParseChat ──> Completion ──> (server) ──> Response, Chunk ──> JSON
//	            └── *Error: 400 with the field's name, never a field that is silently ignored
//
// Parsing is pure: it knows limits of the server (Limits), no engine. Fields that would change the answer and that the server
// cannot honour are refused; fields that only a newer client knows are returned as Unknown, so that they can be logged once.
package api
