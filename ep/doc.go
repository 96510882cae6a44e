// Package ep holds the nouns of expert-parallel exchange: Config, Routing, Index, Received, Exchanger.
package ep
