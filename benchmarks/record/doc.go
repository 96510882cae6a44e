// Package record is the file format of benchmark results: JSON lines, a [Header] first and one [Row] per measurement after
// it, so that a run that was cut off is still readable and files can be searched with grep.
//
//	{"record":"header","tool":"benchmarks","weft":"v0.1.0","args":["-b","8"],"machine":{...},"seed":1,"time":"..."}
//	{"record":"row","op":"all_reduce","size":1024,"count":256,"type":"f32","redop":"sum","driver":"local","ranks":2,...}
package record
