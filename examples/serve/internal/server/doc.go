// Package server answers OpenAI's and vLLM's HTTP routes with an engine.
//
//	HTTP ── guard ──> route ── api.Parse ──> admit ── engine.Submit ──> choice ── detok ──> JSON, or server-sent events
//	       key, size,                       queue      one for each       one for each
//	       deadlines                        limit      prompt x n         prompt x n, with toolcall for chats
//
// Every request ends: by its last token, by a stop string (the engine's request is aborted), by the client's leaving (its
// context ends, and with it the engine's requests, so their blocks are free at once), by the deadline of a drain, or by an
// error when a rank has died, which names the rank. Before the first byte an error is a status with a JSON body; after it, an
// event {"error": ...} and [DONE].
package server
