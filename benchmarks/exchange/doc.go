// Package exchange measures what a Mixture-of-Experts model does between its ranks: dispatch, combine, and the whole layer.
//
//	tokens of each rank ─ Routing (even, skewed or Zipf) ─► dispatch ─► [experts] ─► combine ─► out
//	                                                          └─ timed ─┘            └─ timed ─┘
//
// Every iteration starts at a barrier, and its time is that of the slowest rank. Rows hold small whole numbers and stand-in
// experts multiply by small whole numbers, so that what arrives and what comes back is exact and #wrong is a count.
package exchange
