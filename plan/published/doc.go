// Package published holds published measurements of collectives and MoE exchanges as data, and holds the time model of
// package plan against them.
//
//	tables/*.json   one published table each: where it stands, what it measured, its rows
//	     |
//	     +-- use: fit   --> Fit      the constants in plan come from these rows and no others
//	     +-- use: test  --> Evaluate the error table: predictions of rows that no constant has seen
//
// Rows alternate between the two uses along each series, and start with the other one in the next series, so that sizes,
// ranks and operations occur on both sides. Rates in GB/s become times through what the source counts (a table says so);
// busbw is nccl-tests' definition.
package published
